//! The process that was recorded, its machine, and how its session ended.

use std::collections::BTreeMap;

/// The machine, as uname(2) and /etc/machine-id have it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Node {
    /// Text of /etc/machine-id.
    pub machine_id: String,
    /// uname's sysname ("Linux").
    pub system_name: String,
    /// uname's nodename.
    pub hostname: String,
    /// uname's release.
    pub release: String,
    /// uname's version.
    pub version: String,
    /// uname's machine ("x86_64").
    pub hardware_name: String,
    /// uname's domainname ("(none)" where unset).
    pub domain_name: String,
}

impl Node {
    /// Returns a number for the machine. AMD hashes the machine id with its C++ library's hash.
    /// Ours is FNV-1a, since the number only has to be stable and different between machines.
    pub fn hash(&self) -> u64 {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for byte in self.machine_id.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        hash % (i64::MAX as u64)
    }

    /// Returns the hash as a 32-bit id.
    pub fn id(&self) -> u64 {
        self.hash() % u64::from(u32::MAX)
    }
}

/// The process that was traced. Its pids are from its own pid namespace where these are known,
/// because the thread ids in the records are from that namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Process {
    /// Its pid.
    pub pid: u32,
    /// Its parent's.
    pub ppid: u32,
    /// Command line.
    pub command: Vec<String>,
    /// Since when the records cover what it did, CLOCK_BOOTTIME ns. That is when collecting started,
    /// unless only the latest records are kept.
    pub init_time: u64,
    /// Until when they do, CLOCK_BOOTTIME ns.
    pub fini_time: u64,
    /// The machine.
    pub node: Node,
    /// Its part in a larger program.
    pub place: Place,
    /// The names of its threads by their ids, as far as they are known. The main thread has the
    /// program's name.
    pub threads: BTreeMap<u32, String>,
}

/// The part of a process in a program on several GPUs or machines, according to its launcher.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    /// What all parts have in common, such as the number of a job. It is fit for the name of a
    /// directory.
    pub run: Option<String>,
    /// Its rank.
    pub rank: Option<u64>,
    /// How many ranks there are.
    pub ranks: Option<u64>,
}

/// How the session ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// In words: "complete", "the process was killed by signal 9", …
    pub text: String,
    /// Whether there is nothing to warn about.
    pub ordinary: bool,
}

impl Default for Outcome {
    fn default() -> Self {
        Outcome {
            text: "complete".to_owned(),
            ordinary: true,
        }
    }
}
