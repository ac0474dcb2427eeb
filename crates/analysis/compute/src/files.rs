//! The one way by which files are read and written here. Whoever made a directory may have put a link
//! or a pipe there.
//!
//! Only regular files are read: to open a pipe waits for a writer. What is written
//! has mode 0600 and goes through no link of another user's (`midair_output::files`).

#![expect(
    clippy::disallowed_methods,
    reason = "it is the way that others are to take"
)]

use flate2::read::MultiGzDecoder;
use midair_failure::{Failure, Kind};
use midair_output::WriteError;
use midair_output::files::{Directory, OneFile};
use nix::fcntl::OFlag;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
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

/// The first bytes of a file that gzip packed.
const PACKED: [u8; 2] = [0x1f, 0x8b];
/// How many bytes a packed byte may stand for, and how many any packed file may have. Counters pack to a
/// fortieth; gzip makes a thousandth of zeros.
const RATIO: u64 = 256;
const LEAST: u64 = 64 << 20;
/// The most bytes that are unpacked of one file.
const MOST: u64 = 64 << 30;

/// Opens a regular file for reading, and unpacks it if its first bytes say that gzip packed it, whatever its name
/// is. A file that unpacks to more than its size explains is an error when that is read.
pub(crate) fn unpacked(path: &Path) -> io::Result<Box<dyn Read>> {
    let mut file = open(path)?;
    let mut first = [0; 2];
    // Both reads are of this descriptor: another file may have the name by now.
    let is_packed = file.read_at(&mut first, 0)? == first.len() && first == PACKED;
    if !is_packed {
        return Ok(Box::new(file));
    }
    let bytes = file.metadata()?.len();
    file.rewind()?;
    Ok(Box::new(Bounded {
        left: bytes.saturating_mul(RATIO).saturating_add(LEAST).min(MOST),
        inner: MultiGzDecoder::new(io::BufReader::new(file)),
    }))
}

/// A reader that has an error behind so many bytes.
struct Bounded<R> {
    inner: R,
    left: u64,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(into)?;
        match self.left.checked_sub(read as u64) {
            Some(left) => self.left = left,
            None => {
                return Err(io::Error::other(
                    "it unpacks to more than its size explains",
                ));
            }
        }
        Ok(read)
    }
}

/// Returns the name that a file has unpacked.
pub(crate) fn unpacked_name(path: &Path) -> String {
    let name = file_name(path);
    name.strip_suffix(".gz").map_or(name.clone(), str::to_owned)
}

/// Reads the first bytes of a regular file.
pub(crate) fn head(path: &Path, most: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.take(most as u64).read_to_end(&mut bytes)?;
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
    use std::io::Write;

    fn packed(bytes: &[u8]) -> Vec<u8> {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        packer.write_all(bytes).unwrap();
        packer.finish().unwrap()
    }

    #[test]
    fn contents_and_not_names_say_what_is_packed() {
        let dir = tempfile::tempdir().unwrap();
        let read = |name: &str, bytes: &[u8]| {
            let path = dir.path().join(name);
            fs::write(&path, bytes).unwrap();
            let mut read = Vec::new();
            unpacked(&path)?.read_to_end(&mut read)?;
            io::Result::Ok(read)
        };
        let text = b"a,b\n1,2\n".repeat(1000);
        let whole = packed(&text);
        for name in ["a.csv", "a.csv.gz"] {
            assert_eq!(read(name, &text).unwrap(), text);
            assert_eq!(read(name, &whole).unwrap(), text);
        }
        // Several parts are one file, as gzip has them.
        let both = [&whole[..], &packed(b"3,4\n")].concat();
        assert!(read("b", &both).unwrap().ends_with(b"1,2\n3,4\n"));
        assert_eq!(read("b", b"\x1f").unwrap(), b"\x1f");
        let mut wrong = whole.clone();
        *wrong.last_mut().unwrap() ^= 1;
        for bytes in [&whole[..whole.len() / 2], &whole[..whole.len() - 1], &wrong] {
            assert!(read("b", bytes).is_err());
        }
        // Two hundred megabytes of zeros are a fifth of a megabyte.
        let zeros = packed(&vec![0; 200 << 20]);
        let error = read("zeros", &zeros).err().map(|error| error.to_string());
        let error = error.unwrap_or_default();
        assert!(error.contains("more than its size explains"), "{error}");
    }

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
