//! Link arguments, the same for every C library.

fn main() {
    midair_capi_build::cdylib("libmidair.so.0");
}
