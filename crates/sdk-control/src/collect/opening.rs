//! An application that opens its runtime while a session is on: it waits until the runtime is hooked, or it is said that it did not.
//!
//! Decisions: AMD-037 (`docs/deviations/amd.md`).

use midair_sdk_api::changes;
use midair_sdk_hot::probe;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, SeqCst};
use std::time::Duration;

/// 1 from the session's begin until the HSA runtime is open *and* hooked: whoever's `hsa_init` returns meanwhile waits. It must not be
/// taken back when the runtime is merely seen open, since the agent may lose its processor before it has taken a slot.
pub(super) static HSA_CLOSED: AtomicU32 = AtomicU32::new(0);
/// 1 while a session wants the device's work and the HSA runtime is not open yet, or open and not hooked.
pub(super) static DEVICE_PENDING: AtomicU32 = AtomicU32::new(0);
/// Threads of the application that went on into an open runtime before the agent had hooked it: what they did may be missing.
pub(super) static WENT_ON: AtomicU32 = AtomicU32::new(0);
/// The first thread that is inside `hsa_init`, 0 when none is.
static OPENER: AtomicU32 = AtomicU32::new(0);

/// How long an application's thread waits for a runtime that it has just opened to be hooked. Where the agent has no turn for so long
/// the application is starved, too; else it waits for a lock of this thread's, and somebody has to give in.
const OPENING_LIMIT: Duration = Duration::from_secs(5);

/// See [`crate::forked`].
pub(super) fn begin_anew() {
    for word in [&HSA_CLOSED, &DEVICE_PENDING, &WENT_ON, &OPENER] {
        word.store(0, SeqCst);
    }
}

/// Waits for the runtime to be hooked. Who gives up is counted: the session must not pass for a whole one.
fn ask_for_hooks() {
    let generation = probe::generation();
    if generation != 0
        && !changes::request_within(OPENING_LIMIT)
        && probe::generation() == generation
    {
        WENT_ON.fetch_add(1, SeqCst);
    }
}

/// An application's thread inside `hsa_init`.
#[derive(Debug)]
pub struct Opening {
    /// The thread, where no other one was inside.
    first: Option<u32>,
    /// The runtime's own tools call it once more from inside: the lock is held, so our thread cannot look, and the outer call waits for it.
    nested: bool,
}

impl Opening {
    /// Before the call.
    pub fn begin() -> Opening {
        // SAFETY: a system call without arguments.
        let tid = unsafe { libc::syscall(libc::SYS_gettid) } as u32;
        let inside = OPENER.compare_exchange(0, tid, SeqCst, SeqCst);
        Opening {
            first: inside.is_ok().then_some(tid),
            nested: inside == Err(tid),
        }
    }

    /// After the call: waits until the runtime's tables are hooked and the device's side is ready, within a limit, so that nothing that
    /// comes after it goes by unseen.
    pub fn end(self, is_open: bool) {
        if let Some(tid) = self.first {
            let _ = OPENER.compare_exchange(tid, 0, SeqCst, SeqCst);
        }
        if is_open && !self.nested && HSA_CLOSED.load(Acquire) != 0 {
            ask_for_hooks();
        }
    }
}

/// For an application's thread that is about to make its first queue: waits until the device's side is ready, within a limit, so that
/// not even the first dispatch is without times. The runtime's `hsa_init` is behind that thread, so it holds no lock of it.
pub fn wait_for_device() {
    if DEVICE_PENDING.load(Acquire) != 0 {
        ask_for_hooks();
    }
}
