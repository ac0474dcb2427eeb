//! Refusals and failures, each with its data and its sentence (lower case, no full stop). The
//! advice on each is given where failures are made of them, by a match over all variants
//! (`midair-session`, `explain`).

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use midair_procinfo::bpf::Action;
use midair_procinfo::{Pid, Tid};
use midair_record::boot::step;

use crate::managed_threads::ThreadManager;

/// Why a process cannot be entered. Inspection alone finds this out, so nothing was changed.
#[derive(Debug)]
pub enum Refusal {
    /// There is no such process.
    NoProcess {
        /// The id that was asked for.
        pid: Pid,
    },
    /// It has ended and waits to be reaped.
    Zombie {
        /// The process.
        pid: Pid,
    },
    /// A thread of the kernel.
    KernelThread {
        /// The process.
        pid: Pid,
        /// Its name.
        name: String,
    },
    /// This user is not permitted to enter it.
    NotPermitted {
        /// The process.
        pid: Pid,
        /// Why, as far as known.
        why: String,
        /// What to do about it.
        hint: &'static str,
    },
    /// A system call filter that this process itself is under refuses `ptrace`, for whatever process.
    PtraceForbidden {
        /// The process.
        pid: Pid,
        /// The filter's answer.
        source: io::Error,
    },
    /// A tracer is attached to it (a debugger, strace).
    Traced {
        /// The process.
        pid: Pid,
        /// The tracer, as this process sees it.
        by: Tid,
        /// Its name.
        name: String,
    },
    /// It is stopped by job control.
    Stopped {
        /// The process.
        pid: Pid,
    },
    /// Its cgroup is frozen.
    Frozen {
        /// The process.
        pid: Pid,
        /// The group's directory.
        group: PathBuf,
    },
    /// Another machine type, or a 32-bit process.
    Architecture {
        /// The process.
        pid: Pid,
        /// What was found.
        what: String,
    },
    /// The C library is older than our libraries need.
    LibcTooOld {
        /// The process.
        pid: Pid,
        /// Its version.
        version: (u32, u32),
    },
    /// The C library is of another kind, or there is none.
    LibcKind {
        /// The process.
        pid: Pid,
        /// What was found.
        what: &'static str,
    },
    /// A runtime manages all its threads, and would crash at ours.
    ManagedThreads {
        /// The process.
        pid: Pid,
        /// That runtime.
        by: ThreadManager,
    },
    /// The seccomp mode of its threads allows nothing (strict).
    Seccomp {
        /// The process.
        pid: Pid,
    },
    /// It does not see itself in `/proc`, through which it would load a library that is sent to it.
    NoProc {
        /// The process.
        pid: Pid,
        /// What is there instead.
        what: &'static str,
    },
    /// A seccomp filter does not let a needed system call through.
    Filtered {
        /// The process.
        pid: Pid,
        /// The call.
        call: &'static str,
        /// What the filter would do.
        action: Action,
    },
    /// It has the kernel turn its system calls into signals (syscall user dispatch), and would take
    /// ours for its own.
    Dispatches {
        /// The process.
        pid: Pid,
    },
    /// Its first thread has ended. Before Linux 6.9, the kernel only copies descriptors out of a
    /// process by its first thread.
    LeaderEnded {
        /// The process.
        pid: Pid,
    },
    /// It executes one program after the other, faster than it can be inspected.
    Restless {
        /// The process.
        pid: Pid,
    },
    /// It runs in the memory of its parent: a child of `vfork` that has not started its program
    /// yet.
    SharesMemory {
        /// The process.
        pid: Pid,
        /// Its parent.
        with: Pid,
    },
    /// It has seccomp filters that we may not read, so we do not know what they would do.
    FilterUnread {
        /// The process.
        pid: Pid,
        /// Why.
        why: String,
    },
    /// Something that we must know about it could not be read.
    Unreadable {
        /// The process.
        pid: Pid,
        /// What.
        what: String,
        /// Why.
        source: io::Error,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::NoProcess { pid } => write!(f, "there is no process {pid}"),
            Refusal::Zombie { pid } => {
                write!(
                    f,
                    "process {pid} is a zombie: it has exited and is waiting to be reaped"
                )
            }
            Refusal::KernelThread { pid, name } => {
                write!(f, "{pid} ({name}) is a kernel thread")
            }
            Refusal::NotPermitted { pid, why, .. } => {
                write!(f, "cannot enter process {pid}: {why}")
            }
            Refusal::PtraceForbidden { pid, source } => write!(
                f,
                "cannot enter process {pid} from here: midair's own seccomp filter refuses ptrace: {source}"
            ),
            Refusal::Traced { pid, by, name } => {
                write!(f, "process {pid} is traced by {by} ({name})")
            }
            Refusal::Stopped { pid } => write!(f, "process {pid} is stopped"),
            Refusal::Frozen { pid, group } => {
                write!(
                    f,
                    "process {pid} is frozen by its cgroup {}",
                    group.display()
                )
            }
            Refusal::Architecture { pid, what } => {
                let (_, ours) = midair_ptrace::arch::ELF_MACHINE;
                write!(f, "process {pid} is not an {ours} process: {what}")
            }
            Refusal::LibcTooOld {
                pid,
                version: (major, minor),
            } => {
                write!(
                    f,
                    "the C library of process {pid} is too old: glibc {major}.{minor}; 2.34 or newer required"
                )
            }
            Refusal::LibcKind { pid, what } => {
                write!(f, "process {pid} does not run on glibc: {what}")
            }
            Refusal::ManagedThreads { pid, by } => write!(f, "process {pid} {}", by.words()),
            Refusal::Seccomp { pid } => write!(f, "process {pid} is in seccomp's strict mode"),
            Refusal::NoProc { pid, what } => {
                write!(
                    f,
                    "process {pid} does not see itself in /proc, which it needs to load midair's library: {what}"
                )
            }
            Refusal::Filtered { pid, call, action } => {
                write!(f, "a seccomp filter of process {pid} ")?;
                match action {
                    Action::KillProcess => write!(f, "would kill the process at {call}"),
                    Action::KillThread => write!(f, "would kill the thread at {call}"),
                    Action::Trap => write!(f, "would send SIGSYS at {call}"),
                    Action::Errno(errno) => write!(
                        f,
                        "refuses {call}: {}",
                        io::Error::from_raw_os_error(i32::from(*errno))
                    ),
                    Action::Notify => write!(f, "asks another process about {call}"),
                    Action::Trace => write!(f, "asks a tracer about {call}"),
                    Action::Log | Action::Allow => write!(f, "lets {call} pass"),
                }
            }
            Refusal::Dispatches { pid } => write!(
                f,
                "process {pid} uses syscall user dispatch, which turns its system calls into signals"
            ),
            Refusal::LeaderEnded { pid } => write!(
                f,
                "the main thread of process {pid} has exited, and the kernel provides no pidfd for such a process before Linux 6.9"
            ),
            Refusal::Restless { pid } => {
                write!(f, "cannot inspect process {pid}: it keeps calling execve")
            }
            Refusal::SharesMemory { pid, with } => write!(
                f,
                "process {pid} still shares the memory of its parent {with} (vfork)"
            ),
            Refusal::FilterUnread { pid, why } => {
                write!(f, "cannot read the seccomp filters of process {pid}: {why}")
            }
            Refusal::Unreadable { pid, what, source } => {
                write!(f, "cannot read {what} of process {pid}: {source}")
            }
        }
    }
}

impl std::error::Error for Refusal {}

/// One thread and why it was not borrowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RejectedThread {
    /// The thread.
    pub tid: Tid,
    /// Its name.
    pub name: String,
    /// What it was doing.
    pub doing: String,
}

impl fmt::Display for RejectedThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}) {}", self.tid, self.name, self.doing)
    }
}

/// Why entering failed. Unless the variant says otherwise, the target is as it was.
#[derive(Debug)]
pub enum EnterError {
    /// It cannot be entered at all.
    Refused(Refusal),
    /// No thread was parked where it is safe to borrow it, until the deadline.
    NoneParked {
        /// What each was doing when last seen.
        threads: Vec<RejectedThread>,
        /// How long the search took.
        searched: Duration,
    },
    /// Another session is on, or is being set up.
    Busy {
        /// The worker thread there.
        tid: Tid,
        /// What its boot block says.
        state: &'static str,
    },
    /// The worker thread that is parked there belongs to another build of midair.
    OtherVersion {
        /// The worker thread there.
        tid: Tid,
        /// Its layout version.
        version: u32,
    },
    /// It was forked from a process that another build of midair had entered, and has that build's
    /// hooks.
    OtherBuild {
        /// The process.
        pid: Pid,
    },
    /// What its worker thread names as the channel to it is no such socket. The thread is not one of
    /// midair's, or the process has exchanged the descriptor.
    NoChannel {
        /// The thread.
        tid: Tid,
    },
    /// The target ended meanwhile.
    Gone {
        /// During what.
        during: &'static str,
    },
    /// The target became another program (`exec`) meanwhile. Everything of midair's in it went with the
    /// old program.
    Replaced {
        /// During what.
        during: &'static str,
        /// Whether anything had been changed in the old program. If not, the attach can start again
        /// with the new one.
        begun: bool,
    },
    /// The target has other rights than when it was inspected: it executed a program with the
    /// set-uid bit or with file capabilities, or changed its user. It was let go.
    RightsChanged {
        /// The process.
        pid: Pid,
        /// When this was noticed.
        during: &'static str,
    },
    /// The target refused a system call that was made on the borrowed thread.
    SystemCall {
        /// Which.
        call: &'static str,
        /// Its errno.
        errno: i32,
    },
    /// `pthread_create` failed in the target.
    ThreadRefused {
        /// The result, an errno.
        errno: i32,
    },
    /// The stub got a signal. The borrowed thread was taken back.
    StubCrashed {
        /// The signal.
        signal: i32,
        /// Where.
        at: u64,
    },
    /// `pthread_create` did not return in time. The borrowed thread was let go, and restores itself
    /// once the call returns.
    StubLeft {
        /// The thread.
        tid: Tid,
    },
    /// `pthread_create` waited for a lock of the allocator that was not released. The borrowed
    /// thread was taken back.
    StubBlocked {
        /// The thread.
        tid: Tid,
    },
    /// The worker thread did not reach the point named in time.
    Silent {
        /// Which point.
        at: &'static str,
    },
    /// The worker thread in the target failed.
    Boot {
        /// At which step.
        step: &'static str,
        /// An errno, or 0.
        errno: i32,
        /// The message of the dynamic loader, if the loader refused.
        text: String,
    },
    /// The worker thread in the target could not open the path of the library, since the process
    /// does not see itself in `/proc`.
    PathUnseen {
        /// The message of the dynamic loader.
        text: String,
    },
    /// Its listener is there but cannot be used, and no other entry path is open.
    ListenerUnusable {
        /// Why.
        why: String,
    },
    /// It is stopped, so that its listener cannot answer.
    TargetStopped {
        /// The process.
        pid: Pid,
        /// Stopped by whom.
        words: String,
    },
    /// An operation on the target failed.
    Engine {
        /// During what.
        during: &'static str,
        /// The cause.
        source: midair_ptrace::Error,
    },
    /// Something on our own side failed (reading the library, sending it).
    Ours {
        /// During what.
        during: &'static str,
        /// The cause.
        source: io::Error,
    },
}

impl EnterError {
    /// Whether the worker thread says that it has waited for the library long enough. That it had
    /// been sent by then makes no difference: nothing has started.
    pub fn is_lost_patience(&self) -> bool {
        let silence = step_words(step::SILENCE);
        matches!(self, EnterError::Boot { step, errno: 0, .. } if *step == silence)
    }

    /// Returns the error for the [`step`] at which the worker thread says that it failed. All
    /// values come from the target and may be anything.
    pub(crate) fn at_step(code: u32, errno: i32, text: String) -> EnterError {
        match code {
            step::THREAD => EnterError::ThreadRefused { errno },
            step::PATH => EnterError::PathUnseen { text },
            _ => EnterError::Boot {
                step: step_words(code),
                errno,
                text,
            },
        }
    }
}

impl fmt::Display for EnterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EnterError::Refused(refusal) => refusal.fmt(f),
            EnterError::NoneParked { threads, searched } => {
                let seconds = searched.as_secs_f64();
                write!(
                    f,
                    "no thread is parked where it is safe to enter, after {seconds:.1} s of looking"
                )?;
                for (index, seen) in threads.iter().take(16).enumerate() {
                    write!(f, "{} {seen}", if index == 0 { ":" } else { ";" })?;
                }
                match threads.len().saturating_sub(16) {
                    0 => Ok(()),
                    more => write!(f, "; and {more} more"),
                }
            }
            EnterError::Busy { tid, state } => {
                write!(f, "another session is on (thread {tid}: {state})")
            }
            EnterError::OtherVersion { tid, version } => {
                write!(
                    f,
                    "thread {tid} belongs to another build of midair (layout {version})"
                )
            }
            EnterError::OtherBuild { pid } => {
                write!(
                    f,
                    "process {pid} has the library of another build of midair, without its thread: it was forked from a profiled process"
                )
            }
            EnterError::NoChannel { tid } => write!(
                f,
                "thread {tid} does not name a valid socket as the channel to its attacher"
            ),
            EnterError::Gone { during } => write!(f, "the process ended (step: {during})"),
            EnterError::Replaced { during, .. } => {
                write!(f, "the process executed another program (step: {during})")
            }
            EnterError::RightsChanged { pid, during } => {
                write!(
                    f,
                    "the privileges of process {pid} changed since its inspection (step: {during}); it was released"
                )
            }
            EnterError::SystemCall { call, errno } => {
                write!(
                    f,
                    "{call} failed in the target: {}",
                    io::Error::from_raw_os_error(*errno)
                )
            }
            EnterError::ThreadRefused { errno } => {
                write!(
                    f,
                    "the target could not make a thread: {}",
                    io::Error::from_raw_os_error(*errno)
                )
            }
            EnterError::StubCrashed { signal, at } => {
                write!(
                    f,
                    "signal {signal} at {at:#x} on the borrowed thread; it was restored"
                )
            }
            EnterError::StubLeft { tid } => write!(
                f,
                "making a thread took too long on thread {tid}; the thread was released, and continues when the call returns"
            ),
            EnterError::StubBlocked { tid } => write!(
                f,
                "thread {tid} would have waited for an allocator lock that is not released; it was restored"
            ),
            EnterError::Silent { at } => {
                write!(
                    f,
                    "the worker thread in the target did not answer in time ({at})"
                )
            }
            EnterError::Boot { step, errno, text } => {
                write!(f, "the worker thread in the target failed at {step}")?;
                if *errno != 0 {
                    write!(f, ": {}", io::Error::from_raw_os_error(*errno))?;
                }
                if !text.is_empty() {
                    write!(f, ": {text}")?;
                }
                Ok(())
            }
            EnterError::PathUnseen { text } => write!(
                f,
                "the worker thread in the target failed at {}: {text}",
                step_words(step::PATH)
            ),
            EnterError::ListenerUnusable { why } => f.write_str(why),
            EnterError::TargetStopped { pid, words } => {
                write!(f, "process {pid} is {words}: its listener cannot answer")
            }
            EnterError::Engine { during, source } => write!(f, "{during}: {source}"),
            EnterError::Ours { during, source } => write!(f, "{during}: {source}"),
        }
    }
}

impl std::error::Error for EnterError {}

impl From<Refusal> for EnterError {
    fn from(refusal: Refusal) -> Self {
        EnterError::Refused(refusal)
    }
}

/// Returns a step of the boot code as text.
pub(crate) fn step_words(code: u32) -> &'static str {
    match code {
        step::SOCKET => "making a socket pair",
        step::SILENCE => "waiting for the library",
        step::RECEIVE => "receiving the library",
        step::LOAD | step::PATH => "loading the library",
        step::ENTRY => "finding the entry of the library",
        step::THREAD => "making a thread",
        _ => "an unknown step",
    }
}

/// Names the phase in which an operation failed.
pub(crate) trait During<T> {
    /// Puts `phase` into the error of a result. An end of the target becomes [`EnterError::Gone`].
    fn during(self, phase: &'static str) -> Result<T, EnterError>;
}

impl<T> During<T> for midair_ptrace::Result<T> {
    fn during(self, phase: &'static str) -> Result<T, EnterError> {
        self.map_err(|source| {
            if source.is_gone() {
                EnterError::Gone { during: phase }
            } else {
                EnterError::Engine {
                    during: phase,
                    source,
                }
            }
        })
    }
}

impl<T> During<T> for io::Result<T> {
    fn during(self, phase: &'static str) -> Result<T, EnterError> {
        self.map_err(|source| EnterError::Ours {
            during: phase,
            source,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_wait_without_an_error_is_lost_patience() {
        for (code, errno, is) in [
            (step::SILENCE, 0, true),
            (step::SILENCE, libc::EINVAL, false),
            (step::RECEIVE, 0, false),
        ] {
            let error = EnterError::at_step(code, errno, String::new());
            assert_eq!(error.is_lost_patience(), is, "{error}");
        }
    }
}
