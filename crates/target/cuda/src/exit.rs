//! Handles the exit of a process while it is recorded: a midair exit handler lets the worker
//! thread finish first.
//!
//! The handler is registered after CUDA's and CUPTI's, so it runs before them, and CUPTI still
//! works when the worker thread collects the remaining records.
//!
//! Decisions: CUDA-014 (`docs/deviations/cuda.md`).

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

/// How long the exiting thread of the application waits for the worker thread.
const LIMIT: Duration = Duration::from_millis(1500);

/// Pid of the process that is recorded, 0 when there is no session. A forked child has a copy of
/// this word, but no worker thread.
static SERVING: AtomicU32 = AtomicU32::new(0);
/// Pid of the process that first used this library, 0 before that.
static HOME: AtomicU32 = AtomicU32::new(0);
/// 1 once the process runs its exit handlers.
static EXITING: AtomicU32 = AtomicU32::new(0);

/// Whether this process was forked from one that used this library.
pub fn is_forked() -> bool {
    let home = HOME.load(SeqCst);
    home != 0 && home != std::process::id()
}

/// Registers the handler: once for each CUPTI, after its own handlers.
pub fn register() {
    // SAFETY: a function of a library that is never unloaded.
    unsafe { libc::atexit(at_exit) };
}

/// Marks the start or the end of a session.
pub fn set_serving(on: bool) {
    if on {
        HOME.store(std::process::id(), SeqCst);
    }
    SERVING.store(if on { std::process::id() } else { 0 }, SeqCst);
}

/// Whether the process is exiting.
pub fn is_exiting() -> bool {
    EXITING.load(SeqCst) != 0
}

/// In a forked child, before its first session: resets the state.
pub fn reset_after_fork() {
    for word in [&SERVING, &EXITING, &HOME] {
        word.store(0, SeqCst);
    }
}

extern "C" fn at_exit() {
    if SERVING.load(SeqCst) != std::process::id() {
        return;
    }
    EXITING.store(1, SeqCst);
    let end = Instant::now() + LIMIT;
    // The application's thread has nothing else to do: the process is exiting.
    while SERVING.load(SeqCst) != 0 && Instant::now() < end {
        std::thread::sleep(Duration::from_micros(200));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exit_waits_for_the_session_within_a_limit() {
        let _alone = crate::session::fake::alone();
        reset_after_fork();
        at_exit();
        assert!(!is_exiting());
        set_serving(true);
        let leaving = std::thread::spawn(|| {
            let begin = Instant::now();
            at_exit();
            begin.elapsed()
        });
        while !is_exiting() {
            std::thread::yield_now();
        }
        set_serving(false);
        assert!(leaving.join().unwrap() < LIMIT);
        reset_after_fork();
        set_serving(true);
        let begin = Instant::now();
        at_exit();
        assert!(begin.elapsed() >= LIMIT);
        reset_after_fork();
    }
}
