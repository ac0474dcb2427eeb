//! Link arguments: the name that programs load, a build id, never unloaded (a program may close it while a session's thread
//! still runs in it).

fn main() {
    for argument in [
        "-Wl,-soname,librocprofiler-sdk-rocattach.so.1",
        "-Wl,-z,nodelete",
        "-Wl,--build-id=sha1",
    ] {
        println!("cargo:rustc-cdylib-link-arg={argument}");
    }
    println!("cargo:rerun-if-changed=build.rs");
}
