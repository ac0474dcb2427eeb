//! Contexts whose tool did not return from a function on a thread of the application, because it
//! threw or called `exit`. They get no further calls from that moment on. The worker thread then
//! stops using the tool.

use crate::state::STATE;
use midair_tool_call::Thrown;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

/// Whether a context gets no more calls.
pub(super) fn is_out(context: u64) -> bool {
    STATE.any_out.load(Relaxed) && STATE.out.iter().any(|it| it.load(Acquire) == context)
}

/// Stops calls for a context.
pub(super) fn put_out(context: u64, thrown: &Thrown) {
    for place in &STATE.out {
        let taken = place.compare_exchange(0, context, SeqCst, SeqCst);
        if taken.is_ok() || taken == Err(context) {
            break;
        }
    }
    STATE.any_out.store(true, Release);
    // If another thread is adding one at this moment, this one is lost; the tool is reported
    // anyway.
    if let Ok(mut thrown_by) = STATE.thrown.try_lock() {
        thrown_by.push((context, thrown.to_string()));
    }
}

/// Returns what was thrown since the last call, by context.
pub fn take_thrown() -> Vec<(u64, String)> {
    if !STATE.any_out.load(Relaxed) {
        return Vec::new();
    }
    match STATE.thrown.try_lock() {
        Ok(mut thrown) => std::mem::take(&mut *thrown),
        Err(_) => Vec::new(),
    }
}

/// Allows calls for contexts with these handles, which are new contexts.
pub fn readmit(contexts: &[u64]) {
    for place in &STATE.out {
        if contexts.contains(&place.load(Acquire)) {
            place.store(0, Release);
        }
    }
}
