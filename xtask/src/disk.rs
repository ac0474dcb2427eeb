//! Checks that there is room for the suite. Without it, dozens of tests fail, and none of them says
//! why.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::lab;
use midair_dev_kit::run::{At, Outcome, failed, is_root, target_directory};

/// The size of a target directory after the suite, in MiB, without incremental compilation, plus a
/// margin.
const TARGET: u64 = 4608;

/// The size of the lab after the suite, in MiB, plus a margin.
const LAB: u64 = 1152;

/// What else a suite on a new machine adds, in MiB: packages of crates.io, and what Miri builds of
/// the standard library.
const HOME: u64 = 320;

/// The most that tests have in the directory for temporary files at a time, in MiB, plus a margin.
const TEMPORARY: u64 = 512;

/// Checks that there is room for a build from nothing, less what is there already, and for the
/// tests.
pub fn before_the_suite() -> Outcome<()> {
    let target = target_directory();
    std::fs::create_dir_all(&target).or_else(|error| failed(format!("target: {error}")))?;
    let mut needs = vec![
        (std::env::temp_dir(), TEMPORARY),
        (target.clone(), TARGET.saturating_sub(size(&target)?)),
    ];
    if let Some(home) = std::env::home_dir().filter(|home| home.exists()) {
        needs.push((home, HOME));
    }
    if !lab::is_skipped() && is_root() {
        let lab = lab::lab_root();
        let (there, built) = match lab.exists() {
            true => (lab.clone(), size(&lab)?),
            false => (above(&lab), 0),
        };
        needs.push((there, LAB.saturating_sub(built)));
    }
    have_room(&needs)
}

/// Checks that there is room for what the tests write.
pub fn before_the_tests() -> Outcome<()> {
    have_room(&[(std::env::temp_dir(), TEMPORARY)])
}

/// Returns the nearest directory above a path that exists.
fn above(path: &Path) -> PathBuf {
    let there = path.ancestors().find(|path| path.exists());
    there.unwrap_or(Path::new("/")).to_owned()
}

/// Checks that each file system has room for all that is needed on it, in MiB.
fn have_room(needs: &[(PathBuf, u64)]) -> Outcome<()> {
    let mut systems: BTreeMap<u64, (&Path, u64)> = BTreeMap::new();
    for (directory, needed) in needs {
        let device = directory.metadata().at("looking at", directory)?.dev();
        systems.entry(device).or_insert((directory, 0)).1 += needed;
    }
    systems
        .into_values()
        .try_for_each(|(directory, needed)| has_room(directory, needed))
}

fn has_room(directory: &Path, needed: u64) -> Outcome<()> {
    let mut df = Command::new("df");
    let free = megabytes(df.args(["-BM", "--output=avail"]).arg(directory))?;
    println!(
        "{}: {free} MiB are free, up to {needed} needed",
        directory.display()
    );
    if free < needed {
        return failed(format!(
            "{} has {free} MiB left, and the suite needs {needed}: make room, or set \
             CARGO_TARGET_DIR, MIDAIR_LAB and TMPDIR to directories elsewhere",
            directory.display()
        ));
    }
    Ok(())
}

/// Returns the size of a directory in MiB, without what is mounted in it.
fn size(directory: &Path) -> Outcome<u64> {
    megabytes(Command::new("du").args(["-smx"]).arg(directory))
}

/// Returns the first number in a program's output.
fn megabytes(command: &mut Command) -> Outcome<u64> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => return failed(format!("{name}: {error}")),
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    match first_number(&text) {
        Some(number) => Ok(number),
        None => failed(format!("{name}: no number in {text:?}")),
    }
}

fn first_number(text: &str) -> Option<u64> {
    let digits = |c: char| c.is_ascii_digit();
    let text = &text[text.find(digits)?..];
    let end = text.find(|c| !digits(c)).unwrap_or(text.len());
    text[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_df_and_du() {
        assert_eq!(first_number("  Avail\n  24210M\n"), Some(24210));
        assert_eq!(first_number("9087\t/work/target\n"), Some(9087));
        assert_eq!(first_number("Avail\n-\n"), None);
    }

    #[test]
    fn a_full_disk_is_named() {
        let here = std::env::temp_dir();
        assert!(has_room(&here, 0).is_ok());
        let failure = has_room(&here, u64::MAX).unwrap_err().to_string();
        assert!(failure.contains("make room"), "{failure}");
    }

    #[test]
    fn what_is_needed_on_one_file_system_is_summed_up() {
        let directory = tempfile::tempdir().unwrap();
        let here = directory.path().to_owned();
        let half = u64::MAX / 2;
        let needs = [(here.clone(), 1), (here.clone(), half), (here, half)];
        let failure = have_room(&needs).unwrap_err().to_string();
        assert!(failure.contains(&u64::MAX.to_string()), "{failure}");
    }

    #[test]
    fn what_is_not_made_yet_counts_where_it_will_be() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(above(&directory.path().join("lab/not")), directory.path());
    }
}
