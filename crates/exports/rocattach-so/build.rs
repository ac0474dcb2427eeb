//! Link arguments, the same for each of midair's C libraries.

fn main() {
    midair_capi_build::cdylib("librocprofiler-sdk-rocattach.so.1");
}
