//! Files that the words name: read with the user's rights, and up to a limit.
#![expect(
    clippy::disallowed_methods,
    reason = "files that the user names, with the user's rights"
)]

use crate::usage::usage;
use midair_failure::Failure;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Which file a path leads to, and which of its versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stamp {
    file: (u64, u64),
    bytes: u64,
    changed: [(i64, i64); 2],
    mode: u32,
}

/// Returns the version of a file. None where there is none.
pub(crate) fn stamp(path: &Path) -> Option<Stamp> {
    let about = std::fs::metadata(path).ok()?;
    Some(Stamp {
        file: (about.dev(), about.ino()),
        bytes: about.len(),
        changed: [
            (about.mtime(), about.mtime_nsec()),
            (about.ctime(), about.ctime_nsec()),
        ],
        mode: about.mode(),
    })
}

/// Whether there is a file.
pub(crate) fn is_file(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|about| about.is_file())
}

/// Reads a file.
pub(crate) fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads a file with a secret, which only its owner and its group may read.
///
/// # Errors
/// Where there is none, or others may read or replace it.
pub(crate) fn read_secret(option: &str, path: &Path, most: u64) -> Result<Vec<u8>, Failure> {
    let failed = |why: String| usage(format!("{option} {}: {why}", path.display()));
    let file = File::open(path).map_err(|error| failed(error.to_string()))?;
    let about = file.metadata().map_err(|error| failed(error.to_string()))?;
    if !about.is_file() || about.mode() & 0o027 != 0 {
        return Err(failed("others may read or replace it".to_owned())
            .hint(format!("chmod 600 {}", path.display())));
    }
    let mut bytes = Vec::new();
    let read = file.take(most).read_to_end(&mut bytes);
    read.map_err(|error| failed(error.to_string()))?;
    Ok(bytes)
}
