//! Our signals: created and destroyed by the worker thread, taken by the application's threads without a lock.

use crate::layout::Signal;
use midair_lockfree::{Cell, WordQueue};

/// A power of two, above the number of signals that we ever create.
const CAPACITY: usize = 1 << 16;

/// The free signals.
#[derive(Debug)]
pub struct Pool(WordQueue<CAPACITY>);

impl Pool {
    pub(crate) const fn new() -> Pool {
        Pool(WordQueue::new([const { Cell::new() }; CAPACITY]))
    }

    /// Returns the approximate number of free signals.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether no signal is free, approximately.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes a free signal.
    #[inline]
    pub fn take(&self) -> Option<Signal> {
        self.0.take().map(Signal)
    }

    /// Puts a signal back.
    ///
    /// # Errors
    /// Returns the signal if the pool is full, or looks full because a thread is stopped in the
    /// middle of taking a signal.
    pub fn put(&self, signal: Signal) -> Result<(), Signal> {
        self.0.put(signal.0).map_err(Signal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::Ordering::{Acquire, Release};

    #[test]
    fn every_signal_is_held_by_one_at_a_time() {
        static MINE: Pool = Pool::new();
        static HELD: [AtomicBool; 65] = [const { AtomicBool::new(false) }; 65];
        for handle in 1..=64 {
            MINE.put(Signal(handle)).unwrap();
        }
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..100_000 {
                        let Some(signal) = MINE.take() else { continue };
                        assert!(!HELD[signal.0 as usize].swap(true, Acquire));
                        HELD[signal.0 as usize].store(false, Release);
                        // A taker that loses its processor in the middle of `take` makes the pool
                        // look full a whole lap later.
                        while MINE.put(signal).is_err() {
                            std::thread::yield_now();
                        }
                    }
                });
            }
        });
        assert_eq!(MINE.len(), 64);
        assert_eq!(std::iter::from_fn(|| MINE.take()).count(), 64);
        assert!(MINE.take().is_none());
    }

    #[test]
    fn a_full_pool_gives_the_signal_back() {
        static MINE: Pool = Pool::new();
        for handle in 0..CAPACITY as u64 {
            MINE.put(Signal(handle)).unwrap();
        }
        assert_eq!(MINE.put(Signal(7)), Err(Signal(7)));
    }
}
