//! The interface between the tool-facing API and a session.
//!
//! A tool starts or stops contexts on any thread, but only the worker thread of a session hooks
//! anything. So a change is counted here, and the worker is woken. The worker asks
//! [`crate::context::wanted`] what the contexts want now, applies it, and reports this
//! ([`applied`]). The tool's thread waits for that report, within a limit.

use crate::state::STATE;
use midair_sdk_hot::callbacks;
use std::sync::atomic::Ordering::{Acquire, Release, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::{Duration, Instant};

/// How long a tool's thread waits for the worker.
pub const LIMIT: Duration = Duration::from_millis(1500);
/// How long it waits inside a tool's function. The limit is short, since the worker may be waiting
/// for that function to return.
const INSIDE_LIMIT: Duration = Duration::from_millis(20);

fn tid() -> u32 {
    // SAFETY: gettid takes no arguments.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

/// Registers the calling thread as the worker.
pub fn become_worker() {
    STATE.worker.store(tid(), Release);
}

/// Ends the calling thread's role as the worker, after it has done the worker's work once. From now
/// on it waits for the worker as any other thread does. Does nothing if another thread is the
/// worker by now.
pub fn leave_worker() {
    let _ = STATE.worker.compare_exchange(tid(), 0, SeqCst, SeqCst);
}

/// Returns the thread id of the worker. 0: there is none, either before the first session, or
/// because a session was set up whose worker has not started yet.
pub fn worker() -> u32 {
    STATE.worker.load(Acquire)
}

/// Whether the calling thread is the worker.
pub fn is_worker() -> bool {
    worker() == tid()
}

/// Records that the worker starts or stops serving a session.
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

/// Returns the futex word that changes whenever the worker is woken ([`wake`]).
pub fn calls() -> &'static AtomicU32 {
    &STATE.calls
}

/// Wakes the worker, if it waits.
pub fn wake() {
    STATE.calls.fetch_add(1, SeqCst);
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word is static, and waking does not access memory.
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

/// Reports that contexts were stopped. Does the same as [`changed`], but does not wait inside a
/// tool's function. The promise of a stop is already kept then ([`callbacks::settle`]), and the
/// worker waits for that very function before it ends the collection.
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

/// Asks the worker for a whole round, in which it harvests and delivers what has ended on the
/// devices. Returns false if that did not happen within `limit`. Returns true at once on the worker
/// itself, and when there is no session.
pub fn round_within(limit: Duration) -> bool {
    if !is_served() || is_worker() {
        return true;
    }
    let ticket = STATE.rounds_asked.fetch_add(1, SeqCst) + 1;
    wake();
    wait_for(&STATE.rounds_done, ticket, limit)
}

/// Returns the number of rounds that were asked for. Read it when a round starts, and pass it to
/// [`round_done`] at the end of the round.
pub fn rounds_asked() -> u64 {
    STATE.rounds_asked.load(SeqCst)
}

/// Whether a round with this number was asked for and has not ended.
pub fn is_round_due(ticket: u64) -> bool {
    STATE.rounds_done.load(SeqCst) < ticket
}

/// Records the end of a round that started after `ticket` was read ([`rounds_asked`]).
pub fn round_done(ticket: u64) {
    STATE.rounds_done.fetch_max(ticket, SeqCst);
}

/// Returns how long the calling thread may wait for the worker: `limit`, or much less inside a
/// tool's function, since the worker may be waiting for that function to return.
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

/// Returns the number of changes so far. Read it before [`crate::context::wanted`], and pass it to
/// [`applied`].
pub fn requested() -> u64 {
    STATE.requested.load(SeqCst)
}

/// Records that everything up to `ticket` ([`requested`]) is applied.
pub fn applied(ticket: u64) {
    STATE.applied.store(ticket, SeqCst);
}

/// Whether there are changes that were not applied yet.
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
        // Another thread is the worker by now, and stays it.
        std::thread::spawn(become_worker).join().unwrap();
        let theirs = worker();
        leave_worker();
        assert!(theirs != 0 && worker() == theirs && !is_worker());
        serve(true);
        // No worker answers, so these wait until the limit.
        assert!(!round_within(Duration::from_millis(1)));
        assert!(!request_within(Duration::from_millis(1)));
        serve(false);
        assert!(round_within(LIMIT) && request_within(LIMIT));
    }
}
