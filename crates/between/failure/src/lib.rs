//! A failure: what went wrong, in one sentence, with an exit code of its own and a remedy.
//!
//! This crate depends on nothing and knows neither attaching nor output formats. So every program
//! of the workspace (the command lines, the C interface, an analysis of results) reports failures
//! in the same way.
#![forbid(unsafe_code)]

pub mod output;
pub mod plain;

use std::fmt;

/// Makes [`Kind`] from rows, so that no kind lacks a remedy.
macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $remedy:literal;)*) => {
        /// The kind of failure. The discriminant is the exit code of the command lines.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Kind {
            $($(#[$doc])* $name = $code,)*
        }

        impl Kind {
            /// All kinds, by their exit codes.
            pub const ALL: &[Kind] = &[$(Kind::$name),*];

            /// Returns the remedy of a failure that names no better one.
            pub fn remedy(self) -> &'static str {
                match self {
                    $(Kind::$name => $remedy,)*
                }
            }
        }
    };
}

kinds! {
    /// A mistake in the caller's options or values.
    Usage = 2, "see --help";

    /// No such process.
    NoProcess = 10, "midair ps lists the processes that use a GPU";

    /// The process exists but may not be touched by this user.
    NotPermitted = 11, "run this as root; midair doctor names what is missing";

    /// A kernel thread.
    KernelThread = 12, "only user programs use a GPU runtime";

    /// The process is a zombie: it has ended and waits to be reaped.
    Zombie = 13, "it has exited: there is nothing to attach to";

    /// The process has loaded no GPU runtime.
    NotGpu = 14, "is it the right process? midair ps lists the processes that use a GPU";

    /// Another session exists, or another tracer holds the thread.
    Busy = 15, "end the other session or tracer first";

    /// The process's C library is older than our libraries need, or of another kind.
    Libc = 16, "processes on glibc 2.34 or newer can be entered";

    /// No thread of the process is parked where it is safe to enter.
    NoParkedThread = 17, "wait longer: --wait 30s";

    /// The process is of another machine type, or a 32-bit process.
    Architecture = 18, "use a build of midair for that machine type";

    /// The process is stopped (by job control or a debugger).
    Stopped = 19, "continue it first: kill -CONT PID, or fg in its shell";

    /// Our own files are missing or unreadable, or have a set-uid or set-gid bit.
    Installation = 20, "install midair again";

    /// The engine could not enter, for a reason that it names. The target was left as it was.
    Enter = 21, "the process keeps running as before; -v shows more";

    /// The target refused the set-up or failed at it, for a reason that it names. The set-up was
    /// undone.
    Setup = 22, "the process keeps running as before; --log-level info shows more";

    /// A limit of the process, of its memory cgroup or of the attacher leaves too little headroom.
    NoHeadroom = 23, "raise that limit; midair doctor PID shows all of them";

    /// The process does not see itself in `/proc`.
    NoProc = 24, "mount one there: nsenter --mount --pid --target PID mount -t proc proc /proc";

    /// Something is loaded twice, and it cannot be determined which copy is in use.
    Ambiguous = 25, "let the program load one copy (LD_LIBRARY_PATH, RUNPATH, Python packages)";

    /// The process's system calls are filtered or dispatched, and a call that we need is not
    /// allowed, or it is not known whether it is.
    Filtered = 26, "allow that call, or start the program with midair's register library";

    /// There is no suitable CUPTI for a CUDA process.
    NoCupti = 27, "install CUPTI there, or give one with --cupti";

    /// Another profiler is active in the process, and CUPTI serves one at a time.
    OtherProfiler = 28, "attach again when that profiler has finished";

    /// The kernel's driver or the GPUs have no dispatch log, or none that we know.
    NoDispatchLog = 29, "omit --no-entry";

    /// The detach did not complete in time.
    DetachFailed = 30, "the process finishes the detach by itself; the records so far are written";

    /// The target was ended by a signal or exec. What was recorded is written.
    TargetKilled = 31, "the records so far are written; attach to the new program, if there is one";

    /// The trace is written, but records were lost.
    Incomplete = 32, "see the notes for the number of lost records; docs/results.md explains them";

    /// Outputs could not be written: files, or standard output.
    Output = 33, "check the directory or device, its permissions, and free space";

    /// A known option that is not implemented yet.
    NotBuilt = 34, "omit it, or see --help for what is built";

    /// Some of several processes succeeded and some failed. Each that failed is named.
    Partial = 35, "see standard error for each failure and its exit code";

    /// The records reached their greatest size, and recording ended there. What was recorded until
    /// then is written.
    Full = 36, "record less, raise --max-size, or set TMPDIR to another directory";

    /// The process did not answer: reading its state, its files or its memory did not end in time.
    NoAnswer = 37, "attach again when the process, and the disks and servers of its files, respond";

    /// Hardware counters are not available: AMD's library for their packets is missing or refuses,
    /// or the GPU is not known.
    NoCounters = 38, "midair doctor names what is missing";

    /// A runtime manages all threads of the process and would crash at ours: some sanitizers, and
    /// programs that execute a translation of others.
    Instrumented = 39, "profile the program without that tool";

    /// Files to read are missing, damaged, or of an unknown kind.
    Input = 40, "profile again";

    /// The awaited event did not come before the end, so nothing was recorded or written.
    Nothing = 41, "let it run until then";
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
    /// What the user can do. Not empty.
    pub hint: String,
}

impl Failure {
    /// Makes a failure with the remedy of its kind.
    pub fn new(kind: Kind, what: impl Into<String>) -> Self {
        Failure {
            kind,
            what: what.into(),
            hint: kind.remedy().to_owned(),
        }
    }
    /// Names a better remedy, unless it is empty.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        let hint = hint.into();
        if !hint.is_empty() {
            self.hint = hint;
        }
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
        for hint in [None, Some("")] {
            let failure = Failure::new(Kind::Usage, "what");
            let failure = hint.map_or(failure.clone(), |hint| failure.hint(hint));
            assert_eq!(failure.hint, "see --help");
        }
    }

    /// The page promises a row and a remedy for each code.
    #[test]
    fn each_kind_has_a_remedy_and_a_row_in_the_page() {
        let page = include_str!("../../../../docs/exit-codes.md");
        let rows = page.lines().filter_map(|line| {
            let mut cells = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ");
            let code: u8 = cells.next()?.parse().ok()?;
            Some((code, cells.map(str::trim).collect::<Vec<_>>()))
        });
        let rows: Vec<_> = rows.filter(|(code, _)| *code != 0).collect();
        for (code, cells) in &rows {
            assert!(cells.len() == 2, "{code}: {cells:?}");
            assert!(cells.iter().all(|cell| cell.len() > 3), "{code}: {cells:?}");
        }
        let documented: Vec<u8> = rows.iter().map(|(code, _)| *code).collect();
        let all: Vec<u8> = Kind::ALL.iter().map(|kind| kind.exit_code()).collect();
        assert_eq!(documented, all);
        assert!(all.is_sorted_by(|one, next| one < next));
        for kind in Kind::ALL {
            assert!(kind.remedy().len() > 9, "{kind:?}");
            assert!(!kind.remedy().contains("try again"), "{kind:?}");
        }
    }
}
