//! Waits until the other threads of the process have left CUPTI.
//!
//! A CUDA call that started while a kind was enabled ends in CUPTI's code after it is disabled. A
//! thread has left CUPTI when it has run for some time since then, or sleeps. In a call that waits,
//! CUPTI's part is done already, or follows at the end of the call, which was measured to do no
//! harm.

use super::threads;
use std::time::{Duration, Instant};

/// The CPU time, in ns, after which a thread has passed any such code.
const RAN: u64 = 500_000;
/// Polling interval.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Number of consecutive polls that find a thread asleep.
const ASLEEP: u32 = 2;
/// How long threads may take to leave CUPTI.
pub(super) const LEAVE_LIMIT: Duration = Duration::from_secs(2);
/// Minimum wait.
const AT_LEAST: Duration = Duration::from_millis(2);

/// A thread that may still be inside CUPTI.
#[derive(Debug)]
struct Thread {
    /// Its directory below `/proc`; empty for threads that cannot be listed.
    directory: String,
    /// CPU time at the first poll, ns.
    ran: Option<u64>,
    asleep: u32,
}

/// Waits for all threads except the calling one. Returns false if `limit` passes before they have
/// left.
pub(super) fn wait(limit: Duration) -> bool {
    let begin = Instant::now();
    let mut inside = others();
    loop {
        std::thread::sleep(POLL_INTERVAL);
        inside.retain_mut(|thread| !thread.has_run_or_ended());
        let waited = begin.elapsed();
        // A thread that sleeps may wait for one that was interrupted inside CUPTI. So all others must have left first.
        if waited >= AT_LEAST && inside.iter().all(|thread| thread.asleep >= ASLEEP) {
            return true;
        }
        if waited >= limit {
            return false;
        }
    }
}

fn others() -> Vec<Thread> {
    let Some(others) = threads::others() else {
        // Threads that cannot be listed are never seen to leave.
        return vec![Thread {
            directory: String::new(),
            ran: None,
            asleep: 0,
        }];
    };
    let threads = others.into_iter().map(|directory| Thread {
        ran: ran(&directory),
        directory,
        asleep: 0,
    });
    threads.collect()
}

impl Thread {
    /// Returns whether the thread has left CUPTI for sure. Counts the polls that find it asleep.
    fn has_run_or_ended(&mut self) -> bool {
        let Ok(stat) = std::fs::read(format!("{}/stat", self.directory)) else {
            // The thread has ended; or there is no directory at all, as above.
            return !self.directory.is_empty();
        };
        self.asleep = match state(&stat) {
            Some(b'S' | b'D' | b'T' | b't' | b'Z' | b'X') => self.asleep + 1,
            _ => 0,
        };
        let since = ran(&self.directory)
            .zip(self.ran)
            .map(|(now, then)| now.saturating_sub(then));
        since.is_some_and(|since| since > RAN)
    }
}

/// The state letter in a `stat` file: behind the name, which may contain anything.
fn state(stat: &[u8]) -> Option<u8> {
    let name_ends = stat.iter().rposition(|byte| *byte == b')')?;
    stat.get(name_ends + 2).copied()
}

/// CPU time, ns.
fn ran(directory: &str) -> Option<u64> {
    let text = std::fs::read_to_string(format!("{directory}/schedstat")).ok()?;
    text.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::Ordering::SeqCst;

    #[test]
    fn busy_and_sleeping_threads_count_as_having_left() {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let stop = &stop;
            scope.spawn(move || {
                while !stop.load(SeqCst) {
                    std::hint::spin_loop();
                }
            });
            scope.spawn(move || {
                while !stop.load(SeqCst) {
                    std::thread::park_timeout(Duration::from_millis(50));
                }
            });
            assert!(wait(Duration::from_secs(20)));
            stop.store(true, SeqCst);
        });
    }

    #[test]
    fn the_limit_is_kept_and_the_state_is_parsed_behind_the_name() {
        assert!(!wait(Duration::ZERO));
        assert_eq!(state(b"12 (a) S 9) R 1 2"), Some(b'R'));
        assert_eq!(state(b"12 (a"), None);
        assert_eq!(ran("/proc/self/task/nobody"), None);
    }
}
