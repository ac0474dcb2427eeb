//! Notes for the user that arise while tools are configured and attached. They go into the session's
//! records.

use crate::changes;
use crate::state::STATE;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;

/// Notes that wait at most; further ones are lost.
const MOST: usize = 64;

/// Says whether the collection takes notes from now on.
pub fn open(on: bool) {
    STATE.notes_open.store(on, Relaxed);
}

/// Adds a note, on the worker while it collects. From other threads and at other times there are no
/// records to put it into, and it is dropped.
pub fn post(text: &str) {
    if STATE.notes_open.load(Relaxed) && changes::is_worker() {
        let mut waiting = STATE.notes.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() < MOST {
            waiting.push(text.to_owned());
        }
    }
}

/// Adds a note on any thread: to the records while notes are taken, else to [`last_words`]. It is dropped where another thread is adding one
/// at this very moment: this may run on a thread of the application, which does not wait.
pub fn post_from_anywhere(text: &str) {
    let list = match STATE.notes_open.load(Relaxed) {
        true => &STATE.notes,
        false => &STATE.last_words,
    };
    if let Ok(mut waiting) = list.try_lock()
        && waiting.len() < MOST
    {
        waiting.push(text.to_owned());
    }
}

/// Removes and returns what was noted when records were taken no more, in one text.
pub fn last_words() -> String {
    let mut waiting = STATE
        .last_words
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    std::mem::take(&mut *waiting).join("; ")
}

/// Removes and returns the notes that wait.
pub fn take() -> Vec<String> {
    std::mem::take(&mut *STATE.notes.lock().unwrap_or_else(PoisonError::into_inner))
}
