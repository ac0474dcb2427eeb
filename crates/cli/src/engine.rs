//! What the command lines need of the attaching side.

use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::time::Duration;

use midair_session::Failure;
use midair_settings::Settings;

/// What to attach to, and how.
#[derive(Debug, Clone)]
pub struct Request {
    /// The process.
    pub pid: u32,
    /// What to record and where to write it, under the names of `ROCPROF_*`.
    pub settings: Settings,
    /// Memory for records not yet taken over, in bytes.
    pub spool_bytes: u64,
    /// How long a detach waits at most for work that still runs.
    pub drain: Duration,
}

/// One precondition of an attach.
#[derive(Debug, Clone)]
pub struct Check {
    /// What was looked at, in a word or two.
    pub name: String,
    /// What was found, in one sentence.
    pub found: String,
    /// Why it forbids the attach, if it does.
    pub failure: Option<Failure>,
}

/// How the target ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// By itself; with its exit code where that could be learned.
    Exited(Option<i32>),
    /// By this signal.
    Signal(i32),
    /// It became another program by `exec`.
    Exec,
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
    /// The target has ended; what was recorded can still be written.
    TargetExited(End),
}

/// Results on the disk.
#[derive(Debug, Clone, Default)]
pub struct Written {
    /// Complete files, in the order in which they were written.
    pub files: Vec<PathBuf>,
    /// The top kernels and calls, ready to print.
    pub table: String,
    /// What the user should know about the results.
    pub warnings: Vec<String>,
    /// Why the results are not whole, if they are not: records were lost, or the target was killed.
    pub incomplete: Option<Failure>,
}

/// Attaches to processes.
pub trait Engine {
    /// The library that is named in messages about the attach.
    fn library(&self) -> PathBuf;
    /// Looks at every precondition and touches nothing.
    fn look(&self, pid: u32) -> Result<Vec<Check>, Failure>;
    /// Attaches. When it returns, records flow.
    fn attach(&self, request: Request) -> Result<Box<dyn Attached>, Failure>;
}

/// An attached process.
pub trait Attached {
    /// Takes over what is there and tells how it stands; does not wait.
    fn poll(&mut self) -> Result<Event, Failure>;
    /// A descriptor that becomes readable when [`Attached::poll`] should be called soon, such as at the target's end.
    fn wake(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    /// The longest time that may pass between two polls.
    fn heartbeat(&self) -> Duration {
        Duration::from_millis(100)
    }
    /// Detaches, or ends the session of a target that has ended.
    fn detach(self: Box<Self>) -> Result<Box<dyn Trace>, Failure>;
}

/// A trace that has been collected and not been written.
pub trait Trace {
    /// Writes the results where the settings say.
    fn write(self: Box<Self>) -> Result<Written, Failure>;
}
