//! Lending priority to a held thread.
//!
//! On a machine whose processors are all busy, a thread that we stopped and sent on waits for its turn each time, and stands
//! still for so long. Changing its scheduling would not be undone if we died. Priority inheritance would: a real-time thread of
//! ours waits for a futex word of ours that names the held thread as the owner (`FUTEX_LOCK_PI`, which takes the owner's id
//! from the word), so the kernel runs the owner with our priority for as long as we wait, and not an instant longer.
//!
//! What is lent is less than what the tracer has, and only where two processors are to be had: whatever the held thread does with it,
//! the tracer and the lender have their turns.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::urgent::{allowed, be_real_time, real_time_priority};
use crate::{Pace, Tid};

/// Longest wait in one go. Nobody can call a waiter off, so this is also how much longer than wanted it may last.
const SLICE: Duration = Duration::from_millis(1);

/// Lends real-time priority to a thread until it is dropped. Does nothing where we may not have more of that ourselves, or only one
/// processor.
#[derive(Debug)]
pub struct Boost {
    lender: Option<(Arc<Shared>, JoinHandle<()>)>,
}

#[derive(Debug)]
struct Shared {
    word: AtomicU32,
    over: AtomicBool,
    /// The lender runs and is about to wait, or will not lend.
    begun: AtomicBool,
}

impl Boost {
    /// Begins to lend to `tid`, an id in our own pid namespace. At most `limit` long. Call it when [`crate::Urgent`] already
    /// is: the lender has one priority less than the calling thread.
    pub fn lend(tid: Tid, limit: Duration) -> Boost {
        let priority = real_time_priority() - 1;
        let (1.., Some(processors)) = (priority, allowed().filter(|set| set.count() > 1)) else {
            return Boost { lender: None };
        };
        let shared = Arc::new(Shared {
            word: AtomicU32::new(tid.cast_unsigned()),
            over: AtomicBool::new(false),
            begun: AtomicBool::new(false),
        });
        let theirs = Arc::clone(&shared);
        let rounds = limit.as_millis() / SLICE.as_millis().max(1) + 1;
        let lender = std::thread::Builder::new()
            .name("midair-boost".into())
            .spawn(move || {
                // Not only where the calling thread is: there it would wait for that one's turns.
                let ready = processors.settle() && be_real_time(priority);
                theirs.begun.store(true, Ordering::Release);
                if ready {
                    lend(&theirs, tid, rounds);
                }
            })
            .ok()
            .map(|thread| (shared, thread));
        if let Some((shared, _)) = &lender {
            let mut pace = Pace::new();
            while !shared.begun.load(Ordering::Acquire) {
                pace.rest();
            }
        }
        Boost { lender }
    }
}

impl Drop for Boost {
    fn drop(&mut self) {
        if let Some((shared, thread)) = self.lender.take() {
            shared.over.store(true, Ordering::Release);
            // Ends within a slice; whoever waits for us meanwhile is not the target.
            let _ended = thread.join();
        }
    }
}

fn lend(shared: &Shared, tid: Tid, rounds: u128) {
    for _ in 0..rounds {
        if shared.over.load(Ordering::Acquire) {
            return;
        }
        let mut until = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: `until` is live for both calls; the word lives as long as `shared`, which we hold. FUTEX_LOCK_PI takes its
        // timeout as a moment of CLOCK_REALTIME.
        let result = unsafe {
            libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut until);
            until.tv_nsec += i64::from(SLICE.subsec_nanos());
            if until.tv_nsec >= 1_000_000_000 {
                until.tv_nsec -= 1_000_000_000;
                until.tv_sec += 1;
            }
            libc::syscall(
                libc::SYS_futex,
                shared.word.as_ptr(),
                // Not a private one: there the owner must be a thread of this process (EPERM, seen on Linux 6.18).
                libc::FUTEX_LOCK_PI,
                0,
                &raw const until,
            )
        };
        let errno = std::io::Error::last_os_error().raw_os_error();
        if result == 0 || !matches!(errno, Some(libc::ETIMEDOUT | libc::EINTR | libc::EAGAIN)) {
            // The owner has ended, or the kernel will not: nothing to lend to.
            return;
        }
        shared.word.store(tid.cast_unsigned(), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Urgent;
    use std::time::Instant;

    /// The kernel's effective priority, field 18 of stat: 20 for ordinary threads, below zero for real-time ones.
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

    /// Root may have real-time priority, and it takes two processors. Asked where the thread is not urgent.
    fn may_lend() -> bool {
        // SAFETY: asks about the calling thread.
        let ordinary_root =
            unsafe { libc::geteuid() == 0 && libc::sched_getscheduler(0) == libc::SCHED_OTHER };
        ordinary_root && allowed().unwrap().count() > 1
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

    #[test]
    fn priority_is_lent_and_taken_back() {
        let over = Arc::new(AtomicBool::new(false));
        let (send, receive) = std::sync::mpsc::channel();
        let theirs = Arc::clone(&over);
        let owner = std::thread::spawn(move || {
            // SAFETY: takes nothing.
            send.send(unsafe { libc::gettid() }).unwrap();
            while !theirs.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let tid = receive.recv().unwrap();
        let before = priority(tid);
        let may = may_lend();
        let urgent = Urgent::begin();
        let boost = Boost::lend(tid, Duration::from_secs(20));
        assert!(!may || reaches(tid, |now| now < 0), "nothing was lent");
        drop(boost);
        drop(urgent);
        assert!(reaches(tid, |now| now == before), "it was not taken back");
        over.store(true, Ordering::Relaxed);
        owner.join().unwrap();
    }

    /// It was refused there for long, and nobody noticed: the kernel will not have a thread of another process own a private futex.
    #[test]
    fn priority_is_lent_to_another_process() {
        let mut owner = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let tid = Tid::try_from(owner.id()).unwrap();
        let before = priority(tid);
        let may = may_lend();
        let urgent = Urgent::begin();
        let boost = Boost::lend(tid, Duration::from_secs(20));
        let lent = !may || reaches(tid, |now| now < 0);
        drop(boost);
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
        drop(Boost::lend(Tid::MAX, Duration::from_secs(1)));
    }
}
