//! Prints one line on standard error, in one write: no allocation is kept, no lock is held, and
//! there is no buffer that a fork could copy.

use crate::config;

/// How severe a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Each step.
    Trace,
    /// What was decided.
    Info,
    /// Something asked for could not be done; the program goes on without it.
    Warning,
    /// A call failed.
    Error,
    /// Above all others: prints nothing.
    Nothing,
}

/// Prints `message` when `level` is wanted.
pub(crate) fn say(level: Level, message: &str) {
    if level < config::log_level() {
        return;
    }
    let word = match level {
        Level::Trace => "trace",
        Level::Info => "info",
        Level::Warning => "warning",
        Level::Error | Level::Nothing => "error",
    };
    let line = format!("rocprofiler-register: {word}: {message}\n");
    // SAFETY: the buffer outlives the call. A closed or full standard error is ignored.
    let _ = unsafe { libc::write(2, line.as_ptr().cast(), line.len()) };
}
