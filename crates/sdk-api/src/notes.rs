//! Words for the user that come up while tools are configured and attached, on their way into the session's records.

use crate::changes;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};

/// Notes that wait at most; more are lost.
const MOST: usize = 64;

static OPEN: AtomicBool = AtomicBool::new(false);
static WAITING: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// The collection takes notes from now on, or no longer.
pub fn open(on: bool) {
    OPEN.store(on, Relaxed);
}

/// Leaves a note, on the worker while it collects; from other threads and at other times there are no records to put it into.
pub fn post(text: &str) {
    if OPEN.load(Relaxed) && changes::is_worker() {
        let mut waiting = WAITING.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() < MOST {
            waiting.push(text.to_owned());
        }
    }
}

/// Takes what was left.
pub fn take() -> Vec<String> {
    std::mem::take(&mut *WAITING.lock().unwrap_or_else(PoisonError::into_inner))
}

/// In a forked child before its first session.
pub fn begin_anew() {
    open(false);
    // SAFETY: in a forked child before its first session: the only thread that uses it.
    unsafe { midair_sdk_hot::fork::renew(&WAITING, Vec::new()) };
}
