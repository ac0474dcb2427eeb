//! The external correlation id that goes with what a thread does now, for each context of a tool: a table without locks, which
//! the application's threads read while a tool is told of their calls. The stacks of values are the tool-facing API's.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// Contexts and threads with values of their own; a power of two.
const PLACES: usize = 4096;
/// How far from its own place an entry may be.
const PROBES: usize = 32;

/// A top of a stack. A key is never taken out; the value of an empty stack is 0.
#[derive(Debug)]
struct Top {
    key: AtomicU64,
    value: AtomicU64,
}

static TOPS: [Top; PLACES] = [const {
    Top {
        key: AtomicU64::new(0),
        value: AtomicU64::new(0),
    }
}; PLACES];

fn key(context: u64, tid: u64) -> u64 {
    context << 32 | tid & 0xffff_ffff
}

fn places(key: u64) -> impl Iterator<Item = &'static Top> {
    let first = (key ^ key >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    (0..PROBES).filter_map(move |step| TOPS.get((first as usize + step) % PLACES))
}

/// The value that goes with what a thread does now. For the application's threads: no lock.
pub fn current(context: u64, tid: u64) -> u64 {
    let key = key(context, tid);
    for top in places(key) {
        match top.key.load(Acquire) {
            0 => return 0,
            there if there == key => return top.value.load(Acquire),
            _ => {}
        }
    }
    0
}

/// Sets the value that goes with what a thread does from now on. False when too many contexts and threads have values.
pub fn set_current(context: u64, tid: u64, value: u64) -> bool {
    let key = key(context, tid);
    let place = places(key).find(|top| {
        let there = top.key.load(Acquire);
        there == key
            || there == 0
                && match top.key.compare_exchange(0, key, AcqRel, Acquire) {
                    Ok(_) => true,
                    Err(other) => other == key,
                }
    });
    if let Some(place) = place {
        place.value.store(value, Release);
    }
    place.is_some()
}

/// Forgets all values. In a forked child before its first session: the only thread that uses them.
pub fn begin_anew() {
    for top in &TOPS {
        top.value.store(0, Relaxed);
        top.key.store(0, Release);
    }
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
