//! Where the tool-facing API and a session meet.
//!
//! A tool starts or stops contexts on whatever thread it likes; only the worker thread of a session hooks anything. So a change is
//! counted here and the worker is woken; it asks [`crate::context::wanted`] what the contexts want now and says when that is
//! done ([`applied`]), for which the tool's thread waits, within a limit.

use crate::state::STATE;
use midair_sdk_hot::callbacks;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Release, SeqCst};
use std::time::{Duration, Instant};

/// How long a tool's thread waits for the worker.
pub const LIMIT: Duration = Duration::from_millis(1500);

fn tid() -> u32 {
    // SAFETY: a system call without arguments.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

/// The calling thread is the worker.
pub fn i_am_the_worker() {
    STATE.worker.store(tid(), Release);
}

/// Thread id of the worker, 0 when there has been none.
pub fn worker() -> u32 {
    STATE.worker.load(Acquire)
}

/// Whether the calling thread is the worker.
pub fn is_worker() -> bool {
    worker() == tid()
}

/// The worker begins or ends to serve a session.
pub fn serve(on: bool) {
    STATE
        .serving
        .store(if on { std::process::id() } else { 0 }, SeqCst);
}

/// Whether a worker serves a session in this process.
pub fn is_served() -> bool {
    let pid = STATE.serving.load(SeqCst);
    pid != 0 && pid == std::process::id()
}

/// Futex word that changes whenever the worker is woken ([`wake`]).
pub fn calls() -> &'static AtomicU32 {
    &STATE.calls
}

/// Has the worker look immediately, if it waits.
pub fn wake() {
    STATE.calls.fetch_add(1, SeqCst);
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: a static word; waking has no effect on memory.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            std::ptr::from_ref(&STATE.calls),
            operation,
            i32::MAX,
            0,
            0,
            0,
        )
    };
}

/// The set of running contexts changed. The worker itself goes on and looks in its next round; any other thread waits until the
/// worker has applied the change, within [`LIMIT`].
pub(crate) fn changed() {
    if is_worker() {
        STATE.requested.fetch_add(1, SeqCst);
    } else {
        request_within(LIMIT);
    }
}

/// Asks the worker for a round, and waits for it within `limit`. False when it did not come to it; true also when there is no
/// worker, or when it may be waiting for the calling thread itself, which is inside a tool's function.
pub fn request_within(limit: Duration) -> bool {
    if !is_served() {
        // No session, or a forked child without a worker.
        return true;
    }
    let ticket = STATE.requested.fetch_add(1, SeqCst) + 1;
    wake();
    if callbacks::is_inside() {
        return true;
    }
    let end = Instant::now() + limit;
    while is_served() && STATE.applied.load(SeqCst) < ticket {
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    true
}

/// How many changes there have been: read before [`crate::context::wanted`], for [`applied`].
pub fn requested() -> u64 {
    STATE.requested.load(SeqCst)
}

/// Everything up to `ticket` ([`requested`]) is applied.
pub fn applied(ticket: u64) {
    STATE.applied.store(ticket, SeqCst);
}

/// Whether there are changes that were not applied.
pub fn is_pending() -> bool {
    STATE.applied.load(SeqCst) < STATE.requested.load(SeqCst)
}
