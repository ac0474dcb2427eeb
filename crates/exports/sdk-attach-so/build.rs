//! Link arguments of librocprofiler-sdk-attach.so.1.

fn main() {
    midair_capi_build::cdylib("librocprofiler-sdk-attach.so.1");
}
