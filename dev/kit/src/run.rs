//! Helpers that run commands, and the project's directories.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The reason why a task ended early, in one sentence.
#[derive(Debug)]
pub struct Failure(pub String);

/// The result of a task.
pub type Outcome<T> = Result<T, Failure>;

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns a failure with these words.
pub fn failed<T>(what: impl Into<String>) -> Outcome<T> {
    Err(Failure(what.into()))
}

/// Names the file in an I/O error.
pub trait At<T> {
    /// Adds to an error what was being done, and to which file.
    fn at(self, doing: &str, path: &Path) -> Outcome<T>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, doing: &str, path: &Path) -> Outcome<T> {
        self.map_err(|error| Failure(format!("{doing} {}: {error}", path.display())))
    }
}

/// Returns the project's root directory: where we were compiled, or what `MIDAIR_ROOT` says on a
/// machine to which we were carried.
pub fn root() -> PathBuf {
    if let Some(carried) = std::env::var_os("MIDAIR_ROOT").filter(|path| !path.is_empty()) {
        return PathBuf::from(carried);
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_path_buf()
}

/// Returns the directories of all crates below `crates/`, sorted: those with a `Cargo.toml`, in the
/// folders of the parties.
pub fn crate_directories() -> Outcome<Vec<PathBuf>> {
    let crates = root().join("crates");
    let mut found = Vec::new();
    for party in folders(&crates)? {
        if party.join("Cargo.toml").is_file() {
            found.push(party);
        } else {
            found.extend(
                folders(&party)?
                    .into_iter()
                    .filter(|folder| folder.join("Cargo.toml").is_file()),
            );
        }
    }
    found.sort();
    Ok(found)
}

/// Returns the directory of a crate, by its name without "midair-".
pub fn crate_directory(name: &str) -> Outcome<PathBuf> {
    let found = crate_directories()?
        .into_iter()
        .find(|path| path.file_name().is_some_and(|last| last == name));
    found.ok_or_else(|| Failure(format!("there is no crate {name} below crates/")))
}

fn folders(directory: &Path) -> Outcome<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).at("listing", directory)? {
        let entry = entry.at("listing", directory)?;
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// Returns cargo's target directory.
pub fn target_directory() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(directory) => root().join(directory),
        None => root().join("target"),
    }
}

/// Prepares cargo in the project's root.
pub fn cargo(words: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(words).current_dir(root());
    command
}

/// Runs a command to its end. Anything but success is a failure that names the command.
pub fn run(command: &mut Command) -> Outcome<()> {
    let said = words_of(command);
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => failed(format!("{said}: {status}")),
        Err(error) => failed(format!("{said}: {error}")),
    }
}

/// Returns the standard output of a command that must succeed.
pub fn output(command: &mut Command) -> Outcome<Vec<u8>> {
    let said = words_of(command);
    match command.output() {
        Ok(output) if output.status.success() => Ok(output.stdout),
        Ok(output) => failed(format!(
            "{said}: {}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        )),
        Err(error) => failed(format!("{said}: {error}")),
    }
}

fn words_of(command: &Command) -> String {
    let program = Path::new(command.get_program())
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let words = command
        .get_args()
        .map(|word| word.to_string_lossy().into_owned());
    std::iter::once(program)
        .chain(words)
        .collect::<Vec<_>>()
        .join(" ")
}

/// Returns whether this process may do what only root may.
pub fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0)
}
