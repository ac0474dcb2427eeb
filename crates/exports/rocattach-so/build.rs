//! Link arguments, the same for every C library of ours.

fn main() {
    midair_capi_build::cdylib("librocprofiler-sdk-rocattach.so.1");
}
