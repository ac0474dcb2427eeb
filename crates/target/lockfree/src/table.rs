//! A bounded table of slots.

use crate::key::AtomicKey;
use crate::slot::{Held, Slot, SlotWord};
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::sync::{AtomicUsize, const_unless_loom};
use core::fmt::{Debug, Formatter};

/// A table of `N` slots that threads claim and release while others scan them. See [`Slot`] for the
/// parameters.
///
/// Entries with a state word are claimed anywhere, and scanned up to the highest that was ever
/// claimed. Entries with a key are found by probing a bounded number of slots from the key's
/// [`home`](SlotTable::home) on (or, where keys are consecutive numbers, from the slot of that
/// number). `N` is a power of two. Where all-zero is a value of `S` and `P`, a table in zeroed
/// memory is an empty one.
#[repr(C)]
pub struct SlotTable<W, const N: usize, S = (), P = ()> {
    slots: [Slot<W, S, P>; N],
    /// One past the highest slot that was ever claimed.
    high: AtomicUsize,
}

impl<W, const N: usize, S, P> SlotTable<W, N, S, P> {
    const_unless_loom! {
        /// Makes a table of these slots, which must be free.
        pub fn new(slots: [Slot<W, S, P>; N]) -> SlotTable<W, N, S, P> {
            SlotTable { slots, high: AtomicUsize::new(0) }
        }
    }

    /// Returns the slot with this index.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&Slot<W, S, P>> {
        self.slots.get(index)
    }

    /// Returns every slot.
    pub fn slots(&self) -> &[Slot<W, S, P>] {
        &self.slots
    }

    /// Returns indices and slots of a probe sequence: `most` slots from `first` on, modulo the
    /// size.
    #[inline]
    fn probe(
        &self,
        first: usize,
        most: usize,
    ) -> impl Iterator<Item = (usize, &Slot<W, S, P>)> + use<'_, W, N, S, P> {
        (0..most.min(N)).filter_map(move |step| {
            let index = first.wrapping_add(step) % N;
            Some((index, self.slots.get(index)?))
        })
    }
}

impl<W: SlotWord, const N: usize, S, P> SlotTable<W, N, S, P> {
    /// Claims a free slot among the `most` from `first` on, and returns its index, too. None when
    /// all of them are in use.
    #[inline]
    pub fn claim_from(&self, first: usize, most: usize) -> Option<(usize, Held<'_, W, S, P>)> {
        let claimed = self
            .probe(first, most)
            .find_map(|(index, slot)| Some((index, slot.claim()?)))?;
        // The mark is raised before the entry is published, so that a scan that starts later covers
        // the entry. Where the mark is high enough already, whoever sees the published entry sees
        // that mark, too.
        if self.high.load(Relaxed) <= claimed.0 {
            self.high.fetch_max(claimed.0 + 1, AcqRel);
        }
        Some(claimed)
    }

    /// Claims the first slot that is free.
    #[inline]
    pub fn claim(&self) -> Option<(usize, Held<'_, W, S, P>)> {
        self.claim_from(0, N)
    }

    /// Returns the slots that were ever claimed, with their indices. Entries that are published
    /// before the call are among them.
    #[inline]
    pub fn used(&self) -> impl Iterator<Item = (usize, &Slot<W, S, P>)> {
        self.slots.iter().enumerate().take(self.high.load(Acquire))
    }

    /// Frees every slot that no thread holds.
    pub fn clear(&self) {
        for slot in &self.slots {
            slot.clear();
        }
    }

    /// Frees every slot.
    ///
    /// # Safety
    /// No [`Held`] of this table is used any more. That is so in a forked child, where the threads
    /// of the parent do not exist.
    pub unsafe fn reset(&self) {
        for slot in &self.slots {
            // SAFETY: the caller promises that no `Held` of this table is used any more.
            unsafe { slot.reset() };
        }
        self.high.store(0, Release);
    }
}

impl<const N: usize, S, P> SlotTable<AtomicKey, N, S, P> {
    /// Returns where the search for `key` starts: a multiplicative hash, of which the high bits are
    /// used.
    #[inline]
    pub fn home(key: u64) -> usize {
        const { assert!(N.is_power_of_two() && N > 1) }
        (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - N.trailing_zeros())) as usize
    }

    /// Returns the slot of `key` among the `most` slots from its home on. The search ends at a free
    /// slot. So use it only where entries are removed by [`remove`](Self::remove), or not at all.
    #[inline]
    pub fn find(&self, key: u64, most: usize) -> Option<&Slot<AtomicKey, S, P>> {
        if !AtomicKey::is_key(key) {
            return None;
        }
        for (_, slot) in self.probe(Self::home(key), most) {
            match slot.state() {
                AtomicKey::FREE => return None,
                known if known == key => return Some(slot),
                _ => {}
            }
        }
        None
    }

    /// Returns the slot of `key`, or gives the key the first free slot, and says whether the entry
    /// is new. None when the `most` slots from its home on have other keys, or the number is not a
    /// key. A new entry is visible to others immediately, with the shared part as the slot's last
    /// owner left it.
    #[inline]
    pub fn find_or_insert(&self, key: u64, most: usize) -> Option<(&Slot<AtomicKey, S, P>, bool)> {
        if !AtomicKey::is_key(key) {
            return None;
        }
        for (_, slot) in self.probe(Self::home(key), most) {
            match slot.insert(key) {
                Ok(()) => return Some((slot, true)),
                Err(known) if known == key => return Some((slot, false)),
                Err(_) => {}
            }
        }
        None
    }

    /// Claims a slot for a key that is not in the table: a free one, or one whose entry was
    /// removed. Publish it with the key. None when the `most` slots from its home on are in use, or
    /// the number is not a key.
    #[inline]
    pub fn claim_key(&self, key: u64, most: usize) -> Option<Held<'_, AtomicKey, S, P>> {
        if !AtomicKey::is_key(key) {
            return None;
        }
        self.claim_where(Self::home(key), most, |_| false)
    }

    /// Claims a slot among the `most` from `first` on: a free one, one whose entry was removed, or
    /// one whose entry is `stale`. If the claim of a stale entry is dropped, that entry stays in
    /// the table.
    #[inline]
    pub fn claim_where(
        &self,
        first: usize,
        most: usize,
        stale: impl Fn(&S) -> bool,
    ) -> Option<Held<'_, AtomicKey, S, P>> {
        self.probe(first, most).find_map(|(_, slot)| {
            let state = slot.state();
            let is_free = state == AtomicKey::FREE || state == AtomicKey::REMOVED;
            (is_free || state != AtomicKey::HELD && stale(slot.shared()))
                .then(|| slot.hold(state))
                .flatten()
        })
    }

    /// Takes hold of the entry of `key`, even if it lies behind free slots. None when it is not
    /// there, or is held.
    #[inline]
    pub fn hold_key(&self, key: u64, most: usize) -> Option<Held<'_, AtomicKey, S, P>> {
        self.hold_where(key, Self::home(key), most, |_| true)
    }

    /// Does the same for an entry that is `wanted`, among the `most` slots from `first` on.
    #[inline]
    pub fn hold_where(
        &self,
        key: u64,
        first: usize,
        most: usize,
        wanted: impl Fn(&S) -> bool,
    ) -> Option<Held<'_, AtomicKey, S, P>> {
        if !AtomicKey::is_key(key) {
            return None;
        }
        self.probe(first, most).find_map(|(_, slot)| {
            (slot.state() == key && wanted(slot.shared()))
                .then(|| slot.hold(key))
                .flatten()
        })
    }

    /// Removes the entry of `key`, if it is there and not held. Look-ups still find what lies
    /// behind it.
    pub fn remove(&self, key: u64, most: usize) {
        if let Some(slot) = self.find(key, most)
            && let Some(held) = slot.hold(key)
        {
            held.publish(AtomicKey::REMOVED);
        }
    }
}

impl<W: SlotWord, const N: usize, S: Debug, P> Debug for SlotTable<W, N, S, P> {
    fn fmt(&self, f: &mut Formatter<'_>) -> core::fmt::Result {
        f.debug_list()
            .entries(self.used().map(|(_, slot)| slot))
            .finish()
    }
}
