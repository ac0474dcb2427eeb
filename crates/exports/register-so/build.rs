//! Link arguments, the same for each of midair's C libraries.

fn main() {
    midair_capi_build::cdylib("librocprofiler-register.so.0");
    // AddressSanitizer puts the addresses of statics into a table of its own, which the linker
    // cannot do with per-thread ones.
    println!("cargo:rustc-check-cfg=cfg(midair_sanitized)");
    if std::env::var_os("CARGO_CFG_SANITIZE").is_some() {
        println!("cargo:rustc-cfg=midair_sanitized");
    }
}
