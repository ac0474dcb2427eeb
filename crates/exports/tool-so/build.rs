//! Link arguments of librocprofiler-sdk-tool.so.1.

fn main() {
    midair_capi_build::cdylib("librocprofiler-sdk-tool.so.1");
}
