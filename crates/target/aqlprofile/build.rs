//! Exports the helper's functions in the runtime's place (`src/process/hsa.rs`) to the library that it
//! loads.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg-bin=midair-aqlprofile=-Wl,--export-dynamic-symbol=hsa_*");
}
