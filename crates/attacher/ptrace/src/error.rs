use std::io;

use crate::{Death, Tid};

/// The outcome of an operation on another process.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation on another process failed: what was tried, on which thread, and the cause.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The thread (or its whole process) has ended. That is an ordinary outcome at any point.
    #[error("thread {tid} has ended ({death}) at {operation}")]
    Gone {
        /// What was tried.
        operation: &'static str,
        /// On which thread.
        tid: Tid,
        /// How it ended, as far as is known.
        death: Death,
    },
    /// The deadline passed.
    #[error("thread {tid} did not answer to {operation} in time")]
    TimedOut {
        /// What was tried.
        operation: &'static str,
        /// On which thread.
        tid: Tid,
    },
    /// Fewer bytes were moved than asked for.
    #[error("{operation} at {address:#x} of thread {tid} stopped after {done} of {wanted} bytes")]
    Short {
        /// Reading or writing.
        operation: &'static str,
        /// Through which thread.
        tid: Tid,
        /// Where it started.
        address: u64,
        /// Bytes moved.
        done: usize,
        /// Bytes asked for.
        wanted: usize,
    },
    /// The kernel refused.
    #[error("{operation} on thread {tid}: {source}")]
    System {
        /// What was tried.
        operation: &'static str,
        /// On which thread.
        tid: Tid,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl Error {
    /// The error in `errno`, for an operation that just failed. ESRCH means that the thread is
    /// gone, or is not stopped; the types rule out the latter.
    pub(crate) fn last(operation: &'static str, tid: Tid) -> Self {
        let source = io::Error::last_os_error();
        if source.raw_os_error() == Some(libc::ESRCH) {
            return Error::Gone {
                operation,
                tid,
                death: Death::Unknown,
            };
        }
        Error::System {
            operation,
            tid,
            source,
        }
    }
    /// True when the target thread is gone.
    pub fn is_gone(&self) -> bool {
        matches!(self, Error::Gone { .. })
    }
    /// The kernel's errno, if there is one.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Error::System { source, .. } => source.raw_os_error(),
            Error::Gone { .. } => Some(libc::ESRCH),
            _ => None,
        }
    }
}
