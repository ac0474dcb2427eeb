//! The identity of the target, read while it lives.

use crate::rights;
use midair_agents::Files;
use midair_failure::plain;
use midair_procinfo::files::{MOST_WORDS, Place, kernel_text_up_to};
use midair_procinfo::{Pid, Tid, task};
use midair_results::{Identity, Source};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};

/// The most bytes of one file: of the topology, a list of processors, or a list of GPU names.
const MOST_BYTES: usize = 4 << 20;
/// The most bytes of all these files.
const MOST_IN_ALL: usize = 64 << 20;
/// The most files and directories. A node of a large machine has some hundreds.
const MOST_FILES: usize = 65_536;

/// The most threads whose names are read.
const MOST_THREADS: usize = 4096;

/// Returns the name that a view shows for a process.
pub(crate) fn name(pid: Pid, identity: &Identity) -> String {
    let comm = task::comm(pid).unwrap_or_default();
    let program = identity.process.command.first();
    let program = program.and_then(|path| path.rsplit('/').next());
    match (comm.is_empty(), program) {
        (true, Some(program)) => program.to_owned(),
        _ => midair_procinfo::show(&comm),
    }
}

/// Reads the identity. What cannot be read stays empty. `live` is a thread of the process that has
/// not ended.
pub(crate) fn read(pid: Pid, live: Tid) -> Identity {
    let from_outside = FromOutside {
        theirs: Place::root_of(live).ok().map(Reader::of),
        ours: Place::own_root().ok().map(Reader::of),
    };
    let mut identity = Identity::read(pid, live, &from_outside);
    identity.process.threads = threads(pid, live);
    identity
}

/// Returns the current names of a process's threads, by the ids that the threads have in the
/// process's own pid namespace. The main thread is left out, because it has the program's name.
pub(crate) fn threads(pid: Pid, live: Tid) -> BTreeMap<u32, String> {
    let mut all = BTreeMap::new();
    // All threads of a process are in its pid namespace. In ours they have one id.
    let has_own_ids = !task::status(live).is_ok_and(|status| status.ns_pid.len() == 1);
    let own_id = |tid: Tid| match has_own_ids {
        true => Some(task::status(tid).ok()?.own_tid().unwrap_or(tid)),
        false => Some(tid),
    };
    let tids = task::list(live).unwrap_or_default().into_iter();
    for tid in tids.filter(|tid| *tid != pid.leader()).take(MOST_THREADS) {
        let (Ok(name), Some(own)) = (task::comm(tid), own_id(tid)) else {
            continue;
        };
        // A thread chooses its own name, so the name is not trusted.
        let name = plain::line(&String::from_utf8_lossy(&name))
            .trim()
            .to_owned();
        if !name.is_empty() {
            all.insert(own.get(), name);
        }
    }
    all
}

/// Another process, none of whose data is trusted.
struct FromOutside {
    theirs: Option<Reader>,
    ours: Option<Reader>,
}

impl Source for FromOutside {
    fn kernel(&self, below: &str) -> io::Result<Vec<u8>> {
        kernel_text_up_to(below, MOST_WORDS)
    }

    fn theirs(&self) -> Option<&dyn Files> {
        self.theirs.as_ref().map(|reader| reader as &dyn Files)
    }

    fn ours(&self) -> Option<&dyn Files> {
        self.ours.as_ref().map(|reader| reader as &dyn Files)
    }

    /// Whether variables for modelled GPUs count. They do not where this program has rights that
    /// its user lacks.
    fn trusts_variables(&self) -> bool {
        !rights::is_privileged()
    }
}

/// Reads files beneath a root, within limits for all files together. It keeps the directories that
/// it has opened, since a topology has many files in few directories.
struct Reader {
    root: Place,
    known: RefCell<HashMap<PathBuf, Place>>,
    bytes: Cell<usize>,
    files: Cell<usize>,
}

impl Reader {
    fn of(root: Place) -> Reader {
        Reader {
            root,
            known: RefCell::default(),
            bytes: Cell::new(MOST_IN_ALL),
            files: Cell::new(MOST_FILES),
        }
    }

    fn directory(&self, path: &Path) -> io::Result<Place> {
        if let Some(known) = self.known.borrow().get(path) {
            return Ok(known.clone());
        }
        let found = match (path.parent(), path.file_name()) {
            (Some(above), Some(name)) => self.directory(above)?.enter(name)?,
            _ => self.root.enter(path)?,
        };
        self.known
            .borrow_mut()
            .insert(path.to_owned(), found.clone());
        Ok(found)
    }

    fn take(of: &Cell<usize>, count: usize) -> io::Result<()> {
        let left = of.get().checked_sub(count);
        of.set(left.ok_or(io::ErrorKind::FileTooLarge)?);
        Ok(())
    }
}

impl Files for Reader {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        Reader::take(&self.files, 1)?;
        let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let bytes = self.directory(above)?.read(name, MOST_BYTES)?;
        Reader::take(&self.bytes, bytes.len())?;
        Ok(bytes)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let names = self.directory(path)?.list("")?;
        Reader::take(&self.files, names.len())?;
        let names = names.into_iter();
        Ok(names.filter_map(|name| name.into_string().ok()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ourselves() {
        let me = Pid::own();
        let identity = read(me, me.leader());
        assert_eq!(identity.keys.ppid, std::os::unix::process::parent_id());
        assert_eq!(identity.process.pid, me.get());
        assert!(!identity.process.command.is_empty() && !identity.keys.environment.is_empty());
        assert!(identity.keys.pgid > 0);
        assert!(!identity.process.node.release.is_empty());
        assert!(!identity.agents.is_empty());
    }

    #[test]
    fn all_files_together_have_a_limit() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("a")).unwrap();
        std::fs::write(dir.path().join("a/b"), "text").unwrap();
        let path = dir.path().join("a/b");
        let mut reader = Reader::of(Place::own_root().unwrap());
        assert_eq!(Files::read(&reader, &path).unwrap(), b"text");
        assert_eq!(reader.list(&dir.path().join("a")).unwrap(), ["b"]);
        reader.bytes = Cell::new(3);
        assert!(Files::read(&reader, &path).is_err());
        reader.files = Cell::new(0);
        assert!(reader.list(&dir.path().join("a")).is_err());
    }
}
