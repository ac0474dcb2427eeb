//! The Python with the packages of `tests/python/requirements.txt`, which `cargo xtask python` makes.

use crate::{Result, build_dir};
use std::path::PathBuf;

/// Where it is: `MIDAIR_PYTHON`, or `python` in the target directory that the running test was built in.
fn directory() -> Result<PathBuf> {
    match std::env::var_os("MIDAIR_PYTHON") {
        Some(directory) if !directory.is_empty() => Ok(directory.into()),
        _ => Ok(build_dir()?.join("../../python")),
    }
}

/// The interpreter; it finds the packages by itself, whatever the environment of the command is.
///
/// # Errors
/// When it has not been made.
pub fn python() -> Result<PathBuf> {
    python_tool("python")
}

/// A program that came with a package, such as `cmake`.
///
/// # Errors
/// When it has not been made, or no package has such a program.
pub fn python_tool(name: &str) -> Result<PathBuf> {
    let bin = directory()?.join("bin");
    let program = bin.join(name);
    if bin.with_file_name("made-from").is_file() && program.is_file() {
        // Not resolved further: an interpreter tells by its own path which packages are its own.
        Ok(bin.canonicalize()?.join(name))
    } else {
        Err(format!(
            "{} is not there: make it with `cargo xtask python`",
            program.display()
        )
        .into())
    }
}
