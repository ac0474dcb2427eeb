//! The identity of the target, read while it lives, for the headers of outputs and for file names.

use crate::rights;
use midair_agents::{Agent, Files, Sources};
use midair_output::names::Keys;
use midair_output::{Node, Process};
use midair_procinfo::files::{self, Place, kernel_words};
use midair_procinfo::{Pid, Tid, task};
use midair_results::Identity;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

/// The most bytes of one file of the topology, or of a list of processors or of names of GPUs.
const MOST_BYTES: usize = 4 << 20;
/// The most bytes of them all.
const MOST_IN_ALL: usize = 64 << 20;
/// The most files and directories. A node of a large machine has some hundreds.
const MOST_FILES: usize = 65_536;
/// The most bytes of a machine's id, which has 32 digits.
const MOST_ID: usize = 128;

/// Reads the identity; what cannot be read stays empty. `live` is a thread of the process that has not
/// ended: a first thread that has ended has neither command nor environment nor root.
pub(crate) fn read(pid: Pid, live: Tid) -> Identity {
    let command = files::words(live, "cmdline");
    let environment = files::words(live, "environ");
    let status = task::status(pid).unwrap_or_default();
    // Records carry thread ids of the target's own pid namespace, and so must the pid.
    let inner = status.ns_tgid.last().copied().unwrap_or(pid).get();
    let ppid = status.parent.map_or(0, Pid::get);
    let stat = kernel_words(format!("{pid}/stat")).unwrap_or_default();
    let after_name: Vec<&str> = stat
        .rsplit(") ")
        .next()
        .unwrap_or_default()
        .split_ascii_whitespace()
        .collect();
    let number = |index: usize| {
        after_name
            .get(index)
            .and_then(|word| word.parse().ok())
            .unwrap_or(0)
    };
    let siblings = kernel_words(format!("{ppid}/task/{ppid}/children"))
        .map(|children| children.split_ascii_whitespace().count() as u32)
        .unwrap_or(0);
    let theirs = Place::root_of(live).ok();
    let ours = Place::own_root().ok();
    let node = node(theirs.as_ref(), ours.as_ref());
    let (agents, without_driver) = agents(theirs, ours, &environment);
    let keys = Keys {
        hostname: node.hostname.clone(),
        pid: inner,
        ppid,
        pgid: number(2),
        psid: number(3),
        siblings,
        cwd: std::env::current_dir()
            .map(|path| path.to_string_lossy().into_owned())
            .unwrap_or_else(|_| ".".to_owned()),
        command: command.clone(),
        environment,
        launched: std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map(|since| since.as_secs() as i64)
            .unwrap_or(0),
        utc_offset: 0,
    };
    Identity {
        process: Process {
            pid: inner,
            ppid,
            command,
            init_time: 0,
            fini_time: 0,
            node,
        },
        keys,
        agents,
        without_driver,
    }
}

/// The GPU driver's topology as the target sees it, or else as this process does (a container may hide /sys);
/// or the one that the target's environment names, which its runtime uses as well. Without any, the CPUs
/// alone, and why. Where this program has rights that its user lacks, the environment does not count.
fn agents(
    theirs: Option<Place>,
    ours: Option<Place>,
    environment: &[String],
) -> (Vec<Agent>, Option<String>) {
    const TOPOLOGY: &str = "/sys/class/kfd/kfd/topology";
    let hidden = theirs
        .as_ref()
        .is_none_or(|root| !root.is_directory(TOPOLOGY));
    let theirs = theirs.map(Reader::of);
    let ours = ours.map(Reader::of);
    let usual = Sources::of_root(Path::new("/"));
    let variable = |name: &str| {
        let mut pairs = environment.iter().filter_map(|pair| pair.split_once('='));
        let (_, value) = pairs.find(|(other, _)| *other == name)?;
        Some(value.to_owned())
    };
    let named = theirs
        .as_ref()
        .filter(|_| !rights::is_privileged())
        .map(|theirs| usual.clone().with_environment(theirs, variable))
        .filter(|named| named.topology != usual.topology);
    let (Some(reader), sources) = (match (named, hidden) {
        (Some(named), _) => (theirs, named),
        (None, false) => (theirs, usual),
        (None, true) => (ours, usual),
    }) else {
        return (
            Vec::new(),
            Some("this machine's files cannot be read".to_owned()),
        );
    };
    match sources.read_through(&reader) {
        Ok(agents) => (agents, None),
        // Without the driver there are CPUs all the same.
        Err(error) => (
            sources.processors(&reader),
            Some(format!("the machine's AMD GPUs are not known: {error}")),
        ),
    }
}

/// Reads beneath a root, within limits for all files together. It keeps the directories that it has
/// found: a topology has many files in few of them.
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

fn node(theirs: Option<&Place>, ours: Option<&Place>) -> Node {
    let kernel = |name: &str| {
        kernel_words(format!("sys/kernel/{name}"))
            .map(|text| text.trim().to_owned())
            .unwrap_or_default()
    };
    let machine_id = ["/etc/machine-id", "/var/lib/dbus/machine-id"]
        .iter()
        .flat_map(|file| [(theirs, file), (ours, file)])
        .find_map(|(root, file)| machine_id(&root?.read(file, MOST_ID).ok()?))
        .unwrap_or_default();
    Node {
        machine_id,
        system_name: kernel("ostype"),
        hostname: kernel("hostname"),
        release: kernel("osrelease"),
        version: kernel("version"),
        hardware_name: std::env::consts::ARCH.to_owned(),
        domain_name: kernel("domainname"),
    }
}

/// A machine's id: letters and digits alone (see machine-id(5)), whatever lies there.
fn machine_id(text: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(text).ok()?.trim();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    (!text.is_empty() && text.bytes().all(plain)).then(|| text.to_owned())
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
        assert!(identity.keys.siblings > 0 && identity.keys.psid > 0 && identity.keys.pgid > 0);
        assert!(!identity.process.node.release.is_empty());
        assert!(!identity.agents.is_empty());
    }

    #[test]
    fn a_machines_id_is_no_other_text() {
        assert_eq!(
            machine_id(b" 0123abcdef-9\n").as_deref(),
            Some("0123abcdef-9")
        );
        for other in [&b""[..], b"\n", b"root:x:0:0", b"\x1b[2J", b"=1+1", b"\xff"] {
            assert_eq!(machine_id(other), None);
        }
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
