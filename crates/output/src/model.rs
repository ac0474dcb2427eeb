//! The input of the writers.

use crate::choice::KernelFilter;
use crate::gpu::GpuSamples;
use crate::record_file::RecordFile;
use crate::screen::Cost;
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

/// The process that was traced. Its pids are those of its own pid namespace where these are known,
/// because the thread ids in the records are from that namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Process {
    /// Its pid.
    pub pid: u32,
    /// Its parent's.
    pub ppid: u32,
    /// Command line.
    pub command: Vec<String>,
    /// Since when the records cover what it did, CLOCK_BOOTTIME ns. That is when collecting began,
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

/// What the attaching side knows about a session besides its records. It is for people to read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attach {
    /// The process as the user knows it, where that is not its pid in its own namespace.
    pub pid: Option<u32>,
    /// When it began, in local time, or empty where that is not known.
    pub began: String,
    /// What it cost.
    pub cost: Cost,
    /// How long the session was, ns, where its records cover only the part of it that the times of
    /// the [`Process`] tell.
    pub session_ns: Option<u64>,
    /// For how long within the times of the [`Process`] nothing was recorded, ns: in pauses of the
    /// program, or outside of collection periods.
    pub unrecorded_ns: u64,
}

/// A finished session.
#[derive(Debug)]
pub struct Trace {
    /// The process.
    pub process: Process,
    /// The machine's CPUs and GPUs.
    pub agents: Vec<Agent>,
    /// The records of what happened.
    pub records: RecordFile,
    /// Records that were dropped because there was no free memory for them: what they were ("kernel
    /// dispatches"), and how many.
    pub lost: Vec<(String, u64)>,
    /// Errors of the attaching side that did not end the session, in words. Those of the target are
    /// in the records.
    pub notes: Vec<String>,
    /// How the session ended.
    pub outcome: Outcome,
    /// The counters that were asked for. The windows of counters are read with this plan.
    pub counters: CounterPlan,
    /// Samples of a whole GPU that were taken meanwhile.
    pub gpu: Option<GpuSamples>,
    /// What is known about the attach.
    pub attach: Attach,
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
    /// Returns the unit for a word of the option.
    pub fn of(word: &str) -> Option<Unit> {
        [Unit::Sec, Unit::Msec, Unit::Usec, Unit::Nsec]
            .into_iter()
            .find(|unit| unit.text() == word)
    }

    /// Returns its word.
    pub fn text(self) -> &'static str {
        match self {
            Unit::Sec => "sec",
            Unit::Msec => "msec",
            Unit::Usec => "usec",
            Unit::Nsec => "nsec",
        }
    }

    /// Returns how many nanoseconds it has.
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
    /// Standard output. AMD's tool prints summaries there even when told to use the other.
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
    /// An archive for tools of high-performance computing.
    Otf2,
    /// One trace per process in the form of PyTorch's profiler.
    Kineto,
    /// A table for each kind of records, in directories that name run, host and rank.
    Parquet,
    /// One page for a browser.
    Html,
}

/// What to write and where.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// Directory, expanded; made if absent.
    pub directory: PathBuf,
    /// First part of each file's name, expanded; may contain directories.
    pub prefix: String,
    /// Whether the files never take the place of others. Where results have the prefix, a number is
    /// added to it.
    pub numbered: bool,
    /// Directory as the user gave it (reported in json's `config`).
    pub raw_directory: String,
    /// First part as the user gave it.
    pub raw_prefix: String,
    /// Which formats.
    pub formats: Vec<Format>,
    /// How kernels are named.
    pub kernel_names: KernelNames,
    /// Whether dispatches are named after the ROCTx ranges in which they were launched.
    pub rename_kernels: bool,
    /// Which dispatches are in the results.
    pub kernel_filter: KernelFilter,
    /// Whether dispatches were recorded only so that counters can refer to them.
    pub hide_kernels: bool,
    /// How agents are named.
    pub agent_index: AgentIndex,
    /// Whether statistics are written with csv and json.
    pub stats: bool,
    /// Whether there is a table of all domains.
    pub summary: bool,
    /// Whether there is a table of each domain.
    pub summary_per_domain: bool,
    /// Expressions for further tables. Each table has the domains whose whole names match
    /// ([`check_group`](crate::check_group)).
    pub summary_groups: Vec<String>,
    /// Where these tables go.
    pub summary_to: SummaryTo,
    /// The unit of times in these tables.
    pub summary_unit: Unit,
    /// Whether pftrace has kernels by queue and copies by thread, instead of both by stream.
    pub group_by_queue: bool,
    /// Whether the settings are written into a file of their own.
    pub config_file: bool,
    /// No files are written where fewer bytes were recorded.
    pub minimum_bytes: u64,
    /// The most threads that write ([`threads`](crate::threads)). None and one are the same.
    pub threads: usize,
    /// What the user said about Perfetto's buffers. It is only reported in json's `config`.
    pub perfetto: PerfettoBuffers,
}

/// rocprofv3's options for Perfetto's buffers. Our writer has no such buffers.
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
    /// Returns AMD's values.
    fn default() -> Self {
        PerfettoBuffers {
            shmem_size_hint: 64,
            buffer_size: 1_048_576,
            fill_policy: "discard".to_owned(),
        }
    }
}

impl Plan {
    /// Whether these records are so few that no files are wanted (`--minimum-output-data`).
    pub fn is_too_little<'a>(&self, records: impl Iterator<Item = &'a RecordFile>) -> bool {
        self.minimum_bytes > 0 && records.map(RecordFile::bytes).sum::<u64>() < self.minimum_bytes
    }

    /// Whether any table is asked for.
    pub fn has_summary(&self) -> bool {
        self.summary || self.summary_per_domain || !self.summary_groups.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record_file::RecordWriter;
    use midair_record::event::note;

    #[test]
    fn a_unit_is_found_by_its_word() {
        let units = [
            ("sec", Unit::Sec, 1_000_000_000),
            ("msec", Unit::Msec, 1_000_000),
            ("usec", Unit::Usec, 1_000),
            ("nsec", Unit::Nsec, 1),
        ];
        for (word, unit, nanoseconds) in units {
            assert_eq!(Unit::of(word), Some(unit));
            assert_eq!((unit.text(), unit.nanoseconds()), (word, nanoseconds));
        }
        for word in ["", "s", "SEC", "nsecs"] {
            assert_eq!(Unit::of(word), None, "{word}");
        }
    }

    #[test]
    fn files_are_written_from_the_least_number_of_bytes_on() {
        let records = || {
            let mut writer = RecordWriter::create_in(&std::env::temp_dir()).unwrap();
            writer.append(&note("something")).unwrap();
            writer.finish().unwrap()
        };
        let [first, second] = [records(), records()];
        let bytes = first.bytes();
        assert!(bytes > 8 && second.bytes() == bytes, "{bytes}");
        let is_too_little = |minimum_bytes, records: &[&RecordFile]| {
            let plan = Plan {
                minimum_bytes,
                ..Plan::default()
            };
            plan.is_too_little(records.iter().copied())
        };
        for (least, of_one, of_both) in [
            (bytes - 1, false, false),
            (bytes, false, false),
            (bytes + 1, true, false),
            (2 * bytes, true, false),
            (2 * bytes + 1, true, true),
        ] {
            assert_eq!(is_too_little(least, &[&first]), of_one, "{least}");
            assert_eq!(is_too_little(least, &[&first, &second]), of_both, "{least}");
        }
        // None are wanted, and there are none.
        assert!(!is_too_little(0, &[]) && is_too_little(1, &[]));
    }
}
