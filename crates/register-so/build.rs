//! Link arguments: the name that runtimes need, a build id for attachers in other namespaces, never unloaded.

fn main() {
    for argument in [
        "-Wl,-soname,librocprofiler-register.so.0",
        "-Wl,-z,nodelete",
        "-Wl,--build-id=sha1",
    ] {
        println!("cargo:rustc-cdylib-link-arg={argument}");
    }
    println!("cargo:rerun-if-changed=build.rs");
}
