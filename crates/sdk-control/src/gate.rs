//! Where the application's threads wait for the worker: a thread that opens or closes a runtime waits
//! here, within limits, until the worker has hooked it or no longer reads from it.
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

/// How long an application's thread waits for a session to end before its process ends, or for an
/// answer.
pub const LEAVE_LIMIT: Duration = Duration::from_millis(1500);
/// How long it waits before its runtime is shut down. After that the worker must not read signals any
/// more, even if it got no processor time meanwhile.
pub const SHUT_DOWN_LIMIT: Duration = Duration::from_secs(5);
/// How long an application's thread waits for a runtime that it has just opened to be hooked. If
/// the worker gets no processor time for so long, the application is starved, too; otherwise the
/// worker waits for a lock that this thread holds, and one of them has to give up.
const OPENING_LIMIT: Duration = Duration::from_secs(5);

/// Whether this is a forked child of a process that had a session without an attacher.
pub(crate) fn is_child() -> bool {
    // SAFETY: no arguments, no failure.
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

/// Whether the application shuts its HSA runtime down.
pub fn runtime_leaves() -> bool {
    STATE.runtime_leaves.load(SeqCst) != 0
}

/// The application begins or has ended to shut its HSA runtime down.
pub fn set_runtime_leaves(leaves: bool) {
    STATE.runtime_leaves.store(u32::from(leaves), SeqCst);
}

/// Whether the process runs its exit handlers.
pub fn process_leaves() -> bool {
    STATE.process_leaves.load(SeqCst) != 0
}

/// The process runs its exit handlers from now on.
pub fn set_process_leaves() {
    STATE.process_leaves.store(1, SeqCst);
}

/// For threads of the application, before the runtime closes or the process ends: waits until no
/// session collects, within a limit.
pub fn wait_for_stop(limit: Duration) {
    let end = std::time::Instant::now() + limit;
    while STATE.collecting.load(SeqCst) && std::time::Instant::now() < end {
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// For an application's thread that waits for the worker's next round: wakes the worker, and tells
/// whether that round can happen. The worker may itself wait for a tool's function, or for a lock of
/// the runtime that the calling thread holds.
pub fn may_answer() -> bool {
    changes::wake();
    (changes::is_served() || is_on())
        && STATE.collecting.load(SeqCst)
        && STATE.device_pending.load(Acquire) == 0
        && STATE.in_runtime.load(SeqCst) == 0
        && !callbacks::is_inside()
}

/// For a thread that hands new tables over: waits until the worker has hooked them, within a limit.
/// A thread that may hold the HSA runtime's lock does not wait while the worker may wait for that
/// lock (`State::in_runtime`): the slots are hooked when the worker is back, for which the end of
/// `hsa_init` waits ([`Opening::end`]).
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
/// number: it was answered when `State::searched` is no less.
pub fn request_search(hsa: bool) -> u64 {
    if hsa {
        STATE.request.store(TableRequest::Hsa, SeqCst);
    } else {
        // One for HSA's says more.
        let _ = STATE.request.compare_exchange(
            TableRequest::None,
            TableRequest::Tables,
            SeqCst,
            SeqCst,
        );
    }
    STATE.searches.fetch_add(1, SeqCst) + 1
}

/// What is to be hooked now, if anything, and the number for [`answer_search`].
pub(crate) fn take_search() -> Option<(TableRequest, u64)> {
    let ticket = STATE.searches.load(SeqCst);
    match STATE.request.swap(TableRequest::None, SeqCst) {
        // A request came while the tables were hooked for another one, which it may have missed.
        TableRequest::None if STATE.searched.load(SeqCst) < ticket => {
            Some((TableRequest::Tables, ticket))
        }
        TableRequest::None => None,
        request => Some((request, ticket)),
    }
}

/// The tables are hooked for all requests up to this number.
pub(crate) fn answer_search(ticket: u64) {
    STATE.searched.fetch_max(ticket, SeqCst);
}

/// Withdraws the requests: there is no worker.
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

/// Waits for the runtime to be hooked. A thread that gives up is counted, since the session is then
/// not complete.
fn ask_for_hooks() {
    let generation = probe::generation();
    if generation != 0
        && !changes::request_within(OPENING_LIMIT)
        && probe::generation() == generation
    {
        STATE.went_on_unhooked.fetch_add(1, SeqCst);
    }
}

/// An application's thread inside `hsa_init`.
#[derive(Debug)]
pub struct Opening {
    /// The thread, where no other one was inside.
    first: Option<u32>,
    /// The runtime's own tools call it once more from inside. The lock is held, so the worker cannot
    /// search, and the outer call waits for it.
    nested: bool,
}

impl Opening {
    /// Before the call.
    pub fn begin() -> Opening {
        let tid = this_thread();
        let inside = STATE.opener.compare_exchange(0, tid, SeqCst, SeqCst);
        Opening {
            first: inside.is_ok().then_some(tid),
            nested: inside == Err(tid),
        }
    }

    /// After the call: waits until the runtime's tables are hooked and the device's side is ready,
    /// within a limit, so that nothing after it is missed.
    pub fn end(self, is_open: bool) {
        if let Some(tid) = self.first {
            let _ = STATE.opener.compare_exchange(tid, 0, SeqCst, SeqCst);
        }
        if is_open && !self.nested && STATE.hsa_closed.load(Acquire) != 0 {
            ask_for_hooks();
        }
    }
}

/// For an application's thread that is about to make its first queue: waits until the device's side
/// is ready, within a limit, so that even the first dispatch is timed. The thread has returned from
/// `hsa_init`, so it holds no lock of the runtime.
pub fn wait_for_device() {
    if STATE.device_pending.load(Acquire) != 0 {
        ask_for_hooks();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One test, since the requests are the process's.
    #[test]
    fn no_request_for_tables_is_lost() {
        assert_eq!(take_search(), None);
        let first = request_search(false);
        let (request, ticket) = take_search().unwrap();
        assert_eq!((request, ticket), (TableRequest::Tables, first));
        // Another thread asks while the tables are hooked for the first one.
        let second = request_search(false);
        answer_search(ticket);
        assert!(STATE.searched.load(SeqCst) < second);
        let (request, ticket) = take_search().unwrap();
        assert_eq!((request, ticket), (TableRequest::Tables, second));
        answer_search(ticket);
        assert_eq!(take_search(), None);

        // That of HSA's tables says more, whichever comes first.
        for order in [[true, false], [false, true]] {
            let last = order.map(request_search)[1];
            assert_eq!(take_search(), Some((TableRequest::Hsa, last)));
            answer_search(last);
        }
        // It was taken before its number was seen: the tables are hooked once more.
        STATE.searches.fetch_add(1, SeqCst);
        let (request, ticket) = take_search().unwrap();
        assert_eq!(request, TableRequest::Tables);
        answer_search(ticket);

        request_search(true);
        withdraw_search();
        assert_eq!((take_search(), is_search_requested()), (None, false));
    }
}
