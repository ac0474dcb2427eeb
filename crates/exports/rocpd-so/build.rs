//! Link arguments of librocprofiler-sdk-rocpd.so.1.

fn main() {
    midair_capi_build::cdylib("librocprofiler-sdk-rocpd.so.1");
}
