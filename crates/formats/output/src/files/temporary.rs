//! Where files are until they have their names: a hidden directory next to their final places.
//!
//! It is made when the first file needs a temporary name, and removed with the last one. A process
//! that is killed leaves it behind. The next one that writes there finds it by its name, so no
//! process has to read a directory with thousands of results in it, and removes what is abandoned.
//!
//! The writer of such a file holds a lock on it. The lock ends with the process, even if the
//! process is in another pid namespace or on another machine. A file is removed if it is not
//! locked, is ours, and has the name of a process that does not run.

use super::directory::{Directory, our_uid};
use super::{archive, own_name};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use nix::fcntl::OFlag;

/// The most names that are tried for one file.
pub(super) const ATTEMPTS: u32 = 64;
/// The most entries of a directory that are looked at.
const MOST: usize = 1 << 14;

/// The place of temporary files of one directory of results.
#[derive(Debug)]
pub(super) struct Temporaries {
    directory: Arc<Directory>,
    place: Mutex<Option<Place>>,
}

/// The directory with the temporary files.
#[derive(Debug, Clone)]
struct Place {
    directory: Arc<Directory>,
    /// Whether it is a directory of our own, and not the results' directory.
    is_own: bool,
}

impl Drop for Temporaries {
    fn drop(&mut self) {
        let place = self.place.get_mut().unwrap_or_else(PoisonError::into_inner);
        if place.as_ref().is_some_and(|place| place.is_own) {
            // This fails, as it should, where another session has files there.
            let _ = fs::remove_dir(self.directory.at(hidden()));
        }
    }
}

/// Returns the name of the directory of our own.
fn hidden() -> OsString {
    format!(".midair-{}.tmp", our_uid()).into()
}

impl Temporaries {
    /// Makes nothing yet.
    pub(super) fn of(directory: &Arc<Directory>) -> Temporaries {
        Temporaries {
            directory: Arc::clone(directory),
            place: Mutex::new(None),
        }
    }

    /// Returns the place. Where no directory of our own can be made, it is the results' directory.
    fn place(&self) -> Place {
        let mut place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        place.get_or_insert_with(|| self.found()).clone()
    }

    fn found(&self) -> Place {
        let name = hidden();
        let made = self.directory.made_new(&name).map(Some);
        let is_new = made.is_ok();
        let own = match made {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => self.directory.own(&name),
            made => made,
        };
        let own = own.ok().flatten().map(Arc::new);
        let is_own = own.is_some();
        let directory = own.unwrap_or_else(|| Arc::clone(&self.directory));
        if !is_new {
            remove_abandoned(directory.handle());
        }
        if !is_new && is_own {
            own_name::remove_abandoned(directory.handle());
        }
        Place { directory, is_own }
    }

    /// Returns a path to the directory of our own, if there is one. It is good as long as this value
    /// lives and a file is there.
    pub(super) fn own(&self) -> Option<PathBuf> {
        let place = self.place();
        place.is_own.then(|| place.directory.handle().to_owned())
    }

    /// Makes something under a temporary name. The name is hidden. Its numbers distinguish two
    /// sessions that write to one directory.
    pub(super) fn make<T>(
        &self,
        name: &OsStr,
        mut make_it: impl FnMut(&Path) -> io::Result<T>,
    ) -> io::Result<(T, PathBuf)> {
        let text = name.to_string_lossy();
        let mut missed = false;
        for attempt in 0..ATTEMPTS {
            let place = self.place();
            let temporary = place.directory.at(self::name(&text, attempt));
            match make_it(&temporary) {
                Ok(made) => return Ok((made, temporary)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                // A session that ended may have removed the directory. Then no file is there.
                Err(error) if error.kind() == io::ErrorKind::NotFound && place.is_own => {
                    if missed {
                        return Err(error);
                    }
                    missed = true;
                    let mut place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
                    *place = None;
                }
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }
}

/// Returns a temporary name for a file with this name.
fn name(name: &str, attempt: u32) -> String {
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
pub(super) fn remove_abandoned(directory: &Path) {
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

/// Whether this is a midair file that no process is writing.
fn is_abandoned(path: &Path) -> bool {
    let ours = |meta: &fs::Metadata| meta.is_file() && meta.nlink() == 1 && meta.uid() == our_uid();
    // Only regular files are opened: opening a device may have effects.
    if !fs::symlink_metadata(path).is_ok_and(|meta| ours(&meta)) {
        return false;
    }
    let Ok(file) = open(path) else {
        return false;
    };
    file.metadata().is_ok_and(|meta| ours(&meta))
        && file.try_lock().is_ok()
        && is_named(&file, path)
}

/// Whether this open file has this name now.
pub(super) fn is_named(file: &File, path: &Path) -> bool {
    let is = |meta: fs::Metadata| (meta.dev(), meta.ino());
    match (file.metadata(), fs::symlink_metadata(path)) {
        (Ok(open), Ok(named)) => is(open) == is(named),
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

    fn of(path: &Path) -> Temporaries {
        Temporaries::of(&Arc::new(Directory::open(path).unwrap()))
    }

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
        remove_abandoned(directory.path());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), before);
        assert!(!at(format!(".r_results.db.{dead}.3.tmp")).exists() && locked.exists());
    }

    /// A file that has another name, too, is another user's.
    #[test]
    fn a_file_with_two_names_stays() {
        let directory = tempfile::tempdir().unwrap();
        let temporary = directory.path().join(format!(".r.db.{}.0.tmp", ended()));
        fs::write(&temporary, "kept").unwrap();
        let other = directory.path().join("other");
        fs::hard_link(&temporary, &other).unwrap();
        remove_abandoned(directory.path());
        assert!(temporary.exists());
        fs::remove_file(&other).unwrap();
        remove_abandoned(directory.path());
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

    #[test]
    fn names_that_are_there_are_passed_by_and_other_errors_are_final() {
        let directory = tempfile::tempdir().unwrap();
        let temporaries = of(directory.path());
        let tried = |fails: &dyn Fn(usize) -> Option<io::ErrorKind>| {
            let mut tried: Vec<PathBuf> = Vec::new();
            let made = temporaries.make("r_results.db".as_ref(), |name| {
                tried.push(name.to_path_buf());
                match fails(tried.len()) {
                    Some(kind) => Err(kind.into()),
                    None => Ok(tried.len()),
                }
            });
            let made = made.map_err(|error| error.kind());
            (made, tried)
        };
        let there = io::ErrorKind::AlreadyExists;
        let (made, names) = tried(&|attempt| (attempt < 3).then_some(there));
        assert_eq!(names.len(), 3);
        assert_eq!(made, Ok((3, names[2].clone())));
        assert!(names[0] != names[1] && names[2].parent() == names[0].parent());
        let full = io::ErrorKind::StorageFull;
        let (made, names) = tried(&|_| Some(full));
        assert_eq!((made, names.len()), (Err(full), 1));
        let missing = io::ErrorKind::NotFound;
        let (made, names) = tried(&|_| Some(missing));
        assert_eq!((made, names.len()), (Err(missing), 2));
        let (made, names) = tried(&|_| Some(there));
        assert_eq!((made, names.len()), (Err(there), ATTEMPTS as usize));
    }

    #[test]
    fn the_directory_goes_with_its_last_user_and_comes_again() {
        let directory = tempfile::tempdir().unwrap();
        let count = || fs::read_dir(directory.path()).unwrap().count();
        let make = |of: &Temporaries| of.make("x".as_ref(), |name| File::create(name)).unwrap();
        let [first, second] = [(); 2].map(|()| of(directory.path()));
        assert_eq!(count(), 0);
        let (_, of_first) = make(&first);
        second.own().unwrap();
        fs::remove_file(&of_first).unwrap();
        drop(first);
        assert_eq!(count(), 0);
        let (_, of_second) = make(&second);
        assert_eq!(count(), 1);
        fs::remove_file(of_second).unwrap();
        drop(second);
        assert_eq!(count(), 0);
    }

    /// Another user may have planted something with the name.
    #[test]
    fn what_is_not_ours_alone_is_not_used() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let hidden = directory.path().join(format!(".midair-{}.tmp", our_uid()));
        let make = || {
            let temporaries = of(directory.path());
            let (_, path) = temporaries
                .make("x".as_ref(), |name| File::create(name))
                .unwrap();
            assert!(temporaries.own().is_none());
            let place = path.parent().unwrap().canonicalize().unwrap();
            assert_eq!(place, directory.path().canonicalize().unwrap());
        };
        std::os::unix::fs::symlink("/tmp", &hidden).unwrap();
        make();
        fs::remove_file(&hidden).unwrap();
        fs::create_dir(&hidden).unwrap();
        fs::set_permissions(&hidden, PermissionsExt::from_mode(0o777)).unwrap();
        make();
        assert_eq!(fs::read_dir(&hidden).unwrap().count(), 0);
    }
}
