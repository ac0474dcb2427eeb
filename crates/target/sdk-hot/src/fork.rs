//! State that a forked child replaces.

use std::cell::UnsafeCell;
use std::ops::Deref;

/// All state of a crate, in one static.
///
/// A child that was forked while this library was loaded in its parent has our memory as it was at
/// that moment: locks that were held by threads which do not exist in the child, and lists that
/// such a thread was changing. Before the child's own first session, each crate replaces its whole
/// state ([`ForkState::replace`]), so that a new piece of state cannot be forgotten. What the old
/// state pointed to is leaked, since its condition is unknown.
#[derive(Debug)]
pub struct ForkState<T>(UnsafeCell<T>);

// SAFETY: `get` gives out only shared references. `replace` is unsafe and requires a caller that is
// alone.
unsafe impl<T: Sync> Sync for ForkState<T> {}

impl<T> ForkState<T> {
    /// Creates the state that the library has when it is loaded.
    pub const fn new(value: T) -> ForkState<T> {
        ForkState(UnsafeCell::new(value))
    }

    /// Makes this state equal to `fresh`, except for what `keep` returns. `keep` is called with the
    /// old state, and its result is passed to `restore` together with the new one. Pages that have
    /// the right contents already are not written.
    ///
    /// # Safety
    /// No other thread uses this state: the caller is in a forked child that has had no session of
    /// its own. `fresh` is never used for anything else.
    pub unsafe fn replace<K>(
        &'static self,
        fresh: &'static ForkState<T>,
        keep: impl FnOnce(&T) -> K,
        restore: impl FnOnce(&T, K),
    ) {
        const PAGE: usize = 4096;
        let kept = keep(self);
        let (to, from) = (self.0.get().cast::<u8>(), fresh.0.get().cast::<u8>());
        for start in (0..size_of::<T>()).step_by(PAGE) {
            let len = PAGE.min(size_of::<T>() - start);
            // SAFETY: the addresses are inside both values, which are statics of the same type and
            // do not overlap. The bytes of a fresh value are a valid value, and the old one's
            // destructor does not run. Padding is compared and copied with whatever it contains.
            unsafe {
                let (to, from) = (to.add(start), from.add(start));
                if libc::memcmp(to.cast(), from.cast(), len) != 0 {
                    std::ptr::copy_nonoverlapping(from, to, len);
                }
            }
        }
        restore(self, kept);
    }
}

impl<T> Deref for ForkState<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: only `replace` writes, and its caller is alone.
        unsafe { &*self.0.get() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    struct Sample {
        kept: AtomicU64,
        list: Mutex<Vec<u32>>,
        large: [AtomicU64; 2048],
    }

    impl Sample {
        const fn new() -> Sample {
            Sample {
                kept: AtomicU64::new(0),
                list: Mutex::new(Vec::new()),
                large: [const { AtomicU64::new(0) }; 2048],
            }
        }
    }

    #[test]
    fn a_replaced_state_is_fresh_but_for_what_is_kept() {
        static STATE: ForkState<Sample> = ForkState::new(Sample::new());
        static FRESH: ForkState<Sample> = ForkState::new(Sample::new());
        STATE.kept.store(7, Relaxed);
        STATE.large[2047].store(9, Relaxed);
        STATE.list.lock().unwrap().push(1);
        // A thread that does not exist in the child held the lock.
        std::mem::forget(STATE.list.lock().unwrap());
        // SAFETY: no other thread uses the state.
        unsafe {
            STATE.replace(
                &FRESH,
                |old| old.kept.load(Relaxed),
                |new, kept| new.kept.store(kept, Relaxed),
            );
        }
        assert!(STATE.list.try_lock().unwrap().is_empty());
        assert_eq!(STATE.large[2047].load(Relaxed), 0);
        assert_eq!(STATE.kept.load(Relaxed), 7);
    }
}
