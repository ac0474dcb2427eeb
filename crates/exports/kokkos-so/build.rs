//! Link arguments of libmidair-kokkos.so.1.

fn main() {
    midair_capi_build::cdylib("libmidair-kokkos.so.1");
}
