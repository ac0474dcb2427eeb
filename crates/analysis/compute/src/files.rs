//! The one way by which files are read and written here. Whoever made a directory may have put a link
//! or a pipe there.
//!
//! Only regular files are read: to open a pipe waits for a writer. What is written
//! has mode 0600 and goes through no link of another user's (`midair_output::files`).

#![expect(
    clippy::disallowed_methods,
    reason = "it is the way that others are to take"
)]

use midair_failure::{Failure, Kind};
use midair_output::WriteError;
use midair_output::files::{Directory, OneFile};
use nix::fcntl::OFlag;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Returns the failure for files whose contents are wrong.
pub(crate) fn unusable(what: impl Into<String>) -> Failure {
    Failure::new(Kind::Input, what)
}

pub(crate) fn unreadable(file: &Path, error: &dyn std::fmt::Display) -> Failure {
    unusable(format!("{}: {error}", file.display()))
}

/// Returns the name of a file without its directory.
pub(crate) fn file_name(file: &Path) -> String {
    file.file_name()
        .map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

/// Opens a regular file for reading.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits())
        .open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is not a regular file")),
    }
}

/// Reads a regular file.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads a regular file as text. Bytes that are not UTF-8 are an error.
pub(crate) fn text(path: &Path) -> io::Result<String> {
    String::from_utf8(read(path)?).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// Returns the entries of a directory, sorted.
pub(crate) fn entries(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(directory)? {
        all.push(entry?.path());
    }
    all.sort();
    Ok(all)
}

/// Returns the directory that a path leads to, by its own name.
pub(crate) fn named(directory: &Path) -> PathBuf {
    let found = directory.canonicalize();
    found.unwrap_or_else(|_| directory.to_owned())
}

/// Returns the length of a file and when it was changed.
pub(crate) fn state(path: &Path) -> Option<(u64, Option<std::time::SystemTime>)> {
    let found = fs::metadata(path).ok()?;
    Some((found.len(), found.modified().ok()))
}

/// Returns how often this process has a file open.
pub(crate) fn times_open(file: &File) -> io::Result<usize> {
    let known = file.metadata()?;
    let mut times = 0;
    for entry in fs::read_dir("/proc/self/fd")? {
        // A descriptor that another thread has closed meanwhile is not counted.
        if let Ok(found) = fs::metadata(entry?.path()) {
            times += usize::from((found.dev(), found.ino()) == (known.dev(), known.ino()));
        }
    }
    Ok(times)
}

/// Whether there is a regular file; a link is followed.
pub(crate) fn is_file(path: &Path) -> bool {
    path.is_file()
}

/// Whether there is a directory, and no link to one.
pub(crate) fn is_directory(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_dir())
}

/// Returns the failure to write a file.
pub(crate) fn unwritable(path: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::new(Kind::Output, format!("{}: {error}", path.display()))
}

/// Returns the failure for what could not be written.
pub(crate) fn failed(error: &WriteError) -> Failure {
    Failure::new(Kind::Output, error.to_string())
}

/// Writes a file.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), Failure> {
    OneFile::write_whole(path, text.as_bytes()).map_err(|error| failed(&error))
}

/// Finds a directory, and makes it and those on the way to it where they are missing.
pub(crate) fn make(path: &Path) -> Result<Directory, Failure> {
    Directory::make(path).map_err(|error| unwritable(path, &error))
}

/// Renames a file of one directory's into another.
pub(crate) fn rename(from: &Path, to: &Directory, name: &str) -> Result<(), Failure> {
    let named = fs::rename(from, to.at(name));
    named.map_err(|error| unwritable(&to.path().join(name), &error))
}

/// Removes a file, or a directory with all that is in it. A link is removed itself.
pub(crate) fn remove(directory: &Directory, name: &str) -> Result<(), Failure> {
    let path = directory.at(name);
    let removed = match is_directory(&path) {
        true => fs::remove_dir_all(&path),
        false => fs::remove_file(&path),
    };
    removed.map_err(|error| unwritable(&directory.path().join(name), &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("sysinfo.csv");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(open(&pipe).is_err() && read(dir.path()).is_err());
        fs::remove_file(&pipe).unwrap();
        fs::write(&pipe, "x").unwrap();
        assert_eq!(text(&pipe).unwrap(), "x");
    }
}
