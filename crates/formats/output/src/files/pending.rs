//! Files that do not have their names yet.

use super::directory::Directory;
use super::error::WriteError;
use super::temporary::Temporaries;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, RenameFlags, renameat2};
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A name in a directory.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) directory: Arc<Directory>,
    pub(super) name: OsString,
}

impl Entry {
    pub(super) fn new(directory: &Arc<Directory>, name: impl Into<OsString>) -> Entry {
        Entry {
            directory: Arc::clone(directory),
            name: name.into(),
        }
    }

    /// Returns the path for messages.
    pub(super) fn path(&self) -> PathBuf {
        self.directory.path().join(&self.name)
    }

    /// Returns the path for calls ([`Directory::at`]).
    pub(super) fn at(&self) -> PathBuf {
        self.directory.at(&self.name)
    }

    pub(super) fn failed(&self, source: io::Error) -> WriteError {
        WriteError::File {
            path: self.path(),
            source,
        }
    }
}

/// A file that does not have its final name yet.
#[derive(Debug)]
pub(super) struct Pending {
    /// The descriptor. It keeps a file without a name alive, and holds the lock of one with a
    /// temporary name.
    file: File,
    /// Its temporary name, if it has one. It is removed unless the file is renamed.
    temporary: Option<PathBuf>,
    entry: Entry,
    /// Where it may have a temporary name.
    temporaries: Arc<Temporaries>,
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // Nothing more can be done about a file that cannot be removed. The failure that led
            // here is reported.
            let _ = fs::remove_file(temporary);
        }
    }
}

impl Pending {
    /// Starts an empty file for `path`. It has no name where files can be given their names later.
    pub(super) fn begin(
        entry: Entry,
        named_later: bool,
        temporaries: &Arc<Temporaries>,
    ) -> Result<Pending, WriteError> {
        let temporaries = Arc::clone(temporaries);
        let unnamed = named_later.then(|| unnamed(entry.directory.handle()));
        if let Some(Ok(file)) = unnamed {
            return Ok(Pending {
                file,
                temporary: None,
                entry,
                temporaries,
            });
        }
        let create = |name: &Path| {
            let mut options = OpenOptions::new();
            options.read(true).write(true);
            options.create_new(true).mode(0o600).open(name)
        };
        let made = temporaries.make(&entry.name, create);
        let (file, temporary) = made.map_err(|source| entry.failed(source))?;
        let _locked = file.try_lock();
        Ok(Pending {
            file,
            temporary: Some(temporary),
            entry,
            temporaries,
        })
    }

    pub(super) fn failed(&self, source: io::Error) -> WriteError {
        self.entry.failed(source)
    }

    /// Returns where it will be.
    pub(super) fn entry(&self) -> &Entry {
        &self.entry
    }

    /// Returns a descriptor of the file.
    pub(super) fn open(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Returns a path to the file as it is named now.
    pub(super) fn present(&self) -> PathBuf {
        let temporary = self.temporary.clone();
        temporary.unwrap_or_else(|| self.entry.at())
    }

    /// Returns its temporary name. A file that has none gets one here.
    pub(super) fn temporary(&mut self) -> Result<PathBuf, WriteError> {
        if self.temporary.is_none() {
            let make = |name: &Path| link(&self.file, name);
            let linked = self.temporaries.make(&self.entry.name, make);
            let ((), name) = linked.map_err(|source| self.failed(source))?;
            self.temporary = Some(name);
        }
        Ok(self.present())
    }

    /// Gives the file its final name. What has this name is replaced, or else the error says so.
    pub(super) fn name(&mut self, replaces: bool) -> Result<(), WriteError> {
        let path = self.entry.at();
        if self.temporary.is_none() {
            match link(&self.file, &path) {
                Ok(()) => return Ok(()),
                Err(error) if is_taken(&error) && !replaces => return Err(self.failed(error)),
                Err(_) => {}
            }
        }
        let temporary = self.temporary()?;
        let renamed = match replaces {
            true => fs::rename(temporary, path),
            false => rename_apart(&temporary, &path),
        };
        renamed.map_err(|source| self.failed(source))?;
        self.temporary = None;
        Ok(())
    }
}

pub(super) fn is_taken(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AlreadyExists
}

/// Renames a file to a name that nothing has.
pub(super) fn rename_apart(from: &Path, to: &Path) -> io::Result<()> {
    match renameat2(AT_FDCWD, from, AT_FDCWD, to, RenameFlags::RENAME_NOREPLACE) {
        // NFS and some others cannot do that. Most of them have links.
        Err(Errno::EINVAL | Errno::ENOSYS | Errno::ENOTSUP) => {}
        renamed => return renamed.map_err(io::Error::from),
    }
    match fs::hard_link(from, to) {
        Ok(()) => fs::remove_file(from),
        Err(error) if is_taken(&error) => Err(error),
        // Nothing is left but to look first.
        Err(_) if fs::symlink_metadata(to).is_ok() => Err(io::ErrorKind::AlreadyExists.into()),
        Err(_) => fs::rename(from, to),
    }
}

/// Returns a new locked file without a name, if it can be given one.
pub(super) fn unnamed(directory: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(OFlag::O_TMPFILE.bits())
        .mode(0o600)
        .open(directory)?;
    // Through this link the file will get its name.
    fs::symlink_metadata(own_link(&file))?;
    // No other process can lock the file first, since it has no name.
    let _locked = file.try_lock();
    Ok(file)
}

/// Whether a file without a name can be given one in this directory. AppArmor refuses that to a
/// process whose profile lacks `mediate_deleted`, with ENOENT, and only at the moment when the name
/// is given. By then everything would have been written, so it is tried with an empty file first.
pub(super) fn named_later(directory: &Directory, temporaries: &Temporaries) -> bool {
    let Ok(file) = unnamed(directory.handle()) else {
        return false;
    };
    match temporaries.make("try".as_ref(), |name| link(&file, name)) {
        Ok(((), name)) => fs::remove_file(name).is_ok(),
        Err(_) => false,
    }
}

fn own_link(file: &File) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// Gives a file without a name a name that nothing has yet.
fn link(file: &File, name: &Path) -> io::Result<()> {
    let follow = AtFlags::AT_SYMLINK_FOLLOW;
    let own = own_link(file);
    nix::unistd::linkat(AT_FDCWD, own.as_str(), AT_FDCWD, name, follow).map_err(io::Error::from)
}
