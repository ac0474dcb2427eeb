//! Checks that there is room for the suite. Without it, dozens of tests fail, and none of them says
//! why.

use std::path::Path;
use std::process::Command;

use crate::run::{Outcome, failed, target_directory};

/// The size of a target directory after a build from nothing, in MiB: measured on 2026-11-23
/// without incremental compilation, plus a margin.
const TARGET: u64 = 7 * 1024;

/// The most that tests have in the directory for temporary files at a time, in MiB, with a margin.
const TEMPORARY: u64 = 1536;

/// Checks that there is room for a build from nothing, less what is built already, and for the
/// tests.
pub fn before_the_suite() -> Outcome<()> {
    let target = target_directory();
    std::fs::create_dir_all(&target).or_else(|error| failed(format!("target: {error}")))?;
    let built = megabytes(Command::new("du").args(["-sm"]).arg(&target))?;
    has_room(&target, TARGET.saturating_sub(built) + TEMPORARY)?;
    before_the_tests()
}

/// Checks that there is room for what the tests write.
pub fn before_the_tests() -> Outcome<()> {
    has_room(&std::env::temp_dir(), TEMPORARY)
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
             CARGO_TARGET_DIR and TMPDIR to directories elsewhere",
            directory.display()
        ));
    }
    Ok(())
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
}
