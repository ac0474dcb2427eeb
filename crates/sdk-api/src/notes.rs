//! Words for the user that come up while tools are configured and attached, on their way into the session's records.

use crate::changes;
use crate::state::STATE;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;

/// Notes that wait at most; more are lost.
const MOST: usize = 64;

/// The collection takes notes from now on, or no longer.
pub fn open(on: bool) {
    STATE.notes_open.store(on, Relaxed);
}

/// Leaves a note, on the worker while it collects; from other threads and at other times there are no records to put it into.
pub fn post(text: &str) {
    if STATE.notes_open.load(Relaxed) && changes::is_worker() {
        let mut waiting = STATE.notes.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() < MOST {
            waiting.push(text.to_owned());
        }
    }
}

/// Takes what was left.
pub fn take() -> Vec<String> {
    std::mem::take(&mut *STATE.notes.lock().unwrap_or_else(PoisonError::into_inner))
}
