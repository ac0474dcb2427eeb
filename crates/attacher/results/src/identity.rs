//! The identity of the target for the headers of outputs and for file names. It is read while the
//! target lives.

use midair_agents::{Agent, Files, OwnFiles, Sources};
use midair_ids::{Pid, Tid};
use midair_output::names::Keys;
use midair_output::{Node, Process};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What outputs say about the process and its machine.
#[derive(Debug, Clone, Default)]
pub struct Identity {
    /// For the headers of outputs.
    pub process: Process,
    /// The process's number where it was read from outside, by which the user knows it.
    pub seen_as: u32,
    /// When the times of `process` start, in nanoseconds since 1970; 0 where it is not known.
    pub began_ns: u64,
    /// For file names.
    pub keys: Keys,
    /// The CPUs of its machine, and the GPUs that AMD's driver knows.
    pub agents: Vec<Agent>,
    /// Why the GPUs are not known: the driver is missing. It does not matter for a CUDA process.
    pub without_driver: Option<String>,
    /// Whether an earlier session left its worker thread in the process.
    pub attached_before: bool,
}

/// How a process is read: with its own rights ([`OnItsBehalf`]), or from outside, where nothing that
/// it names may be trusted.
pub trait Source {
    /// Returns a text of the kernel's, by its path below `/proc`. The text may be cut.
    ///
    /// # Errors
    /// The kernel's.
    fn kernel(&self, below: &str) -> io::Result<Vec<u8>>;
    /// Returns access to the files as the process sees them.
    fn theirs(&self) -> Option<&dyn Files>;
    /// Returns access to the files as we see them.
    fn ours(&self) -> Option<&dyn Files>;
    /// Whether variables of the process may name other files.
    fn trusts_variables(&self) -> bool;
}

/// A process that is read by its own collector, which has its rights and its root directory.
#[derive(Debug, Clone, Copy, Default)]
pub struct OnItsBehalf;

impl Source for OnItsBehalf {
    #[expect(clippy::disallowed_methods, reason = "the kernel's files")]
    fn kernel(&self, below: &str) -> io::Result<Vec<u8>> {
        std::fs::read(Path::new("/proc").join(below))
    }

    fn theirs(&self) -> Option<&dyn Files> {
        Some(&OwnFiles)
    }

    fn ours(&self) -> Option<&dyn Files> {
        Some(&OwnFiles)
    }

    fn trusts_variables(&self) -> bool {
        true
    }
}

impl Identity {
    /// Reads the identity. What cannot be read stays empty. `live` is a thread of the process that
    /// has not ended, because a main thread that has ended has no command, environment or root.
    pub fn read(pid: Pid, live: Tid, source: &dyn Source) -> Identity {
        let text = |below: &str| {
            let bytes = source.kernel(below).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let list = |below: &str| -> Vec<String> {
            let text = text(below);
            let words = text.split('\0').filter(|word| !word.is_empty());
            words.map(str::to_owned).collect()
        };
        let command = list(&format!("{pid}/task/{live}/cmdline"));
        let environment = list(&format!("{pid}/task/{live}/environ"));
        let status = text(&format!("{pid}/status"));
        let field = |name: &str| {
            status
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
                .map(str::trim)
                .unwrap_or_default()
        };
        // Records carry thread ids of the target's own pid namespace, and so must the pid.
        let inner = field("NSpid")
            .split_ascii_whitespace()
            .last()
            .and_then(|pid| pid.parse().ok())
            .unwrap_or(pid.get());
        let ppid = field("PPid").parse().unwrap_or(0);
        let node = node(source, &text);
        let stat = text(&format!("{pid}/stat"));
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
        let siblings = text(&format!("{ppid}/task/{ppid}/children"));
        let (agents, without_driver) = agents(source, &environment);
        let keys = Keys {
            hostname: node.hostname.clone(),
            pid: inner,
            ppid,
            pgid: number(2),
            psid: number(3),
            siblings: siblings.split_ascii_whitespace().count() as u32,
            cwd: std::env::current_dir().ok(),
            command: command.clone(),
            environment,
            launched: since_1970().as_secs() as i64,
            utc_offset: 0,
        };
        Identity {
            seen_as: pid.get(),
            began_ns: 0,
            process: Process {
                pid: inner,
                ppid,
                command,
                init_time: 0,
                fini_time: 0,
                node,
                place: keys.place(),
                threads: BTreeMap::new(),
            },
            keys,
            agents,
            without_driver,
            attached_before: false,
        }
    }

    /// Sets the time that the results cover, in ns of the clock of the records. `now` is the present in
    /// that clock.
    pub fn covers(&mut self, (from, to): (u64, u64), now: u64) {
        (self.process.init_time, self.process.fini_time) = (from, to);
        let wall = u64::try_from(since_1970().as_nanos()).unwrap_or(0);
        self.began_ns = wall.saturating_sub(now.saturating_sub(from));
    }
}

fn since_1970() -> Duration {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default()
}

/// Returns the agents from the GPU driver's topology as the target sees it, or else as this process
/// does (a container may hide /sys). If the target's environment names a topology, that one is
/// used, as the target's runtime does. Where there is none, only the CPUs are returned, with the
/// reason.
fn agents(source: &dyn Source, environment: &[String]) -> (Vec<Agent>, Option<String>) {
    let usual = Sources::of_root(Path::new("/"));
    let variable = |name: &str| {
        let mut pairs = environment.iter().filter_map(|pair| pair.split_once('='));
        let (_, value) = pairs.find(|(other, _)| *other == name)?;
        Some(value.to_owned())
    };
    let theirs = source.theirs();
    let named = theirs
        .filter(|_| source.trusts_variables())
        .map(|theirs| usual.clone().with_environment(theirs, variable))
        .filter(|named| named.topology != usual.topology);
    let hidden = theirs.is_none_or(|theirs| theirs.list(&usual.topology).is_err());
    let (files, sources) = match (named, hidden) {
        (Some(named), _) => (theirs, named),
        (None, false) => (theirs, usual),
        (None, true) => (source.ours(), usual),
    };
    let Some(files) = files else {
        let why = "cannot read this machine's files".to_owned();
        return (Vec::new(), Some(why));
    };
    match sources.read_through(files) {
        Ok(agents) => (agents, None),
        // Even without the driver there are CPUs.
        Err(error) => (
            sources.processors(files),
            Some(format!("cannot list the machine's AMD GPUs: {error}")),
        ),
    }
}

fn node(source: &dyn Source, text: &dyn Fn(&str) -> String) -> Node {
    let kernel = |name: &str| text(&format!("sys/kernel/{name}")).trim().to_owned();
    let machine_id = ["/etc/machine-id", "/var/lib/dbus/machine-id"]
        .iter()
        .flat_map(|file| [(source.theirs(), file), (source.ours(), file)])
        .find_map(|(files, file)| machine_id(&files?.read(Path::new(file)).ok()?))
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

/// Returns a machine's id with only letters and digits (see machine-id(5)), whatever the file
/// contains.
fn machine_id(text: &[u8]) -> Option<String> {
    const MOST: usize = 64;
    let text = std::str::from_utf8(text).ok()?.trim();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    let is_id = (1..=MOST).contains(&text.len()) && text.bytes().all(plain);
    is_id.then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ourselves() {
        let me = Pid::own();
        let identity = Identity::read(me, me.leader(), &OnItsBehalf);
        assert_eq!(identity.keys.ppid, std::os::unix::process::parent_id());
        assert_eq!(identity.process.pid, me.get());
        assert!(!identity.process.command.is_empty() && !identity.keys.environment.is_empty());
        assert!(identity.keys.pgid > 0);
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
        assert_eq!(machine_id(&[b'a'; 65]), None);
    }
}
