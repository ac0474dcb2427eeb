//! Work on another process's memory, done in a process of its own that shares this one's memory.
//!
//! A page of a target's may belong to a file that a user's process serves (FUSE). While that server
//! has a request, the thread that asked for the page waits, and not even SIGKILL ends it. A process
//! ends with its last thread. So one such thread would keep this process a zombie, and everybody who
//! waits for it waiting, for as long as the server likes. Which pages those are is checked first
//! ([`crate::Answers`]), but the target may put another page there afterwards.
//!
//! So whatever touches such memory runs in a process of its own ([`in_helper_process`]). It shares memory and
//! descriptors with this one, as a thread does, and the thread that started it waits until it
//! has ended (`CLONE_VM` and `CLONE_VFORK`, as `posix_spawn` does). The end of this process ends
//! that wait, so this process can end at any time. The other one is killed then; if it cannot be, it
//! remains until its server answers, as a child of the first process.
//!
//! Decisions: ENG-054 (`docs/deviations/engine.md`).

use std::any::Any;
use std::cell::Cell;
use std::ffi::c_void;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use midair_ids::Pid;

use crate::{Tid, added_capabilities, progress, sys};

/// The length of the stack, the same as for Rust's threads. Only pages that are used take memory.
const STACK: usize = 2 << 20;
/// The length of the unmapped space below it, which no page of any architecture exceeds.
const GUARD: usize = 64 << 10;
/// `CAP_SYS_PTRACE`.
const TRACING: u32 = 19;

thread_local! {
    /// Whether the calling thread runs in a helper process.
    static IS_HELPER: Cell<bool> = const { Cell::new(false) };
}

/// How often a process that has done its work is looked at before it is remembered.
const SOON: u32 = 50;

/// How many helper processes run.
static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// Processes that have done their work and still have threads.
static LEFT: Mutex<Vec<i32>> = Mutex::new(Vec::new());

/// How many processes lie between one and its ancestor, at most.
const GENERATIONS: u32 = 4096;

/// Whether the helper process may trace thread `tid` if this one may. Yama lets a process
/// trace its descendants, and a helper process has none of this process's. Whom a process itself
/// named as its tracer (`PR_SET_PTRACER`) may have a descendant of its own trace it.
fn is_as_good(tid: Tid) -> bool {
    #[cfg(test)]
    if tests::IS_RESTRICTED.get() {
        return !may_descend(tid);
    }
    let restricted = yama_scope().is_some_and(|scope| scope != 0);
    let own = || sys::capabilities().map_or(0, |[low, _]| u64::from(low.effective));
    let tracing = || (own() | added_capabilities()) >> TRACING & 1 == 1;
    !restricted || tracing() || !may_descend(tid)
}

/// Whether thread `tid` belongs to this process or to a descendant of it, as far as known.
#[expect(clippy::disallowed_methods, reason = "a file of the kernel's")]
fn may_descend(tid: Tid) -> bool {
    let own = Pid::own().raw();
    let mut at = tid.raw();
    if at == own || Path::new(&format!("/proc/{own}/task/{at}")).exists() {
        return true;
    }
    for _ in 0..GENERATIONS {
        match parent_of(at) {
            // Outside of this pid namespace, or the first process there.
            Some(0) => return false,
            Some(parent) if parent == own => return true,
            Some(parent) => at = parent,
            // It has ended, or the kernel hides it.
            None => return true,
        }
    }
    true
}

/// The parent of the process of this thread, by `/proc/TID/stat`.
#[expect(clippy::disallowed_methods, reason = "a file of the kernel's")]
fn parent_of(tid: i32) -> Option<i32> {
    let text = std::fs::read(format!("/proc/{tid}/stat")).ok()?;
    // The name before it is in parentheses, and may contain any byte.
    let name = text.iter().rposition(|&byte| byte == b')')?;
    let rest = std::str::from_utf8(text.get(name + 1..)?).ok()?;
    rest.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// `kernel.yama.ptrace_scope`, if the kernel has Yama.
#[expect(clippy::disallowed_methods, reason = "a file of the kernel's")]
fn yama_scope() -> Option<u32> {
    let text = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok()?;
    text.trim().parse().ok()
}

/// What is handed to the other process, and what it leaves there.
struct Job<W, T> {
    work: Option<W>,
    /// The process for which it is done.
    own: Pid,
    done: Option<Result<T, Box<dyn Any + Send>>>,
}

/// Does `work`, which accesses the process of thread `tid`, in a process that shares this one's
/// memory and descriptors, and waits for it. It may do what a thread may, except that it must not
/// return to its caller by other ways than a panic, and that the kernel knows it by another process
/// id. [`Pid::own`] is still this process's.
///
/// Where another process may not trace that one and this one may (Yama, where it descends from this
/// one), or none can be made, the calling thread does the work; so it does inside of `work`. What
/// touches the memory there is done in a helper process all the same, with a file that this process has opened
/// ([`in_helper_process_always`]).
///
/// # Panics
/// Where `work` does.
pub fn in_helper_process<T: Send>(tid: impl Into<Tid>, work: impl FnOnce() -> T + Send) -> T {
    match must_be_here(tid.into()) {
        true => work(),
        false => in_helper_process_always(work),
    }
}

/// Whether only this process may trace thread `tid`, and not a helper process.
pub(crate) fn must_be_here(tid: Tid) -> bool {
    !IS_HELPER.get() && !is_as_good(tid)
}

/// The same as [`in_helper_process`] where it is known that another process may do the work: one that reads or
/// writes a file of the kernel's that the caller has opened, for example. The kernel asked for the
/// permission when it was opened. Unlike there, `work` may be what no other *thread* may be given.
///
/// # Panics
/// Where `work` does.
pub fn in_helper_process_always<T>(work: impl FnOnce() -> T) -> T {
    if IS_HELPER.get() || cfg!(miri) {
        return work();
    }
    let mut job = Job {
        work: Some(work),
        own: Pid::own(),
        done: None,
    };
    if let Some(stack) = Stack::new() {
        run(&mut job, &stack);
    }
    match (job.done, job.work) {
        (Some(Ok(done)), _) => done,
        (Some(Err(panic)), _) => resume_unwind(panic),
        (None, Some(work)) => work(),
        (None, None) => unreachable!("`run` returns with one of both"),
    }
}

/// Whether and for whom a thread runs in a helper process. A thread that is started by one that does inherits it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place(Option<Pid>);

impl Place {
    pub(crate) fn here() -> Place {
        Place(IS_HELPER.get().then(Pid::own))
    }

    pub(crate) fn adopt(self) {
        if let Some(own) = self.0 {
            IS_HELPER.set(true);
            midair_ids::act_for(Some(own));
        }
    }
}

/// What the other process does.
extern "C" fn begin<T, W: FnOnce() -> T>(job: *mut c_void) -> i32 {
    // SAFETY: `run` passes its job, which lives until this process has ended, and which no other
    // code uses meanwhile.
    let job = unsafe { &mut *job.cast::<Job<W, T>>() };
    let Some(work) = job.work.take() else {
        return 0;
    };
    // SAFETY: both calls take numbers.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if libc::getppid() != job.own.raw() {
            // It has ended before the kernel was notified.
            libc::syscall(libc::SYS_exit_group, 1);
        }
    }
    IS_HELPER.set(true);
    midair_ids::act_for(Some(job.own));
    progress::here();
    job.done = Some(catch_unwind(AssertUnwindSafe(work)));
    midair_ids::act_for(None);
    IS_HELPER.set(false);
    // SAFETY: takes a number. Only this thread ends. Threads that the work has started and not waited
    // for come to their end by themselves: they may hold locks of the memory that both share.
    // Handlers of the program's end are not run, since the program goes on.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
    0
}

/// Runs the job. Afterwards either it is done, or the work is still there.
fn run<T, W: FnOnce() -> T>(job: &mut Job<W, T>, stack: &Stack) {
    let signals = Blocked::all();
    #[cfg(test)]
    tests::DONE.set(tests::DONE.get() + 1);
    RUNNING.fetch_add(1, Relaxed);
    // No signal tells of its end, so it wakes no handler and no `wait` of the program's.
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_FS | libc::CLONE_FILES;
    // SAFETY: the stack is ours alone, and the job outlives the process that gets it: this thread
    // goes on only when that one has ended. Until then only that one uses this thread's
    // thread-local storage, and no signal handler runs there.
    let child = unsafe {
        libc::clone(
            begin::<T, W>,
            stack.top().as_ptr(),
            flags,
            std::ptr::from_mut(job).cast(),
        )
    };
    if child > 0 {
        RUNNING.fetch_sub(1, Relaxed);
        progress::here();
        if job.done.is_none() && job.work.is_none() {
            follow(end_of(child, 0).unwrap_or(libc::SIGKILL));
        }
        reap(child);
    } else {
        RUNNING.fetch_sub(1, Relaxed);
    }
    drop(signals);
}

/// Closes all descriptors of this process, if a helper process still runs: that one shares them, and
/// whoever reads a midair pipe would wait for its end. Call it when this process is about to end and has
/// written everything.
pub fn close_shared_descriptors() {
    if RUNNING.load(Relaxed) != 0 {
        // SAFETY: takes numbers. No code uses a descriptor after this: the process ends.
        unsafe { libc::syscall(libc::SYS_close_range, 0, u32::MAX, 0) };
    }
}

/// Returns how the process ended; `None` if it has not ended yet, which needs `WNOHANG`.
fn end_of(child: i32, how: i32) -> Option<i32> {
    let mut status = 0;
    loop {
        // SAFETY: takes numbers, and a live integer.
        match unsafe { libc::waitpid(child, &raw mut status, libc::__WALL | how) } {
            0 => return None,
            some if some == child => return Some(status),
            _ if io::Error::last_os_error().raw_os_error() == Some(libc::EINTR) => {}
            // Other code in this program waits for all children, and knows how it ended. It counts as
            // killed.
            _ => return Some(libc::SIGKILL),
        }
    }
}

/// Waits for a process that has done its work, or remembers it: threads that the work has started and not
/// waited for may still run.
fn reap(child: i32) {
    let has_ended = |child: i32| end_of(child, libc::WNOHANG).is_some();
    // It has left this memory, and is about to end.
    let ends = (0..SOON).any(|_| {
        let ended = has_ended(child);
        if !ended {
            std::thread::yield_now();
        }
        ended
    });
    let mut left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
    left.retain(|&child| !has_ended(child));
    if !ends {
        left.push(child);
    }
}

/// Ends this process as the other one ended in the middle of its work. That one may have held any
/// lock of the memory that both share.
fn follow(status: i32) -> ! {
    // SAFETY: these take numbers; no other process can be meant.
    unsafe {
        if libc::WIFEXITED(status) {
            libc::_exit(libc::WEXITSTATUS(status));
        }
        libc::kill(libc::getpid(), libc::SIGKILL);
        loop {
            libc::pause();
        }
    }
}

/// A stack, with unmapped space below it.
struct Stack(NonNull<c_void>);

impl Stack {
    fn new() -> Option<Stack> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK;
        // SAFETY: a new mapping, of which only the part above the guard becomes accessible.
        unsafe {
            let base = libc::mmap(
                std::ptr::null_mut(),
                GUARD + STACK,
                libc::PROT_NONE,
                flags,
                -1,
                0,
            );
            if base == libc::MAP_FAILED {
                return None;
            }
            let stack = Stack(NonNull::new(base)?);
            let usable = libc::PROT_READ | libc::PROT_WRITE;
            (libc::mprotect(base.byte_add(GUARD), STACK, usable) == 0).then_some(stack)
        }
    }

    /// The end of the stack, from which it grows downwards.
    fn top(&self) -> NonNull<c_void> {
        // SAFETY: the end of the mapping.
        unsafe { self.0.byte_add(GUARD + STACK) }
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: our own mapping, which no code uses any more.
        unsafe { libc::munmap(self.0.as_ptr(), GUARD + STACK) };
    }
}

/// All signals of the calling thread are blocked until this is dropped.
struct Blocked(libc::sigset_t);

impl Blocked {
    fn all() -> Blocked {
        // SAFETY: sigset_t is plain data, and both sets live for the calls.
        unsafe {
            let mut all: libc::sigset_t = std::mem::zeroed();
            let mut before: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
            Blocked(before)
        }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: a live set.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut())
        };
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::os::fd::{AsRawFd, OwnedFd};
    use std::sync::Mutex;

    thread_local! {
        /// Whether the calling thread is to act as if Yama restricted tracing.
        pub(crate) static IS_RESTRICTED: Cell<bool> = const { Cell::new(false) };
        /// How often the calling thread had something done in a helper process.
        pub(crate) static DONE: Cell<u32> = const { Cell::new(0) };
    }

    fn own_tid() -> u32 {
        crate::own_tid().get()
    }

    /// A thread that descends from no other process.
    fn first() -> Tid {
        Tid::new(1).unwrap()
    }

    /// A shell that is a child of this process, and the child that it starts and names first.
    fn family(script: &str) -> (std::process::Child, Tid) {
        use std::io::{BufRead, BufReader};
        let mut shell = std::process::Command::new("sh");
        shell
            .args(["-c", script])
            .stdin(std::process::Stdio::piped());
        shell.stdout(std::process::Stdio::piped());
        let mut shell = shell.spawn().unwrap();
        let mut line = String::new();
        let mut said = BufReader::new(shell.stdout.take().unwrap());
        said.read_line(&mut line).unwrap();
        (shell, line.trim().parse().unwrap())
    }

    #[test]
    fn descendants_are_known() {
        assert!(may_descend(crate::own_tid()), "this process itself");
        let other = std::thread::spawn(|| may_descend(crate::own_tid()));
        assert!(other.join().unwrap(), "its other threads");
        assert!(!may_descend(first()));
        assert!(!may_descend(
            Tid::new(std::os::unix::process::parent_id()).unwrap()
        ));
        // `cat` ends when the pipe to the shell is closed.
        let (mut shell, grandchild) = family("exec 3<&0; cat <&3 >/dev/null & echo $!; wait");
        let child = Tid::new(shell.id()).unwrap();
        assert!(may_descend(child));
        assert!(may_descend(grandchild));
        shell.kill().unwrap();
        shell.wait().unwrap();
        assert!(may_descend(child), "one that has ended could have been one");
    }

    #[test]
    fn work_is_done_in_another_process_with_the_same_memory_and_descriptors() {
        let here = (std::process::id(), own_tid());
        let seen = Mutex::new(Vec::new());
        let (inside, own, end): (_, _, OwnedFd) = in_helper_process(first(), || {
            seen.lock().unwrap().push("a vector that grows there");
            let nested = in_helper_process(first(), || (std::process::id(), own_tid()));
            let (end, _other) = std::os::unix::net::UnixStream::pair().unwrap();
            (nested, Pid::own().get(), end.into())
        });
        assert!(inside.0 != here.0 && inside.1 == inside.0, "{inside:?}");
        assert_eq!(own, here.0, "it is done for this process");
        assert_eq!(*seen.lock().unwrap(), ["a vector that grows there"]);
        // SAFETY: takes a number.
        assert!(unsafe { libc::fcntl(end.as_raw_fd(), libc::F_GETFD) } >= 0);
        assert_eq!((std::process::id(), own_tid()), here);
        assert_eq!(Pid::own().get(), here.0);
        // It is waited for, at the latest by the next one.
        let began = std::time::Instant::now();
        // SAFETY: takes numbers.
        while unsafe { libc::kill(inside.0 as i32, 0) } == 0 {
            assert!(began.elapsed() < std::time::Duration::from_secs(20));
            in_helper_process(first(), std::thread::yield_now);
        }
    }

    #[test]
    fn threads_that_trace_are_threads_there() {
        let (outer, inner) = in_helper_process(first(), || {
            let inner = crate::trace(first(), || (std::process::id(), Pid::own())).unwrap();
            (std::process::id(), inner)
        });
        assert_eq!(inner, (outer, Pid::own()));
        assert_ne!(outer, std::process::id());
        let by_itself = crate::trace(first(), std::process::id).unwrap();
        assert!(by_itself != outer && by_itself != std::process::id());
    }

    #[test]
    fn threads_that_are_left_there_are_not_waited_for() {
        let (go, wait) = std::sync::mpsc::channel::<u8>();
        let thread = in_helper_process(first(), || {
            std::thread::spawn(move || (wait.recv(), std::process::id()))
        });
        go.send(7).unwrap();
        let (got, there) = thread.join().unwrap();
        assert_eq!(got, Ok(7));
        assert_ne!(there, std::process::id());
        let began = std::time::Instant::now();
        // The thread is at its end. The next work takes the end of its process.
        while LEFT.lock().unwrap().contains(&(there as i32)) {
            assert!(began.elapsed() < std::time::Duration::from_secs(20));
            in_helper_process(first(), std::thread::yield_now);
        }
    }

    #[test]
    fn a_panic_comes_back() {
        let caught =
            std::panic::catch_unwind(|| in_helper_process(first(), || -> u8 { panic!("there") }));
        assert_eq!(*caught.unwrap_err().downcast::<&str>().unwrap(), "there");
        assert_eq!(in_helper_process(first(), || 7), 7);
    }

    #[test]
    fn signals_are_blocked_there_and_not_here() {
        let blocked = || {
            // SAFETY: sigset_t is plain data and live for the calls.
            unsafe {
                let mut now: libc::sigset_t = std::mem::zeroed();
                libc::pthread_sigmask(0, std::ptr::null(), &raw mut now);
                libc::sigismember(&raw const now, libc::SIGUSR1) == 1
            }
        };
        assert!(in_helper_process(first(), blocked));
        assert!(!blocked());
    }

    /// What a case does in a process of its own, which is the test's program again.
    #[test]
    fn the_process_itself() {
        let Ok(case) = std::env::var("MIDAIR_APART_CASE") else {
            return;
        };
        match case.as_str() {
            // SAFETY: takes numbers.
            "killed" => in_helper_process(first(), || unsafe {
                libc::kill(libc::getpid(), libc::SIGKILL);
            }),
            // SAFETY: takes a number.
            "ended" => in_helper_process(first(), || unsafe { libc::_exit(77) }),
            "waits" => in_helper_process(first(), || {
                println!("inside {}", std::process::id());
                loop {
                    std::thread::park();
                }
            }),
            other => panic!("{other}"),
        }
        std::process::exit(1);
    }

    fn case(name: &str) -> std::process::Command {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args([
            "--exact",
            "helper_process::tests::the_process_itself",
            "--nocapture",
        ]);
        command.env("MIDAIR_APART_CASE", name);
        command
    }

    #[test]
    fn who_dies_there_takes_this_process_along() {
        use std::os::unix::process::ExitStatusExt;
        let killed = case("killed").output().unwrap().status;
        assert_eq!(killed.signal(), Some(libc::SIGKILL));
        assert_eq!(case("ended").output().unwrap().status.code(), Some(77));
    }

    #[test]
    fn it_does_not_outlive_this_process() {
        use std::io::{BufRead, BufReader};
        let mut process = case("waits");
        process.stdout(std::process::Stdio::piped());
        let mut process = process.spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut inside = lines.map_while(Result::ok).filter_map(|line| {
            let number = line.split("inside ").nth(1)?.trim().parse::<i32>();
            number.ok()
        });
        let inside = inside.next().unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
        let began = std::time::Instant::now();
        loop {
            let path = format!("/proc/{inside}/stat");
            let state = std::fs::read_to_string(path).unwrap_or_default();
            if state.is_empty() || state.contains(") Z ") {
                return;
            }
            assert!(
                began.elapsed() < std::time::Duration::from_secs(20),
                "{state}"
            );
            std::thread::yield_now();
        }
    }
}
