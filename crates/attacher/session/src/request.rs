//! What a caller asks for, and what it receives in return.

use crate::recorder::Recorder;
use midair_live::Watched;
use midair_output::Keep;
use midair_procinfo::Pid;
use midair_results::End;
use midair_settings::Settings;
use std::time::Duration;

/// What to attach to, and how.
#[derive(Debug, Clone)]
pub struct Request {
    /// The process, as numbered in the caller's pid namespace.
    pub pid: Pid,
    /// What to record and where to write it, under the names of `ROCPROF_*`.
    pub settings: Settings,
    /// Which of these the user asked for explicitly.
    pub asked: Requested,
    /// Memory for records that have not been collected yet, in bytes.
    pub spool_bytes: u64,
    /// The longest time that a detach waits for work that still runs on the device.
    pub drain: Duration,
    /// How long this side may be silent before the target ends the session by itself.
    pub lease: Duration,
    /// Record from outside what the kernel driver tells, without entering the process
    /// ([`crate::NoEntry`]).
    pub no_entry: bool,
    /// How long to wait for a process that has no runtime yet, or that cannot be entered because it
    /// is still starting. `None`: until it is five seconds old.
    pub wait: Option<Duration>,
    /// The place where a view of the running session finds its model.
    pub live: Option<Watched>,
    /// Which records are kept.
    pub keep: Keep,
    /// What is written to files while the session goes on. It needs [`Request::live`].
    pub recorder: Option<Recorder>,
}

impl Request {
    /// Makes a request with the usual sizes and times.
    pub fn new(pid: Pid, settings: Settings) -> Request {
        Request {
            pid,
            settings: settings.without_those_of_a_start(),
            asked: Requested::default(),
            spool_bytes: midair_record::spool::DEFAULT_SIZE as u64,
            drain: Duration::from_millis(100),
            lease: Duration::from_secs(5),
            no_entry: false,
            wait: None,
            live: None,
            keep: Keep::All,
            recorder: None,
        }
    }
}

/// What the settings do not tell: why each trace is on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Requested {
    /// Whether the user asked for nothing. What is on is then a default of this side, chosen for
    /// HIP. A CUDA process has a default of its own.
    pub nothing: bool,
    /// The options that the user named individually, by their long names.
    pub by_name: Vec<&'static str>,
}

/// The state of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The target runs.
    Running {
        /// Records so far.
        records: u64,
        /// Their size in bytes.
        bytes: u64,
    },
    /// The target's side has ended by itself (the process exits, or has shut its runtime down), or
    /// the process has ended. What was recorded can still be written.
    TargetExited(End),
}

/// How the borrowed thread was found and for how long it was stopped, for `-v` and the benchmarks.
#[derive(Debug, Clone, Default)]
pub struct Entry {
    /// The entry path, in words.
    pub via: String,
    /// Threads that were inspected and not borrowed, each with the reason.
    pub rejected: Vec<String>,
    /// Whether that thread is midair's own, the worker thread of an earlier session.
    pub is_own_thread: bool,
    /// The time from the request to stop the thread until it stood still.
    pub seize: Duration,
    /// The number of stops of running threads at points that were not safe, of the borrowed thread
    /// or of others. None where a parked thread was found.
    pub unusable_stops: u32,
    /// The total time of those stops.
    pub unusable_stop_time: Duration,
    /// How long the thread ran our stub.
    pub stub: Duration,
    /// The time from the end of the stub until the thread ran its own code again.
    pub release: Duration,
    /// The time from the start of the attach until the first call could be recorded.
    pub attached_after: Duration,
    /// The parts of that time.
    pub phases: Box<Phases>,
    /// Whether the process is recorded as a CUDA process, through CUPTI.
    pub cuda: bool,
    /// What the user asked for and is not available there.
    pub warnings: Vec<String>,
    /// Further information.
    pub notes: Vec<String>,
}

/// What an attach does, and for how long.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Phases {
    /// It inspects the process, and checks everything that may refuse the attach.
    pub inspect: Duration,
    /// It makes the spool and opens what is sent, at the same time as it enters.
    pub prepare: Duration,
    /// It enters the process, until the worker thread runs there.
    pub enter: Duration,
    /// The worker thread loads the libraries and hooks the process's calls.
    pub set_up: Duration,
    /// The processor time of this process and its helpers during all of it.
    pub processor: Duration,
}

impl Entry {
    /// Returns the longest time for which a thread of the application stood still. Of stops at points
    /// that were not safe only the total is known, so it is used in place of the longest.
    pub fn longest_stop(&self) -> Duration {
        let borrowed = match self.is_own_thread {
            true => Duration::ZERO,
            false => self.seize + self.stub + self.release,
        };
        borrowed.max(self.unusable_stop_time)
    }
}
