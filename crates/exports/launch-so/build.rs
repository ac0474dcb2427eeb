//! Link arguments of libmidair-launch.so.1.

fn main() {
    midair_capi_build::cdylib("libmidair-launch.so.1");
}
