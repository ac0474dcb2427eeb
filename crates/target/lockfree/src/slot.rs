//! An entry of a table, and the exclusive right to change it.

use crate::atomic_enum::{AtomicEnum, WordEnum};
use crate::key::AtomicKey;
use crate::sync::Ordering::{self, AcqRel, Acquire, Relaxed, Release};
use crate::sync::{UnsafeCell, const_unless_loom};
use core::fmt::{Debug, Formatter};
use core::mem::ManuallyDrop;

/// The states that every slot has. The user defines the others: they are the states of an entry
/// that no thread holds.
pub trait SlotState: WordEnum {
    /// The slot belongs to no thread. The state's word is 0.
    const FREE: Self;
    /// The slot belongs to one thread alone, which fills the entry, reads it or removes it.
    const HELD: Self;
}

/// The word that says who owns a slot: an [`AtomicEnum`] or an [`AtomicKey`].
pub trait SlotWord {
    /// The values of the word.
    type State: Copy + PartialEq + Debug;
    /// See [`SlotState::FREE`].
    const FREE: Self::State;
    /// See [`SlotState::HELD`].
    const HELD: Self::State;
    /// Loads the state, as an atomic does.
    fn load(&self, order: Ordering) -> Self::State;
    /// Stores a state, as an atomic does.
    fn store(&self, state: Self::State, order: Ordering);
    /// Exchanges the state if it is the expected one, as an atomic does.
    ///
    /// # Errors
    /// The state that is there instead.
    fn compare_exchange(
        &self,
        current: Self::State,
        new: Self::State,
        success: Ordering,
        failure: Ordering,
    ) -> Result<Self::State, Self::State>;
}

impl<E: SlotState> SlotWord for AtomicEnum<E> {
    type State = E;
    const FREE: E = E::FREE;
    const HELD: E = E::HELD;

    #[inline]
    fn load(&self, order: Ordering) -> E {
        AtomicEnum::load(self, order)
    }
    #[inline]
    fn store(&self, state: E, order: Ordering) {
        AtomicEnum::store(self, state, order);
    }
    #[inline]
    fn compare_exchange(
        &self,
        current: E,
        new: E,
        success: Ordering,
        failure: Ordering,
    ) -> Result<E, E> {
        AtomicEnum::compare_exchange(self, current, new, success, failure)
    }
}

/// An entry: its word, a part that everybody may look at (`S`, made of atomics), and a part that
/// only its holder accesses (`P`).
///
/// ```text
/// FREE --claim--> HELD --publish--> a state of the user's (or a key) --hold--> HELD --free--> FREE
/// ```
///
/// Memory orders: a thread takes hold of a slot by an acquiring compare-and-exchange, and lets go
/// of it by a releasing store. So each holder sees everything that the holders before it have
/// written.
#[repr(C)]
pub struct Slot<W, S = (), P = ()> {
    word: W,
    shared: S,
    private: UnsafeCell<P>,
}

// SAFETY: `private` is accessed only through a `Held`, and there is at most one `Held` of a slot.
// The thread whose compare-and-exchange put HELD into the word makes it. Nothing else stores HELD,
// and the `Held` stores another state when it ends. Different threads may hold the slot one after
// the other, hence `P: Send`.
unsafe impl<W: Sync, S: Sync, P: Send> Sync for Slot<W, S, P> {}

impl<W, S, P> Slot<W, S, P> {
    const_unless_loom! {
        /// Makes a slot with a new word, which is free, and the initial values of its parts.
        pub fn new(word: W, shared: S, private: P) -> Slot<W, S, P> {
            Slot { word, shared, private: UnsafeCell::new(private) }
        }
    }

    /// Returns the part that everybody may look at. Its owner may change at any moment.
    #[inline]
    pub fn shared(&self) -> &S {
        &self.shared
    }
}

impl<W, S> Slot<W, S> {
    /// Returns the word, for transitions with memory orders of the user's own. Only for slots
    /// without a private part.
    #[inline]
    pub fn word(&self) -> &W {
        &self.word
    }
}

impl<W: SlotWord, S, P> Slot<W, S, P> {
    /// Returns the state. What the slot contained when that state was stored is visible.
    #[inline]
    pub fn state(&self) -> W::State {
        self.word.load(Acquire)
    }

    /// Takes hold of the slot if it is in the state `from`. Returns None when it is not, or when
    /// another thread was faster.
    #[inline]
    pub fn hold(&self, from: W::State) -> Option<Held<'_, W, S, P>> {
        // A transition from HELD to HELD would make a second holder.
        if from == W::HELD {
            return None;
        }
        self.word
            .compare_exchange(from, W::HELD, AcqRel, Relaxed)
            .is_ok()
            // The `Held` is made lazily: one that is made and dropped would store to the word.
            .then(|| Held { slot: self, from })
    }

    /// Takes hold of the slot if it is free. Loads the word first, because a compare-and-exchange
    /// that fails would take the cache line away from the thread that uses the slot.
    #[inline]
    pub fn claim(&self) -> Option<Held<'_, W, S, P>> {
        (self.word.load(Relaxed) == W::FREE)
            .then(|| self.hold(W::FREE))
            .flatten()
    }

    /// Frees the slot, unless a thread holds it. Returns whether it is free now.
    pub(crate) fn clear(&self) -> bool {
        loop {
            let state = self.word.load(Relaxed);
            if state == W::FREE {
                return true;
            }
            if state == W::HELD {
                return false;
            }
            if let Some(held) = self.hold(state) {
                held.free();
                return true;
            }
        }
    }

    /// Makes the slot free, no matter who holds it.
    ///
    /// # Safety
    /// No [`Held`] of this slot is used any more. That is so in a forked child, where the threads
    /// of the parent do not exist.
    pub(crate) unsafe fn reset(&self) {
        self.word.store(W::FREE, Release);
    }
}

impl<S, P> Slot<AtomicKey, S, P> {
    /// Gives a free slot a key. Costs one load where the slot has a key already.
    ///
    /// # Errors
    /// The key (or mark) that is there instead.
    #[inline]
    pub(crate) fn insert(&self, key: u64) -> Result<(), u64> {
        match self.state() {
            AtomicKey::FREE => self
                .word
                .compare_exchange(AtomicKey::FREE, key, AcqRel, Acquire)
                .map(|_| ()),
            other => Err(other),
        }
    }
}

impl<W: SlotWord, S: Debug, P> Debug for Slot<W, S, P> {
    fn fmt(&self, f: &mut Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Slot")
            .field("state", &self.word.load(Relaxed))
            .field("shared", &self.shared)
            .finish_non_exhaustive()
    }
}

/// A slot that the caller alone may change. Dropping it gives the slot its earlier state (a claimed
/// slot is free again). [`publish`](Held::publish) and [`free`](Held::free) give it another.
///
/// A thread that is cancelled runs the drop. A thread that is killed in between leaves the slot
/// held. The slot is then lost until the table is reset, but no thread waits for it.
#[must_use = "dropped, it undoes the claim"]
pub struct Held<'a, W: SlotWord, S = (), P = ()> {
    slot: &'a Slot<W, S, P>,
    from: W::State,
}

impl<'a, W: SlotWord, S, P> Held<'a, W, S, P> {
    /// Returns the slot's shared part.
    #[inline]
    pub fn shared(&self) -> &'a S {
        &self.slot.shared
    }

    /// Calls `f` with the private part.
    #[inline]
    pub fn with<R>(&mut self, f: impl FnOnce(&mut P) -> R) -> R {
        self.slot.private.with_mut(|private| {
            // SAFETY: this is the only `Held` of the slot (see `Sync` above), and it is borrowed
            // mutably.
            f(unsafe { &mut *private })
        })
    }

    /// Lets go of the slot in the state `state`. Whoever sees that state sees what was written
    /// here.
    #[inline]
    pub fn publish(self, state: W::State) {
        ManuallyDrop::new(self).slot.word.store(state, Release);
    }

    /// Lets go of the slot and makes it free.
    #[inline]
    pub fn free(self) {
        self.publish(W::FREE);
    }
}

impl<W: SlotWord, S, P> Drop for Held<'_, W, S, P> {
    #[inline]
    fn drop(&mut self) {
        self.slot.word.store(self.from, Release);
    }
}

impl<W: SlotWord, S: Debug, P> Debug for Held<'_, W, S, P> {
    fn fmt(&self, f: &mut Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Held")
            .field("slot", &self.slot)
            .field("from", &self.from)
            .finish()
    }
}
