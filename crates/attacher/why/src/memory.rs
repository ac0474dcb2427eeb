//! Reading numbers and texts from a process, each within a bound.

use midair_ptrace::{Memory, RemoteAddr};
use std::cell::Cell;
use std::time::{Duration, Instant};

/// Memory of a process, or of a test.
pub(crate) trait Bytes {
    /// Reads exactly `into.len()` bytes. Returns false where they cannot all be read.
    fn fill(&self, at: u64, into: &mut [u8]) -> bool;

    /// Returns a word of 64 bits.
    fn word(&self, at: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.fill(at, &mut bytes).then(|| u64::from_le_bytes(bytes))
    }

    /// Returns a word of 32 bits.
    fn half(&self, at: u64) -> Option<u32> {
        let mut bytes = [0; 4];
        self.fill(at, &mut bytes).then(|| u32::from_le_bytes(bytes))
    }

    /// Returns a byte.
    fn byte(&self, at: u64) -> Option<u8> {
        let mut bytes = [0; 1];
        self.fill(at, &mut bytes).then_some(bytes[0])
    }

    /// Returns `len` bytes.
    fn bytes(&self, at: u64, len: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.fill(at, &mut bytes).then_some(bytes)
    }

    /// Returns a text that ends with a zero. A text of more than `most` bytes is cut.
    fn text(&self, at: u64, most: usize) -> Option<Vec<u8>> {
        const PIECE: usize = 64;
        let mut text = Vec::new();
        while text.len() < most {
            // No piece crosses the end of a page, since nothing may be mapped behind it.
            let from = at.checked_add(text.len() as u64)?;
            let page = 4096 - (from % 4096) as usize;
            let len = PIECE.min(page).min(most - text.len());
            let piece = self.bytes(from, len)?;
            match piece.iter().position(|byte| *byte == 0) {
                Some(end) => {
                    text.extend_from_slice(piece.get(..end)?);
                    return Some(text);
                }
                None => text.extend_from_slice(&piece),
            }
        }
        Some(text)
    }
}

impl Bytes for Memory {
    fn fill(&self, at: u64, into: &mut [u8]) -> bool {
        // Null, and low addresses that no program has.
        const FIRST: u64 = 4096;
        (FIRST..1 << 63).contains(&at) && self.read(RemoteAddr::new(at), into).is_ok()
    }
}

/// How much is read of a process for one purpose. What its memory holds may be made to be read
/// without end: lists that lead back, or tables that claim to be huge.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// The number of bytes.
    pub(crate) bytes: u64,
    /// The number of reads.
    pub(crate) reads: u64,
    /// The time, from the first read on.
    pub(crate) time: Duration,
}

/// Memory of which no more than this is read. Then nothing more can be read of it, so that whatever
/// follows a list or a table ends.
#[derive(Debug)]
pub(crate) struct Limited<'m, M> {
    memory: &'m M,
    bytes: Cell<u64>,
    reads: Cell<u64>,
    deadline: Instant,
}

impl<'m, M: Bytes> Limited<'m, M> {
    pub(crate) fn new(memory: &'m M, limits: Limits) -> Limited<'m, M> {
        Limited {
            memory,
            bytes: Cell::new(limits.bytes),
            reads: Cell::new(limits.reads),
            deadline: Instant::now() + limits.time,
        }
    }

    /// Counts a read of so many bytes. Returns whether it may take place.
    pub(crate) fn may_read(&self, len: usize) -> bool {
        let reads = self.reads.get();
        // The clock costs as much as a read; a few of them more do not matter.
        if reads.is_multiple_of(64) && Instant::now() > self.deadline {
            self.reads.set(0);
            return false;
        }
        match (
            self.bytes.get().checked_sub(len as u64),
            reads.checked_sub(1),
        ) {
            (Some(bytes), Some(reads)) => {
                self.bytes.set(bytes);
                self.reads.set(reads);
                true
            }
            _ => {
                self.reads.set(0);
                false
            }
        }
    }

    /// Whether something was not read because of the limits.
    pub(crate) fn is_used_up(&self) -> bool {
        self.reads.get() == 0
    }
}

impl<M: Bytes> Bytes for Limited<'_, M> {
    fn fill(&self, at: u64, into: &mut [u8]) -> bool {
        self.may_read(into.len()) && self.memory.fill(at, into)
    }
}

#[cfg(test)]
pub(crate) mod fake {
    use super::{Bytes, Limited, Limits};
    use std::collections::BTreeMap;
    use std::time::Duration;

    /// Pieces of memory, by their addresses.
    #[derive(Debug, Default)]
    pub(crate) struct Pieces(pub(crate) BTreeMap<u64, Vec<u8>>);

    impl Pieces {
        /// Stores bytes.
        pub(crate) fn put(&mut self, at: u64, bytes: &[u8]) {
            self.0.insert(at, bytes.to_vec());
        }

        /// Stores words at an address.
        pub(crate) fn words(&mut self, at: u64, words: &[u64]) {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            self.put(at, &bytes);
        }

        /// Changes 8 bytes within a piece.
        pub(crate) fn set(&mut self, at: u64, word: u64) {
            let (start, piece) = self.0.range_mut(..=at).next_back().unwrap();
            let from = (at - start) as usize;
            piece[from..from + 8].copy_from_slice(&word.to_le_bytes());
        }
    }

    impl Bytes for Pieces {
        fn fill(&self, at: u64, into: &mut [u8]) -> bool {
            let Some((start, piece)) = self.0.range(..=at).next_back() else {
                return false;
            };
            let from = (at - start) as usize;
            // The rest of its last page is zeros.
            let end = (*start as usize + piece.len()).next_multiple_of(4096) - *start as usize;
            if from + into.len() > end {
                return false;
            }
            for (n, byte) in into.iter_mut().enumerate() {
                *byte = piece.get(from + n).copied().unwrap_or(0);
            }
            true
        }
    }

    #[test]
    fn no_more_than_the_limits_is_read() {
        let mut memory = Pieces::default();
        memory.put(4096, &[1; 4096]);
        let limits = |bytes, reads, time| Limits {
            bytes,
            reads,
            time: Duration::from_secs(time),
        };
        let count = |limits| {
            let limited = Limited::new(&memory, limits);
            let read = (0..1000).filter(|_| limited.word(4096).is_some()).count();
            (read, limited.is_used_up())
        };
        assert_eq!(count(limits(1 << 20, 5000, 60)), (1000, false));
        assert_eq!(count(limits(80, 5000, 60)), (10, true));
        assert_eq!(count(limits(1 << 20, 7, 60)), (7, true));
        let (read, is_used_up) = count(limits(1 << 20, 5000, 0));
        assert!(read < 64 && is_used_up, "{read}");
    }

    #[test]
    fn a_text_ends_with_its_zero_or_its_bound() {
        let mut memory = Pieces::default();
        memory.put(5000, b"some text\0behind it");
        assert_eq!(memory.text(5000, 100).unwrap(), b"some text");
        assert_eq!(memory.text(5000, 4).unwrap(), b"some");
        memory.put(8190, &[b'x'; 2]);
        assert_eq!(memory.text(8190, 100), None, "nothing is behind the page");
    }
}
