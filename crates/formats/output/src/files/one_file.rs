//! A single file that the user names.

use super::directory::{Directory, our_uid};
use super::{FileSet, OutputFile, ReservedFile, WriteError};
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The most links at the end of a path that are followed.
const MOST_LINKS: usize = 40;

/// A file that the user names, being written. As the files of a trace it appears whole or not at all,
/// has mode 0600, and takes the place of one that was there. A device and a pipe are written to as
/// they are.
#[derive(Debug)]
pub struct OneFile(Kind);

#[derive(Debug)]
enum Kind {
    New(FileSet, OutputFile),
    Device(BufWriter<File>, PathBuf),
}

/// What a path leads to.
enum Found {
    /// A regular file, or nothing yet.
    Name(Directory, OsString),
    /// A device or a pipe, or what a link of the kernel's leads to.
    Open(File),
}

impl OneFile {
    /// Starts the file.
    ///
    /// # Errors
    /// What the kernel says, and permission denied where another user's link is on the way.
    pub fn create(path: &Path) -> Result<OneFile, WriteError> {
        let failed = |source| WriteError::File {
            path: path.to_owned(),
            source,
        };
        match find(path).map_err(failed)? {
            Found::Open(file) => Ok(OneFile(Kind::Device(BufWriter::new(file), path.to_owned()))),
            Found::Name(directory, name) => {
                let set = FileSet::within(directory, String::new());
                let name = name.to_str().ok_or(io::ErrorKind::InvalidFilename);
                let file = set.create(name.map_err(|error| failed(error.into()))?)?;
                Ok(OneFile(Kind::New(set, file)))
            }
        }
    }

    /// Starts a file that something else opens by its temporary name. Returns also the set that gives
    /// it its name.
    ///
    /// # Errors
    /// As [`OneFile::create`]; unsupported for a device.
    pub fn reserve(path: &Path) -> Result<(FileSet, ReservedFile), WriteError> {
        let failed = |source| WriteError::File {
            path: path.to_owned(),
            source,
        };
        let (directory, name) = match find(path).map_err(failed)? {
            Found::Name(directory, name) => (directory, name),
            Found::Open(_) => return Err(failed(io::ErrorKind::Unsupported.into())),
        };
        let name = name.to_str().ok_or(io::ErrorKind::InvalidFilename);
        let name = name.map_err(|error| failed(error.into()))?;
        let set = FileSet::within(directory, String::new());
        let file = set.reserve(name)?;
        Ok((set, file))
    }

    /// Writes a whole file.
    ///
    /// # Errors
    /// As [`OneFile::create`] and [`OneFile::finish`].
    pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), WriteError> {
        let mut file = OneFile::create(path)?;
        file.put(bytes)?;
        file.finish()
    }

    /// Appends bytes. The error names the file.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn put(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        match &mut self.0 {
            Kind::New(_, file) => file.put(bytes),
            Kind::Device(writer, path) => {
                let written = writer.write_all(bytes);
                written.map_err(|source| WriteError::File {
                    path: path.clone(),
                    source,
                })
            }
        }
    }

    /// Ends the writing: the file gets its name.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn finish(self) -> Result<(), WriteError> {
        match self.0 {
            Kind::New(mut set, file) => {
                set.add(file)?;
                set.commit().map(drop)
            }
            Kind::Device(mut writer, path) => writer
                .flush()
                .map_err(|source| WriteError::File { path, source }),
        }
    }
}

impl Write for OneFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.0 {
            Kind::New(_, file) => file.write(bytes),
            Kind::Device(writer, _) => writer.write(bytes),
        }
    }
    fn flush(&mut self) -> io::Result<()> {
        match &mut self.0 {
            Kind::New(_, file) => file.flush(),
            Kind::Device(writer, _) => writer.flush(),
        }
    }
}

fn parts(path: &Path) -> io::Result<(&Path, &OsStr)> {
    let name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?;
    Ok((path.parent().unwrap_or(Path::new("")), name))
}

fn find(path: &Path) -> io::Result<Found> {
    let path = std::path::absolute(path)?;
    let (above, name) = parts(&path)?;
    let mut directory = Directory::open(above)?;
    let mut name = name.to_owned();
    for _ in 0..MOST_LINKS {
        let Some(entry) = directory.entry(&name)? else {
            return Ok(Found::Name(directory, name));
        };
        let meta = entry.metadata()?;
        let write = OFlag::O_WRONLY | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        match () {
            () if meta.is_file() => return Ok(Found::Name(directory, name)),
            () if meta.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
            () if meta.is_symlink() => match directory.link(&name, &entry)? {
                Some(to) => {
                    let (above, last) = parts(&to)?;
                    let next = directory.below(above)?;
                    name = last.to_owned();
                    directory = next;
                }
                None => {
                    let file = openat(directory.place(), name.as_os_str(), write, Mode::empty())?;
                    return Ok(Found::Open(file.into()));
                }
            },
            // Whoever opens another user's pipe waits for that user.
            () if meta.uid() != 0 && meta.uid() != our_uid() => {
                let what = format!(
                    "it is not a regular file, and belongs to user {}",
                    meta.uid()
                );
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
            }
            () => {
                let flags = write | OFlag::O_NOFOLLOW;
                let file = openat(directory.place(), name.as_os_str(), flags, Mode::empty())?;
                return Ok(Found::Open(file.into()));
            }
        }
    }
    Err(nix::errno::Errno::ELOOP.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, lchown, symlink};

    #[test]
    fn a_file_is_replaced_and_a_device_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("old"), "old").unwrap();
        symlink("old", at("link")).unwrap();
        symlink("/dev/null", at("null")).unwrap();
        for name in ["new", "link"] {
            OneFile::write_whole(&at(name), b"text").unwrap();
            assert_eq!(fs::read(at(name)).unwrap(), b"text");
        }
        assert_eq!(fs::read(at("old")).unwrap(), b"text");
        let mode = fs::metadata(at("new")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        for name in ["/dev/null", at("null").to_str().unwrap()] {
            OneFile::write_whole(Path::new(name), b"text").unwrap();
        }
        assert!(fs::symlink_metadata(at("null")).unwrap().is_symlink());
        assert!(!fs::symlink_metadata("/dev/null").unwrap().is_file());
        // A descriptor's link is the kernel's.
        let file = fs::File::create(at("open")).unwrap();
        let own = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        OneFile::write_whole(Path::new(&own), b"text").unwrap();
        assert_eq!(fs::read(at("open")).unwrap(), b"text");
        for name in ["", "no/such", "old/x"] {
            assert!(OneFile::write_whole(&at(name), b"text").is_err(), "{name}");
        }
        // One that is not finished leaves nothing.
        drop(OneFile::create(&at("half")).unwrap());
        assert!(!at("half").exists());
    }

    #[test]
    fn what_a_stranger_planted_is_not_written_to() {
        if our_uid() != 0 {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("precious"), "mine").unwrap();
        symlink("precious", at("link")).unwrap();
        lchown(at("link"), Some(1000), None).unwrap();
        nix::unistd::mkfifo(&at("pipe"), Mode::S_IRWXU).unwrap();
        lchown(at("pipe"), Some(1000), None).unwrap();
        for name in ["link", "pipe"] {
            let error = OneFile::write_whole(&at(name), b"x")
                .unwrap_err()
                .to_string();
            assert!(error.contains("user 1000"), "{error}");
        }
        assert_eq!(fs::read(at("precious")).unwrap(), b"mine");
        // A regular file of theirs is replaced, and not written to.
        let stranger = fs::File::create(at("file")).unwrap();
        std::os::unix::fs::fchown(&stranger, Some(1000), None).unwrap();
        OneFile::write_whole(&at("file"), b"x").unwrap();
        assert_eq!(stranger.metadata().unwrap().len(), 0);
        assert_eq!(fs::metadata(at("file")).unwrap().uid(), 0);
    }
}
