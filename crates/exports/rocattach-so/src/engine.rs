//! What this library needs from the engine, as a small trait, so that sessions and threads can be
//! tested without a target.

use midair_failure::Failure;
use midair_session::Pid;
use midair_settings::Settings;
use std::path::PathBuf;

/// Attaches to processes.
pub trait Engine: Send + Sync {
    /// Attaches to a process. Called on the thread that will own the session until its end.
    ///
    /// # Errors
    /// The engine's failure. The target is then as it was before.
    fn attach(&self, pid: Pid, settings: Settings) -> Result<Box<dyn LiveSession>, Failure>;

    /// Returns the descendants of `pid` that have a GPU runtime now.
    fn descendants(&self, pid: Pid) -> Vec<Pid>;
}

/// A session that exists. It stays on the thread that made it.
pub trait LiveSession {
    /// Collects what the target has recorded so far, without waiting.
    ///
    /// # Errors
    /// When collecting cannot continue. [`LiveSession::finish`] is called nevertheless.
    fn follow(&mut self) -> Result<Progress, Failure>;

    /// Detaches if the target lives, and writes the outputs. The files are complete when this
    /// returns.
    ///
    /// # Errors
    /// A failed detach, a target that was killed, lost records, or outputs that could not be written.
    fn finish(self: Box<Self>) -> Result<Vec<PathBuf>, Failure>;
}

/// The state of a target after collecting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The target runs.
    Running,
    /// The target has ended, so nothing more will be recorded.
    Ended,
}
