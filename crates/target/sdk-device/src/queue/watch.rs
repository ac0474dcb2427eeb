//! Signals of the application that hold times which we have not read yet.
//!
//! We never come between a signal and the code that waits for it. So if a dispatch or a copy has a
//! signal of the application, the worker thread reads its times when the signal has fired, or a
//! hook reads them at the last moment: when the application stores to the signal, destroys it, or
//! hands it to the next packet. A look-up touches one or two cache lines. Keys stay for the
//! session, since applications reuse their signals. If a session has more signals than fit, what has
//! one of the rest gets no times: nothing would tell us before the application destroys it.

use midair_lockfree::{AtomicKey, Slot, SlotTable};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};

const CAPACITY: usize = 1 << 14;
const PROBES: usize = 16;

/// The dispatch or the copy that watches a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watcher {
    /// The address of a [`super::flight::Flight`].
    Flight(usize),
    /// The index of a copy.
    Copy(usize),
}

impl Watcher {
    fn pack(self) -> usize {
        match self {
            Watcher::Flight(address) => address,
            Watcher::Copy(index) => (index << 1) | 1,
        }
    }
    fn unpack(word: usize) -> Option<Watcher> {
        match word {
            0 => None,
            copy if copy & 1 == 1 => Some(Watcher::Copy(copy >> 1)),
            flight => Some(Watcher::Flight(flight)),
        }
    }
}

/// There is no room for a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Full;

/// The watched signals of a session.
#[derive(Debug)]
pub(crate) struct Watchers {
    /// The packed watcher of each signal: a flight's address, or a copy's index with the lowest bit
    /// set; 0 = none.
    table: SlotTable<AtomicKey, CAPACITY, AtomicUsize>,
    /// The number of signals in the table.
    count: AtomicUsize,
}

impl Watchers {
    pub(crate) const fn new() -> Watchers {
        Watchers {
            table: SlotTable::new(
                [const { Slot::new(AtomicKey::new(), AtomicUsize::new(0), ()) }; CAPACITY],
            ),
            count: AtomicUsize::new(0),
        }
    }

    /// Watches `signal` for `watcher`. Returns the previous watcher.
    pub(crate) fn watch(&self, signal: u64, watcher: Watcher) -> Result<Option<Watcher>, Full> {
        let found = self.table.find_or_insert(signal, PROBES);
        let (entry, new) = found.ok_or(Full)?;
        if new {
            self.count.fetch_add(1, Relaxed);
        }
        Ok(Watcher::unpack(entry.shared().swap(watcher.pack(), AcqRel)))
    }

    /// Ends the watch and returns the watcher. Cheap if nothing is watched.
    #[inline]
    pub(crate) fn unwatch(&self, signal: u64) -> Option<Watcher> {
        if self.count.load(Relaxed) == 0 {
            return None;
        }
        let entry = self.table.find(signal, PROBES)?;
        Watcher::unpack(entry.shared().swap(0, AcqRel))
    }

    /// Ends the watch of `watcher` only.
    pub(crate) fn release(&self, signal: u64, watcher: Watcher) {
        if let Some(entry) = self.table.find(signal, PROBES) {
            let _ = entry
                .shared()
                .compare_exchange(watcher.pack(), 0, AcqRel, Relaxed);
        }
    }

    /// Forgets everything. Only while no session is on.
    pub(crate) fn clear(&self) {
        if self.count.swap(0, Relaxed) != 0 {
            for entry in self.table.slots() {
                entry.shared().store(0, Relaxed);
            }
            self.table.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_watcher_is_told_once() {
        static WATCHERS: Watchers = Watchers::new();
        assert_eq!(WATCHERS.watch(0x1000, Watcher::Flight(64)), Ok(None));
        assert_eq!(
            WATCHERS.watch(0x1000, Watcher::Copy(3)),
            Ok(Some(Watcher::Flight(64)))
        );
        WATCHERS.release(0x1000, Watcher::Flight(64));
        assert_eq!(WATCHERS.unwatch(0x1000), Some(Watcher::Copy(3)));
        assert_eq!(WATCHERS.unwatch(0x1000), None);
        assert_eq!(WATCHERS.unwatch(0x2000), None);
        WATCHERS.clear();
    }

    #[test]
    fn a_full_table_says_so() {
        static WATCHERS: Watchers = Watchers::new();
        let mut signals = (1..=2 * CAPACITY as u64).map(|number| number * 0x80);
        let refused = signals.find(|signal| WATCHERS.watch(*signal, Watcher::Copy(1)) == Err(Full));
        let refused = refused.expect("more signals than places");
        assert_eq!(WATCHERS.unwatch(refused), None);
        assert_eq!(
            WATCHERS.watch(0x80, Watcher::Copy(2)),
            Ok(Some(Watcher::Copy(1)))
        );
    }
}
