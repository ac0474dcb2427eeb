//! Waiting with low latency: while a thread of the target is held, every microsecond that the
//! tracer loses is one more for which that thread is stopped.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Write};
use std::marker::PhantomData;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use crate::Tid;

/// Real-time priority of the tracer; one less where the limit (RLIMIT_RTPRIO) allows no more.
/// It is above what is lent to the held thread ([`crate::Boost`]), so that we can stop that thread
/// wherever it runs.
const PRIORITIES: [i32; 2] = [2, 1];

/// Gives the calling thread low scheduling latency until it is dropped: real-time priority where
/// that is allowed, and exact timers. Where all processors are busy, the kernel would otherwise run
/// another process between any two steps.
#[derive(Debug)]
pub struct Urgent {
    /// The policy and priority to go back to; None when they were not changed.
    scheduling: Option<(i32, libc::sched_param)>,
    /// The timer slack to go back to, in ns; 0 when it was not changed.
    slack: i32,
    /// Both belong to the thread that called `begin`.
    here: PhantomData<*const ()>,
}

impl Urgent {
    /// Makes the calling thread urgent. What is not allowed is left out.
    pub fn begin() -> Urgent {
        // SAFETY: all act on the calling thread; `before` is live for the call that takes it.
        let (scheduling, slack) = unsafe {
            let mut before: libc::sched_param = std::mem::zeroed();
            let policy = libc::sched_getscheduler(0);
            let known = policy >= 0 && libc::sched_getparam(0, &raw mut before) == 0;
            let raised = known
                && policy & !libc::SCHED_RESET_ON_FORK == libc::SCHED_OTHER
                && PRIORITIES.into_iter().any(be_real_time);
            // A real-time thread has no timer slack anyway.
            let slack = if raised {
                0
            } else {
                libc::prctl(libc::PR_GET_TIMERSLACK)
            };
            if slack > 0 {
                libc::prctl(libc::PR_SET_TIMERSLACK, 1_u64);
            }
            (raised.then_some((policy, before)), slack)
        };
        Urgent {
            scheduling,
            slack,
            here: PhantomData,
        }
    }

    /// Whether the thread has real-time priority now.
    pub fn is_real_time(&self) -> bool {
        self.scheduling.is_some() || real_time_priority() > 0
    }
}

/// Gives the calling thread this real-time priority; false where that is not allowed.
pub(crate) fn be_real_time(priority: i32) -> bool {
    // SAFETY: acts on the calling thread; the parameter is plain data and live.
    unsafe {
        let mut wanted: libc::sched_param = std::mem::zeroed();
        wanted.sched_priority = priority;
        libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const wanted) == 0
    }
}

/// The calling thread's real-time priority; 0 if it has none.
pub(crate) fn real_time_priority() -> i32 {
    // SAFETY: acts on the calling thread; the parameter is plain data and live.
    unsafe {
        let mut param: libc::sched_param = std::mem::zeroed();
        match libc::sched_getparam(0, &raw mut param) {
            0 => param.sched_priority,
            _ => 0,
        }
    }
}

impl Drop for Urgent {
    fn drop(&mut self) {
        // SAFETY: acts on the calling thread, which is the one that started; the parameter is live.
        unsafe {
            if let Some((policy, param)) = &self.scheduling {
                libc::sched_setscheduler(0, *policy, &raw const *param);
            }
            if self.slack > 0 {
                libc::prctl(libc::PR_SET_TIMERSLACK, self.slack as u64);
            }
        }
    }
}

/// A set of processors that a thread may use.
#[derive(Clone, Copy)]
pub(crate) struct Processors(libc::cpu_set_t);

impl Processors {
    /// The set of the calling thread.
    fn now() -> Option<Processors> {
        // SAFETY: cpu_set_t is plain data, so zeroes are valid; the kernel fills as many bytes as
        // it has.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            (libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) == 0)
                .then_some(Processors(set))
        }
    }

    pub(crate) fn count(&self) -> i32 {
        // SAFETY: reads the set.
        unsafe { libc::CPU_COUNT(&self.0) }
    }

    /// The set without one processor.
    fn without(mut self, processor: usize) -> Processors {
        if processor < size_of::<libc::cpu_set_t>() * 8 {
            // SAFETY: the number was checked against the set's capacity.
            unsafe { libc::CPU_CLR(processor, &mut self.0) };
        }
        self
    }

    /// Moves the calling thread to these processors, if there are any. A failure changes nothing.
    pub(crate) fn settle(&self) -> bool {
        // SAFETY: the set is live and of the size given.
        self.count() > 0
            && unsafe {
                libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const self.0)
            } == 0
    }
}

thread_local! {
    /// The processors that this thread was allowed before it first avoided one.
    static ALLOWED: Cell<Option<Processors>> = const { Cell::new(None) };
}

/// The processors that the calling thread was allowed before it first avoided one.
pub(crate) fn allowed() -> Option<Processors> {
    ALLOWED.get().or_else(Processors::now)
}

/// Keeps the calling thread, and threads that it makes, off a processor, if it may use another one.
/// That lasts as long as the thread lives, or until it is to avoid another processor. A thread that
/// is let go resumes where it last ran: if we waited for it there, each would wait for the other.
/// Returns true if the calling thread is elsewhere now.
pub fn avoid_processor(processor: u64) -> bool {
    let (Ok(processor), Some(allowed)) = (usize::try_from(processor), allowed()) else {
        return false;
    };
    ALLOWED.set(Some(allowed));
    allowed.without(processor).settle()
}

/// Makes the calling thread run on this processor alone, which must be an allowed one, and only
/// while nothing else wants to run there. Returns false where that cannot be.
pub(crate) fn be_idle_on(processor: u64, allowed: Processors) -> bool {
    let Ok(processor) = usize::try_from(processor) else {
        return false;
    };
    // SAFETY: sched_setscheduler acts on the calling thread, and its parameter is plain data and
    // live; the set is plain data, and the number is checked against its capacity.
    unsafe {
        let param: libc::sched_param = std::mem::zeroed();
        let mut only = Processors(std::mem::zeroed());
        if processor >= size_of::<libc::cpu_set_t>() * 8 || !libc::CPU_ISSET(processor, &allowed.0)
        {
            return false;
        }
        libc::CPU_SET(processor, &mut only.0);
        // Move there first: once the thread yields to everything, it may not run for long where
        // it started.
        only.settle() && libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const param) == 0
    }
}

/// Gives processor time at once to a thread of this process that runs only where nothing else does.
/// Returns false where we may not.
pub(crate) fn raise_priority(tid: Tid) -> bool {
    // SAFETY: the parameter is plain data and live; a thread that has ended is not found.
    unsafe {
        let mut param: libc::sched_param = std::mem::zeroed();
        param.sched_priority = 1;
        libc::sched_setscheduler(tid.raw(), libc::SCHED_FIFO, &raw const param) == 0
    }
}

/// Tells where a thread runs, or last ran, and whether it runs. This is not procinfo's
/// `task::stat`: that crate depends on this one, and here the file is kept open, to be read
/// repeatedly.
#[derive(Debug)]
struct ThreadPlacement(File);

impl ThreadPlacement {
    /// Opens the file without memory of the heap, whose lock may be held by a midair thread that has
    /// no processor.
    #[expect(clippy::disallowed_methods, reason = "the kernel's file of a thread")]
    fn of(tid: Tid) -> Option<ThreadPlacement> {
        let mut room = [0_u8; 64];
        let mut rest = &mut room[..];
        write!(rest, "/proc/{tid}/task/{tid}/stat").ok()?;
        let unused = rest.len();
        let path = std::str::from_utf8(room.get(..room.len() - unused)?).ok()?;
        let file = File::open(path).ok()?;
        Some(ThreadPlacement(file))
    }

    /// The processor's number.
    fn processor(&self) -> Option<u64> {
        self.field(39, |word| word.parse().ok())
    }

    /// Reads a field by its number, which is greater than 2 (proc_pid_stat(5)). The name in field 2
    /// may hold any bytes, even parentheses.
    fn field<T>(&self, number: usize, read: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        let mut room = [0_u8; 1024];
        let len = self.0.read_at(&mut room, 0).ok()?;
        let after_name = room[..len].iter().rposition(|&byte| byte == b')')? + 1;
        let line = std::str::from_utf8(&room[after_name..len]).ok()?;
        read(line.split_ascii_whitespace().nth(number - 3)?)
    }
}

/// Whether a thread sleeps in the kernel.
pub(crate) fn is_asleep(tid: Tid) -> bool {
    ThreadPlacement::of(tid)
        .is_some_and(|stat| stat.field(3, |state| Some(state == "S")) == Some(true))
}

/// Whether a thread has a processor, or waits for one.
pub(crate) fn runs(tid: Tid) -> bool {
    ThreadPlacement::of(tid)
        .is_some_and(|stat| stat.field(3, |state| Some(state == "R")) == Some(true))
}

/// The processor that the calling thread runs on.
fn here() -> Option<u64> {
    let mut processor = 0_u32;
    // The C library answers from the thread's own memory, where the kernel keeps the number for the
    // thread that registered it. A process that runs in a helper process uses that thread's memory and has
    // registered nothing.
    // SAFETY: the kernel writes one integer, which is live.
    let answer = unsafe { libc::syscall(libc::SYS_getcpu, &raw mut processor, 0, 0) };
    (answer == 0).then_some(u64::from(processor))
}

/// How long a wait may spin. If it slept between two looks, its processor could go to sleep and
/// would wake up late, and the thread that is waited for is stopped meanwhile.
const SPIN: Duration = Duration::from_micros(100);
/// The same, where the thread that is waited for may need this very processor.
const SPIN_ALONE: Duration = Duration::from_micros(5);
/// By when the thread that is waited for should have answered if it runs at once on another
/// processor. After that we look where it is.
const ASK_WHERE: Duration = Duration::from_micros(20);
/// The first nap after the spinning; naps grow up to [`LONGEST_NAP`]. Shorter ones are worse than
/// none: while this thread sleeps for ten microseconds, another thread gets hardly anything of its
/// processor, and the thread that is waited for may be waiting for that one, which holds a lock. So
/// a tracer with real-time priority prolonged stops by 4 to 12 ms.
const NAP: Duration = Duration::from_micros(30);
const LONGEST_NAP: Duration = Duration::from_micros(100);

/// The pace of a polling loop. It spins briefly (the answer usually comes within microseconds, from
/// another processor), and then sleeps in growing steps, so that the other side gets the processor
/// even where there is only one.
#[derive(Debug)]
pub struct Pace {
    began: Instant,
    spin: Duration,
    /// The thread that is waited for.
    beside: Option<Tid>,
    placement: Option<ThreadPlacement>,
    /// When to look next where that thread is, counted from the start.
    ask: Duration,
    nap: Duration,
}

impl Pace {
    /// Starts to count the time.
    #[expect(
        clippy::new_without_default,
        reason = "it starts to count: that is no default value"
    )]
    pub fn new() -> Pace {
        let several = Processors::now().is_some_and(|set| set.count() > 1);
        Pace {
            began: Instant::now(),
            spin: if several { SPIN } else { SPIN_ALONE },
            beside: None,
            placement: None,
            ask: ASK_WHERE,
            nap: NAP,
        }
    }

    /// Starts to wait for an action of this thread. If the two threads share a processor, a caller
    /// that already avoids one ([`avoid_processor`]) then avoids that one; another caller naps at
    /// once.
    pub fn beside(tid: Tid) -> Pace {
        Pace {
            began: Instant::now(),
            spin: SPIN,
            beside: Some(tid),
            placement: None,
            ask: ASK_WHERE,
            nap: NAP,
        }
    }

    /// Rests until it is time to ask again.
    pub fn rest(&mut self) {
        crate::watch::alive();
        let spent = self.began.elapsed();
        if self.beside.is_some() && spent >= self.ask {
            self.ask = spent + ASK_WHERE;
            // The kernel takes a processor that runs a real-time thread for an idle one, and may
            // well put the resumed thread there.
            if let Some(shared) = self.shared() {
                if ALLOWED.get().is_some() && avoid_processor(shared) {
                    self.began = Instant::now();
                    self.ask = ASK_WHERE;
                } else {
                    self.nap();
                }
                return;
            }
        }
        if spent < self.spin {
            std::hint::spin_loop();
        } else {
            self.nap();
        }
    }

    fn nap(&mut self) {
        sleep_for(self.nap);
        self.nap = (self.nap * 2).min(LONGEST_NAP);
    }

    /// The processor that we share with the thread that we wait for, if we do.
    fn shared(&mut self) -> Option<u64> {
        if self.placement.is_none() {
            self.placement = ThreadPlacement::of(self.beside?);
            if self.placement.is_none() {
                // `/proc` tells nothing, so it is not asked again.
                self.beside = None;
            }
        }
        let there = self.placement.as_ref()?.processor()?;
        (here() == Some(there)).then_some(there)
    }
}

fn sleep_for(span: Duration) {
    let request = libc::timespec {
        tv_sec: 0,
        tv_nsec: i64::from(span.subsec_nanos()),
    };
    // SAFETY: `request` is live; no remainder is asked for. A signal may end the sleep early, which
    // does no harm.
    let result = unsafe { libc::nanosleep(&raw const request, std::ptr::null_mut()) };
    debug_assert!(result == 0 || io::Error::last_os_error().kind() == io::ErrorKind::Interrupted);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_before_comes_back() {
        // SAFETY: asks about the calling thread.
        let state = || unsafe {
            (
                libc::sched_getscheduler(0),
                libc::prctl(libc::PR_GET_TIMERSLACK),
            )
        };
        let before = state();
        {
            let _urgent = Urgent::begin();
            // Newer kernels tell of a real-time thread that it has no timer slack.
            let (policy, slack) = state();
            assert!(policy & !libc::SCHED_RESET_ON_FORK != libc::SCHED_OTHER || slack <= 1);
        }
        assert_eq!(state(), before);
    }

    /// The kernel put held threads on their tracer's processor, and gave them microseconds at a
    /// time there: stops lasted 3 and 7 ms.
    #[test]
    fn who_waits_for_a_thread_leaves_its_processor() {
        use std::os::unix::process::CommandExt;
        let everywhere = Processors::now().unwrap();
        let there = (0..1024).find(|at| everywhere.without(*at).count() < everywhere.count());
        let there = there.unwrap();
        let mut only = Processors(
            // SAFETY: cpu_set_t is plain data.
            unsafe { std::mem::zeroed() },
        );
        // SAFETY: the number is below the set's capacity.
        unsafe { libc::CPU_SET(there, &mut only.0) };
        let mut command = std::process::Command::new("sleep");
        command.arg("60");
        // SAFETY: makes one system call in the child.
        unsafe {
            command.pre_exec(move || {
                only.settle()
                    .then_some(())
                    .ok_or_else(io::Error::last_os_error)
            });
        }
        let mut child = command.spawn().unwrap();
        let tid = crate::Pid::of_child(&child).leader();
        let ended = std::thread::scope(|scope| {
            let waits = |keeps_off: bool| {
                if keeps_off {
                    avoid_processor(u64::MAX);
                }
                assert!(only.settle());
                let mut pace = Pace::beside(tid);
                // Otherwise it would nap instead.
                pace.spin = Duration::MAX;
                let until = Instant::now() + Duration::from_secs(10);
                while pace.nap == NAP && here() == Some(there as u64) && Instant::now() < until {
                    pace.rest();
                }
                (here() == Some(there as u64), pace.nap > NAP)
            };
            let keeps = scope.spawn(move || waits(true)).join();
            let stays = scope.spawn(move || waits(false)).join();
            (keeps, stays)
        });
        child.kill().unwrap();
        child.wait().unwrap();
        let several = everywhere.count() > 1;
        assert_eq!(
            ended.0.unwrap(),
            (!several, !several),
            "keeps off, and moved"
        );
        assert_eq!(ended.1.unwrap(), (true, true), "any other thread naps");
    }
}
