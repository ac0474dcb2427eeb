//! The Python with the packages of `tests/python/requirements.txt`, which `cargo xtask python`
//! makes.

use crate::{Result, build_dir};
use std::path::PathBuf;

/// Returns its directory: `MIDAIR_PYTHON`, or `python` in the target directory in which the running
/// test was built.
fn directory() -> Result<PathBuf> {
    match std::env::var_os("MIDAIR_PYTHON") {
        Some(directory) if !directory.is_empty() => Ok(directory.into()),
        _ => Ok(build_dir()?.join("../../python")),
    }
}

/// Returns the interpreter. It finds the packages by itself, whatever the environment of the
/// command is.
///
/// # Errors
/// Fails when it has not been made.
pub fn python() -> Result<PathBuf> {
    python_tool("python")
}

/// Returns a program that came with a package, such as `cmake`.
///
/// # Errors
/// Fails when it has not been made, or when no package has such a program.
pub fn python_tool(name: &str) -> Result<PathBuf> {
    let bin = directory()?.join("bin");
    let program = bin.join(name);
    if bin.with_file_name("made-from").is_file() && program.is_file() {
        // The path is not resolved further, since an interpreter tells by its own path which
        // packages are its own.
        Ok(bin.canonicalize()?.join(name))
    } else {
        Err(format!(
            "{} is not there: make it with `cargo xtask python`",
            program.display()
        )
        .into())
    }
}
