//! What the writers are given.

use crate::choice::KernelFilter;
use crate::gpu::GpuSamples;
use crate::record_file::RecordFile;
use midair_agents::Agent;
use midair_counters::CounterPlan;
use std::collections::BTreeMap;
use std::path::PathBuf;

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
    /// A number for the machine. AMD hashes the machine id with its C++ library's hash; ours is
    /// FNV-1a, since the number only has to be stable and different between machines.
    pub fn hash(&self) -> u64 {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for byte in self.machine_id.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        hash % (i64::MAX as u64)
    }

    /// The hash as a 32-bit id.
    pub fn id(&self) -> u64 {
        self.hash() % u64::from(u32::MAX)
    }
}

/// The process that was traced. Pids are those of its own pid namespace where that is known, since
/// its threads' ids in the records are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Process {
    /// Its pid.
    pub pid: u32,
    /// Its parent's.
    pub ppid: u32,
    /// Command line.
    pub command: Vec<String>,
    /// When collecting began, CLOCK_BOOTTIME ns.
    pub init_time: u64,
    /// When it ended, CLOCK_BOOTTIME ns.
    pub fini_time: u64,
    /// The machine.
    pub node: Node,
    /// Which part of a larger program it is.
    pub place: Place,
    /// What its threads are called, by their ids, as far as they are known. The first thread is called
    /// as the program is.
    pub threads: BTreeMap<u32, String>,
}

/// Which part of a program on several GPUs or machines a process is, as its launcher said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    /// What all parts have in common, such as the number of a job: fit for the name of a directory.
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

/// A finished session.
#[derive(Debug)]
pub struct Trace {
    /// Who.
    pub process: Process,
    /// The machine's CPUs and GPUs.
    pub agents: Vec<Agent>,
    /// What happened.
    pub records: RecordFile,
    /// Records that were dropped because nothing was free to hold them: what they were ("kernel
    /// dispatches") and how many.
    pub lost: Vec<(String, u64)>,
    /// Soft errors of the attaching side, in words. Those of the target are in the records.
    pub notes: Vec<String>,
    /// How it ended.
    pub outcome: Outcome,
    /// The counters that were asked for, by which windows of counters are read.
    pub counters: CounterPlan,
    /// Samples of a whole GPU that were taken meanwhile.
    pub gpu: Option<GpuSamples>,
}

/// How kernels are named (rocprofv3's `-M` and `-T`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KernelNames {
    /// With template arguments and parameters.
    #[default]
    Demangled,
    /// The bare name.
    Truncated,
    /// As in the code object.
    Mangled,
}

/// How csv files name agents (rocprofv3's `-A`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AgentIndex {
    /// `Agent N` with the position among the visible agents.
    #[default]
    Relative,
    /// `Agent N` with the number of the KFD node.
    Absolute,
    /// `GPU N`, `CPU N`.
    TypeRelative,
}

/// Unit of times in summaries (rocprofv3's `-u`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unit {
    /// Seconds.
    Sec,
    /// Milliseconds.
    Msec,
    /// Microseconds.
    Usec,
    /// Nanoseconds.
    #[default]
    Nsec,
}

impl Unit {
    /// The unit of a word, as the option takes it.
    pub fn of(word: &str) -> Option<Unit> {
        [Unit::Sec, Unit::Msec, Unit::Usec, Unit::Nsec]
            .into_iter()
            .find(|unit| unit.text() == word)
    }

    /// Its word.
    pub fn text(self) -> &'static str {
        match self {
            Unit::Sec => "sec",
            Unit::Msec => "msec",
            Unit::Usec => "usec",
            Unit::Nsec => "nsec",
        }
    }

    /// How many nanoseconds it has.
    pub fn nanoseconds(self) -> u64 {
        match self {
            Unit::Sec => 1_000_000_000,
            Unit::Msec => 1_000_000,
            Unit::Usec => 1_000,
            Unit::Nsec => 1,
        }
    }
}

/// An output stream of the process that asked for the trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Console {
    /// Standard output: where AMD's tool prints summaries, whichever of the two it is told.
    #[default]
    Stdout,
    /// Standard error.
    Stderr,
}

/// Where summaries go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SummaryTo {
    /// To a console; [`console_summary`](crate::console_summary) has the text.
    Console(Console),
    /// To `PREFIX_NAME.txt`.
    File(String),
}

impl Default for SummaryTo {
    fn default() -> Self {
        SummaryTo::Console(Console::default())
    }
}

/// A kind of output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// One trace for Perfetto.
    Pftrace,
    /// One file per domain.
    Csv,
    /// One file.
    Json,
    /// One SQLite file.
    Rocpd,
    /// One trace per process in the form of PyTorch's profiler.
    Kineto,
}

/// What to write and where.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// Directory, expanded; made if absent.
    pub directory: PathBuf,
    /// First part of each file's name, expanded; may contain directories.
    pub prefix: String,
    /// Directory as the user gave it (said in json's `config`).
    pub raw_directory: String,
    /// First part as the user gave it.
    pub raw_prefix: String,
    /// Which formats.
    pub formats: Vec<Format>,
    /// How kernels are named.
    pub kernel_names: KernelNames,
    /// Which dispatches are in the results.
    pub kernel_filter: KernelFilter,
    /// Dispatches were recorded only so that counters refer to them.
    pub hide_kernels: bool,
    /// How agents are named.
    pub agent_index: AgentIndex,
    /// Whether statistics are written with csv and json.
    pub stats: bool,
    /// Whether there is a table of all domains.
    pub summary: bool,
    /// Whether there is a table of each domain.
    pub summary_per_domain: bool,
    /// Expressions, each for a table of the domains whose whole names match
    /// ([`check_group`](crate::check_group)).
    pub summary_groups: Vec<String>,
    /// Where these tables go.
    pub summary_to: SummaryTo,
    /// Their unit.
    pub summary_unit: Unit,
    /// Whether pftrace has kernels by queue and copies by thread, and not both by stream.
    pub group_by_queue: bool,
    /// What was said about Perfetto's buffers: told in json's `config`, of no other use.
    pub perfetto: PerfettoBuffers,
}

/// rocprofv3's options of Perfetto's buffers. Our writer has none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PerfettoBuffers {
    /// Kilobytes of memory shared with Perfetto.
    pub shmem_size_hint: u64,
    /// Kilobytes of the buffer.
    pub buffer_size: u64,
    /// `discard` or `ring_buffer`.
    pub fill_policy: String,
}

impl Default for PerfettoBuffers {
    /// AMD's values.
    fn default() -> Self {
        PerfettoBuffers {
            shmem_size_hint: 64,
            buffer_size: 1_048_576,
            fill_policy: "discard".to_owned(),
        }
    }
}

impl Plan {
    /// Whether any table is asked for.
    pub fn has_summary(&self) -> bool {
        self.summary || self.summary_per_domain || !self.summary_groups.is_empty()
    }
}
