//! `roctxProfilerPause` and `roctxProfilerResume`, where the session's own tool honours them, and
//! the tool's collection periods (`--collection-period`).
//!
//! **[`is_recording_wanted`] is the only function that decides whether a recording is paused.**
//!
//! A pause takes effect at the start of its call, and a resume at its return. Both hold for all
//! threads, whichever thread they name (source: `docs/sources.md#rocprofv3`). What started during a
//! pause is left out, whenever it ends. What started outside a pause is recorded, even if it ends
//! during one. So the decision is made once, at the start, and is stored as [`flag::PAUSED`].
//!
//! During a pause, hooks stay in place. Queues are still followed so that their counts add up, and
//! so are the ranges of a thread, so that each end finds its start.
//!
//! Outside of a collection period, and between the bursts of a recording that may cost the
//! application only so much (`--max-overhead`), the recording is paused in the same way.
//!
//! Other tools of the process are not affected: they get their records and callbacks as always
//! (interpreting `roctxProfilerPause` is up to them). While there are such tools, everything is
//! written with its flag, and left out on the way to the attacher. Otherwise it is not written at
//! all.

pub use crate::pauses::Mode;

use crate::pauses::Moment;
use crate::probe;
use crate::state::STATE;
use midair_record::event::flag;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

/// Whether something that starts now is to be recorded, of any kind. Any thread may call this.
#[inline]
pub fn is_recording_wanted() -> bool {
    STATE.pause.is_recording_wanted()
}

/// Returns the bits of [`flag`] for work that starts now and that no thread of the application
/// launches.
pub fn flags_now() -> u8 {
    if is_recording_wanted() {
        0
    } else {
        flag::PAUSED
    }
}

/// Whether something with these flags is written as a record at all.
#[inline]
pub fn is_written(flags: u8) -> bool {
    STATE.pause.is_written(flags)
}

/// Sets how the session reacts to the calls from now on, and resets the counts. Called on the
/// worker thread.
pub fn begin(mode: Mode) {
    STATE.pause.begin(mode);
    probe::apply_pause();
}

/// Sets whether the collection that is about to start also serves other tools. Called on the worker
/// thread, while nothing is recorded.
pub fn set_shared(shared: bool) {
    STATE.pause.shared.store(shared, SeqCst);
}

/// Starts or ends a collection period, or a burst, of the session's own tool. Without effect in a
/// session that has neither. Any thread may call this.
pub fn set_period(open: bool) {
    if STATE.pause.set_period(open) {
        probe::apply_pause();
    }
}

/// Returns for how long nothing was recorded since the recording started, in ns: in pauses, outside
/// of collection periods, and between bursts. The worker thread calls this.
pub fn off_time() -> u64 {
    STATE.pause.off_time()
}

/// Whether the session reacts to the calls.
pub fn is_honoured() -> bool {
    STATE.pause.mode().honoured
}

/// Whether the session records in bursts.
pub fn is_in_bursts() -> bool {
    STATE.pause.mode().bursts
}

/// Whether the session's recording started paused, so that regions can be selected.
pub fn is_selected() -> bool {
    let mode = STATE.pause.mode();
    mode.honoured && mode.selected
}

/// Counts something of this kind that started during a pause and is left out.
pub fn left_out(record_kind: u8) {
    STATE.pause.left_out(record_kind);
}

/// Returns notes for the user at the end of a recording.
pub fn notes() -> Vec<String> {
    STATE.pause.notes()
}

/// `roctxProfilerPause`.
const PAUSE: u32 = 0;
/// `roctxProfilerResume`.
const RESUME: u32 = 1;

/// Called before a call of the control table that names this thread (0: all).
#[inline(never)]
pub(crate) fn before(operation: u32, thread: u64) {
    if !is_honoured() {
        return;
    }
    // SAFETY: getpid takes no arguments and cannot fail.
    if thread != 0 && thread != unsafe { libc::getpid() } as u64 {
        STATE.pause.named_thread.store(true, Relaxed);
    }
    if operation == PAUSE && STATE.pause.change(Moment::paused) {
        probe::apply_pause();
    }
}

/// Called after such a call.
#[inline(never)]
pub(crate) fn after(operation: u32) {
    if operation == RESUME && STATE.pause.change(Moment::resumed) {
        probe::apply_pause();
    }
}
