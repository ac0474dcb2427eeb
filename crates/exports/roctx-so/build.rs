//! Link arguments of librocprofiler-sdk-roctx.so.1.

fn main() {
    midair_capi_build::cdylib("librocprofiler-sdk-roctx.so.1");
}
