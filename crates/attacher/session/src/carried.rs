//! Our libraries where the program carries them behind its own end (`midair` as one file).
//!
//! An attach takes them from memory: nothing is written to a disk. A program that we start needs paths
//! (`LD_PRELOAD`), so they are unpacked for it, once, into the user's cache directory.

use crate::rights;
use midair_bundle::Bundle;
use midair_failure::{Failure, Kind};
use midair_ptrace::memfd_with;
use std::collections::HashMap;
use std::ffi::CString;
use std::fs::{File, Permissions};
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// What the program carries.
#[derive(Debug)]
pub(crate) struct Carried {
    bundle: Bundle,
    /// The memory files that were made so far.
    opened: Mutex<HashMap<String, Arc<File>>>,
}

impl Carried {
    /// Returns what the running program carries, or none if it is not the one file.
    ///
    /// # Errors
    /// [`Kind::Installation`] where the program's appended files are damaged.
    pub(crate) fn find() -> Result<Option<Carried>, Failure> {
        let bundle = Bundle::of_this_program().map_err(|error| damaged(&error))?;
        Ok(bundle.map(Carried::new))
    }

    fn new(bundle: Bundle) -> Carried {
        Carried {
            bundle,
            opened: Mutex::default(),
        }
    }

    /// Whether there is a file with that name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.bundle.files().any(|(carried, _)| carried == name)
    }

    /// Returns the file with that name, in memory.
    ///
    /// # Errors
    /// Not found for a file that is not carried; invalid data where the file is damaged; the
    /// kernel's.
    pub(crate) fn open(&self, name: &str) -> io::Result<Arc<File>> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = opened.get(name) {
            return Ok(Arc::clone(file));
        }
        let last = name.rsplit('/').next().unwrap_or(name);
        let memory = memfd_with(&CString::new(last)?, &self.bundle.read(name)?)?;
        let file = Arc::new(File::from(memory));
        opened.insert(name.to_owned(), Arc::clone(&file));
        Ok(file)
    }

    /// Returns a path by which this process and its children can run the program with that name, as
    /// long as `self` lives.
    ///
    /// # Errors
    /// As [`Carried::open`].
    pub(crate) fn runnable(&self, name: &str) -> io::Result<PathBuf> {
        let descriptor = self.open(name)?.as_raw_fd();
        Ok(PathBuf::from(format!("/proc/self/fd/{descriptor}")))
    }

    /// Writes all files below a directory that belongs to the user alone, unless they are there
    /// already. Returns that directory.
    ///
    /// # Errors
    /// [`Kind::Installation`] where no directory can be written or trusted.
    pub(crate) fn unpack(&self) -> Result<PathBuf, Failure> {
        // A program with more rights than its user must not use them to make files.
        rights::as_real_user(|| self.unpack_below(&cache()))
            .and_then(|unpacked| unpacked)
            .map_err(|error| {
                Failure::new(
                    Kind::Installation,
                    format!("cannot unpack the libraries for the started program: {error}"),
                )
                .hint("choose a writable directory of your own: XDG_CACHE_HOME=DIR")
            })
    }

    fn unpack_below(&self, cache: &Path) -> io::Result<PathBuf> {
        let mut files = Vec::new();
        let mut hasher = DefaultHasher::new();
        for (name, executable) in self.bundle.files() {
            let bytes = self.bundle.read(name)?;
            hasher.write(name.as_bytes());
            hasher.write(&bytes);
            files.push((name, executable, bytes));
        }
        // Programs of another build that still run keep their own directory.
        let build = format!("{}-{:016x}", env!("CARGO_PKG_VERSION"), hasher.finish());
        let prefix = cache.join(build);
        create_all(cache.parent().unwrap_or(cache))?;
        for directory in [cache, &prefix] {
            own_directory(directory)?;
        }
        for (name, executable, bytes) in files {
            let path = prefix.join(name);
            let parents = Path::new(name).ancestors().skip(1);
            let mut parents: Vec<&Path> = parents.filter(|it| *it != Path::new("")).collect();
            parents.reverse();
            for parent in parents {
                own_directory(&prefix.join(parent))?;
            }
            write_if_other(&path, &bytes, if executable { 0o700 } else { 0o600 })?;
        }
        Ok(prefix)
    }
}

/// Returns where unpacked files belong: below the user's cache directory, or else in a directory of
/// the user's own in `/tmp`.
fn cache() -> PathBuf {
    let absolute = |name: &str| {
        let path = PathBuf::from(std::env::var_os(name)?);
        path.is_absolute().then_some(path)
    };
    let usual = || Some(absolute("HOME")?.join(".cache"));
    match absolute("XDG_CACHE_HOME").or_else(usual) {
        Some(directory) => directory.join("midair"),
        None => PathBuf::from(format!("/tmp/midair-{}", nix::unistd::getuid())),
    }
}

fn create_all(directory: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
}

/// Makes the directory, or makes sure that only this user can write to it, because what lies there
/// is loaded into programs.
#[expect(clippy::disallowed_methods, reason = "the user's own directory")]
fn own_directory(directory: &Path) -> io::Result<()> {
    match std::fs::DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let found = std::fs::symlink_metadata(directory)?;
    let ours = found.is_dir() && found.uid() == nix::unistd::geteuid().as_raw();
    if ours && found.mode() & 0o022 == 0 {
        return Ok(());
    }
    let what = format!("other users can write or own {}", directory.display());
    Err(io::Error::new(ErrorKind::PermissionDenied, what))
}

/// Writes a file unless it has these contents already. It is replaced by a rename, so that programs
/// that have mapped the old file keep it.
#[expect(clippy::disallowed_methods, reason = "in the user's own directory")]
fn write_if_other(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let found = std::fs::symlink_metadata(path);
    if found.is_ok_and(|found| found.is_file()) && std::fs::read(path).is_ok_and(|is| is == bytes) {
        return Ok(());
    }
    let new = path.with_added_extension(format!("{}.new", std::process::id()));
    let mut options = File::options();
    let opened = options.write(true).create(true).truncate(true).mode(mode);
    let mut file = opened.open(&new)?;
    file.write_all(bytes)?;
    file.set_permissions(Permissions::from_mode(mode))?;
    std::fs::rename(&new, path)
}

fn damaged(error: &io::Error) -> Failure {
    Failure::new(Kind::Installation, error.to_string())
        .hint("copy the program again, and compare its checksum with SHA256SUMS")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::fs::symlink;

    fn carried() -> Carried {
        let files = [
            midair_bundle::Carried {
                name: "lib/a.so",
                executable: false,
                bytes: b"a library",
            },
            midair_bundle::Carried {
                name: "lib/deep/helper",
                executable: true,
                bytes: b"#!/bin/sh\nexit 7\n",
            },
        ];
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&midair_bundle::append(b"program", &files).unwrap())
            .unwrap();
        Carried::new(Bundle::open(file).unwrap().unwrap())
    }

    #[test]
    fn a_file_that_is_carried_is_one_memory_file() {
        let carried = carried();
        let first = carried.open("lib/a.so").unwrap();
        let again = carried.open("lib/a.so").unwrap();
        assert_eq!(first.as_raw_fd(), again.as_raw_fd());
        let mut text = String::new();
        let path = carried.runnable("lib/a.so").unwrap();
        File::open(path).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "a library");
        assert!(carried.has("lib/a.so") && !carried.has("lib/b.so"));
        assert_eq!(
            carried.open("lib/b.so").unwrap_err().kind(),
            ErrorKind::NotFound
        );
    }

    #[test]
    fn unpacked_files_are_right_again_after_somebody_changed_them() {
        let (carried, home) = (carried(), tempfile::tempdir().unwrap());
        let cache = home.path().join("made/midair");
        let prefix = carried.unpack_below(&cache).unwrap();
        let helper = prefix.join("lib/deep/helper");
        let status = std::process::Command::new(&helper).status().unwrap();
        assert_eq!(status.code(), Some(7));
        let inode = |path: &Path| std::fs::metadata(path).unwrap().ino();
        let before = (inode(&prefix.join("lib/a.so")), inode(&helper));
        std::fs::write(&helper, "other").unwrap();
        assert_eq!(carried.unpack_below(&cache).unwrap(), prefix);
        let after = (inode(&prefix.join("lib/a.so")), inode(&helper));
        assert_eq!(after.0, before.0);
        assert_ne!(
            after.1, before.1,
            "a program that has it mapped would see it change"
        );
        assert_eq!(std::fs::read(&helper).unwrap(), b"#!/bin/sh\nexit 7\n");
        assert_eq!(
            std::fs::read_dir(prefix.join("lib/deep")).unwrap().count(),
            1
        );
    }

    #[test]
    fn a_directory_that_others_can_write_is_not_used() {
        let (carried, home) = (carried(), tempfile::tempdir().unwrap());
        let open = home.path().join("open");
        std::fs::create_dir(&open).unwrap();
        std::fs::set_permissions(&open, Permissions::from_mode(0o777)).unwrap();
        let link = home.path().join("link");
        symlink(home.path(), &link).unwrap();
        for cache in [open, link] {
            let refused = carried.unpack_below(&cache).unwrap_err();
            assert_eq!(
                refused.kind(),
                ErrorKind::PermissionDenied,
                "{}",
                cache.display()
            );
        }
    }
}
