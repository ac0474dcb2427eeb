//! Generates into `OUT_DIR`: the API wrappers, and exports for the functions of AMD's headers that are not built yet. The
//! output is never edited and never committed.

#[path = "not_implemented.rs"]
mod not_implemented;
#[path = "wrappers.rs"]
mod wrappers;

use std::error::Error;
use std::path::Path;
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build");
    // Tests load tools written in C, which call the C API of the test program itself.
    println!("cargo:rustc-link-arg-tests=-Wl,--export-dynamic");
    let out = env::var("OUT_DIR")?;
    let write = |name: &str, text: String| fs::write(Path::new(&out).join(name), text);
    write("wrappers.rs", wrappers::generate()?)?;
    write("not_implemented.rs", not_implemented::generate()?)?;
    Ok(())
}
