//! `roctxProfilerPause` and `roctxProfilerResume`, where the session's own tool honours them.
//!
//! **[`is_recording_wanted`] is the one place that says whether a recording is paused.**
//!
//! A pause holds from the beginning of the call, a resume from its return, and both hold for all
//! threads, whichever thread they name (source: `docs/sources.md#rocprofv3`). What began in a pause
//! is left out, whenever it ends; what began outside is recorded, also where it ends in a pause. So
//! the decision is made once, at the beginning, and is carried as [`flag::PAUSED`].
//!
//! Hooks stay, queues are followed so that their counts add up, and so are the ranges of a thread,
//! so that each end finds its beginning.
//!
//! Other tools of the process are not concerned: they get their records and callbacks as always
//! (`roctxProfilerPause` is for them to interpret). While there are such, everything is written with
//! its flag, and left out on the way to the attacher; otherwise it is not written at all.

pub use crate::pauses::Mode;

use crate::pauses::Moment;
use crate::probe;
use crate::state::STATE;
use midair_record::event::flag;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

/// Whether what begins now is to be recorded, of whatever kind. Any thread may ask.
#[inline]
pub fn is_recording_wanted() -> bool {
    STATE.pause.is_recording_wanted()
}

/// The bits of [`flag`] for work that begins now and that no thread of the application launches.
pub fn flags_now() -> u8 {
    if is_recording_wanted() {
        0
    } else {
        flag::PAUSED
    }
}

/// Whether something with these flags is written into records at all.
#[inline]
pub fn is_written(flags: u8) -> bool {
    STATE.pause.is_written(flags)
}

/// A session takes the calls so from now on; what was counted is forgotten. On the worker thread.
pub fn begin(mode: Mode) {
    STATE.pause.begin(mode);
    probe::apply_pause();
}

/// Whether the collecting that is about to begin serves others as well. On the worker thread, while
/// nothing is recorded.
pub fn set_shared(shared: bool) {
    STATE.pause.shared.store(shared, SeqCst);
}

/// Whether the session honours the calls.
pub fn is_honoured() -> bool {
    STATE.pause.mode().honoured
}

/// Whether the session's recording began paused, for regions to be selected.
pub fn is_selected() -> bool {
    let mode = STATE.pause.mode();
    mode.honoured && mode.selected
}

/// Something of this kind began in a pause and is left out.
pub fn left_out(record_kind: u8) {
    STATE.pause.left_out(record_kind);
}

/// What the user must know at the end of a recording.
pub fn notes() -> Vec<String> {
    STATE.pause.notes()
}

/// `roctxProfilerPause`.
const PAUSE: u32 = 0;
/// `roctxProfilerResume`.
const RESUME: u32 = 1;

/// Before a call of the control table that names this thread (0: all).
#[inline(never)]
pub(crate) fn before(operation: u32, thread: u64) {
    if !is_honoured() {
        return;
    }
    // SAFETY: takes nothing, cannot fail.
    if thread != 0 && thread != unsafe { libc::getpid() } as u64 {
        STATE.pause.named_thread.store(true, Relaxed);
    }
    if operation == PAUSE && STATE.pause.change(Moment::paused) {
        probe::apply_pause();
    }
}

/// After such a call.
#[inline(never)]
pub(crate) fn after(operation: u32) {
    if operation == RESUME && STATE.pause.change(Moment::resumed) {
        probe::apply_pause();
    }
}
