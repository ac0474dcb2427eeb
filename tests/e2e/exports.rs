//! The shipped libraries export exactly what `exports.txt` lists: the names, versions and kinds of
//! their dynamic symbols, and the links that lead to each library. Programs, tools and injectors
//! look these names up.

use midair_tests::Result;
use midair_tests::stage::stage;
use midair_tests::target::{PATIENCE, run};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Collects the libraries below a directory, by their names there.
fn libraries(directory: &Path, below: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(directory.join(below))? {
        let entry = entry?;
        let name = below.join(entry.file_name());
        if name == Path::new("midair-demo") {
            // These are stand-ins for GPU runtimes, which only the demo's own program loads.
            continue;
        }
        if entry.file_type()?.is_dir() {
            libraries(directory, &name, found)?;
        } else if entry.file_name().to_string_lossy().contains(".so") {
            found.push(name);
        }
    }
    Ok(())
}

/// Returns a line for each library or link. Below a library there is one for each symbol: its kind
/// as nm names it, its name and its version.
fn exports(lib: &Path) -> Result<String> {
    let mut all = Vec::new();
    libraries(lib, Path::new(""), &mut all)?;
    all.sort();
    let mut text = String::new();
    for name in all {
        let path = lib.join(&name);
        if path.is_symlink() {
            let to = std::fs::read_link(&path)?;
            text.push_str(&format!("{} -> {}\n", name.display(), to.display()));
            continue;
        }
        text.push_str(&format!("{}\n", name.display()));
        let mut nm = Command::new("nm");
        nm.args(["-D", "--defined-only", "--with-symbol-versions"]);
        nm.arg(&path).env("LC_ALL", "C");
        for line in run(nm, PATIENCE)?.success()?.stdout {
            // The address is left out.
            let symbol = line.split_once(' ').map_or(line.as_str(), |(_, rest)| rest);
            text.push_str(&format!("  {symbol}\n"));
        }
    }
    Ok(text)
}

#[test]
fn libraries_export_what_they_always_did() -> Result<()> {
    let found = exports(&stage()?.join("lib"))?;
    let wanted = include_str!("exports.txt");
    let missing: Vec<&str> = wanted
        .lines()
        .filter(|line| !found.lines().any(|other| other == *line))
        .collect();
    let new: Vec<&str> = found
        .lines()
        .filter(|line| !wanted.lines().any(|other| other == *line))
        .collect();
    assert!(found == wanted, "missing: {missing:#?}\nnew: {new:#?}");
    Ok(())
}
