//! What this library needs of the engine: one small trait, so that sessions and threads can be tested without a target.

use midair_failure::Failure;
use midair_session::Pid;
use midair_settings::Settings;
use std::path::PathBuf;

/// Attaches to processes.
pub trait Engine: Send + Sync {
    /// Attaches. Called on the thread that will own the session to its end.
    ///
    /// # Errors
    /// What the engine says; the target is then as it was.
    fn attach(&self, pid: Pid, settings: Settings) -> Result<Box<dyn LiveSession>, Failure>;

    /// What descends from `pid` and has a GPU runtime, now.
    fn descendants(&self, pid: Pid) -> Vec<Pid>;
}

/// A session that is on. It stays on the thread that made it.
pub trait LiveSession {
    /// Takes over what the target has recorded so far; does not wait.
    ///
    /// # Errors
    /// When following cannot go on. [`LiveSession::finish`] is called all the same.
    fn follow(&mut self) -> Result<Progress, Failure>;

    /// Detaches if the target lives, and writes the outputs. When this returns the files are complete.
    ///
    /// # Errors
    /// A failed detach, a target that was killed, lost records, outputs that could not be written.
    fn finish(self: Box<Self>) -> Result<Vec<PathBuf>, Failure>;
}

/// What following found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The target runs.
    Running,
    /// The target has ended: nothing more will come.
    Ended,
}
