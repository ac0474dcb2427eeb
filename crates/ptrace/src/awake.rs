//! Keeping a processor from sleep.
//!
//! A held thread is sent on several times, and each time its processor has nothing to do in between. One that sleeps has to be woken by the
//! other: some microseconds on a bare machine, 0.2 to 1 ms where a host must first give a virtual processor its turn, and the held thread
//! stands still for so long.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::urgent::{allowed, be_idle_on};

/// Longest that a processor is kept awake.
const LONGEST: Duration = Duration::from_millis(5);

/// Keeps a processor awake until it is dropped, or for five milliseconds, by a thread that runs there only while nothing else wants to
/// (`SCHED_IDLE`). Does nothing where we may not use that processor.
#[derive(Debug)]
pub struct Awake {
    over: Arc<AtomicBool>,
}

impl Awake {
    /// Begins. Call it before [`crate::Urgent`] does: the thread begins with the priority of the one that makes it.
    pub fn keep(processor: u64) -> Awake {
        let over = Arc::new(AtomicBool::new(false));
        let theirs = Arc::clone(&over);
        let Some(allowed) = allowed() else {
            return Awake { over };
        };
        // Nobody waits for its end: where that processor has work it may not have its turn for long.
        let _thread = std::thread::Builder::new()
            .name("midair-awake".into())
            .spawn(move || {
                if be_idle_on(processor, allowed) {
                    let began = Instant::now();
                    while !theirs.load(Ordering::Relaxed) && began.elapsed() < LONGEST {
                        std::hint::spin_loop();
                    }
                }
            });
        Awake { over }
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn it_runs_as_long_as_wanted_and_only_where_nothing_else_does() {
        let began = Instant::now();
        // Where its processor has other work it comes late, or its time is over before it was looked at.
        let mut seen = false;
        while !seen && began.elapsed() < Duration::from_secs(20) {
            // SAFETY: takes nothing.
            let here = u64::try_from(unsafe { libc::sched_getcpu() }).unwrap();
            let _awake = Awake::keep(here);
            let until = Instant::now() + LONGEST;
            while !seen && Instant::now() < until {
                seen = awake().contains(&("R".to_owned(), libc::SCHED_IDLE.to_string()));
            }
        }
        assert!(seen);
        while !awake().is_empty() && began.elapsed() < Duration::from_secs(40) {
            std::thread::yield_now();
        }
        assert_eq!(awake(), []);
    }

    #[test]
    fn no_such_processor() {
        drop(Awake::keep(u64::MAX));
        drop(Awake::keep(4000));
    }
}
