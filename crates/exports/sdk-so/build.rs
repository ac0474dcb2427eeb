//! Link arguments of librocprofiler-sdk.so.1.

fn main() {
    midair_capi_build::cdylib("librocprofiler-sdk.so.1");
}
