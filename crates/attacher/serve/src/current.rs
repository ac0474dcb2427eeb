//! What files say now: certificates, keys and tokens are replaced while the server runs.
//!
//! The files are looked at every few seconds, and read again where one is another than it was. What cannot be used is
//! reported, and what was read before stays.

use crate::private::{Stamp, stamp};
use crate::say;
use midair_failure::Failure;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::sleep;

/// The threads for this.
pub(crate) const THREADS: usize = 1;
/// How often files are looked at.
const EVERY: Duration = Duration::from_secs(10);

type Read<T> = dyn Fn() -> Result<T, Failure> + Send + Sync;

/// What some files say.
pub(crate) struct Current<T> {
    files: Vec<PathBuf>,
    read: Box<Read<T>>,
    value: watch::Sender<T>,
    /// The files as they were before they were read last.
    seen: Mutex<Vec<Option<Stamp>>>,
}

impl<T> fmt::Debug for Current<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Current");
        shown.field("files", &self.files).finish_non_exhaustive()
    }
}

fn stamps(files: &[PathBuf]) -> Vec<Option<Stamp>> {
    files.iter().map(|file| stamp(file)).collect()
}

impl<T: Clone> Current<T> {
    /// Reads the files for the first time.
    ///
    /// # Errors
    /// Where they cannot be used.
    pub(crate) fn new(
        files: &[Option<&Path>],
        read: impl Fn() -> Result<T, Failure> + Send + Sync + 'static,
    ) -> Result<Current<T>, Failure> {
        let files = files.iter().flatten().map(|file| (*file).to_owned());
        let files: Vec<PathBuf> = files.collect();
        let seen = stamps(&files);
        let value = watch::Sender::new(read()?);
        Ok(Current {
            files,
            read: Box::new(read),
            value,
            seen: Mutex::new(seen),
        })
    }

    /// Returns what they say.
    pub(crate) fn get(&self) -> T {
        self.value.borrow().clone()
    }

    /// Returns what sees the next change.
    pub(crate) fn changes(&self) -> watch::Receiver<T> {
        self.value.subscribe()
    }
}

/// What can be read again.
pub(crate) trait Refresh: Send + Sync {
    /// Reads the files again if one has changed. Returns whether one has.
    ///
    /// # Errors
    /// Where they cannot be used; nothing changes then.
    fn refresh(&self) -> Result<bool, Failure>;
}

impl<T: Clone + Send + Sync> Refresh for Current<T> {
    fn refresh(&self) -> Result<bool, Failure> {
        let now = stamps(&self.files);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if *seen == now {
            return Ok(false);
        }
        // Also where reading fails: it would fail in the same way until the next change.
        *seen = now;
        self.value.send_replace((self.read)()?);
        Ok(true)
    }
}

/// Starts what reads files again.
pub(crate) fn start(all: Vec<Arc<dyn Refresh>>, tasks: &mut JoinSet<()>) {
    if !all.is_empty() {
        tasks.spawn(refresh(all));
    }
}

async fn refresh(mut all: Vec<Arc<dyn Refresh>>) {
    loop {
        sleep(EVERY).await;
        let refreshed = spawn_blocking(move || {
            for it in &all {
                match it.refresh() {
                    Ok(false) => {}
                    Ok(true) => say("read a changed file with certificates or a token"),
                    Err(why) => say(&format!("{why}; what was read before stays")),
                }
            }
            all
        });
        match refreshed.await {
            Ok(same) => all = same,
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::read_token;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_changed_file_is_read_again_and_a_wrong_one_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        // Files are replaced whole, as by a secret of Kubernetes.
        let replace = |text: &str, mode| {
            let new = dir.path().join("new");
            std::fs::write(&new, text).unwrap();
            std::fs::set_permissions(&new, std::fs::Permissions::from_mode(mode)).unwrap();
            std::fs::rename(new, &file).unwrap();
        };
        replace("0123456789abcdef", 0o600);
        let path = file.clone();
        let read = move || read_token("--token-file", &path);
        let token = Current::new(&[Some(&file), None], read).unwrap();
        assert!(!token.refresh().unwrap());
        let changes = token.changes();
        replace("fedcba9876543210", 0o600);
        assert!(token.refresh().unwrap());
        assert!(changes.has_changed().unwrap());
        assert_eq!(token.get(), b"fedcba9876543210");
        for (text, mode) in [("short", 0o600), ("0123456789abcdef", 0o644)] {
            replace(text, mode);
            assert!(token.refresh().is_err(), "{text}");
            assert!(!token.refresh().unwrap());
            assert_eq!(token.get(), b"fedcba9876543210");
        }
        std::fs::remove_file(&file).unwrap();
        assert!(token.refresh().is_err());
        replace("0123456789abcdef", 0o600);
        assert!(token.refresh().unwrap());
        assert_eq!(token.get(), b"0123456789abcdef");
    }
}
