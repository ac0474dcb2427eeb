//! Keeping a processor from sleep.
//!
//! A held thread is resumed several times, and in between its processor has nothing to do. A processor
//! that sleeps has to be woken by another one. That takes some microseconds on a bare machine, and 0.2
//! to 1 ms where a host must schedule a virtual processor first. The held thread is stopped for as long.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::boost::LENT;
use crate::urgent::{Pace, allowed, be_idle_on, raise_priority, real_time_priority};
use crate::{Tid, own_tid};

/// Longest that a processor is kept awake: as long as it may take until priority is lent, and as
/// that lasts. After that the held thread would have to share with ours.
const LONGEST: Duration = LENT.saturating_mul(2);

/// Keeps a processor awake until it is dropped, or for two milliseconds, by a thread that yields to
/// all others there (`SCHED_IDLE`). The kernel weighs that within a control group: to threads of
/// another one ours is as good as any other of its group. So keep it only where the held thread has
/// priority lent ([`crate::Boost::lends`]). Does nothing where we may not use that processor, or
/// have no real-time priority.
#[derive(Debug)]
pub struct Awake {
    thread: Option<(Arc<Shared>, JoinHandle<()>)>,
}

#[derive(Debug, Default)]
struct Shared {
    /// The thread's id once it has begun.
    tid: AtomicU32,
    over: AtomicBool,
}

impl Awake {
    /// Begins. Call it when [`crate::Urgent`] already is: a thread like that comes to its end on a
    /// busy processor only if we may give it another priority.
    pub fn keep(processor: u64) -> Awake {
        let (1.., Some(allowed)) = (real_time_priority(), allowed()) else {
            return Awake { thread: None };
        };
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("midair-awake".into())
            .spawn(move || {
                theirs.tid.store(own_tid().get(), Ordering::Release);
                let ready = be_idle_on(processor, allowed);
                let began = Instant::now();
                while ready && !theirs.over.load(Ordering::Relaxed) && began.elapsed() < LONGEST {
                    std::hint::spin_loop();
                }
            })
            .ok();
        Awake {
            thread: thread.map(|thread| (shared, thread)),
        }
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        let Some((shared, thread)) = self.thread.take() else {
            return;
        };
        shared.over.store(true, Ordering::Relaxed);
        // On a busy processor it would not run to see that, nor to end. More than once: it may
        // only then come to lower its priority.
        let until = Instant::now() + LONGEST;
        let mut pace = Pace::new();
        loop {
            let tid = Tid::new(shared.tid.load(Ordering::Acquire));
            if tid.is_some_and(|tid| !raise_priority(tid)) {
                // It has ended, or we may not: then it ends when it runs next.
                return;
            }
            if thread.is_finished() {
                let _ended = thread.join();
                return;
            }
            if Instant::now() >= until {
                return;
            }
            pace.rest();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Urgent;

    /// State and policy of this process's thread of that name: fields 3 and 41 of stat.
    fn awake() -> Vec<(String, String)> {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        tasks
            .filter_map(|task| std::fs::read_to_string(task.path().join("stat")).ok())
            .filter(|stat| stat.contains("(midair-awake)"))
            .map(|stat| {
                let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
                (fields[0].to_owned(), fields[38].to_owned())
            })
            .collect()
    }

    /// A thread that was waited for may be listed a little longer.
    fn gone() -> bool {
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(20) {
            if awake().is_empty() {
                return true;
            }
            std::thread::yield_now();
        }
        false
    }

    /// Root may have real-time priority. Asked where the thread is not urgent.
    fn may_keep() -> bool {
        // SAFETY: asks about the calling thread.
        unsafe { libc::geteuid() == 0 && libc::sched_getscheduler(0) == libc::SCHED_OTHER }
    }

    #[test]
    fn it_runs_as_long_as_wanted_and_only_where_nothing_else_does() {
        if !may_keep() {
            let _urgent = Urgent::begin();
            drop(Awake::keep(0));
            assert!(gone());
            return;
        }
        let began = Instant::now();
        let mut seen = false;
        // The first processor may have other work for long: then its time is over before it was
        // inspected.
        while !seen && began.elapsed() < Duration::from_secs(20) {
            // SAFETY: takes nothing.
            let here = u64::try_from(unsafe { libc::sched_getcpu() }).unwrap();
            let urgent = Urgent::begin();
            let kept = Awake::keep(here);
            // Else this thread has that processor for itself.
            drop(urgent);
            let until = Instant::now() + LONGEST;
            while !seen && Instant::now() < until {
                seen = awake().contains(&("R".to_owned(), libc::SCHED_IDLE.to_string()));
            }
            // As the engine does: an ordinary thread may not run for all the time that
            // dropping takes.
            let urgent = Urgent::begin();
            drop(kept);
            drop(urgent);
            let fifo = libc::SCHED_FIFO.to_string();
            let left = awake();
            assert!(left.iter().all(|(_, policy)| *policy == fifo), "{left:?}");
            assert!(gone(), "it is gone when it is dropped");
        }
        assert!(seen);
    }

    #[test]
    fn no_such_processor() {
        let allowed = allowed().unwrap();
        for processor in [1024, 4000, u64::MAX] {
            assert!(!be_idle_on(processor, allowed), "{processor}");
        }
    }
}
