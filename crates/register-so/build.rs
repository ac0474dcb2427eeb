//! Link arguments, the same for every C library of ours.

fn main() {
    midair_capi_build::cdylib("librocprofiler-register.so.0");
}
