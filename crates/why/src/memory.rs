//! Reading numbers and texts from a process, each within a bound.

use midair_ptrace::{Memory, RemoteAddr};

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

#[cfg(test)]
pub(crate) mod fake {
    use super::Bytes;
    use std::collections::BTreeMap;

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
    fn a_text_ends_with_its_zero_or_its_bound() {
        let mut memory = Pieces::default();
        memory.put(5000, b"some text\0behind it");
        assert_eq!(memory.text(5000, 100).unwrap(), b"some text");
        assert_eq!(memory.text(5000, 4).unwrap(), b"some");
        memory.put(8190, &[b'x'; 2]);
        assert_eq!(memory.text(8190, 100), None, "nothing is behind the page");
    }
}
