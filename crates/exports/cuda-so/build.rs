//! Link arguments of libmidair-cuda.so.

fn main() {
    midair_capi_build::cdylib("libmidair-cuda.so");
}
