//! The times of a copy, which its completion signal carries.

use super::entry::{Facts, Stage};
use crate::layout::Signal;
use crate::state::STATE;
use midair_record::event::Untimed;
use midair_sdk_hot::wrappers::original;

/// The signal of copy `index` is about to be used for something else: reads the times now.
pub(crate) fn settle(index: usize) {
    let Some(slot) = STATE.copies.entries.get(index) else {
        return;
    };
    let Some(mut entry) = slot.hold(Stage::UnderWay) else {
        for _ in 0..100_000 {
            if slot.state() != Stage::Held {
                break;
            }
            std::hint::spin_loop();
        }
        return;
    };
    entry.with(|entry| entry.outcome = times(&entry.facts).ok_or(Untimed::SignalReused));
    entry.publish(Stage::Ended);
}

/// Times in the record clock, when the copy has ended.
pub(super) fn times(facts: &Facts) -> Option<(u64, u64)> {
    // SAFETY: the signal is alive: it is watched, and a hook settles the copy before it is destroyed.
    if unsafe { Signal(facts.signal).value() } >= facts.value {
        return None;
    }
    let mut time = [0_u64; 2];
    // SAFETY: the runtime's own query with a buffer of the struct's size (start, end).
    let status = unsafe {
        original::hsa_amd_profiling_get_async_copy_time(facts.signal, time.as_mut_ptr().cast())
    };
    let [start, end] = time;
    Some(if status == 0 { (start, end) } else { (0, 0) })
}
