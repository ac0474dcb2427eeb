//! A named fault for tests: this process kills itself right after the n-th operation on the target.
//!
//! The engine promises that its death after *any* single operation leaves the target unharmed. Only a count can drive all
//! of them, including those that a later change adds, so the count sits here, below the engine. Never armed outside tests.

use std::sync::atomic::{AtomicU64, Ordering};

static DONE: AtomicU64 = AtomicU64::new(0);
static DIE_AFTER: AtomicU64 = AtomicU64::new(u64::MAX);

/// Arms the fault: this process dies by SIGKILL after `operations` more operations that change a target (1 is the first).
pub fn arm(operations: u64) {
    DONE.store(0, Ordering::SeqCst);
    DIE_AFTER.store(operations, Ordering::SeqCst);
}

/// Operations that were done since it was armed (or since the process began).
pub fn operations() -> u64 {
    DONE.load(Ordering::SeqCst)
}

/// Called after each operation that changes a target.
pub(crate) fn count() {
    let done = DONE.fetch_add(1, Ordering::SeqCst).wrapping_add(1);
    if done >= DIE_AFTER.load(Ordering::Relaxed) {
        die();
    }
}

/// Ends this process as a crash or the OOM killer would: no destructor runs.
pub fn die() -> ! {
    // SAFETY: kill and getpid take no pointers. SIGKILL to ourselves ends the process; the loop is for the instant before.
    unsafe {
        libc::kill(libc::getpid(), libc::SIGKILL);
    }
    loop {
        std::thread::park();
    }
}
