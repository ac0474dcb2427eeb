//! The directory of some files, held by its descriptor from the moment at which the way to it was
//! checked.
//!
//! The way is walked component by component. A link on it is followed only if it is the user's own
//! or root's: another user's link in a directory that this user can write would lead our files
//! anywhere. (The kernel refuses some of these where `fs.protected_symlinks` is on, which is not the
//! case everywhere.) What is made in the directory afterwards is named below the descriptor, so a
//! component of the way that is replaced meanwhile changes nothing.
//!
//! Decisions: ENG-030 (`docs/deviations/engine.md`).

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat, readlinkat};
use nix::sys::stat::{Mode, mkdirat};
use nix::sys::statfs::{PROC_SUPER_MAGIC, fstatfs};

/// The most links on one way: as many as the kernel follows.
const MOST_LINKS: usize = 40;
/// Users and groups other than the owner's may write.
const OF_OTHERS: u32 = 0o022;

/// What is done where a directory on the way does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Missing {
    /// It is made.
    Make,
    /// It is an error.
    Fail,
    /// The last one that exists is the result.
    Stop,
}

/// A directory, and the way by which it was found.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    /// It is a place (`O_PATH`): all that is known of it is which directory it is.
    file: File,
    /// A path that leads to this directory as long as this value lives.
    handle: PathBuf,
}

impl Directory {
    /// Finds a directory, and makes those on the way that are missing.
    ///
    /// # Errors
    /// The kernel's; permission denied for another user's link.
    pub fn make(path: &Path) -> io::Result<Directory> {
        Directory::found(None, path, Missing::Make)
    }

    /// Finds a directory.
    ///
    /// # Errors
    /// The kernel's; permission denied for another user's link.
    pub fn open(path: &Path) -> io::Result<Directory> {
        Directory::found(None, path, Missing::Fail)
    }

    /// Finds the directory, or the last one on the way that exists.
    pub(super) fn nearest(path: &Path) -> io::Result<Directory> {
        Directory::found(None, path, Missing::Stop)
    }

    /// Finds a directory from this one, and makes those on the way that are missing.
    pub(super) fn make_below(&self, path: &Path) -> io::Result<Directory> {
        Directory::found(Some(self), path, Missing::Make)
    }

    /// Finds a directory from this one.
    pub(super) fn below(&self, path: &Path) -> io::Result<Directory> {
        Directory::found(Some(self), path, Missing::Fail)
    }

    fn found(from: Option<&Directory>, path: &Path, missing: Missing) -> io::Result<Directory> {
        let (path, begin) = match from {
            Some(from) => (from.path.join(path), from.file.try_clone()?),
            None => (std::path::absolute(path)?, root()?),
        };
        let relative = from.map_or(path.as_path(), |from| {
            path.strip_prefix(&from.path).unwrap_or(&path)
        });
        let file = walk(begin, relative, missing)?;
        Ok(Directory::of(file, path))
    }

    fn of(file: File, path: PathBuf) -> Directory {
        let handle = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let is_it = |found: Metadata| {
            let own = file.metadata();
            own.is_ok_and(|own| (own.dev(), own.ino()) == (found.dev(), found.ino()))
        };
        // A program that was started under the profiler may have no /proc.
        let handle = match std::fs::metadata(&handle).is_ok_and(is_it) {
            true => handle,
            false => path.clone(),
        };
        Directory { path, file, handle }
    }

    /// Makes a directory that must not exist yet, for this user alone.
    pub(super) fn made_new(&self, name: &OsStr) -> io::Result<Directory> {
        mkdirat(&self.file, name, Mode::S_IRWXU)?;
        self.own(name)?
            .ok_or_else(|| io::ErrorKind::PermissionDenied.into())
    }

    /// Returns a directory here, if it is this user's own and no other user can write to it. No
    /// link is followed.
    pub(super) fn own(&self, name: &OsStr) -> io::Result<Option<Directory>> {
        let file = directory_at(&self.file, name, OFlag::O_NOFOLLOW)?;
        let meta = file.metadata()?;
        let is_own = meta.uid() == our_uid() && meta.mode() & OF_OTHERS == 0;
        Ok(is_own.then(|| Directory::of(file, self.path.join(name))))
    }

    /// Returns the path, as it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns a path to an entry of this directory, whatever has become of the way to it. It is good
    /// as long as this value lives, and no part of a message.
    pub fn at(&self, name: impl AsRef<Path>) -> PathBuf {
        self.handle.join(name)
    }

    /// Makes an empty file that has its name at once, for this user alone. A file or link that has the
    /// name is removed.
    ///
    /// # Errors
    /// The kernel's.
    pub fn create(&self, name: &str) -> io::Result<File> {
        match std::fs::remove_file(self.at(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(self.at(name))
    }

    /// Returns the directory as a place.
    pub(super) fn place(&self) -> &File {
        &self.file
    }

    /// Returns such a path to the directory itself.
    pub(super) fn handle(&self) -> &Path {
        &self.handle
    }

    /// Returns an entry as a place, whatever it is, or None where there is none. No link is followed.
    pub(super) fn entry(&self, name: &OsStr) -> io::Result<Option<File>> {
        match place_at(&self.file, name) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns where a link here leads to, or None for a link of the kernel's own (`/proc/self/fd/1`).
    pub(super) fn link(&self, name: &OsStr, link: &File) -> io::Result<Option<PathBuf>> {
        if is_proc(&self.file) {
            return Ok(None);
        }
        target(&self.file, name, link).map(Some)
    }
}

/// Returns the user who will own the files.
pub(super) fn our_uid() -> u32 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    // The ids are the real, effective, saved and file system ids (source: proc(5)).
    let of_files = line.and_then(|ids| ids.split_ascii_whitespace().nth(3));
    of_files.and_then(|id| id.parse().ok()).unwrap_or(u32::MAX)
}

fn root() -> io::Result<File> {
    directory_at(nix::fcntl::AT_FDCWD, OsStr::new("/"), OFlag::empty())
}

fn directory_at(directory: impl std::os::fd::AsFd, name: &OsStr, more: OFlag) -> io::Result<File> {
    // As a directory, so that an automatic mount is made.
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC | more;
    Ok(openat(directory, name, flags, Mode::empty())?.into())
}

fn place_at(directory: &File, name: &OsStr) -> io::Result<File> {
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    Ok(openat(directory, name, flags, Mode::empty())?.into())
}

fn is_proc(directory: &File) -> bool {
    fstatfs(directory).is_ok_and(|found| found.filesystem_type() == PROC_SUPER_MAGIC)
}

fn parts(path: &Path) -> impl DoubleEndedIterator<Item = OsString> {
    path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    })
}

fn walk(begin: File, path: &Path, missing: Missing) -> io::Result<File> {
    let mut here = if path.is_absolute() { root()? } else { begin };
    let mut ahead: VecDeque<OsString> = parts(path).collect();
    let mut links = 0;
    while let Some(name) = ahead.pop_front() {
        let mut next = directory_at(&here, &name, OFlag::O_NOFOLLOW);
        if next
            .as_ref()
            .is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
        {
            match missing {
                Missing::Fail => {}
                Missing::Stop => return Ok(here),
                Missing::Make => {
                    match mkdirat(&here, name.as_os_str(), Mode::from_bits_truncate(0o777)) {
                        Ok(()) | Err(Errno::EEXIST) => {}
                        Err(error) => return Err(error.into()),
                    }
                    next = directory_at(&here, &name, OFlag::O_NOFOLLOW);
                }
            }
        }
        match next {
            Ok(next) => {
                here = next;
                continue;
            }
            // It may be a link.
            Err(error) if error.raw_os_error() == Some(Errno::ENOTDIR as i32) => {}
            Err(error) => return Err(error),
        }
        let link = place_at(&here, &name)?;
        if !link.metadata()?.is_symlink() {
            return Err(Errno::ENOTDIR.into());
        }
        links += 1;
        if links > MOST_LINKS {
            return Err(Errno::ELOOP.into());
        }
        if is_proc(&here) {
            // A link of the kernel's own leads to an open file, and its text need not be a path.
            here = directory_at(&here, &name, OFlag::empty())?;
            continue;
        }
        let to = target(&here, &name, &link)?;
        if to.is_absolute() {
            here = root()?;
        }
        for part in parts(&to).rev() {
            ahead.push_front(part);
        }
    }
    Ok(here)
}

/// Returns the text of a link, if it may be followed.
fn target(directory: &File, name: &OsStr, link: &File) -> io::Result<PathBuf> {
    let (of, meta) = (directory.metadata()?, link.metadata()?);
    if !may_be_followed(&of, &meta, our_uid()) {
        let what = format!(
            "{} is a symbolic link of user {}: use its target instead",
            name.display(),
            meta.uid()
        );
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
    }
    Ok(readlinkat(link, "")?.into())
}

/// Whether only this user and root can have put the link there. Whoever can write to a directory
/// can give another user's link a second name in it.
fn may_be_followed(directory: &Metadata, link: &Metadata, our_uid: u32) -> bool {
    let known = |uid| uid == 0 || uid == our_uid;
    let is_closed = known(directory.uid()) && directory.mode() & OF_OTHERS == 0;
    known(link.uid()) && (is_closed || link.nlink() == 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};

    fn inode(path: &Path) -> u64 {
        fs::metadata(path).unwrap().ino()
    }

    #[test]
    fn what_the_kernel_finds_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("a/b")).unwrap();
        fs::create_dir(at("c")).unwrap();
        symlink("../c", at("a/link")).unwrap();
        symlink(at("a"), at("absolute")).unwrap();
        symlink("loop", at("loop")).unwrap();
        fs::write(at("file"), "").unwrap();
        for (path, wanted) in [
            ("a/b", "a/b"),
            ("a/link", "c"),
            ("absolute/b", "a/b"),
            ("absolute/link/../a/./b", "a/b"),
            ("a/b/..", "a"),
        ] {
            let found = Directory::open(&at(path)).unwrap();
            assert_eq!(inode(found.handle()), inode(&at(wanted)), "{path}");
            assert_eq!(found.path(), at(path));
        }
        for path in ["no", "a/no", "file", "file/x", "loop"] {
            assert!(Directory::open(&at(path)).is_err(), "{path}");
        }
        let made = Directory::make(&at("absolute/link/new/newer")).unwrap();
        assert_eq!(inode(made.handle()), inode(&at("c/new/newer")));
        assert!(Directory::make(&at("file/x")).is_err());
        let nearest = Directory::nearest(&at("c/x/y/z")).unwrap();
        assert_eq!(inode(nearest.handle()), inode(&at("c")));
        let own = Directory::open(Path::new(&format!(
            "/proc/self/fd/{}",
            made.file.as_raw_fd()
        )));
        assert_eq!(inode(own.unwrap().handle()), inode(&at("c/new/newer")));
    }

    /// The way is checked once.
    #[test]
    fn a_way_that_is_replaced_leads_nowhere_else() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("there")).unwrap();
        fs::create_dir(at("elsewhere")).unwrap();
        let directory = Directory::open(&at("there")).unwrap();
        fs::rename(at("there"), at("moved")).unwrap();
        symlink(at("elsewhere"), at("there")).unwrap();
        fs::write(directory.at("file"), "x").unwrap();
        assert!(at("moved/file").exists() && !at("elsewhere/file").exists());
        // Not even at the last step.
        let parent = Directory::open(dir.path()).unwrap();
        assert!(parent.own("there".as_ref()).is_err());
        assert!(parent.own("moved".as_ref()).unwrap().is_some());
    }

    #[test]
    fn a_strangers_link_is_no_way() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("there")).unwrap();
        symlink(at("there"), at("link")).unwrap();
        fs::hard_link(at("link"), at("second")).unwrap();
        let mode = |mode| {
            fs::set_permissions(dir.path(), fs::Permissions::from_mode(mode)).unwrap();
        };
        let is_way = |name: &str| Directory::open(&at(name)).is_ok();
        assert!(is_way("link") && is_way("second"));
        // Others can write there, and may have given our link a second name.
        mode(0o1777);
        assert!(!is_way("link") && !is_way("second"));
        fs::remove_file(at("second")).unwrap();
        assert!(is_way("link"));
        // Only root can make one that belongs to another user.
        if our_uid() != 0 {
            return;
        }
        lchown(at("link"), Some(1000), None).unwrap();
        for modes in [0o1777, 0o777, 0o755] {
            mode(modes);
            for owner in [0, 1000, 1001] {
                chown(dir.path(), Some(owner), None).unwrap();
                let error = Directory::make(&at("link/new")).unwrap_err();
                assert!(error.to_string().contains("user 1000"), "{error}");
            }
        }
        assert_eq!(fs::read_dir(at("there")).unwrap().count(), 0);
    }
}
