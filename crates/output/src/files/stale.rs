//! Temporary files that a killed process left behind.
//!
//! The writer of such a file holds a lock on it. The lock ends with the process, even if the
//! process is in another pid namespace or on another machine. A file is removed if it is not
//! locked, is ours, and has the name of a process that does not run.

use super::archive;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::fcntl::OFlag;

/// The most names that are tried for one file.
pub(super) const ATTEMPTS: u32 = 64;
/// The most entries of a directory that are looked at.
const MOST: usize = 1 << 14;

/// Returns a temporary name for a file with this name.
pub(super) fn name(name: &str, attempt: u32) -> String {
    format!(".{name}.{}.{attempt}.tmp", std::process::id())
}

/// Returns the process that a temporary name belongs to, or None for other names.
fn process(name: &OsStr) -> Option<u32> {
    let inner = name.to_str()?.strip_prefix('.')?.strip_suffix(".tmp")?;
    let mut parts = inner.rsplitn(3, '.');
    let attempt: u32 = parts.next()?.parse().ok()?;
    let process = parts.next()?.parse().ok()?;
    let named = parts.next().is_some_and(|name| !name.is_empty());
    (named && attempt < ATTEMPTS).then_some(process)
}

/// Removes abandoned files in a directory. If one cannot be removed it stays, since that must not
/// stop the writing.
pub(super) fn remove(directory: &Path) {
    let Ok(entries) = fs::read_dir(directory) else {
        return;
    };
    for entry in entries.take(MOST).flatten() {
        let gone = process(&entry.file_name())
            .is_some_and(|process| !Path::new("/proc").join(process.to_string()).exists());
        if gone && is_abandoned(&entry.path()) {
            let _ = fs::remove_file(entry.path());
        } else if gone {
            archive::remove_abandoned(&entry.path());
        }
    }
}

/// Whether this is a file of ours that nobody is writing.
fn is_abandoned(path: &Path) -> bool {
    let ours =
        |meta: &fs::Metadata| meta.is_file() && meta.nlink() == 1 && meta.uid() == super::our_uid();
    // Only regular files are opened: opening a device may have effects.
    if !fs::symlink_metadata(path).is_ok_and(|meta| ours(&meta)) {
        return false;
    }
    let Ok(file) = open(path) else {
        return false;
    };
    let is = |meta: &fs::Metadata| (meta.dev(), meta.ino());
    match (file.metadata(), file.try_lock(), fs::symlink_metadata(path)) {
        (Ok(open), Ok(()), Ok(named)) => ours(&open) && is(&open) == is(&named),
        _ => false,
    }
}

pub(super) fn open(path: &Path) -> std::io::Result<File> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits())
        .open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of a process that has ended.
    fn ended() -> u32 {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let id = child.id();
        child.wait().unwrap();
        id
    }

    #[test]
    fn only_abandoned_files_of_ours_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: String| directory.path().join(name);
        let dead = ended();
        let locked = at(format!(".locked_x.csv.{dead}.0.tmp"));
        let held = File::create(&locked).unwrap();
        held.lock().unwrap();
        std::os::unix::fs::symlink("/etc/passwd", at(format!(".link.{dead}.0.tmp"))).unwrap();
        let foreign = at(format!(".directory.{dead}.0.tmp"));
        fs::create_dir(&foreign).unwrap();
        fs::write(foreign.join("file"), "").unwrap();
        for other in [
            name("mine.csv", 0),
            format!("shown.csv.{dead}.0.tmp"),
            format!(".much.csv.{dead}.64.tmp"),
            format!(".{dead}.0.tmp"),
            ".x.csv.y.0.tmp".to_owned(),
        ] {
            fs::write(at(other), "").unwrap();
        }
        let before = fs::read_dir(directory.path()).unwrap().count();
        fs::write(at(format!(".r_results.db.{dead}.3.tmp")), "left").unwrap();
        remove(directory.path());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), before);
        assert!(!at(format!(".r_results.db.{dead}.3.tmp")).exists() && locked.exists());
    }

    /// A file that has another name, too, is somebody's.
    #[test]
    fn a_file_with_two_names_stays() {
        let directory = tempfile::tempdir().unwrap();
        let temporary = directory.path().join(format!(".r.db.{}.0.tmp", ended()));
        fs::write(&temporary, "kept").unwrap();
        let other = directory.path().join("other");
        fs::hard_link(&temporary, &other).unwrap();
        remove(directory.path());
        assert!(temporary.exists());
        fs::remove_file(&other).unwrap();
        remove(directory.path());
        assert!(!temporary.exists());
    }

    #[test]
    fn neither_a_link_nor_a_pipe_is_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name| directory.path().join(name);
        std::os::unix::fs::symlink("/etc/passwd", at("link")).unwrap();
        assert!(open(&at("link")).is_err());
        let pipe = at("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let (done, opened) = std::sync::mpsc::channel();
        std::thread::spawn(move || done.send(open(&pipe).is_ok()));
        let opened = opened.recv_timeout(std::time::Duration::from_secs(60));
        assert_eq!(opened, Ok(true));
    }
}
