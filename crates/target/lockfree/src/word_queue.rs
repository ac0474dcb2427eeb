//! A bounded queue of words for many producers and many consumers.

use crate::sync::Ordering::{Acquire, Relaxed, Release};
use crate::sync::{AtomicU64, AtomicUsize, const_unless_loom, pause};
use core::fmt::{Debug, Formatter};

/// A cell of the queue. Its sequence is stored relative to its index, so that zeroed memory is an
/// empty queue.
#[derive(Debug)]
pub struct Cell {
    sequence: AtomicUsize,
    word: AtomicU64,
}

impl Cell {
    const_unless_loom! {
        /// Makes an empty cell.
        pub fn new() -> Cell {
            Cell { sequence: AtomicUsize::new(0), word: AtomicU64::new(0) }
        }
    }
}

impl Default for Cell {
    fn default() -> Cell {
        Cell::new()
    }
}

/// A queue of at most `N` words, first in, first out. `N` is a power of two, and at least two.
///
/// This is Dmitry Vyukov's design: each cell has a sequence number. A cell whose sequence equals
/// the position may be filled. A cell whose sequence is one ahead may be emptied. A thread claims
/// its position by one compare-and-exchange, and no thread waits for another. If a thread is
/// stopped in the middle of [`take`](WordQueue::take), its cell makes the queue look full one lap
/// later.
///
/// Memory orders: the releasing store of the sequence publishes the word, and gives the cell back.
/// The acquiring load sees both.
pub struct WordQueue<const N: usize> {
    cells: [Cell; N],
    head: AtomicUsize,
    /// Keeps takers and putters in different cache lines.
    _apart: [u64; 16],
    tail: AtomicUsize,
}

impl<const N: usize> WordQueue<N> {
    const_unless_loom! {
        /// Makes a queue of these cells, which must be new.
        pub fn new(cells: [Cell; N]) -> WordQueue<N> {
            WordQueue {
                cells,
                head: AtomicUsize::new(0),
                _apart: [0; 16],
                tail: AtomicUsize::new(0),
            }
        }
    }

    /// Returns the cell of a position, and its index.
    #[inline]
    fn cell(&self, position: usize) -> (&Cell, usize) {
        const { assert!(N.is_power_of_two() && N > 1) }
        let index = position % N;
        #[expect(
            clippy::indexing_slicing,
            reason = "the index is reduced modulo the length"
        )]
        (&self.cells[index], index)
    }

    /// Returns the approximate number of words in the queue.
    pub fn len(&self) -> usize {
        self.tail
            .load(Relaxed)
            .wrapping_sub(self.head.load(Relaxed))
            .min(N)
    }

    /// Returns whether it is empty, approximately.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes the oldest word, if there is one.
    #[inline]
    pub fn take(&self) -> Option<u64> {
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
                        let word = cell.word.load(Relaxed);
                        cell.sequence
                            .store(position.wrapping_add(N).wrapping_sub(index), Release);
                        return Some(word);
                    }
                    Err(now) => position = now,
                }
            } else if ahead < 0 {
                return None;
            } else {
                pause();
                position = self.head.load(Relaxed);
            }
        }
    }

    /// Appends a word.
    ///
    /// # Errors
    /// The word, when the queue is full. It may also look full because a thread is stopped in the
    /// middle of taking a word.
    pub fn put(&self, word: u64) -> Result<(), u64> {
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
                        cell.word.store(word, Relaxed);
                        cell.sequence
                            .store(position.wrapping_add(1).wrapping_sub(index), Release);
                        return Ok(());
                    }
                    Err(now) => position = now,
                }
            } else if ahead < 0 {
                return Err(word);
            } else {
                pause();
                position = self.tail.load(Relaxed);
            }
        }
    }

    /// Empties the queue and forgets the words in it. Only for use while no other thread uses the
    /// queue, as in a forked child. Otherwise words would be lost or taken twice.
    pub fn reset(&self) {
        if self.tail.load(Relaxed) == 0 {
            return;
        }
        for cell in &self.cells {
            cell.sequence.store(0, Relaxed);
        }
        self.head.store(0, Relaxed);
        self.tail.store(0, Release);
    }
}

impl<const N: usize> Debug for WordQueue<N> {
    fn fmt(&self, f: &mut Formatter<'_>) -> core::fmt::Result {
        write!(f, "WordQueue({} of {N})", self.len())
    }
}
