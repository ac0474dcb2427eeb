//! The identity of the target, read while it lives, for the headers of outputs and for file names.

use midair_agents::{Agent, Sources};
use midair_ids::{Pid, Tid};
use midair_output::names::Keys;
use midair_output::{Node, Process};
use std::path::{Path, PathBuf};

/// What outputs tell about the process and its machine.
#[derive(Debug, Clone, Default)]
pub struct Identity {
    /// For the headers of outputs.
    pub process: Process,
    /// For file names.
    pub keys: Keys,
    /// The CPUs of its machine, and the GPUs that AMD's driver knows.
    pub agents: Vec<Agent>,
    /// Why the GPUs are not known: the driver is missing. It does not matter for a CUDA process.
    pub without_driver: Option<String>,
}

impl Identity {
    /// Reads the identity; what cannot be read stays empty. `live` is a thread of the process that has not
    /// ended: a first thread that has ended has neither command nor environment nor root.
    pub fn read(pid: Pid, live: Tid) -> Identity {
        let proc = PathBuf::from(format!("/proc/{pid}"));
        let thread = proc.join(format!("task/{live}"));
        let command = list(&thread.join("cmdline"));
        let status = std::fs::read_to_string(proc.join("status")).unwrap_or_default();
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
        let node = node(&thread);
        let stat = std::fs::read_to_string(proc.join("stat")).unwrap_or_default();
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
        let siblings = std::fs::read_to_string(format!("/proc/{ppid}/task/{ppid}/children"))
            .map(|children| children.split_ascii_whitespace().count() as u32)
            .unwrap_or(0);
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
            environment: list(&thread.join("environ")),
            launched: std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .map(|since| since.as_secs() as i64)
                .unwrap_or(0),
            utc_offset: 0,
        };
        let (agents, without_driver) = agents(&thread);
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
}

/// The GPU driver's topology as the target sees it, or else as this process does (a container may hide /sys);
/// or the one that the target's environment names, which its runtime uses as well. Without any, the CPUs
/// alone, and why.
fn agents(proc: &Path) -> (Vec<Agent>, Option<String>) {
    let theirs = proc.join("root");
    let hidden = !theirs.join("sys/class/kfd/kfd/topology").is_dir();
    let root = if hidden {
        Path::new("/")
    } else {
        theirs.as_path()
    };
    let environment = list(&proc.join("environ"));
    let variable = |name: &str| {
        let mut pairs = environment.iter().filter_map(|pair| pair.split_once('='));
        let (_, value) = pairs.find(|(other, _)| *other == name)?;
        Some(value.to_owned())
    };
    let sources = Sources::of_root(root).with_environment(&theirs, variable);
    match sources.read() {
        Ok(agents) => (agents, None),
        // Without the driver there are CPUs all the same.
        Err(error) => (
            sources.processors(),
            Some(format!("the machine's AMD GPUs are not known: {error}")),
        ),
    }
}

fn list(path: &Path) -> Vec<String> {
    let bytes = std::fs::read(path).unwrap_or_default();
    bytes
        .split(|byte| *byte == 0)
        .filter(|part| !part.is_empty())
        .map(|part| String::from_utf8_lossy(part).into_owned())
        .collect()
}

fn node(proc: &Path) -> Node {
    let kernel = |name: &str| {
        std::fs::read_to_string(format!("/proc/sys/kernel/{name}"))
            .map(|text| text.trim().to_owned())
            .unwrap_or_default()
    };
    let machine_id = ["etc/machine-id", "var/lib/dbus/machine-id"]
        .iter()
        .flat_map(|file| [proc.join("root").join(file), Path::new("/").join(file)])
        .find_map(|file| std::fs::read_to_string(file).ok())
        .map(|text| text.trim().to_owned())
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
