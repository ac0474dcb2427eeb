//! Lends priority to a held thread.
//!
//! Where all processors are busy, a thread that we stopped and resumed waits for a time slice at every
//! step. Changing its scheduling policy would not be undone if we died. Priority inheritance is: a
//! real-time midair thread waits for a midair futex word that names the held thread as its owner
//! (`FUTEX_LOCK_PI2`, which takes the owner's id from the word). The kernel then runs the owner with our
//! priority for as long as we wait, and no longer.
//!
//! The loan is limited. It is less than the tracer's own priority, is made only where two processors are
//! available, and lasts for one wait of a millisecond. So the tracer and the lender still run, whatever
//! the held thread does with it. The held thread may also have displaced a thread of its own process
//! that holds a lock which the tracer needs: the lock of the mappings, which reading memory takes.
//!
//! A loan starts while the held thread is off its processor, and only then. Alongside an owner that
//! runs, the kernel makes a waiter spin for as long as the owner runs, and ignores its timeout. So the
//! lender must not be late: it is made before the thread is stopped ([`Lender::begin`]), waits for the
//! request with its real-time priority, and needs no memory of the heap for it. A lender that was made
//! at the stop found the allocator or the lock of the mappings held by a midair thread that had lost
//! its processor, came when the held thread was waiting for a processor, and lent nothing: such stops
//! took 7 to 190 ms at a load of 12 and more.
//!
//! Decisions: ENG-003 (`docs/deviations/engine.md`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::urgent::{Pace, allowed, be_real_time, is_asleep, real_time_priority, runs};
use crate::{Tid, own_tid};

/// How long priority is lent. A waiter cannot be called off, so a loan may also last this much
/// longer than wanted.
pub(crate) const LENT: Duration = Duration::from_millis(1);
/// The real-time priority of a lender: one step below the tracer's ([`crate::Urgent`]).
const PRIORITY: i32 = 1;
/// How often a lender without a request looks at the time.
const IDLE: Duration = Duration::from_secs(1);

/// A thread that lends its real-time priority on request, until this is dropped.
#[derive(Debug)]
pub struct Lender {
    shared: Arc<Shared>,
    /// None where nothing can be lent: only one processor is available, or no thread could be made.
    thread: Option<JoinHandle<()>>,
}

/// A loan to one thread, until it is dropped, or for a millisecond. It does nothing where the limit
/// allows us no priority above the lender's.
#[derive(Debug)]
pub struct Boost<'a> {
    shared: Option<&'a Shared>,
}

#[derive(Debug)]
struct Shared {
    /// The word of the loan: the id of its owner.
    word: AtomicU32,
    /// A futex word: the id of the thread to lend to, [`NONE`] or [`OVER`].
    wanted: AtomicU32,
    /// One of the stages below.
    stage: AtomicU32,
    /// The lender's id.
    lender: AtomicU32,
}

/// Values of [`Shared::wanted`] in place of an id.
const NONE: u32 = 0;
const OVER: u32 = u32::MAX;

/// The lender has not come to its first wait, or may have no real-time priority.
const STARTS: u32 = 0;
/// It waits for a request.
const READY: u32 = 1;
/// It has a request.
const ASKED: u32 = 2;
/// It lends, or is about to.
const LENDS: u32 = 3;

impl Lender {
    /// Makes the thread. It does not wait until that is ready.
    pub fn begin() -> Lender {
        let shared = Arc::new(Shared {
            word: AtomicU32::new(0),
            wanted: AtomicU32::new(NONE),
            stage: AtomicU32::new(STARTS),
            lender: AtomicU32::new(0),
        });
        let processors = allowed().filter(|set| set.count() > 1);
        let thread = processors.and_then(|processors| {
            let theirs = Arc::clone(&shared);
            let builder = std::thread::Builder::new().name("midair-boost".into());
            let serve = move || {
                // All allowed processors, not only the calling thread's, where the lender would
                // wait for its turn.
                if processors.settle() && be_real_time(PRIORITY) {
                    theirs.serve();
                }
            };
            builder.spawn(serve).ok()
        });
        Lender { shared, thread }
    }

    /// Waits until the thread is ready, for at most `limit`. Call it before anything is stopped.
    pub fn wait(&self, limit: Duration) {
        let until = Instant::now() + limit;
        let mut pace = Pace::new();
        let comes = |thread: &JoinHandle<()>| !thread.is_finished();
        while self.thread.as_ref().is_some_and(comes) && !self.is_ready() && Instant::now() < until
        {
            pace.rest();
        }
    }

    fn is_ready(&self) -> bool {
        self.shared.stage.load(Ordering::Acquire) == READY
    }

    /// Lends priority to `tid`, an id in our own pid namespace, of a thread that is stopped or
    /// waits in a system call. Call it while a [`crate::Urgent`] exists: the lender's priority is
    /// one step below the calling thread's.
    pub fn lend(&self, tid: Tid) -> Boost<'_> {
        if real_time_priority() <= PRIORITY || !self.is_ready() {
            return Boost { shared: None };
        }
        let shared = &*self.shared;
        shared.stage.store(ASKED, Ordering::Release);
        shared.wanted.store(tid.get(), Ordering::Release);
        wake(&shared.wanted);
        let until = Instant::now() + LENT;
        let mut pace = Pace::new();
        let waits = || match shared.stage.load(Ordering::Acquire) {
            READY => true,
            LENDS => Tid::new(shared.lender.load(Ordering::Acquire)).is_some_and(is_asleep),
            _ => false,
        };
        while !waits() && Instant::now() < until {
            pace.rest();
        }
        Boost {
            shared: Some(shared),
        }
    }
}

impl Drop for Lender {
    fn drop(&mut self) {
        self.shared.wanted.store(OVER, Ordering::Release);
        wake(&self.shared.wanted);
        if let Some(thread) = self.thread.take() {
            // The lender ends within a millisecond. If the owner runs after all, the lender may spin
            // for as long: then it is left to itself.
            let until = Instant::now() + 2 * LENT;
            while !thread.is_finished() && Instant::now() < until {
                std::thread::sleep(LENT / 10);
            }
            if thread.is_finished() {
                let _ended = thread.join();
            }
        }
    }
}

impl Boost<'_> {
    /// Whether priority is being lent.
    pub fn lends(&self) -> bool {
        self.shared
            .is_some_and(|shared| shared.stage.load(Ordering::Acquire) == LENDS)
    }
}

impl Drop for Boost<'_> {
    fn drop(&mut self) {
        // A loan ends within a millisecond, and it is not the target that waits for us meanwhile.
        let until = Instant::now() + 2 * LENT;
        let is_over = |shared: &Shared| shared.stage.load(Ordering::Acquire) == READY;
        while self.shared.is_some_and(|shared| !is_over(shared)) && Instant::now() < until {
            std::thread::sleep(LENT / 10);
        }
    }
}

impl Shared {
    /// Serves requests, one after another.
    fn serve(&self) {
        self.lender.store(own_tid().get(), Ordering::Release);
        loop {
            self.stage.store(READY, Ordering::Release);
            let wanted = loop {
                match self.wanted.load(Ordering::Acquire) {
                    NONE => wait(&self.wanted, NONE, IDLE),
                    wanted => break wanted,
                }
            };
            match Tid::new(wanted) {
                Some(tid) if wanted != OVER => {
                    if !runs(tid) {
                        self.word.store(wanted, Ordering::Release);
                        self.stage.store(LENDS, Ordering::Release);
                        lend(&self.word);
                    }
                }
                _ => return,
            }
            // It stays if it is a newer one.
            let _ = self
                .wanted
                .compare_exchange(wanted, NONE, Ordering::AcqRel, Ordering::Acquire);
        }
    }
}

/// Waits once for a word that names its owner. The result does not matter: the time is over, the owner
/// has ended, or the kernel refused.
fn lend(word: &AtomicU32) {
    let mut until = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `until` is live for both calls, and the word is as well.
    unsafe {
        libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut until);
        until.tv_nsec += i64::from(LENT.subsec_nanos());
        if until.tv_nsec >= 1_000_000_000 {
            until.tv_nsec -= 1_000_000_000;
            until.tv_sec += 1;
        }
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            // The futex is not private: for a private one the owner must be a thread of this
            // process (EPERM otherwise, seen on Linux 6.18). And this is the second form of the
            // call, which measures the timeout by the monotonic clock: the first form uses the wall
            // clock, and if that were set back, this wait would be as much longer. Linux before
            // 5.14 has no second form, and nothing is lent there.
            libc::FUTEX_LOCK_PI2,
            0,
            &raw const until,
        );
    }
}

/// Sleeps while the word has this value, for at most `limit`.
fn wait(word: &AtomicU32, value: u32, limit: Duration) {
    let limit = libc::timespec {
        tv_sec: limit.as_secs() as libc::time_t,
        tv_nsec: i64::from(limit.subsec_nanos()),
    };
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word and the time are live.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            operation,
            value,
            &raw const limit,
        )
    };
}

/// Wakes the thread that waits for the word.
fn wake(word: &AtomicU32) {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word is live.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, 1) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Pid, Urgent};

    /// The kernel's effective priority, field 18 of stat: 20 for ordinary threads, below zero for
    /// real-time ones.
    fn priority(tid: Tid) -> i64 {
        let stat = std::fs::read_to_string(format!("/proc/{tid}/task/{tid}/stat")).unwrap();
        stat.rsplit(')')
            .next()
            .unwrap()
            .split_whitespace()
            .nth(15)
            .unwrap()
            .parse()
            .unwrap()
    }

    /// Whether this thread may lend: that takes real-time priority, as root may have, two
    /// processors, and Linux 5.14. Asked before the thread is urgent.
    fn may_lend() -> bool {
        // SAFETY: asks about the calling thread.
        let ordinary_root =
            unsafe { libc::geteuid() == 0 && libc::sched_getscheduler(0) == libc::SCHED_OTHER };
        let free = AtomicU32::new(0);
        // SAFETY: takes a midair word that no thread owns; where the kernel has no such call,
        // nothing.
        let taken = unsafe {
            let forever = std::ptr::null::<libc::timespec>();
            libc::syscall(
                libc::SYS_futex,
                free.as_ptr(),
                libc::FUTEX_LOCK_PI2,
                0,
                forever,
            )
        };
        ordinary_root && allowed().unwrap().count() > 1 && taken == 0
    }

    /// Lends until that is seen: a loan may run out while this thread has no processor.
    fn is_lent(tid: Tid) -> bool {
        let lender = Lender::begin();
        lender.wait(Duration::from_secs(20));
        (0..1000).any(|_| {
            let _boost = lender.lend(tid);
            priority(tid) < 0
        })
    }

    fn reaches(tid: Tid, wanted: impl Fn(i64) -> bool) -> bool {
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(20) {
            if wanted(priority(tid)) {
                return true;
            }
            std::thread::yield_now();
        }
        false
    }

    /// Waits until the thread sleeps, and returns its priority. Nothing is lent to a running
    /// thread, and once the testing thread is urgent, the other thread may wait behind it for all
    /// the time of the test.
    fn at_rest(tid: Tid) -> i64 {
        let until = Instant::now() + Duration::from_secs(20);
        while !is_asleep(tid) {
            assert!(Instant::now() < until, "{tid} never sleeps");
            std::thread::yield_now();
        }
        priority(tid)
    }

    #[test]
    fn priority_is_lent_and_taken_back() {
        let (over, ends) = std::sync::mpsc::channel::<()>();
        let (send, receive) = std::sync::mpsc::channel();
        let owner = std::thread::spawn(move || {
            send.send(own_tid()).unwrap();
            ends.recv()
        });
        let tid = receive.recv().unwrap();
        let before = at_rest(tid);
        let may = may_lend();
        let urgent = Urgent::begin();
        assert!(!may || is_lent(tid), "nothing was lent");
        drop(urgent);
        assert!(reaches(tid, |now| now == before), "it was not taken back");
        drop(over);
        assert!(owner.join().unwrap().is_err());
    }

    /// It was refused there for a long time, unnoticed: the kernel does not let a thread
    /// of another process own a private futex.
    #[test]
    fn priority_is_lent_to_another_process() {
        let mut owner = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let tid = Pid::of_child(&owner).leader();
        let before = at_rest(tid);
        let may = may_lend();
        let urgent = Urgent::begin();
        let lent = !may || is_lent(tid);
        drop(urgent);
        let given_back = reaches(tid, |now| now == before);
        owner.kill().unwrap();
        owner.wait().unwrap();
        assert!(lent, "nothing was lent");
        assert!(given_back, "it was not taken back");
    }

    #[test]
    fn nobody_to_lend_to() {
        let _urgent = Urgent::begin();
        let lender = Lender::begin();
        lender.wait(Duration::from_secs(20));
        drop(lender.lend(Tid::MAX));
    }
}
