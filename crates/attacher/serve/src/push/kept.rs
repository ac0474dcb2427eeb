//! Keeps files in a directory until they are uploaded, the oldest first, within limits of number, bytes and age.
#![expect(
    clippy::disallowed_methods,
    reason = "a directory that this program or its user has made, with its rights"
)]

use super::place::number_of;
use crate::usage::usage;
use midair_failure::Failure;
use midair_output::files::{Directory, OneFile};
use std::fs::{File, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// The most bytes of one file: one request puts it.
pub(crate) const MOST_FILE: usize = 64 << 20;
/// The most files that wait, their bytes, and for how long.
const MOST: usize = 2048;
const MOST_BYTES: u64 = 256 << 20;
const OLDEST: Duration = Duration::from_secs(7 * 86_400);

/// The directory.
#[derive(Debug)]
pub(crate) struct Kept {
    path: PathBuf,
    /// It ends with the server where no other was named.
    temporary: Option<TempDir>,
}

/// A file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    /// When it was made, in ms since 1970.
    made: u64,
    name: String,
    bytes: u64,
}

impl Kept {
    /// # Errors
    /// Where it cannot be made, or others may write to it.
    pub(crate) fn new(path: Option<&Path>) -> Result<Kept, Failure> {
        let Some(path) = path else {
            let temporary = tempfile::Builder::new()
                .prefix("midair-push-")
                .permissions(Permissions::from_mode(0o700))
                .tempdir();
            let temporary = temporary
                .map_err(|error| usage(format!("cannot make a directory for --push: {error}")))?;
            return Ok(Kept {
                path: temporary.path().to_owned(),
                temporary: Some(temporary),
            });
        };
        let failed = |why: String| usage(format!("--push-keep {}: {why}", path.display()));
        let made = Directory::make(path).map_err(|error| failed(error.to_string()))?;
        let about = std::fs::metadata(made.at("."));
        let about = about.map_err(|error| failed(error.to_string()))?;
        let is_ours = about.uid() == nix::unistd::Uid::effective().as_raw();
        if !is_ours || about.mode() & 0o022 != 0 {
            return Err(failed("others may replace files in it".to_owned()));
        }
        Ok(Kept {
            path: path.to_owned(),
            temporary: None,
        })
    }

    /// Whether the files outlive the server.
    pub(super) fn stays(&self) -> bool {
        self.temporary.is_none()
    }

    fn entries(&self) -> io::Result<Vec<Entry>> {
        let mut all = Vec::new();
        for found in std::fs::read_dir(&self.path)? {
            let found = found?;
            let Ok(name) = found.file_name().into_string() else {
                continue;
            };
            // Other files are not ours to send or to remove.
            let Some(made) = number_of(&name) else {
                continue;
            };
            match found.metadata() {
                Ok(about) if about.is_file() => all.push(Entry {
                    made,
                    name,
                    bytes: about.len(),
                }),
                _ => {}
            }
        }
        all.sort_unstable();
        Ok(all)
    }

    /// Returns how many files wait.
    pub(super) fn count(&self) -> usize {
        self.entries().map_or(0, |all| all.len())
    }

    /// Adds a file, and removes the oldest ones that do not fit. Returns how many these are.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub(super) fn add(&self, name: &str, bytes: &[u8], now: Duration) -> Result<u64, String> {
        if bytes.len() > MOST_FILE {
            return Err(format!(
                "a file would have more than {} MiB",
                MOST_FILE >> 20
            ));
        }
        let written = OneFile::write_whole(&self.path.join(name), bytes);
        written.map_err(|error| error.to_string())?;
        self.trim(now, MOST, MOST_BYTES)
            .map_err(|error| error.to_string())
    }

    fn trim(&self, now: Duration, most: usize, most_bytes: u64) -> io::Result<u64> {
        let all = self.entries()?;
        let oldest = now.saturating_sub(OLDEST).as_millis() as u64;
        let (mut files, mut bytes) = (all.len(), all.iter().map(|it| it.bytes).sum::<u64>());
        let mut dropped = 0;
        for entry in all {
            if files <= most && bytes <= most_bytes && entry.made >= oldest {
                break;
            }
            self.remove(&entry.name);
            files -= 1;
            bytes -= entry.bytes;
            dropped += 1;
        }
        Ok(dropped)
    }

    /// Returns the oldest file.
    pub(super) fn oldest(&self) -> io::Result<Option<(String, Vec<u8>)>> {
        let Some(entry) = self.entries()?.into_iter().next() else {
            return Ok(None);
        };
        let mut bytes = Vec::new();
        let no_link = nix::libc::O_NOFOLLOW;
        let file = File::options()
            .read(true)
            .custom_flags(no_link)
            .open(self.path.join(&entry.name));
        file?.take(MOST_FILE as u64).read_to_end(&mut bytes)?;
        Ok(Some((entry.name, bytes)))
    }

    /// Removes a file, if it is there.
    pub(super) fn remove(&self, name: &str) {
        let _ = std::fs::remove_file(self.path.join(name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_go_where_they_do_not_fit_and_others_are_left() {
        let dir = tempfile::tempdir().unwrap();
        let kept = Kept::new(Some(&dir.path().join("a/b"))).unwrap();
        let days = |days: u64| Duration::from_secs(days * 86_400);
        let name = |at: Duration| format!("midair-{}-7.parquet", at.as_millis());
        std::fs::write(kept.path.join("midair-x-7.parquet"), "not ours").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", kept.path.join("midair-1-1.parquet")).unwrap();
        for day in [30, 9, 10, 31] {
            let at = days(day);
            assert_eq!(kept.add(&name(at), b"12345678", days(12)).unwrap(), 0);
        }
        assert_eq!(
            kept.oldest().unwrap().unwrap(),
            (name(days(9)), b"12345678".to_vec())
        );
        // Two are too old by now.
        assert_eq!(kept.trim(days(31), MOST, MOST_BYTES).unwrap(), 2);
        assert_eq!(kept.oldest().unwrap().unwrap().0, name(days(30)));
        assert_eq!(kept.trim(days(31), MOST, 15).unwrap(), 1);
        assert_eq!((kept.trim(days(31), 0, 15).unwrap(), kept.count()), (1, 0));
        assert!(kept.path.join("midair-x-7.parquet").exists());
        assert!(kept.oldest().unwrap().is_none());
        assert!(
            kept.add(&name(days(1)), &vec![0; MOST_FILE + 1], days(1))
                .is_err()
        );
    }

    #[test]
    fn a_directory_of_others_is_none() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        let refused = Kept::new(Some(dir.path())).unwrap_err();
        assert!(
            refused.what.contains("others may replace"),
            "{}",
            refused.what
        );
        let own = Kept::new(None).unwrap();
        let about = std::fs::metadata(&own.path).unwrap();
        assert_eq!(about.mode() & 0o777, 0o700);
        assert!(!own.stays());
    }
}
