//! Where the application's threads wait for the worker. A thread that opens or closes a runtime
//! waits here, within limits, until the worker has hooked the runtime or no longer reads from it.
//!
//! Decisions: AMD-037 (`docs/deviations/amd.md`).

pub(crate) mod request;

use crate::local::phase::Phase;
use crate::state::STATE;
use midair_sdk_api::changes;
use midair_sdk_hot::callbacks;
use midair_sdk_hot::probe;
use request::TableRequest;
use std::sync::atomic::Ordering::{Acquire, SeqCst};
use std::time::Duration;

/// How long a thread of the application waits for a session to end before its process ends, or for
/// an answer.
pub const LEAVE_LIMIT: Duration = Duration::from_millis(1500);
/// How long it waits before its runtime is shut down. After that the worker must not read signals
/// any more, even if it got no processor time in the meantime.
pub const SHUT_DOWN_LIMIT: Duration = Duration::from_secs(5);
/// How long a thread of the application waits for a runtime that it has just opened to be hooked.
/// If the worker gets no processor time for this long, the application is starved as well.
/// Otherwise the worker waits for a lock that this thread holds, and one of them has to give up.
const OPENING_LIMIT: Duration = Duration::from_secs(5);

/// Whether this is a forked child of a process that had a session without an attacher.
pub(crate) fn is_child() -> bool {
    // SAFETY: getpid takes no arguments and cannot fail.
    let here = unsafe { libc::getpid() };
    let process = STATE.process.load(SeqCst);
    process != 0 && process != here
}

/// Whether a session without an attacher is on, or waits for a runtime.
pub fn is_on() -> bool {
    matches!(
        STATE.phase.load(SeqCst),
        Phase::Starting | Phase::Watching | Phase::On
    ) && !is_child()
}

/// Whether the application is shutting down its HSA runtime.
pub fn runtime_leaves() -> bool {
    STATE.runtime_leaves.load(SeqCst) != 0
}

/// Notes that the application starts or has ended the shutdown of its HSA runtime.
pub fn set_runtime_leaves(leaves: bool) {
    STATE.runtime_leaves.store(u32::from(leaves), SeqCst);
}

/// Whether the process is running its exit handlers.
pub fn process_leaves() -> bool {
    STATE.process_leaves.load(SeqCst) != 0
}

/// Notes that the process runs its exit handlers from now on.
pub fn set_process_leaves() {
    STATE.process_leaves.store(1, SeqCst);
}

/// Waits until no session collects, within a limit. Called by threads of the application before the
/// runtime closes or the process ends.
pub fn wait_for_stop(limit: Duration) {
    let end = std::time::Instant::now() + limit;
    while STATE.collecting.load(SeqCst) && std::time::Instant::now() < end {
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Wakes the worker, and returns whether its next round can happen. Called by a thread of the
/// application that waits for that round. The worker may itself be waiting for a tool's function,
/// or for a lock of the runtime that the calling thread holds.
pub fn may_answer() -> bool {
    changes::wake();
    (changes::is_served() || is_on())
        && STATE.collecting.load(SeqCst)
        && STATE.device_pending.load(Acquire) == 0
        && STATE.in_runtime.load(SeqCst) == 0
        && !callbacks::is_inside()
}

/// Waits until the worker has hooked new tables, within a limit. Called by a thread that registers
/// them. A thread that may hold the HSA runtime's lock does not wait while the worker may wait for
/// that lock (`State::in_runtime`). The slots are then hooked when the worker is back, for which
/// the end of `hsa_init` waits ([`Opening::end`]).
pub fn search_and_wait(hsa: bool) {
    let ticket = request_search(hsa);
    changes::wake();
    let may_hold_the_lock = hsa || STATE.opener.load(SeqCst) == this_thread();
    let end = std::time::Instant::now() + LEAVE_LIMIT;
    while (changes::is_served() || is_on())
        && STATE.searched.load(SeqCst) < ticket
        && !(may_hold_the_lock && STATE.in_runtime.load(SeqCst) != 0)
    {
        if std::time::Instant::now() >= end {
            STATE.went_on_unhooked.fetch_add(1, SeqCst);
            break;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// Requests that the worker's next round hooks tables, HSA's or others. Returns the request's
/// number. It was answered when `State::searched` is not below this number.
pub fn request_search(hsa: bool) -> u64 {
    if hsa {
        STATE.request.store(TableRequest::Hsa, SeqCst);
    } else {
        // A request for HSA's tables includes the others, so it is not replaced.
        let _ = STATE.request.compare_exchange(
            TableRequest::None,
            TableRequest::Tables,
            SeqCst,
            SeqCst,
        );
    }
    STATE.searches.fetch_add(1, SeqCst) + 1
}

/// Returns what has to be hooked now, if anything, and the number for [`answer_search`].
pub(crate) fn take_search() -> Option<(TableRequest, u64)> {
    let ticket = STATE.searches.load(SeqCst);
    match STATE.request.swap(TableRequest::None, SeqCst) {
        // A request came while the tables were hooked for another one, and may have been missed.
        TableRequest::None if STATE.searched.load(SeqCst) < ticket => {
            Some((TableRequest::Tables, ticket))
        }
        TableRequest::None => None,
        request => Some((request, ticket)),
    }
}

/// Notes that the tables are hooked for all requests up to this number.
pub(crate) fn answer_search(ticket: u64) {
    STATE.searched.fetch_max(ticket, SeqCst);
}

/// Withdraws the requests, because there is no worker.
pub fn withdraw_search() {
    STATE.request.store(TableRequest::None, SeqCst);
    answer_search(STATE.searches.load(SeqCst));
}

fn this_thread() -> u32 {
    // SAFETY: a system call without arguments.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

/// Whether a search was requested.
pub fn is_search_requested() -> bool {
    STATE.request.load(SeqCst) != TableRequest::None
}

/// Waits for the runtime to be hooked. A thread that gives up is counted, since the session is
/// incomplete then.
fn ask_for_hooks() {
    let generation = probe::generation();
    if generation != 0
        && !changes::request_within(OPENING_LIMIT)
        && probe::generation() == generation
    {
        STATE.went_on_unhooked.fetch_add(1, SeqCst);
    }
}

/// A thread of the application that is inside `hsa_init`.
#[derive(Debug)]
pub struct Opening {
    /// The thread id, if no other thread was inside.
    first: Option<u32>,
    /// Whether this is a nested call, which the runtime's own tools make from inside. The runtime's
    /// lock is held then, so the worker cannot search; the outer call waits for it.
    nested: bool,
}

impl Opening {
    /// Called before the call.
    pub fn begin() -> Opening {
        let tid = this_thread();
        let inside = STATE.opener.compare_exchange(0, tid, SeqCst, SeqCst);
        Opening {
            first: inside.is_ok().then_some(tid),
            nested: inside == Err(tid),
        }
    }

    /// Called after the call: waits until the runtime's tables are hooked and the device side is
    /// ready, within a limit, so that nothing that follows is missed.
    pub fn end(self, is_open: bool) {
        if let Some(tid) = self.first {
            let _ = STATE.opener.compare_exchange(tid, 0, SeqCst, SeqCst);
        }
        if is_open && !self.nested && STATE.hsa_closed.load(Acquire) != 0 {
            ask_for_hooks();
        }
    }
}

/// Waits until the device side is ready, within a limit, so that even the first dispatch is timed.
/// Called by a thread of the application that is about to create its first queue. The thread has
/// returned from `hsa_init`, so it holds no lock of the runtime.
pub fn wait_for_device() {
    if STATE.device_pending.load(Acquire) != 0 {
        ask_for_hooks();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This is a single test, since the requests belong to the process.
    #[test]
    fn no_request_for_tables_is_lost() {
        assert_eq!(take_search(), None);
        let first = request_search(false);
        let (request, ticket) = take_search().unwrap();
        assert_eq!((request, ticket), (TableRequest::Tables, first));
        // Another thread requests a search while the tables are hooked for the first request.
        let second = request_search(false);
        answer_search(ticket);
        assert!(STATE.searched.load(SeqCst) < second);
        let (request, ticket) = take_search().unwrap();
        assert_eq!((request, ticket), (TableRequest::Tables, second));
        answer_search(ticket);
        assert_eq!(take_search(), None);

        // A request for HSA's tables prevails, whichever comes first.
        for order in [[true, false], [false, true]] {
            let last = order.map(request_search)[1];
            assert_eq!(take_search(), Some((TableRequest::Hsa, last)));
            answer_search(last);
        }
        // It was taken before its number was seen, so the tables are hooked once more.
        STATE.searches.fetch_add(1, SeqCst);
        let (request, ticket) = take_search().unwrap();
        assert_eq!(request, TableRequest::Tables);
        answer_search(ticket);

        request_search(true);
        withdraw_search();
        assert_eq!((take_search(), is_search_requested()), (None, false));
    }
}
