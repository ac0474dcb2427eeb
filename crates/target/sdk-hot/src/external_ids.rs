//! The current external correlation id of each thread, for each context of a tool. It is in a
//! lock-free table, which the application's threads read while one of their calls is reported to a
//! tool. The stacks of values belong to the tool-facing API.

use crate::state::STATE;
use std::sync::atomic::Ordering::{Acquire, Release};

/// How many slots are searched for a context and thread.
const PROBES: usize = 32;

fn key(context: u64, tid: u64) -> u64 {
    context << 32 | tid & 0xffff_ffff
}

/// Returns the thread's current value. Called on the application's threads, so it takes no lock.
pub fn current(context: u64, tid: u64) -> u64 {
    STATE
        .external_ids
        .find(key(context, tid), PROBES)
        .map_or(0, |top| top.shared().load(Acquire))
}

/// Sets the thread's current value. Returns false when too many contexts and threads have values.
pub fn set_current(context: u64, tid: u64, value: u64) -> bool {
    let Some((top, _)) = STATE.external_ids.find_or_insert(key(context, tid), PROBES) else {
        return false;
    };
    top.shared().store(value, Release);
    true
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
