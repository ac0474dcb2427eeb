//! Where the tool-facing API and a session meet.
//!
//! A tool starts or stops contexts on any thread, but only the worker thread of a session hooks
//! anything. So a change is counted here and the worker is woken. The worker asks
//! [`crate::context::wanted`] what the contexts want now, applies it, and reports that
//! ([`applied`]); the tool's thread waits for this, within a limit.

use crate::state::STATE;
use midair_sdk_hot::callbacks;
use std::sync::atomic::Ordering::{Acquire, Release, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::{Duration, Instant};

/// How long a tool's thread waits for the worker.
pub const LIMIT: Duration = Duration::from_millis(1500);
/// How long it waits inside a tool's function, for whose return the worker may be waiting.
const INSIDE_LIMIT: Duration = Duration::from_millis(20);

fn tid() -> u32 {
    // SAFETY: a system call without arguments.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

/// Registers the calling thread as the worker.
pub fn become_worker() {
    STATE.worker.store(tid(), Release);
}

/// The calling thread has done the worker's work for once and goes on with its own: it waits for the
/// worker from now on, as any other thread. Does nothing where another thread is the worker by now.
pub fn leave_worker() {
    let _ = STATE.worker.compare_exchange(tid(), 0, SeqCst, SeqCst);
}

/// Thread id of the worker, 0 when there is none: before the first session, and where one was set up
/// whose worker has not begun yet.
pub fn worker() -> u32 {
    STATE.worker.load(Acquire)
}

/// Whether the calling thread is the worker.
pub fn is_worker() -> bool {
    worker() == tid()
}

/// Records that the worker begins or ends to serve a session.
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

/// Wakes the worker, if it waits.
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

/// Reports that the set of running contexts changed. On the worker itself this returns immediately,
/// and its next round applies the change. Any other thread waits until the worker has applied the
/// change, within [`LIMIT`].
pub(crate) fn changed() {
    if is_worker() {
        STATE.requested.fetch_add(1, SeqCst);
    } else {
        request_within(LIMIT);
    }
}

/// Reports that contexts were stopped: as [`changed`], but inside a tool's function nobody waits. What
/// was promised holds already ([`callbacks::settle`]), and the worker waits for that very function
/// before it ends the collecting.
pub(crate) fn fewer() {
    if callbacks::is_inside() {
        STATE.requested.fetch_add(1, SeqCst);
        wake();
    } else {
        changed();
    }
}

/// Asks the worker for a round and waits for it within `limit`. False when the round did not happen
/// in time. Also true when there is no worker. Inside a tool's function the wait is short
/// ([`INSIDE_LIMIT`]), since the worker may be waiting for the calling thread.
pub fn request_within(limit: Duration) -> bool {
    if !is_served() {
        // No session, or a forked child without a worker.
        return true;
    }
    let ticket = STATE.requested.fetch_add(1, SeqCst) + 1;
    wake();
    wait_for(&STATE.applied, ticket, limit)
}

/// Asks the worker for a whole round: what has ended on the devices is read and delivered. False
/// when that did not happen within `limit`. True at once on the worker itself, and when there is no
/// session.
pub fn round_within(limit: Duration) -> bool {
    if !is_served() || is_worker() {
        return true;
    }
    let ticket = STATE.rounds_asked.fetch_add(1, SeqCst) + 1;
    wake();
    wait_for(&STATE.rounds_done, ticket, limit)
}

/// The number of rounds that were asked for: read it when a round begins, and pass it to
/// [`round_done`] at its end.
pub fn rounds_asked() -> u64 {
    STATE.rounds_asked.load(SeqCst)
}

/// Records that a round has ended which began after `ticket` ([`rounds_asked`]).
pub fn round_done(ticket: u64) {
    STATE.rounds_done.fetch_max(ticket, SeqCst);
}

/// How long the calling thread may wait for the worker: `limit`, or much less inside a tool's
/// function, for whose return the worker may be waiting.
pub fn patience(limit: Duration) -> Duration {
    if callbacks::is_inside() {
        limit.min(INSIDE_LIMIT)
    } else {
        limit
    }
}

fn wait_for(count: &AtomicU64, ticket: u64, limit: Duration) -> bool {
    let end = Instant::now() + patience(limit);
    while is_served() && count.load(SeqCst) < ticket {
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    true
}

/// The number of changes so far: read it before [`crate::context::wanted`], and pass it to
/// [`applied`].
pub fn requested() -> u64 {
    STATE.requested.load(SeqCst)
}

/// Records that everything up to `ticket` ([`requested`]) is applied.
pub fn applied(ticket: u64) {
    STATE.applied.store(ticket, SeqCst);
}

/// Whether there are changes that were not applied.
pub fn is_pending() -> bool {
    STATE.applied.load(SeqCst) < STATE.requested.load(SeqCst)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_leaves_the_workers_place_waits_as_others_do() {
        become_worker();
        assert!(is_worker());
        leave_worker();
        assert!(!is_worker() && worker() == 0);
        // Somebody else has it by now: it stays theirs.
        std::thread::spawn(become_worker).join().unwrap();
        let theirs = worker();
        leave_worker();
        assert!(theirs != 0 && worker() == theirs && !is_worker());
        serve(true);
        // Nobody answers, so these wait to the end.
        assert!(!round_within(Duration::from_millis(1)));
        assert!(!request_within(Duration::from_millis(1)));
        serve(false);
        assert!(round_within(LIMIT) && request_within(LIMIT));
    }
}
