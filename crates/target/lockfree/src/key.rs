//! The state word of an entry that is found by its key.

use crate::slot::SlotWord;
use crate::sync::{AtomicU64, Ordering, const_unless_loom};

/// A slot's key: an address, an id or a handle. Three values are not keys: [`FREE`](SlotWord::FREE)
/// (0), [`HELD`](SlotWord::HELD) and [`AtomicKey::REMOVED`]. The latter two are the two highest
/// numbers.
#[derive(Debug)]
#[repr(transparent)]
pub struct AtomicKey(AtomicU64);

impl AtomicKey {
    /// Marks an entry that was removed from a probe sequence. Look-ups continue behind it, and a
    /// new key may take its slot.
    pub const REMOVED: u64 = u64::MAX - 1;

    const_unless_loom! {
        /// Makes a key word that is free.
        pub fn new() -> AtomicKey {
            AtomicKey(AtomicU64::new(0))
        }
    }

    /// Whether a number can be a key.
    #[inline]
    pub fn is_key(number: u64) -> bool {
        number != Self::FREE && number < Self::REMOVED
    }
}

impl Default for AtomicKey {
    fn default() -> AtomicKey {
        AtomicKey::new()
    }
}

impl SlotWord for AtomicKey {
    type State = u64;
    const FREE: u64 = 0;
    const HELD: u64 = u64::MAX;

    #[inline]
    fn load(&self, order: Ordering) -> u64 {
        self.0.load(order)
    }
    #[inline]
    fn store(&self, state: u64, order: Ordering) {
        self.0.store(state, order);
    }
    #[inline]
    fn compare_exchange(
        &self,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        self.0.compare_exchange(current, new, success, failure)
    }
}
