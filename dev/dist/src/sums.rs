//! `SHA256SUMS`, as `sha256sum --check` reads it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use midair_dev_kit::run::{At, Outcome, output};

/// The name of the list.
const NAME: &str = "SHA256SUMS";

/// Lists every file of the directory.
pub fn write(directory: &Path) -> Outcome<PathBuf> {
    let entries = fs::read_dir(directory).at("listing", directory)?;
    let files = entries.filter_map(Result::ok);
    let files = files.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
    let mut names: Vec<_> = files.map(|entry| entry.file_name()).collect();
    names.retain(|name| name != NAME);
    names.sort();
    let sums = output(
        Command::new("sha256sum")
            .arg("--")
            .args(names)
            .current_dir(directory),
    )?;
    let to = directory.join(NAME);
    fs::write(&to, sums).at("writing", &to)?;
    Ok(to)
}
