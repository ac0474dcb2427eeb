//! The external correlation id that goes with what a thread does now, for each context of a tool: a table without locks, which
//! the application's threads read while a tool is told of their calls. The stacks of values are the tool-facing API's.

use midair_lockfree::{AtomicKey, Slot, SlotTable};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Contexts and threads with values of their own; a power of two.
const CAPACITY: usize = 4096;
/// Slots that are searched for a context and thread.
const PROBES: usize = 32;

/// By context and thread: the value on top of its stack, 0 for an empty one. A key is never taken out.
static TOPS: SlotTable<AtomicKey, CAPACITY, AtomicU64> =
    SlotTable::new([const { Slot::new(AtomicKey::new(), AtomicU64::new(0), ()) }; CAPACITY]);

fn key(context: u64, tid: u64) -> u64 {
    context << 32 | tid & 0xffff_ffff
}

/// The value that goes with what a thread does now. For the application's threads: no lock.
pub fn current(context: u64, tid: u64) -> u64 {
    TOPS.find(key(context, tid), PROBES)
        .map_or(0, |top| top.shared().load(Acquire))
}

/// Sets the value that goes with what a thread does from now on. False when too many contexts and threads have values.
pub fn set_current(context: u64, tid: u64, value: u64) -> bool {
    let Some((top, _)) = TOPS.find_or_insert(key(context, tid), PROBES) else {
        return false;
    };
    top.shared().store(value, Release);
    true
}

/// Forgets all values. In a forked child before its first session: the only thread that uses them.
pub fn begin_anew() {
    for top in TOPS.slots() {
        top.shared().store(0, Relaxed);
    }
    // SAFETY: no other thread is there, so none holds an entry.
    unsafe { TOPS.reset() };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tops_are_those_of_their_context_and_thread() {
        for tid in 1..1000 {
            assert!(set_current(1, tid, tid * 3));
        }
        assert!(set_current(2, 7, 5));
        assert!((1..1000).all(|tid| current(1, tid) == tid * 3));
        assert_eq!((current(2, 7), current(2, 8), current(3, 7)), (5, 0, 0));
        assert!(set_current(2, 7, 0));
        assert_eq!(current(2, 7), 0);
    }
}
