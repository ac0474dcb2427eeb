//! Generates the API wrappers into `OUT_DIR`. The output is never edited or committed.

#[path = "wrappers.rs"]
mod wrappers;

use std::error::Error;
use std::path::Path;
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build");
    let out = env::var("OUT_DIR")?;
    fs::write(Path::new(&out).join("wrappers.rs"), wrappers::generate()?)?;
    Ok(())
}
