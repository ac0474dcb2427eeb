//! A failure: what went wrong, in one sentence, with an exit code of its own and a remedy.
//!
//! This crate depends on nothing and knows neither attaching nor output formats. So every program
//! of the workspace (the command lines, the C interface, an analysis of results) reports failures
//! in the same way.
#![forbid(unsafe_code)]

pub mod output;
pub mod plain;

use std::fmt;

/// The kind of failure. The discriminant is the exit code of the command lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A mistake in the caller's options or values.
    Usage = 2,
    /// No such process.
    NoProcess = 10,
    /// The process exists but may not be touched by this user.
    NotPermitted = 11,
    /// A kernel thread.
    KernelThread = 12,
    /// The process is a zombie: it has ended and waits to be reaped.
    Zombie = 13,
    /// The process has loaded no GPU runtime.
    NotGpu = 14,
    /// Another session exists, or another tracer holds the thread.
    Busy = 15,
    /// The process's C library is older than our libraries need, or of another kind.
    Libc = 16,
    /// No thread of the process is parked where it is safe to enter.
    NoParkedThread = 17,
    /// The process is of another machine type, or a 32-bit process.
    Architecture = 18,
    /// The process is stopped (by job control or a debugger).
    Stopped = 19,
    /// Our own files are missing or unreadable, or have a set-uid or set-gid bit.
    Installation = 20,
    /// The engine could not enter, for a reason that it names. The target was left as it was.
    Enter = 21,
    /// The target refused the set-up or failed at it, for a reason that it names. The set-up was
    /// undone.
    Setup = 22,
    /// A limit of the process, of its memory cgroup or of the attacher leaves too little headroom.
    NoHeadroom = 23,
    /// The process does not see itself in `/proc`.
    NoProc = 24,
    /// Something is loaded twice, and it cannot be determined which copy is in use.
    Ambiguous = 25,
    /// The process's system calls are filtered or dispatched, and a call that we need is not
    /// allowed, or it is not known whether it is.
    Filtered = 26,
    /// There is no suitable CUPTI for a CUDA process.
    NoCupti = 27,
    /// Another profiler is active in the process, and CUPTI serves one at a time.
    OtherProfiler = 28,
    /// The kernel's driver or the GPUs have no dispatch log, or none that we know.
    NoDispatchLog = 29,
    /// The detach did not complete in time.
    DetachFailed = 30,
    /// The target was ended by a signal or exec. What was recorded is written.
    TargetKilled = 31,
    /// The trace is written, but records were lost.
    Incomplete = 32,
    /// Outputs could not be written: files, or standard output.
    Output = 33,
    /// A known option that is not implemented yet.
    NotBuilt = 34,
    /// Some of several processes succeeded and some failed. Each that failed is named.
    Partial = 35,
    /// The records reached their greatest size, and recording ended there. What was recorded until
    /// then is written.
    Full = 36,
    /// The process did not answer: reading its state, its files or its memory did not end in time.
    NoAnswer = 37,
    /// Hardware counters are not available: AMD's library for their packets is missing or refuses,
    /// or the GPU is not known.
    NoCounters = 38,
    /// A runtime manages all threads of the process and would crash at ours: some sanitizers, and
    /// programs that execute a translation of others.
    Instrumented = 39,
    /// Files to read are missing, damaged, or of an unknown kind.
    Input = 40,
}

impl Kind {
    /// Returns the exit code.
    pub fn exit_code(self) -> u8 {
        self as u8
    }
}

/// A failure: what went wrong, in one sentence, and what to do about it.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The kind of failure, which is its exit code.
    pub kind: Kind,
    /// What went wrong: one sentence in lower case, without a full stop.
    pub what: String,
    /// What the user can do. May be empty.
    pub hint: String,
}

impl Failure {
    /// Makes a failure that names no remedy.
    pub fn new(kind: Kind, what: impl Into<String>) -> Self {
        Failure {
            kind,
            what: what.into(),
            hint: String::new(),
        }
    }
    /// Adds the remedy.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_its_sentence_and_keeps_its_code_and_remedy() {
        let failure = Failure::new(Kind::NoHeadroom, "no memory is left").hint("free some");
        assert_eq!(failure.to_string(), "no memory is left");
        assert_eq!(failure.kind.exit_code(), 23);
        assert_eq!(failure.hint, "free some");
        assert!(Failure::new(Kind::Usage, "what").hint.is_empty());
    }
}
