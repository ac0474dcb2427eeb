//! Compiles the C programs of `tests/c` and `tests/security/attacks`.

use crate::target::run;
use crate::{Result, fingerprint, stage::plain_environment, workspace};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A time limit that no compilation reaches.
const LIMIT: Duration = Duration::from_secs(120);

/// Returns the directory of the sources.
pub fn sources() -> PathBuf {
    workspace().join("tests/c")
}

/// Returns one hash of all that a program is made from: its own source, the headers next to it, and
/// the flags.
fn stamp(source: &Path, flags: &[&str]) -> Result<String> {
    let mut parts =
        vec![std::fs::read(source).map_err(|error| format!("{}: {error}", source.display()))?];
    let mut headers: Vec<PathBuf> = std::fs::read_dir(sources())?
        .map(|e| Ok(e?.path()))
        .collect::<Result<_>>()?;
    headers.retain(|path| path.extension().is_some_and(|extension| extension == "h"));
    headers.sort();
    for header in headers {
        parts.push(std::fs::read(header)?);
    }
    parts.extend(flags.iter().map(|flag| flag.as_bytes().to_vec()));
    Ok(fingerprint(
        &parts.iter().map(Vec::as_slice).collect::<Vec<_>>(),
    ))
}

/// Compiles with `compiler` (a command line up to the arguments) unless `target` is up to date.
/// `seen` returns a path as the compiler sees it. Several processes may do so at once, since each
/// builds a file of its own and renames it.
///
/// # Errors
/// Returns what the compiler said.
pub fn build(
    compiler: &[&str],
    source: &Path,
    target: &Path,
    flags: &[&str],
    seen: impl Fn(&Path) -> Result<String>,
) -> Result<()> {
    let stamp = stamp(source, &[compiler, flags].concat())?;
    let mark = target.with_extension("stamp");
    if target.exists() && std::fs::read_to_string(&mark).is_ok_and(|there| there == stamp) {
        return Ok(());
    }
    let fresh =
        tempfile::NamedTempFile::new_in(target.parent().ok_or("a program has a directory")?)?;
    let out = fresh.into_temp_path();
    let (program, before) = compiler.split_first().ok_or("a compiler has a name")?;
    let mut command = Command::new(program);
    command.env_clear().envs(plain_environment());
    command
        .args(before)
        .args([
            "-O1",
            "-g",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-o",
            &seen(&out)?,
            &seen(source)?,
        ])
        .args(flags);
    run(command, LIMIT)?
        .success()
        .map_err(|error| format!("compiling {}: {error}", source.display()))?;
    out.persist(target)?;
    std::fs::write(&mark, stamp)?;
    Ok(())
}

/// Compiles `tests/c/NAME.c` for this machine and returns the program's path.
///
/// # Errors
/// Returns what the compiler said.
pub fn host_program(name: &str) -> Result<PathBuf> {
    program(&sources(), name)
}

/// Compiles `tests/security/attacks/NAME.c` for this machine and returns the program's path.
///
/// # Errors
/// Returns what the compiler said.
pub fn attack_program(name: &str) -> Result<PathBuf> {
    program(&workspace().join("tests/security/attacks"), name)
}

/// Compiles `tests/security/attacks/NAME.c` for this machine into a library and returns its path.
///
/// # Errors
/// Returns what the compiler said.
pub fn attack_library(name: &str) -> Result<PathBuf> {
    library(&workspace().join("tests/security/attacks"), name)
}

fn program(sources: &Path, name: &str) -> Result<PathBuf> {
    let dir = workspace().join("target/test-programs");
    std::fs::create_dir_all(&dir)?;
    let target = dir.join(name);
    build(
        &["cc"],
        &sources.join(format!("{name}.c")),
        &target,
        &["-pthread", "-ldl"],
        |path| Ok(path.to_str().ok_or("a path is text")?.to_owned()),
    )?;
    Ok(target.canonicalize()?)
}

/// Compiles `tests/c/NAME.c` for this machine into a library to preload and returns its path.
///
/// # Errors
/// Returns what the compiler said.
pub fn host_library(name: &str) -> Result<PathBuf> {
    library(&sources(), name)
}

fn library(sources: &Path, name: &str) -> Result<PathBuf> {
    let dir = workspace().join("target/test-programs");
    std::fs::create_dir_all(&dir)?;
    let target = dir.join(format!("lib{name}.so"));
    build(
        &["cc"],
        &sources.join(format!("{name}.c")),
        &target,
        &["-shared", "-fPIC"],
        |path| Ok(path.to_str().ok_or("a path is text")?.to_owned()),
    )?;
    Ok(target.canonicalize()?)
}
