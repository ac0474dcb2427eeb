//! A named fault for tests: this process kills itself right after the n-th operation on the target.
//!
//! The engine promises that its death after *any* single operation leaves the target unharmed. Only a count can drive all
//! of them, including those that a later change adds, so the count sits here, below the engine. Never armed outside tests.

use std::cell::Cell;

thread_local! {
    static DONE: Cell<u64> = const { Cell::new(0) };
    static DIE_AFTER: Cell<u64> = const { Cell::new(u64::MAX) };
}

/// Arms the fault for this thread: dies by SIGKILL after `operations` more operations that change a target (1 is the first).
pub fn arm(operations: u64) {
    DONE.set(0);
    DIE_AFTER.set(operations);
}

/// Operations that this thread did since it was armed (or since it began).
pub fn operations() -> u64 {
    DONE.get()
}

/// Called after each operation that changes a target.
pub(crate) fn count() {
    let done = DONE.get().wrapping_add(1);
    DONE.set(done);
    if done >= DIE_AFTER.get() {
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
