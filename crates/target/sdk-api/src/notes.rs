//! Notes for the user that are posted while tools are configured and attached. They become records
//! of the session.

use crate::changes;
use crate::state::STATE;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;

/// The most notes that wait; further ones are lost.
const MOST: usize = 64;

/// Sets whether the collection accepts notes from now on.
pub fn open(on: bool) {
    STATE.notes_open.store(on, Relaxed);
}

/// Posts a note on the worker while it collects. On other threads and at other times there are no
/// records to put it into, and it is dropped.
pub fn post(text: &str) {
    if STATE.notes_open.load(Relaxed) && changes::is_worker() {
        let mut waiting = STATE.notes.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() < MOST {
            waiting.push(text.to_owned());
        }
    }
}

/// Posts a note on any thread: to the records while notes are accepted, otherwise to
/// [`last_words`]. It is dropped if another thread is posting one at this very moment, since this
/// may run on a thread of the application, which must not wait.
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

/// Removes and returns, as one text, the notes that were posted after the records had ended.
pub fn last_words() -> String {
    let mut waiting = STATE
        .last_words
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    std::mem::take(&mut *waiting).join("; ")
}

/// Removes and returns the waiting notes.
pub fn take() -> Vec<String> {
    std::mem::take(&mut *STATE.notes.lock().unwrap_or_else(PoisonError::into_inner))
}
