//! Names that no other result has.
//!
//! A result that must not take the place of another gets the first number after the last one with
//! its name. The number is searched by looking names up, so the time does not depend on
//! how many files there are. Two sessions that end at the same moment do not find the same number:
//! each holds a locked file with the name while it writes ([`Claim`]).

use super::temporary::{ATTEMPTS, is_named};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::fcntl::OFlag;

/// What the name of a claim's file ends in.
const CLAIM: &str = ".name";
/// A claim that no process holds is removed after this time. Before that, its session may be about
/// to lock it.
const OLD: Duration = Duration::from_secs(60);

/// The names that results may have.
#[derive(Debug)]
pub(crate) struct Suffixes {
    /// The name of a file of each format in which this result will be.
    pub(crate) likely: Vec<String>,
    /// The names of all files.
    pub(crate) all: Vec<String>,
}

/// Whether results take the place of others with their name, and the form of their number otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Numbering {
    /// They take the place of others.
    #[default]
    Replace,
    /// `NAME`, `NAME-2`, `NAME-3`.
    FromTwo,
    /// `NAME`, `NAME_1`, `NAME_2`: AMD's names of further attaches to a process.
    FromOne,
}

impl Numbering {
    /// Returns the prefix of the result with this number. The first one has the name itself.
    pub(super) fn prefix(self, prefix: &str, number: u64) -> String {
        let (between, shown) = match self {
            Numbering::FromOne => ('_', number.saturating_sub(1)),
            _ => ('-', number),
        };
        match number {
            0 | 1 => prefix.to_owned(),
            _ if prefix.is_empty() || prefix.ends_with('/') => format!("{prefix}{shown}"),
            _ => format!("{prefix}{between}{shown}"),
        }
    }
}

/// Returns the part of the files' names before the suffix.
pub(super) fn stem(prefix: &str) -> String {
    match prefix.rsplit('/').next().unwrap_or_default() {
        "" => String::new(),
        stem => format!("{stem}_"),
    }
}

/// Whether a result has this name.
pub(super) fn is_taken(
    stem: &str,
    suffixes: &[String],
    exists: &mut impl FnMut(&str) -> bool,
) -> bool {
    suffixes
        .iter()
        .any(|suffix| exists(&format!("{stem}{suffix}")))
}

/// Returns a number from `from` on that no result has, behind one that a result has.
pub(super) fn free_number(
    numbering: Numbering,
    prefix: &str,
    from: u64,
    suffixes: &Suffixes,
    exists: &mut impl FnMut(&str) -> bool,
) -> u64 {
    let mut taken = |number, suffixes: &[String]| {
        let stem = stem(&numbering.prefix(prefix, number));
        is_taken(&stem, suffixes, exists)
    };
    // Where all results have the same formats, one lookup for each number is enough.
    let number = search(from, |number| taken(number, &suffixes.likely));
    search(number, |number| {
        taken(number, &suffixes.likely) || taken(number, &suffixes.all)
    })
}

/// Returns a number that is not taken: `from`, or one behind a number that is. Looks at few of them,
/// however many are taken.
fn search(from: u64, mut taken: impl FnMut(u64) -> bool) -> u64 {
    if !taken(from) {
        return from;
    }
    let (mut low, mut step) = (from, 1_u64);
    let mut high = low.saturating_add(step);
    while taken(high) && high < u64::MAX {
        low = high;
        step = step.saturating_mul(2);
        high = low.saturating_add(step);
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if taken(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

/// A name that this session alone may give to its files. The file vanishes with it.
#[derive(Debug)]
pub(super) struct Claim {
    /// It holds a lock.
    _locked: File,
    path: PathBuf,
}

impl Drop for Claim {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

impl Claim {
    /// Claims the names that start with this stem, or returns None if another session has them.
    /// `directory` is the one for temporary files.
    pub(super) fn take(directory: &Path, stem: &str) -> io::Result<Option<Claim>> {
        let path = directory.join(format!("{stem}{CLAIM}"));
        for _ in 0..ATTEMPTS {
            let mut options = OpenOptions::new();
            let file = options
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .custom_flags(OFlag::O_NOFOLLOW.bits())
                .open(&path)?;
            match file.try_lock() {
                // The session that had it may have removed it before it was locked here.
                Ok(()) if !is_named(&file, &path) => {}
                Ok(()) => {
                    let _locked = file;
                    return Ok(Some(Claim { _locked, path }));
                }
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
        Ok(None)
    }
}

/// Removes the files of claims whose sessions were killed. `directory` is the one for temporary
/// files.
pub(super) fn remove_abandoned(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let age = entry.metadata().and_then(|meta| meta.modified());
        let is_old = age.is_ok_and(|time| time.elapsed().is_ok_and(|age| age > OLD));
        if let Some(stem) = name.strip_suffix(CLAIM).filter(|_| is_old) {
            drop(Claim::take(directory, stem));
        }
    }
}

#[cfg(test)]
mod tests;
