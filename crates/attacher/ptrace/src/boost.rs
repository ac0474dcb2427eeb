//! Lends priority to a held thread.
//!
//! Where all processors are busy, a thread that we stopped and resumed waits for a time slice at every
//! step. Changing its scheduling policy would not be undone if we died. Priority inheritance is: a
//! real-time thread of ours waits for a futex word of ours that names the held thread as its owner
//! (`FUTEX_LOCK_PI2`, which takes the owner's id from the word). The kernel then runs the owner with our
//! priority for as long as we wait, and no longer.
//!
//! The loan is limited. It is less than the tracer's own priority, is made only where two processors are
//! available, and lasts for one wait of a millisecond. So the tracer and the lender still run, whatever
//! the held thread does with it. The held thread may also have displaced a thread of its own process
//! that holds a lock which the tracer needs: that of the mappings, which reading memory takes.
//!
//! The lender starts while the held thread is off its processor, and only then. Alongside an owner that
//! runs, the kernel makes a waiter spin for as long as the owner runs, and ignores its timeout.
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

/// Lends real-time priority to a thread until it is dropped, or for a millisecond. It does nothing
/// where the limit allows us no priority above the lender's, or where only one processor is
/// available.
#[derive(Debug)]
pub struct Boost {
    lender: Option<(Arc<Shared>, JoinHandle<()>)>,
}

#[derive(Debug)]
struct Shared {
    /// The futex word: the id of its owner.
    word: AtomicU32,
    /// The lender's id once it is about to wait; [`OVER`] when it has waited, or will not wait.
    lender: AtomicU32,
}

/// Stands in place of a lender's id.
const OVER: u32 = u32::MAX;

impl Boost {
    /// Lends priority to `tid`, an id in our own pid namespace, of a thread that is stopped or
    /// waits in a system call. Call it while a [`crate::Urgent`] exists: the lender's priority is
    /// one less than that of the calling thread.
    pub fn lend(tid: Tid) -> Boost {
        let priority = real_time_priority() - 1;
        let (1.., Some(processors)) = (priority, allowed().filter(|set| set.count() > 1)) else {
            return Boost { lender: None };
        };
        let shared = Arc::new(Shared {
            word: AtomicU32::new(tid.get()),
            lender: AtomicU32::new(0),
        });
        let theirs = Arc::clone(&shared);
        let lender = std::thread::Builder::new()
            .name("midair-boost".into())
            .spawn(move || {
                // All allowed processors, not only the calling thread's, where the lender would
                // wait for its turn.
                if processors.settle() && be_real_time(priority) && !runs(tid) {
                    lend(&theirs);
                }
                theirs.lender.store(OVER, Ordering::Release);
            })
            .ok();
        if lender.is_some() {
            let deadline = Instant::now() + LENT;
            let mut pace = Pace::new();
            let waits = || match shared.lender.load(Ordering::Acquire) {
                0 => false,
                OVER => true,
                lender => Tid::new(lender).is_some_and(is_asleep),
            };
            while !waits() && Instant::now() < deadline {
                pace.rest();
            }
        }
        Boost {
            lender: lender.map(|thread| (shared, thread)),
        }
    }

    /// Whether priority is being lent.
    pub fn lends(&self) -> bool {
        self.lender
            .as_ref()
            .is_some_and(|(shared, _)| shared.lender.load(Ordering::Acquire) != OVER)
    }
}

impl Drop for Boost {
    fn drop(&mut self) {
        if let Some((_, thread)) = self.lender.take() {
            // The lender ends within a millisecond, and it is not the target that waits for us
            // meanwhile. If the owner runs after all, the lender may spin for as long: then it is
            // left to itself.
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

/// Waits once. The result does not matter: the time is over, the owner has ended, or the kernel
/// refused.
fn lend(shared: &Shared) {
    let mut until = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `until` is live for both calls; the word lives as long as `shared`, which we hold.
    unsafe {
        shared.lender.store(own_tid().get(), Ordering::Release);
        libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut until);
        until.tv_nsec += i64::from(LENT.subsec_nanos());
        if until.tv_nsec >= 1_000_000_000 {
            until.tv_nsec -= 1_000_000_000;
            until.tv_sec += 1;
        }
        libc::syscall(
            libc::SYS_futex,
            shared.word.as_ptr(),
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
        // SAFETY: takes a word of ours that nobody owns; where the kernel has no such call, nothing.
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
        (0..1000).any(|_| {
            let _boost = Boost::lend(tid);
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

    /// It was refused there for a long time, and nobody noticed: the kernel does not let a thread
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
        drop(Boost::lend(Tid::MAX));
    }
}
