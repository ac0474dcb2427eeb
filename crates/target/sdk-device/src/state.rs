//! All state of this crate. [`ForkState`] says what a forked child does with it.
//!
//! Its bytes are all zero when it is fresh, so that neither copy of it costs memory until it is touched.

use crate::allocations::waiting::Allocations;
use crate::copies::entry::Copies;
use crate::queue::pool::Pool;
use crate::queue::queue_state::Queues;
use crate::queue::serialized::shared::Serialized;
use crate::queue::traces::shared::Traces;
use crate::queue::watch::Watchers;
use crate::queue::window::Windows;
use crate::sampling::kept::Sampling;
use crate::scratch::tables::Scratches;
use crate::symbols::executables::Symbols;
use midair_sdk_hot::fork::ForkState;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{Acquire, Release};

/// The state of this crate.
#[derive(Debug)]
pub(crate) struct State {
    /// Queues and the dispatches on them.
    pub queues: Queues,
    /// Our free signals.
    pub signals: Pool,
    /// Signals of the application that hold times.
    pub watchers: Watchers,
    /// Asynchronous copies.
    pub copies: Copies,
    /// Pools of memory, and allocations from them.
    pub allocations: Allocations,
    /// Scratch memory.
    pub scratches: Scratches,
    /// Executables and kernels.
    pub symbols: Symbols,
    /// Windows of hardware counters.
    pub windows: Windows,
    /// Thread traces.
    pub traces: Traces,
    /// Gates of queues whose dispatches have the device to themselves.
    pub serialized: Serialized,
    /// Samples of program counters.
    pub sampling: Sampling,
}

impl State {
    const fn new() -> State {
        State {
            queues: Queues::new(),
            signals: Pool::new(),
            watchers: Watchers::new(),
            copies: Copies::new(),
            allocations: Allocations::new(),
            scratches: Scratches::new(),
            symbols: Symbols::new(),
            windows: Windows::new(),
            traces: Traces::new(),
            serialized: Serialized::new(),
            sampling: Sampling::new(),
        }
    }
}

pub(crate) static STATE: ForkState<State> = ForkState::new(State::new());
static FRESH: ForkState<State> = ForkState::new(State::new());

/// Replaces the state in a forked child. It keeps the blocks of queue states, which the next
/// session clears, and the entries that the runtime's table for tools held before ours.
///
/// # Safety
/// To be called in a forked child that has had no session of its own, while no other thread uses
/// the state.
pub unsafe fn reset_after_fork() {
    // SAFETY: the caller promises that no other thread uses the state, and `FRESH` is used for
    // nothing else.
    unsafe { reset(&STATE, &FRESH) };
}

/// # Safety
/// The same as for [`ForkState::replace`].
unsafe fn reset(state: &'static ForkState<State>, fresh: &'static ForkState<State>) {
    // SAFETY: the caller's promise.
    unsafe {
        state.replace(
            fresh,
            |old| {
                let queues = &old.queues;
                (
                    values(&queues.blocks),
                    queues.used.load(Acquire),
                    queues.ready.load(Acquire),
                    values(&old.scratches.originals),
                )
            },
            |new, (blocks, used, ready, originals)| {
                store(&new.queues.blocks, blocks);
                new.queues.used.store(used, Release);
                new.queues.ready.store(ready, Release);
                store(&new.scratches.originals, originals);
            },
        );
    }
}

fn values<T, const N: usize>(words: &[AtomicPtr<T>; N]) -> [*mut T; N] {
    words.each_ref().map(|word| word.load(Acquire))
}

fn store<T, const N: usize>(words: &[AtomicPtr<T>; N], values: [*mut T; N]) {
    for (word, value) in words.iter().zip(values) {
        word.store(value, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn a_fresh_state_is_all_zero() {
        let bytes = std::ptr::from_ref::<State>(&FRESH).cast::<u8>();
        // SAFETY: the bytes are inside the static, and its padding lies in a zeroed section.
        let first =
            (0..size_of::<State>()).find(|&at| unsafe { bytes.add(at).read_volatile() } != 0);
        assert_eq!(first, None);
    }

    #[test]
    fn a_forked_child_keeps_blocks_and_originals_only() {
        static MINE: ForkState<State> = ForkState::new(State::new());
        static UNUSED: ForkState<State> = ForkState::new(State::new());
        let queues = &MINE.queues;
        let mut block = 7_u64;
        let block = (&raw mut block).cast();
        queues.blocks[3].store(block, Relaxed);
        queues.used.store(5, Relaxed);
        queues.ready.store(32, Relaxed);
        queues.learning.store(1, Relaxed);
        MINE.scratches.originals[5].store(block.cast(), Relaxed);
        MINE.signals.put(crate::layout::Signal(9)).unwrap();
        MINE.copies.count.store(2, Relaxed);
        MINE.watchers
            .watch(8, crate::queue::watch::Watcher::Copy(1))
            .unwrap();
        // A thread that the fork lost held the lock.
        std::mem::forget(MINE.symbols.known.lock().unwrap());
        // SAFETY: no other thread uses it.
        unsafe { reset(&MINE, &UNUSED) };
        assert_eq!(queues.blocks[3].load(Relaxed), block);
        assert_eq!(queues.used.load(Relaxed), 5);
        assert_eq!(queues.ready.load(Relaxed), 32);
        assert_eq!(queues.learning.load(Relaxed), 0);
        assert_eq!(MINE.scratches.originals[5].load(Relaxed), block.cast());
        assert!(MINE.signals.take().is_none());
        assert_eq!(MINE.copies.count.load(Relaxed), 0);
        assert_eq!(MINE.watchers.unwatch(8), None);
        assert!(MINE.symbols.known.try_lock().is_ok());
    }
}
