//! What a caller asks for and gets told.

use midair_results::End;
use midair_settings::Settings;
use std::time::Duration;

/// What to attach to, and how.
#[derive(Debug, Clone)]
pub struct Request {
    /// The process, as the caller's pid namespace numbers it.
    pub pid: u32,
    /// What to record and where to write it, under the names of `ROCPROF_*`.
    pub settings: Settings,
    /// What of that the user asked for in so many words.
    pub asked: Asked,
    /// Memory for records that were not taken over yet, in bytes.
    pub spool_bytes: u64,
    /// How long a detach waits at most for work that still runs on the device.
    pub drain: Duration,
    /// The target stops by itself when this side has not been heard of for so long.
    pub lease: Duration,
}

impl Request {
    /// A request with the usual sizes and times.
    pub fn new(pid: u32, settings: Settings) -> Request {
        Request {
            pid,
            settings,
            asked: Asked::default(),
            spool_bytes: midair_record::spool::DEFAULT_SIZE as u64,
            drain: Duration::from_millis(100),
            lease: Duration::from_secs(5),
        }
    }
}

/// What the settings do not tell: why each trace is on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Asked {
    /// Nothing was said: what is on is this side's choice, made for HIP. A CUDA process has one of its own.
    pub nothing: bool,
    /// Options that were named one by one, by their long names.
    pub by_name: Vec<&'static str>,
}

/// How a session stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The target runs.
    Running {
        /// Records so far.
        records: u64,
        /// Their size in bytes.
        bytes: u64,
    },
    /// The target's side has ended by itself (the process exits, or shut its runtime down), or the process has ended; what was
    /// recorded can still be written.
    TargetExited(End),
}

/// How the borrowed thread was found and how long it stood, for `-v` and the benchmarks.
#[derive(Debug, Clone, Default)]
pub struct Entry {
    /// Which way in, in words.
    pub via: String,
    /// Threads that were looked at and not taken, each with the reason.
    pub rejected: Vec<String>,
    /// From the request to the stop, until the thread stood.
    pub seize: Duration,
    /// Stops of running threads that stood where nothing could be done, of the borrowed one or others; none where a parked thread
    /// was found.
    pub looks: u32,
    /// How long they stood for these, all together.
    pub looked: Duration,
    /// While it ran our stub.
    pub stub: Duration,
    /// Until it ran again.
    pub release: Duration,
    /// From the start of the attach until the first call could be recorded.
    pub attached_after: Duration,
    /// It is recorded as a CUDA process, through CUPTI.
    pub cuda: bool,
    /// What was asked for and is not to be had there.
    pub warnings: Vec<String>,
    /// What else can be known.
    pub notes: Vec<String>,
}
