//! The engine's refusals and errors as failures, each with its kind, sentence and remedy.
//!
//! Both matches name every variant, so that a new one cannot be forgotten here.

use midair_failure::{Failure, Kind};
use midair_inject::{Approach, EnterError, Inspection, Refusal};
use midair_procinfo::{Pid, Tid, task};
use midair_record::boot::ENTRY;
use midair_results::{End, describe};
use nix::sys::signal::Signal;
use std::time::Duration;

use crate::target::Target;

/// Returns why a process cannot be entered, as far as an inspection tells.
pub(crate) fn refused(refusal: &Refusal) -> Failure {
    let (kind, hint) = match refusal {
        Refusal::NoProcess { .. } => (
            Kind::NoProcess,
            "midair ps lists the processes that use a GPU",
        ),
        Refusal::Zombie { .. } => (
            Kind::Zombie,
            "it has exited, and its parent has not reaped it yet: there is nothing to attach to",
        ),
        Refusal::KernelThread { .. } => {
            (Kind::KernelThread, "only user programs use a GPU runtime")
        }
        Refusal::NotPermitted { hint, .. } => (Kind::NotPermitted, *hint),
        Refusal::PtraceForbidden { .. } => (
            Kind::Filtered,
            "allow ptrace in the filter (as the default profiles of Docker and containerd do), run midair outside the filter, or start the program with midair's register library, whose listener needs no ptrace",
        ),
        Refusal::Traced { .. } => (
            Kind::Busy,
            "end that tracer first (gdb, strace, another profiler)",
        ),
        Refusal::Stopped { .. } => (
            Kind::Stopped,
            "continue it first (kill -CONT, or fg in its shell)",
        ),
        Refusal::Frozen { .. } => (
            Kind::Stopped,
            "thaw it first (docker unpause, systemctl thaw, or 0 into its cgroup.freeze)",
        ),
        Refusal::Architecture { .. } => (
            Kind::Architecture,
            "use a build of midair for that machine type",
        ),
        Refusal::LibcTooOld { .. } => (
            Kind::Libc,
            "processes on glibc 2.34 or newer can be entered",
        ),
        Refusal::LibcKind { .. } => (
            Kind::Libc,
            "midair's libraries need glibc 2.34 or newer in the process",
        ),
        Refusal::ManagedThreads { by, .. } => {
            return Failure::new(Kind::Instrumented, refusal.to_string()).hint(by.remedy());
        }
        Refusal::Seccomp { .. } => (
            Kind::Filtered,
            "start the process without seccomp's strict mode",
        ),
        Refusal::Filtered { .. } => (
            Kind::Filtered,
            "allow that call in the filter, or start the process with midair's register library, whose listener needs fewer calls",
        ),
        Refusal::SharesMemory { .. } => (
            Kind::Enter,
            "attach to its parent, or again once it has started its program",
        ),
        Refusal::FilterUnread { .. } => (
            Kind::Filtered,
            "run this as root outside the container, or inside it under the same filters",
        ),
        Refusal::Dispatches { .. } => (
            Kind::Filtered,
            "disable syscall user dispatch; run a native build of the program",
        ),
        Refusal::LeaderEnded { .. } => (
            Kind::Enter,
            "start the program with midair's register library, or use a newer kernel",
        ),
        Refusal::NoProc { .. } => (
            Kind::NoProc,
            "mount one there: nsenter --mount --pid --target PID mount -t proc proc /proc",
        ),
        Refusal::Restless { .. } => (Kind::Enter, "attach once it stops calling execve"),
        Refusal::Unreadable { .. } => (Kind::Enter, "run this as root"),
    };
    Failure::new(kind, refusal.to_string()).hint(hint)
}

/// Returns why entering failed. Where the listener did not serve, the failure is what forbids
/// tracing, and its sentence also says why the listener did not serve.
pub(crate) fn not_entered(approach: &Approach, error: &EnterError) -> Failure {
    match (error, &approach.inspection) {
        (_, Ok(look)) if is_claimed(approach, error) => Failure::new(
            Kind::Busy,
            format!("process {} is already being profiled by midair", look.pid),
        )
        .hint(
            "attach again when that session has ended; its attacher may run in another container",
        ),
        (EnterError::Boot { errno, .. }, Ok(look)) if *errno == libc::EBUSY => {
            let copies = sdks(look).join(" and ");
            held(
                look.pid,
                &format!("by another build of midair's libraries ({copies})"),
            )
        }
        (EnterError::ListenerUnusable { why }, Err(refusal)) => {
            let mut failure = refused(refusal);
            failure.what = format!("{}; {why}", failure.what);
            failure
        }
        _ => failed(approach.pid, error),
    }
}

/// Returns why entering the process `pid` failed.
pub(crate) fn failed(pid: Pid, error: &EnterError) -> Failure {
    const PROCESS_GOES_ON: &str = "the process keeps running as before";
    let (kind, hint) = match error {
        EnterError::Refused(refusal) => return refused(refusal),
        EnterError::NoneParked { .. } => (
            Kind::NoParkedThread,
            "wait longer, with --wait 30s, for a thread to park between pieces of work; or start the program with midair's register library, which has a thread for this",
        ),
        EnterError::Busy { state, .. } => return busy(pid, state),
        EnterError::OtherVersion { .. } | EnterError::OtherBuild { .. } => (
            Kind::Busy,
            "use the midair that attached first, or restart the process",
        ),
        EnterError::Gone { .. } | EnterError::Replaced { .. } => (Kind::NoProcess, ""),
        EnterError::RightsChanged { .. } => (
            Kind::NotPermitted,
            "attach again: midair then checks its new privileges",
        ),
        EnterError::TargetStopped { .. } => (
            Kind::Stopped,
            "continue it first: in its debugger, with kill -CONT, or with fg in its shell",
        ),
        // Tracing itself was tried, so a filter is not what refuses it.
        EnterError::Engine { source, .. } if may_be_filtered(source) => (
            Kind::Filtered,
            "allow that call in midair's own seccomp filter, which may refuse it, or run midair outside the filter",
        ),
        // The inspection found that tracing was allowed and that there was no tracer.
        EnterError::Engine { source, .. } if source.errno() == Some(libc::EPERM) => {
            return untraceable(pid);
        }
        // Our library reports this where another build of it is at work, or where the process has
        // an own session that does not make way.
        EnterError::Boot { errno, .. } if *errno == libc::EBUSY => {
            return held(pid, "by another build of midair's libraries");
        }
        EnterError::Boot { errno, .. } if *errno == libc::EALREADY => return kept(pid, None),
        // These limits were not checked, or were reached meanwhile. What was started is undone.
        EnterError::ThreadRefused { errno } if *errno == libc::EAGAIN => (
            Kind::NoHeadroom,
            "a limit on threads (RLIMIT_NPROC, its pids cgroup, kernel.threads-max) or on memory is reached: see midair doctor",
        ),
        // A mapping for execution was refused: its file would have to permit it, and this mapping
        // has no file.
        EnterError::SystemCall { errno, .. } if *errno == libc::EACCES => (
            Kind::NotPermitted,
            "a security policy forbids the process executable memory (SELinux: execmem): setsebool allow_execmem on, or selinuxuser_execmod, for as long as it takes",
        ),
        EnterError::SystemCall { errno, .. } | EnterError::Boot { errno, .. }
            if [libc::ENOMEM, libc::EAGAIN, libc::EMFILE, libc::ENFILE].contains(errno) =>
        {
            (
                Kind::NoHeadroom,
                "the process or the machine reached a limit (memory, address space, locked memory, mappings, descriptors): see midair doctor",
            )
        }
        EnterError::PathUnseen { .. } => (
            Kind::NoProc,
            "it must see itself in /proc: nsenter --mount --pid --target PID mount -t proc proc /proc",
        ),
        EnterError::Boot { .. } => (Kind::Setup, ""),
        EnterError::SystemCall { .. }
        | EnterError::NoChannel { .. }
        | EnterError::ThreadRefused { .. }
        | EnterError::StubCrashed { .. }
        | EnterError::StubLeft { .. }
        | EnterError::StubBlocked { .. }
        | EnterError::Silent { .. }
        | EnterError::ListenerUnusable { .. }
        | EnterError::Engine { .. }
        | EnterError::Ours { .. } => (Kind::Enter, PROCESS_GOES_ON),
    };
    Failure::new(kind, error.to_string()).hint(hint)
}

/// Returns the failure for a process that could be traced when it was inspected, and cannot any more.
fn untraceable(pid: Pid) -> Failure {
    let threads = task::list(pid).unwrap_or_default();
    let is_traced = |tid: &Tid| task::status(*tid).is_ok_and(|status| status.tracer.is_some());
    if threads.iter().any(is_traced) {
        return busy(pid, "another tracer is attached to one of its threads");
    }
    let what = format!(
        "process {pid} could be traced a moment ago and cannot be now (EPERM): another tracer was attached to one of its threads, or its rights have changed"
    );
    Failure::new(Kind::Busy, what).hint("attach again; midair doctor PID shows what forbids it")
}

/// How long a process without a live thread may take to be gone.
const ENDING: Duration = Duration::from_secs(5);

/// Returns the failure of an attach to a process that was alive when it started. If a signal has
/// killed the process meanwhile, that is the reason.
pub(crate) fn killed(target: &Target, failure: Failure) -> Failure {
    let pid = target.pid();
    let limit = match task::live(pid) {
        Ok(Some(_)) => Duration::ZERO,
        _ => ENDING,
    };
    match target.ended_within(limit) {
        Some(end @ End::Signal(_)) if failure.kind != Kind::TargetKilled => {
            Failure::new(Kind::TargetKilled, ended_during_the_set_up(end))
        }
        _ => failure,
    }
}

/// Returns the sentence for a process that ended before its session started.
pub(crate) fn ended_during_the_set_up(end: End) -> String {
    let name = match end {
        End::Signal(number) => Signal::try_from(number).ok(),
        _ => None,
    };
    let name = name.map_or_else(String::new, |signal| format!(", {signal}"));
    format!(
        "the process ended during the set-up ({}{name})",
        describe(end)
    )
}

/// Returns true for an error as by a filter that this process is under. `ptrace` is not among the calls:
/// whether that is refused was asked before.
fn may_be_filtered(error: &midair_ptrace::Error) -> bool {
    const CALLS: [&str; 4] = [
        "process_vm_readv",
        "process_vm_writev",
        "pidfd_getfd",
        "pidfd_open",
    ];
    let refused = matches!(error, midair_ptrace::Error::System { operation, .. } if CALLS.contains(operation))
        && matches!(error.errno(), Some(libc::EPERM | libc::ENOSYS));
    refused && task::status(Pid::own()).is_ok_and(|status| status.seccomp != 0)
}

/// Returns the sentence for a worker thread that gave up before it got the session.
pub(crate) fn offer_not_taken(pid: Pid, why: &str) -> String {
    format!("process {pid} accepted no session: midair's thread there had timed out ({why})")
}

/// Returns the failure for a number that no process has.
pub(crate) fn no_process(number: u32) -> Failure {
    Failure::new(Kind::NoProcess, format!("there is no process {number}"))
        .hint("midair ps lists the processes that use a GPU")
}

/// Returns the failure for a process that is the attacher itself.
pub(crate) fn itself(pid: Pid) -> Failure {
    Failure::new(Kind::Usage, format!("process {pid} is midair itself"))
        .hint("choose another process: see midair ps")
}

/// Returns the failure for a process that uses no GPU.
pub(crate) fn not_gpu(pid: Pid) -> Failure {
    Failure::new(
        Kind::NotGpu,
        format!("process {pid} has no HIP, HSA or CUDA runtime loaded"),
    )
    .hint("is it the right process? A launcher often runs the work in a child: midair attach --tree PID attaches to all of them, and midair ps lists the processes that use a GPU")
}

/// Whether a midair worker thread has the process, and not a copy of our SDK that the process has
/// loaded by itself.
pub(crate) fn is_claimed(approach: &Approach, error: &EnterError) -> bool {
    let EnterError::Boot { errno, .. } = error else {
        return false;
    };
    let look = approach.inspection.as_ref();
    *errno == libc::EBUSY && look.is_ok_and(|look| sdks(look).is_empty())
}

/// Returns the paths of the copies of our SDK that a process has loaded by itself.
pub(crate) fn sdks(look: &Inspection) -> Vec<String> {
    let modules = &look.modules;
    let named = modules
        .list
        .iter()
        .enumerate()
        .filter(|(_, module)| module.file_name().starts_with(b"librocprofiler-sdk.so"));
    let ours = named.filter(|(index, _)| {
        let exported = modules
            .load(*index)
            .and_then(|loaded| loaded.elf.exported([ENTRY]));
        matches!(exported, Ok([Some(_)]))
    });
    ours.map(|(_, module)| midair_procinfo::show(&module.path))
        .collect()
}

/// Returns the failure for a process whose own session does not make way. `tid` is that session's
/// thread.
pub(crate) fn kept(pid: Pid, tid: Option<Tid>) -> Failure {
    let thread = tid.map_or_else(String::new, |tid| format!(" (thread {tid})"));
    Failure::new(
        Kind::Busy,
        format!(
            "process {pid} is already recorded{thread}: it was started under the profiler (midair run, rocprofv3 -- PROGRAM), or another program attached through its register library"
        ),
    )
    .hint("attach after that session has ended, or start the process without the profiler")
}

/// Returns the failure for a process that another midair library uses.
fn held(pid: Pid, by: &str) -> Failure {
    Failure::new(
        Kind::Busy,
        format!("process {pid} is already recorded, {by}"),
    )
    .hint("end that profiler, or let both use the same build of midair")
}

/// Returns the failure for a process that is attached already. `state` says by whom, or what that
/// session is doing.
pub(crate) fn busy(pid: Pid, state: &str) -> Failure {
    Failure::new(
        Kind::Busy,
        format!("process {pid} is already attached ({state})"),
    )
    .hint("wait for the other session to end, or end it; if its attacher has died, its lease expires within seconds")
}
