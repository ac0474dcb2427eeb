//! Keeps a processor from going to sleep.
//!
//! A held thread is resumed several times, and in between its processor has nothing to do. A
//! sleeping processor has to be woken by another one. That takes some microseconds on a bare
//! machine, and 0.2 to 1 ms where a host must schedule a virtual processor first. The held thread
//! is stopped for that time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::boost::LENT;
use crate::urgent::{Pace, Processors, allowed, be_idle_on, raise_priority, real_time_priority};
use crate::{Tid, own_tid};

/// The longest time that a processor is kept awake: twice the time of a loan of priority, once
/// until it is made and once while it lasts. After that the held thread would have to share the
/// processor with ours.
const LONGEST: Duration = LENT.saturating_mul(2);

/// Keeps a processor awake until it is dropped, or for two milliseconds at most. It does so by a
/// thread there with the policy `SCHED_IDLE`, which yields to all other threads. The kernel
/// weighs that policy only within a control group: to threads of another group ours counts as much
/// as any other thread of its group. So keep a processor awake only where priority is lent to the
/// held thread ([`crate::Boost::lends`]). It does nothing where we may not use that processor, or
/// have no real-time priority.
#[derive(Debug)]
pub struct Awake {
    thread: Option<(Arc<Shared>, JoinHandle<()>)>,
}

#[derive(Debug, Default)]
struct Shared {
    /// The thread's id, once the thread has started.
    tid: AtomicU32,
    /// [`BEGINS`], [`YIELDS`] or [`OVER`].
    stage: AtomicU32,
}

/// The thread is an ordinary one still.
const BEGINS: u32 = 0;
/// It yields to all others, or is about to: another thread must raise it so that it ends.
const YIELDS: u32 = 1;
/// It is not wanted any more.
const OVER: u32 = 2;

impl Shared {
    /// What the thread does. One that is not wanted any more when it starts stays an ordinary one: after
    /// it yields to all others, no thread would raise it, on a busy processor it would not come to its
    /// end for minutes, and the process ends with its last thread.
    fn run(&self, processor: u64, allowed: Processors) {
        self.tid.store(own_tid().get(), Ordering::Release);
        let begins =
            self.stage
                .compare_exchange(BEGINS, YIELDS, Ordering::AcqRel, Ordering::Acquire);
        if begins.is_err() {
            return;
        }
        let ready = be_idle_on(processor, allowed);
        let began = Instant::now();
        let wanted = || self.stage.load(Ordering::Relaxed) == YIELDS;
        while ready && wanted() && began.elapsed() < LONGEST {
            std::hint::spin_loop();
        }
    }
}

impl Awake {
    /// Starts to keep `processor` awake. Call it while a [`crate::Urgent`] exists: on a busy
    /// processor such a thread can end only if we may raise its priority.
    pub fn keep(processor: u64) -> Awake {
        let (1.., Some(allowed)) = (real_time_priority(), allowed()) else {
            return Awake { thread: None };
        };
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("midair-awake".into())
            .spawn(move || theirs.run(processor, allowed))
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
        if shared.stage.swap(OVER, Ordering::AcqRel) == BEGINS {
            // It sees that when it runs, and ends like any other.
            return;
        }
        // On a busy processor the thread would not run to see that it is over, nor to end, so its
        // priority is raised. That is repeated, since the thread may lower its priority only after
        // the first time.
        let until = Instant::now() + LONGEST;
        let mut pace = Pace::new();
        loop {
            let tid = Tid::new(shared.tid.load(Ordering::Acquire));
            if tid.is_some_and(|tid| !raise_priority(tid)) {
                // The thread has ended, or we may not raise its priority: then it ends when it runs
                // next.
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

    /// State and policy of this process's threads named `midair-awake`: fields 3 and 41 of stat.
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

    /// Whether this thread may have real-time priority, as root may. Asked before the thread is
    /// urgent.
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
        // The first processor may be busy with other work for long: the time may then be over
        // before the thread is inspected.
        while !seen && began.elapsed() < Duration::from_secs(20) {
            // SAFETY: takes nothing.
            let here = u64::try_from(unsafe { libc::sched_getcpu() }).unwrap();
            let urgent = Urgent::begin();
            let kept = Awake::keep(here);
            // Otherwise this thread would have that processor to itself.
            drop(urgent);
            let until = Instant::now() + LONGEST;
            while !seen && Instant::now() < until {
                seen = awake().contains(&("R".to_owned(), libc::SCHED_IDLE.to_string()));
            }
            // As the engine does: an ordinary thread may get no processor for all the time that the
            // drop may take.
            let urgent = Urgent::begin();
            drop(kept);
            drop(urgent);
            // Raised, or one that has not started and is an ordinary one.
            let idle = libc::SCHED_IDLE.to_string();
            let left = awake();
            assert!(left.iter().all(|(_, policy)| *policy != idle), "{left:?}");
            assert!(gone(), "it is gone when it is dropped");
        }
        assert!(seen);
    }

    /// On a busy machine the thread starts when it is long not wanted any more, and no thread is
    /// there to raise it.
    #[test]
    fn one_that_begins_too_late_yields_to_nobody() {
        let policy = |stage: u32| {
            let shared = Shared {
                stage: AtomicU32::new(stage),
                ..Shared::default()
            };
            let allowed = allowed().unwrap();
            // SAFETY: takes nothing.
            let here = u64::try_from(unsafe { libc::sched_getcpu() }).unwrap();
            let run = move || {
                shared.run(here, allowed);
                // SAFETY: asks about the calling thread.
                unsafe { libc::sched_getscheduler(0) }
            };
            std::thread::spawn(run).join().unwrap()
        };
        assert_eq!(policy(OVER), libc::SCHED_OTHER);
        // The one that starts in time does, and comes to its own end.
        assert_eq!(policy(BEGINS), libc::SCHED_IDLE);
    }

    #[test]
    fn no_such_processor() {
        let allowed = allowed().unwrap();
        for processor in [1024, 4000, u64::MAX] {
            assert!(!be_idle_on(processor, allowed), "{processor}");
        }
    }
}
