//! Looks up paths that a target names, beneath the target's root.

use std::collections::VecDeque;
use std::ffi::{CString, OsStr, OsString};
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use midair_ptrace::{sys, with_own_rights};

use super::kernel::{self, DIRECTORY, PATH, PROC_MAGIC};
use super::mounts::Mounts;
use crate::{Tid, task};

/// The most links that are followed on one way: as many as the kernel follows.
const MOST_LINKS: usize = 40;
/// The most entries of one directory that are listed.
const MOST_ENTRIES: usize = 65_536;
/// `ELOOP` and `ENOTDIR` on this machine.
const ELOOP: i32 = 40;
const ENOTDIR: i32 = 20;

/// A directory as a process sees it: the process's root, or a directory beneath it.
///
/// What is found from here never lies outside of the root, whatever links and `..` say. Each
/// component is opened by itself, from the descriptor of the directory before it, and links are
/// followed by their text. (`openat2` with `RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS` gives the same
/// result. But it contacts each file system on the way before we could see that this file system
/// may never answer.) Files are opened with the real user's permissions, so that raised rights of
/// this program open nothing.
#[derive(Debug, Clone)]
pub struct Place {
    /// The directories from the root to here. There is at least one.
    way: Vec<Arc<File>>,
    rules: Arc<Rules>,
}

/// The rules for which files of a process may be touched at all.
#[derive(Debug)]
pub(crate) struct Rules {
    /// None for a process of the caller's own: if its files block, only its owner waits.
    pub(super) mounts: Option<Mounts>,
}

/// What a path led to. It has not been opened for reading yet.
#[derive(Debug)]
pub struct Found {
    way: Vec<Arc<File>>,
    file: Arc<File>,
    metadata: Metadata,
}

impl Found {
    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.metadata.is_file()
    }

    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.metadata.is_dir()
    }

    /// Returns its inode number.
    pub fn inode(&self) -> u64 {
        self.metadata.ino()
    }

    /// Opens it for reading if it is a regular file. Nothing else is ever opened.
    ///
    /// # Errors
    /// The kernel's error, for the real user; invalid input where it is not a regular file.
    pub fn open(&self) -> io::Result<File> {
        open_regular(&self.file, &self.metadata)
    }
}

/// Opens `file` for reading, if `metadata` says that it is a regular file.
pub(super) fn open_regular(file: &File, metadata: &Metadata) -> io::Result<File> {
    if !metadata.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("it is {}, not a regular file", kind(metadata)),
        ));
    }
    with_own_rights(|| kernel::reopen(file, 0))?
}

fn kind(metadata: &Metadata) -> &'static str {
    let kind = metadata.file_type();
    match () {
        () if kind.is_dir() => "a directory",
        () if kind.is_fifo() => "a pipe",
        () if kind.is_char_device() || kind.is_block_device() => "a device",
        () if kind.is_socket() => "a socket",
        () if kind.is_symlink() => "a link",
        () => "another kind of file",
    }
}

/// The error for a file that was not touched, because its file system may never answer.
pub(super) fn not_asked() -> io::Error {
    io::Error::new(
        io::ErrorKind::Unsupported,
        "it is on a FUSE file system, which may never answer",
    )
}

impl Place {
    /// Returns the root of the process that the live thread `tid` belongs to.
    ///
    /// # Errors
    /// The kernel's error: a user who may not trace the process may not look beneath its root.
    pub fn root_of(tid: impl Into<Tid>) -> io::Result<Place> {
        let tid = tid.into();
        Place::root_under(tid, &Arc::new(Rules::of(tid)?))
    }

    /// As `root_of`, but under rules that are known already.
    pub(crate) fn root_under(tid: Tid, rules: &Arc<Rules>) -> io::Result<Place> {
        let root = kernel::behind_link(&format!("{tid}/root"), DIRECTORY)?;
        Place::starting(root, rules)
    }

    /// Returns our own root, for files of this machine.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn own_root() -> io::Result<Place> {
        Place::own_root_under(&Arc::new(Rules { mounts: None }))
    }

    /// Returns our own root under the rules for a process. It is used for a path that the process
    /// names and that is seen from our root; the process may name anything.
    pub(crate) fn own_root_under(rules: &Arc<Rules>) -> io::Result<Place> {
        let root = sys::open_at(None, c"/", PATH | DIRECTORY)?;
        Place::starting(root, rules)
    }

    fn starting(root: File, rules: &Arc<Rules>) -> io::Result<Place> {
        rules.check(&root)?;
        Ok(Place {
            way: vec![Arc::new(root)],
            rules: Arc::clone(rules),
        })
    }

    /// Returns a descriptor of this directory, for a process that is to run in it.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        let here = self.way.last().ok_or(io::ErrorKind::NotFound)?;
        here.try_clone().map(OwnedFd::from)
    }

    /// Looks up a path. A path with a leading `/` starts at the root, any other starts here.
    ///
    /// # Errors
    /// As open(2) would say, with the real user's permissions; unsupported where the way leads through
    /// a file system that may never answer.
    pub fn find(&self, path: impl AsRef<Path>) -> io::Result<Found> {
        with_own_rights(|| self.walk(path.as_ref()))?
    }

    fn walk(&self, path: &Path) -> io::Result<Found> {
        let mut way = self.way.clone();
        let mut ahead: VecDeque<OsString> = VecDeque::new();
        let mut links = 0;
        push(&mut ahead, &mut way, path);
        loop {
            let here = Arc::clone(way.last().ok_or(io::ErrorKind::NotFound)?);
            let Some(name) = ahead.pop_front() else {
                let metadata = here.metadata()?;
                return Ok(Found {
                    way,
                    file: here,
                    metadata,
                });
            };
            if name == ".." {
                if way.len() > 1 {
                    way.pop();
                }
                continue;
            }
            let next = sys::open_at(Some(&here), &CString::new(name.as_bytes())?, PATH)?;
            self.rules.check(&next)?;
            let metadata = next.metadata()?;
            if metadata.is_symlink() {
                links += 1;
                if links > MOST_LINKS {
                    return Err(io::Error::from_raw_os_error(ELOOP));
                }
                let text = sys::link_text(&next)?;
                if is_proc(&next) && is_magic(&text) {
                    return Err(io::Error::from_raw_os_error(ELOOP));
                }
                let text = PathBuf::from(OsString::from_vec(text));
                push(&mut ahead, &mut way, &text);
            } else if metadata.is_dir() {
                way.push(Arc::new(next));
            } else if ahead.is_empty() {
                return Ok(Found {
                    way,
                    file: Arc::new(next),
                    metadata,
                });
            } else {
                return Err(io::Error::from_raw_os_error(ENOTDIR));
            }
        }
    }

    /// Returns the directory at a path.
    ///
    /// # Errors
    /// As [`Place::find`]; not a directory.
    pub fn enter(&self, path: impl AsRef<Path>) -> io::Result<Place> {
        let found = self.find(path)?;
        match found.is_directory() {
            true => Ok(Place {
                way: found.way,
                rules: Arc::clone(&self.rules),
            }),
            false => Err(io::Error::from_raw_os_error(ENOTDIR)),
        }
    }

    /// Returns the directory at a path, as the root of everything that is looked up from it.
    ///
    /// # Errors
    /// As [`Place::enter`].
    pub fn at_root_of(&self, path: impl AsRef<Path>) -> io::Result<Place> {
        let mut place = self.enter(path)?;
        place.way.drain(..place.way.len().saturating_sub(1));
        Ok(place)
    }

    /// Opens a regular file for reading.
    ///
    /// # Errors
    /// As [`Place::find`] and [`Found::open`].
    pub fn open(&self, path: impl AsRef<Path>) -> io::Result<File> {
        self.find(path)?.open()
    }

    /// Reads all of a regular file of at most `most` bytes.
    ///
    /// # Errors
    /// As [`Place::open`]; file too large.
    pub fn read(&self, path: impl AsRef<Path>, most: usize) -> io::Result<Vec<u8>> {
        kernel::whole(self.open(path)?, most)
    }

    /// Returns the names of a directory's entries.
    ///
    /// # Errors
    /// As [`Place::enter`]; file too large where it has more than 65,536.
    pub fn list(&self, path: impl AsRef<Path>) -> io::Result<Vec<OsString>> {
        let directory = self.enter(path)?;
        let here = directory.way.last().ok_or(io::ErrorKind::NotFound)?;
        let opened = with_own_rights(|| kernel::reopen(here, DIRECTORY))??;
        kernel::entries(&opened, MOST_ENTRIES)
    }

    /// Whether the path leads to a regular file.
    pub fn is_file(&self, path: impl AsRef<Path>) -> bool {
        self.find(path).is_ok_and(|found| found.is_file())
    }

    /// Whether the path leads to a directory.
    pub fn is_directory(&self, path: impl AsRef<Path>) -> bool {
        self.find(path).is_ok_and(|found| found.is_directory())
    }

    /// Returns the `/proc` that is mounted at `path`, if the kernel's process files are mounted
    /// there.
    ///
    /// # Errors
    /// As [`Place::enter`]; unsupported where something else is there.
    pub fn processes_at(&self, path: impl AsRef<Path>) -> io::Result<Processes> {
        let place = self.enter(path)?;
        let here = place.way.last().ok_or(io::ErrorKind::NotFound)?;
        match is_proc(here) {
            true => Ok(Processes(Arc::clone(here))),
            false => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "it is not the kernel's",
            )),
        }
    }
}

/// A `/proc` that a process sees and that was verified to be the kernel's.
#[derive(Debug)]
pub struct Processes(Arc<File>);

impl Processes {
    /// Returns the text of a file in it. The file is read with all rights that this program has, as
    /// our own `/proc` is.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn text(&self, below: &str) -> io::Result<Vec<u8>> {
        let file = sys::open_following(&self.0, &CString::new(below)?, 0)?;
        kernel::whole(file, 1 << 20)
    }

    /// Whether there is an entry of this name.
    ///
    /// # Errors
    /// The kernel's error, except the one that there is no such entry.
    pub fn has(&self, name: &str) -> io::Result<bool> {
        match sys::open_at(Some(&self.0), &CString::new(name)?, PATH) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl Rules {
    /// Returns the rules for the process of a live thread.
    pub(crate) fn of(tid: Tid) -> io::Result<Rules> {
        let mounts = match belongs_to_caller(tid) {
            true => None,
            false => Some(Mounts::of(Some(tid))?),
        };
        Ok(Rules { mounts })
    }

    /// Fails where the file system that contains `file` may never answer.
    pub(super) fn check(&self, file: &File) -> io::Result<()> {
        let Some(mounts) = &self.mounts else {
            return Ok(());
        };
        match mounts.answer(&sys::lies(file)?) {
            Some(true) => Ok(()),
            Some(false) | None => Err(not_asked()),
        }
    }
}

/// Whether `file` lies in the kernel's process files. The caller has checked before that its file
/// system answers.
fn is_proc(file: &File) -> bool {
    sys::file_system(file).is_ok_and(|magic| magic == PROC_MAGIC)
}

/// Whether the process of `tid` belongs to the same user as this process. If its files block,
/// only that user is blocked.
fn belongs_to_caller(tid: Tid) -> bool {
    let (us, _) = sys::real_ids();
    task::status(tid).is_ok_and(|status| status.uid.iter().all(|&uid| uid == us))
}

/// Puts the components of `path` in front of those that are still ahead. A path that starts with
/// `/` goes back to the root.
fn push(ahead: &mut VecDeque<OsString>, way: &mut Vec<Arc<File>>, path: &Path) {
    let mut parts: Vec<OsString> = Vec::new();
    for part in path.components() {
        match part {
            Component::RootDir | Component::Prefix(_) => way.truncate(1),
            Component::CurDir => {}
            Component::ParentDir => parts.push(OsStr::new("..").to_owned()),
            Component::Normal(name) => parts.push(name.to_owned()),
        }
    }
    for part in parts.into_iter().rev() {
        ahead.push_front(part);
    }
}

/// Whether this is the text of a link of the kernel's that leads to an open file of a process, and
/// not to the path that its text shows.
fn is_magic(text: &[u8]) -> bool {
    text.first() == Some(&b'/') || text.windows(2).any(|part| part == b":[")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    /// Returns a place that treats this directory as the root of another user's process.
    fn root(directory: &Path) -> Place {
        let mounts = Some(Mounts::of(None).unwrap());
        Place::starting(File::open(directory).unwrap(), &Arc::new(Rules { mounts })).unwrap()
    }

    #[test]
    fn links_stay_beneath_the_root() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("a/b")).unwrap();
        fs::create_dir(at("etc")).unwrap();
        fs::write(at("etc/passwd"), "inside").unwrap();
        fs::write(at("a/b/file"), "text").unwrap();
        symlink("/etc/passwd", at("a/absolute")).unwrap();
        symlink("../../../../../../etc/passwd", at("a/b/up")).unwrap();
        symlink("b/../../a/b/file", at("a/around")).unwrap();
        symlink("loop", at("loop")).unwrap();
        symlink("/nowhere", at("dangling")).unwrap();
        let root = root(dir.path());
        let read = |path: &str| {
            root.read(path, 100)
                .map(|bytes| String::from_utf8(bytes).unwrap())
        };
        for inside in [
            "/a/absolute",
            "a/b/up",
            "/../../etc/passwd",
            "/a/b/../../etc/passwd",
        ] {
            assert_eq!(read(inside).unwrap(), "inside", "{inside}");
        }
        assert_eq!(read("a/around").unwrap(), "text");
        assert_eq!(read("loop").unwrap_err().raw_os_error(), Some(ELOOP));
        assert_eq!(
            read("dangling").unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
        assert_eq!(
            read("etc/passwd/x").unwrap_err().raw_os_error(),
            Some(ENOTDIR)
        );
        let b = root.enter("a/b").unwrap();
        assert_eq!(b.read("file", 4).unwrap(), b"text");
        assert_eq!(
            b.read("file", 3).unwrap_err().kind(),
            io::ErrorKind::FileTooLarge
        );
        assert_eq!(b.read("../../etc/passwd", 100).unwrap(), b"inside");
        let mut names = root.list("a").unwrap();
        names.sort();
        assert_eq!(names, ["absolute", "around", "b"]);
        assert!(root.is_directory("a/b") && !root.is_file("a/b") && root.is_file("a/b/up"));
    }

    #[test]
    fn only_regular_files_are_opened() {
        use std::os::unix::net::UnixListener;
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let made = std::process::Command::new("mkfifo")
            .arg(at("pipe"))
            .status();
        assert!(made.unwrap().success());
        let _socket = UnixListener::bind(at("socket")).unwrap();
        fs::create_dir(at("directory")).unwrap();
        let root = root(dir.path());
        for (name, word) in [
            ("pipe", "pipe"),
            ("socket", "socket"),
            ("directory", "directory"),
        ] {
            let refused = root.read(name, 10).unwrap_err();
            assert!(refused.to_string().contains(word), "{refused}");
        }
        let own = Place::own_root().unwrap();
        assert!(
            own.read("/dev/zero", 10)
                .unwrap_err()
                .to_string()
                .contains("device")
        );
    }

    #[test]
    fn no_magic_link_is_followed() {
        let own = Place::own_root().unwrap();
        for magic in [
            "/proc/self/exe",
            "/proc/self/root/etc",
            "/proc/self/ns/user",
            "/proc/self/fd/0",
        ] {
            assert!(own.find(magic).is_err(), "{magic}");
        }
        // `self` itself is an ordinary link.
        assert!(own.is_file("/proc/self/status") && own.is_file("/proc/mounts"));
        assert!(own.processes_at("/proc").unwrap().has("self").unwrap());
        assert!(own.processes_at("/tmp").is_err());
    }

    #[test]
    fn ourselves() {
        let me = crate::Pid::own();
        assert!(belongs_to_caller(me.leader()));
        assert!(Place::root_of(me).unwrap().is_directory("/proc"));
        assert!(Place::root_of(Tid::MAX).is_err());
    }
}
