//! Signals of ours: made and put back by our own thread, taken by the application's threads without a lock.
//!
//! A bounded queue for many producers and consumers with a sequence number per cell (Dmitry Vyukov's design, in our words): a cell
//! whose sequence equals the position may be filled, one that is a step ahead may be emptied.

use crate::layout::Signal;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, AtomicUsize};

const CAPACITY: usize = 1 << 16;

struct Cell {
    sequence: AtomicUsize,
    signal: AtomicU64,
}

/// Free signals.
pub struct Pool {
    cells: [Cell; CAPACITY],
    head: AtomicUsize,
    apart: [u64; 16],
    tail: AtomicUsize,
}

/// The pool. Zero-initialised statics cost no memory until they are touched.
pub static POOL: Pool = Pool::new();

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pool({} free, {:?})", self.len(), self.apart.first())
    }
}

impl Pool {
    const fn new() -> Pool {
        Pool {
            // A cell's sequence is kept relative to its index, so that all-zero means empty.
            cells: [const {
                Cell {
                    sequence: AtomicUsize::new(0),
                    signal: AtomicU64::new(0),
                }
            }; CAPACITY],
            head: AtomicUsize::new(0),
            apart: [0; 16],
            tail: AtomicUsize::new(0),
        }
    }

    fn cell(&self, position: usize) -> (&Cell, usize) {
        let index = position % CAPACITY;
        #[expect(
            clippy::indexing_slicing,
            reason = "the index is reduced modulo the length"
        )]
        (&self.cells[index], index)
    }

    /// Free signals, about.
    pub fn len(&self) -> usize {
        self.tail
            .load(Relaxed)
            .wrapping_sub(self.head.load(Relaxed))
            .min(CAPACITY)
    }

    /// Whether none is free, about.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes one.
    #[inline]
    pub fn take(&self) -> Option<Signal> {
        let mut position = self.head.load(Relaxed);
        loop {
            let (cell, index) = self.cell(position);
            let sequence = cell.sequence.load(Acquire).wrapping_add(index);
            let ahead = sequence.wrapping_sub(position.wrapping_add(1)) as isize;
            if ahead == 0 {
                match self.head.compare_exchange_weak(
                    position,
                    position.wrapping_add(1),
                    Relaxed,
                    Relaxed,
                ) {
                    Ok(_) => {
                        let signal = Signal(cell.signal.load(Relaxed));
                        cell.sequence
                            .store(position.wrapping_add(CAPACITY).wrapping_sub(index), Release);
                        return Some(signal);
                    }
                    Err(now) => position = now,
                }
            } else if ahead < 0 {
                return None;
            } else {
                position = self.head.load(Relaxed);
            }
        }
    }

    /// See [`crate::forked`]: signals of the parent's runtime are not touched.
    pub fn begin_anew(&self) {
        if self.tail.load(Relaxed) == 0 {
            return;
        }
        for cell in &self.cells {
            cell.sequence.store(0, Relaxed);
        }
        self.head.store(0, Relaxed);
        self.tail.store(0, Release);
    }

    /// Puts one in; gives it back when the pool is full, or looks so because a taker stands still in the middle of taking.
    pub fn put(&self, signal: Signal) -> Result<(), Signal> {
        let mut position = self.tail.load(Relaxed);
        loop {
            let (cell, index) = self.cell(position);
            let sequence = cell.sequence.load(Acquire).wrapping_add(index);
            let ahead = sequence.wrapping_sub(position) as isize;
            if ahead == 0 {
                match self.tail.compare_exchange_weak(
                    position,
                    position.wrapping_add(1),
                    Relaxed,
                    Relaxed,
                ) {
                    Ok(_) => {
                        cell.signal.store(signal.0, Relaxed);
                        cell.sequence
                            .store(position.wrapping_add(1).wrapping_sub(index), Release);
                        return Ok(());
                    }
                    Err(now) => position = now,
                }
            } else if ahead < 0 {
                return Err(signal);
            } else {
                position = self.tail.load(Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

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
                        // A taker that loses its processor in the middle of `take` makes the pool look full a whole lap later.
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
