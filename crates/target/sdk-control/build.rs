//! Link arguments of the tests.

fn main() {
    // Tests load tools written in C, which call the C API in the test program itself.
    println!("cargo:rustc-link-arg-tests=-Wl,--export-dynamic");
}
