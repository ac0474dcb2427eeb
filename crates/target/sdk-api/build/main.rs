//! Generates into `OUT_DIR` the exports for the functions of AMD's headers that are not built yet.
//! The output is never edited or committed.

#[path = "not_implemented.rs"]
mod not_implemented;

use std::error::Error;
use std::path::Path;
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build");
    let out = env::var("OUT_DIR")?;
    fs::write(
        Path::new(&out).join("not_implemented.rs"),
        not_implemented::generate()?,
    )?;
    Ok(())
}
