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
/// The thread may hold a lock of the runtime for which the worker waits (`State::in_runtime`): then
/// it does not wait, and the slots are hooked when the worker is back.
pub fn search_and_wait(hsa: bool) {
    request_search(hsa);
    changes::wake();
    let end = std::time::Instant::now() + LEAVE_LIMIT;
    while (changes::is_served() || is_on())
        && STATE.request.load(SeqCst) != TableRequest::None
        && STATE.in_runtime.load(SeqCst) == 0
        && std::time::Instant::now() < end
    {
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// Requests that the worker's next round hooks tables, HSA's or others.
pub fn request_search(hsa: bool) {
    STATE.request.store(
        if hsa {
            TableRequest::Hsa
        } else {
            TableRequest::Tables
        },
        SeqCst,
    );
}

/// Withdraws the request: there is no worker.
pub fn withdraw_search() {
    STATE.request.store(TableRequest::None, SeqCst);
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
        // SAFETY: a system call without arguments.
        let tid = unsafe { libc::syscall(libc::SYS_gettid) } as u32;
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
