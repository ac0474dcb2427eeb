//! Records of HIP's events for tools: a call that records an event or waits for one, together with the last
//! of the barrier packets that it had the runtime write.
//!
//! Calls and barriers arrive as records, in no order between threads and queues. A call is complete when
//! two things have happened after its record came, as with correlation ids ([`crate::retirement`]): a
//! look at the packets under way no longer finds its id ([`looked`]), and everything written until that
//! look was delivered ([`delivered`]).
//!
//! A wait names the queue in which its event was recorded last, so it also waits for that record.
//!
//! Decision: AMD-181 (`docs/deviations/amd.md`).

pub(crate) mod joined;

use crate::buffer;
use crate::retirement;
use crate::state::STATE;
use joined::Joined;
use midair_record::event::Record;
use std::collections::HashSet;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::{Acquire, Release};

fn joined<T>(act: impl FnOnce(&mut Joined) -> T) -> T {
    let mut all = STATE.events.lock().unwrap_or_else(PoisonError::into_inner);
    act(all.get_or_insert_default())
}

/// Joins calls with their barriers from now on if some running context wants them, until [`finish`]: the
/// barriers of a context that stops may still be under way.
pub fn follow(is_wanted: bool) {
    if is_wanted {
        STATE.follows_events.store(true, Release);
    }
}

/// Whether calls are joined with their barriers.
pub fn is_followed() -> bool {
    STATE.follows_events.load(Acquire)
}

/// Whether calls wait for a look at what is under way.
pub fn is_waiting() -> bool {
    is_followed() && joined(|all| all.is_waiting())
}

/// Notes a delivered record. Called on the worker thread.
pub(crate) fn saw(record: &Record<'_>) {
    if !is_followed() {
        return;
    }
    match record {
        Record::Event(call) => {
            if let Some(cut) = joined(|all| all.saw_call(call)) {
                buffer::deliver_event(&cut);
            }
        }
        Record::Barrier(barrier) => joined(|all| all.saw_barrier(barrier)),
        _ => {}
    }
}

/// Notes a look at the packets under way: `has` contains the ids of those that have not ended. Called on
/// the worker thread, before what was written up to now is delivered.
pub fn looked(has: &HashSet<u64>) {
    joined(|all| all.looked(|id| has.contains(&id)));
}

/// Notes that everything written before the last look was delivered, and passes on the calls that are
/// complete. Called on the worker thread.
pub fn delivered() {
    let (done, kept) = joined(Joined::take);
    for event in &done {
        buffer::deliver_event(event);
    }
    // An id is not retired before its last record.
    retirement::keep(&kept);
}

/// Passes on all remaining calls, because the collection is over and everything was delivered.
pub fn finish() {
    joined(|all| all.looked(|_| false));
    delivered();
    joined(|all| *all = Joined::default());
    STATE.follows_events.store(false, Release);
}
