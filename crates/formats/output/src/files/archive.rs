//! A directory of files that appears complete or not at all.
//!
//! It is written under a temporary name next to its final one. The files in it are numbered, and
//! there may be thousands of them, so none stays open.

use super::directory::{Directory, our_uid};
use super::error::WriteError;
use super::pending::Entry;
use super::temporary;
use super::temporary::Temporaries;
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The extensions of the files.
const EXTENSIONS: [&str; 2] = ["evt", "def"];

/// Whether a file of this name is one of an archive: a number with one of the extensions.
pub(super) fn is_part(name: &OsStr) -> bool {
    let Some((number, extension)) = name.to_str().and_then(|name| name.split_once('.')) else {
        return false;
    };
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    is_number && EXTENSIONS.contains(&extension)
}

/// A directory that does not have its final name yet.
#[derive(Debug)]
pub(crate) struct NewArchive {
    /// It holds a lock while the directory has its temporary name.
    _locked: Option<File>,
    /// The directory, whatever it is called.
    directory: Directory,
    temporary: PathBuf,
    entry: Entry,
    /// Keeps the directory in which its temporary name is.
    _temporaries: Arc<Temporaries>,
}

impl Drop for NewArchive {
    fn drop(&mut self) {
        // Nothing more can be done about what cannot be removed. After it got its name there is
        // nothing.
        remove(&self.temporary);
    }
}

/// Removes a directory with the files of an archive, and nothing else.
pub(super) fn remove(directory: &Path) {
    for name in parts(directory) {
        let _ = fs::remove_file(directory.join(name));
    }
    let _ = fs::remove_dir(directory);
}

fn parts(directory: &Path) -> Vec<OsString> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name());
    names.filter(|name| is_part(name)).collect()
}

impl NewArchive {
    /// Starts a directory with this final name.
    pub(super) fn begin(
        entry: Entry,
        temporaries: &Arc<Temporaries>,
    ) -> Result<NewArchive, WriteError> {
        let made = temporaries.make(&entry.name, |name| {
            fs::DirBuilder::new().mode(0o700).create(name)?;
            let (above, last) = (name.parent(), name.file_name());
            let (Some(above), Some(last)) = (above, last) else {
                return Err(io::ErrorKind::InvalidInput.into());
            };
            // It may have been replaced, where it is not in a directory of our own.
            let own = Directory::open(above)?.own(last)?;
            own.ok_or_else(|| io::ErrorKind::PermissionDenied.into())
        });
        let (directory, temporary) = made.map_err(|source| WriteError::Directory {
            path: entry.path(),
            source,
        })?;
        let locked = File::open(directory.handle()).ok();
        let _locked = locked.inspect(|locked| drop(locked.try_lock()));
        Ok(NewArchive {
            _locked,
            directory,
            temporary,
            entry,
            _temporaries: Arc::clone(temporaries),
        })
    }

    /// Starts a file in it. The name is a number with an extension.
    pub(crate) fn create(&self, name: &str) -> Result<ArchiveFile, WriteError> {
        let path = self.entry.path().join(name);
        let mut options = OpenOptions::new();
        let options = options.write(true).create_new(true).mode(0o600);
        match options.open(self.directory.at(name)) {
            Ok(file) => Ok(ArchiveFile { file, path }),
            Err(source) => Err(WriteError::File { path, source }),
        }
    }

    /// Gives it its final name. Of a directory that has this name, the files of an archive are
    /// replaced or removed, and others stay; or else the error says that the name is taken.
    pub(super) fn name(&self, replaces: bool) -> Result<(), WriteError> {
        if !replaces {
            return self.name_apart().map_err(|source| self.failed(source));
        }
        match fs::rename(&self.temporary, self.entry.at()) {
            Err(error) if is_there(&error) => {}
            renamed => return renamed.map_err(|source| self.failed(source)),
        }
        let there = self.entry.directory.below(Path::new(&self.entry.name));
        let there = there.map_err(|source| self.failed(source))?;
        let ours: HashSet<OsString> = parts(self.directory.handle()).into_iter().collect();
        for name in &ours {
            let moved = fs::rename(self.directory.at(name), there.at(name));
            moved.map_err(|source| self.failed(source))?;
        }
        for name in parts(there.handle()) {
            if !ours.contains(&name) {
                fs::remove_file(there.at(name)).map_err(|source| self.failed(source))?;
            }
        }
        Ok(())
    }

    fn name_apart(&self) -> io::Result<()> {
        if fs::symlink_metadata(self.entry.at()).is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        // A directory takes the place of no file, and of an empty directory only.
        match fs::rename(&self.temporary, self.entry.at()) {
            Err(error) if is_there(&error) => Err(io::ErrorKind::AlreadyExists.into()),
            renamed => renamed,
        }
    }

    /// Returns where it will be.
    pub(super) fn entry(&self) -> &Entry {
        &self.entry
    }

    fn failed(&self, source: io::Error) -> WriteError {
        WriteError::Directory {
            path: self.entry.path(),
            source,
        }
    }
}

/// Whether a directory could not be renamed since a directory with files has its new name.
fn is_there(error: &io::Error) -> bool {
    use io::ErrorKind::{AlreadyExists, DirectoryNotEmpty};
    matches!(error.kind(), AlreadyExists | DirectoryNotEmpty)
}

/// A file in such a directory.
#[derive(Debug)]
pub(crate) struct ArchiveFile {
    file: File,
    path: PathBuf,
}

impl ArchiveFile {
    /// Appends bytes. The error names the file.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        let written = self.file.write_all(bytes);
        written.map_err(|source| self.failed(source))
    }

    /// Returns the error for a failed write to this file.
    pub(crate) fn failed(&self, source: io::Error) -> WriteError {
        WriteError::File {
            path: self.path.clone(),
            source,
        }
    }
}

/// Removes the directory if a process that has ended left it behind.
pub(super) fn remove_abandoned(path: &Path) {
    let ours = |meta: &fs::Metadata| {
        use std::os::unix::fs::MetadataExt;
        meta.is_dir() && meta.uid() == our_uid()
    };
    if !fs::symlink_metadata(path).is_ok_and(|meta| ours(&meta)) {
        return;
    }
    if let Ok(directory) = temporary::open(path)
        && directory.metadata().is_ok_and(|meta| ours(&meta))
        && directory.try_lock().is_ok()
    {
        remove(path);
    }
}

#[cfg(test)]
mod tests {
    use super::super::FileSet;
    use super::*;

    fn entries(path: &Path) -> Vec<String> {
        let entries = fs::read_dir(path).unwrap();
        let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name();
        let mut names: Vec<_> = entries.map(name).collect();
        names.sort();
        names
            .iter()
            .map(|name| name.to_string_lossy().into())
            .collect()
    }

    fn write(directory: &Path, names: &[&str], commit: bool) {
        let mut files = FileSet::new(directory, "r").unwrap();
        let archive = files.folder().archive("results").unwrap();
        for name in names {
            archive.create(name).unwrap().put(name.as_bytes()).unwrap();
        }
        files.add_archive(archive);
        if commit {
            assert_eq!(files.commit().unwrap(), [directory.join("r_results")]);
        }
    }

    #[test]
    fn an_archive_appears_whole_and_replaces_the_one_before() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        write(at, &["0.evt", "0.def", "1.evt", "11.def"], false);
        assert!(entries(at).is_empty());
        write(at, &["0.evt", "0.def", "1.evt", "11.def"], true);
        assert_eq!(entries(at), ["r_results"]);
        let archive = at.join("r_results");
        assert_eq!(entries(&archive), ["0.def", "0.evt", "1.evt", "11.def"]);
        // What is not a part of an archive stays.
        for name in ["notes", "x.evt", "1.evt.gz", "0.evt"] {
            fs::write(archive.join(name), "old").unwrap();
        }
        write(at, &["0.evt"], true);
        assert_eq!(entries(at), ["r_results"]);
        assert_eq!(entries(&archive), ["0.evt", "1.evt.gz", "notes", "x.evt"]);
        assert_eq!(fs::read(archive.join("0.evt")).unwrap(), b"0.evt");
        assert_eq!(fs::read(archive.join("notes")).unwrap(), b"old");
    }

    #[test]
    fn an_archive_that_cannot_have_its_name_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        fs::write(at.join("r_results"), "a file").unwrap();
        let mut files = FileSet::new(at, "r").unwrap();
        let archive = files.folder().archive("results").unwrap();
        archive.create("0.evt").unwrap().put(b"x").unwrap();
        files.add_archive(archive);
        let error = files.commit().unwrap_err().to_string();
        assert!(error.contains("r_results"), "{error}");
        assert_eq!(entries(at), ["r_results"]);
    }

    #[test]
    fn an_abandoned_archive_is_removed_and_others_are_not() {
        let directory = tempfile::tempdir().unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let dead = child.id();
        child.wait().unwrap();
        let make = |name: String, inside: &str| {
            let at = directory.path().join(name);
            fs::create_dir(&at).unwrap();
            fs::write(at.join(inside), "").unwrap();
            at
        };
        let left = make(format!(".r_results.{dead}.0.tmp"), "0.evt");
        let foreign = make(format!(".r_photos.{dead}.0.tmp"), "0.jpg");
        let shown = make(format!("r_results.{dead}.0.tmp"), "0.evt");
        let locked = make(format!(".s_results.{dead}.1.tmp"), "0.evt");
        let held = File::open(&locked).unwrap();
        held.lock().unwrap();
        temporary::remove_abandoned(directory.path());
        assert!(!left.exists());
        assert!(foreign.join("0.jpg").exists() && shown.join("0.evt").exists());
        assert!(locked.join("0.evt").exists());
    }
}
