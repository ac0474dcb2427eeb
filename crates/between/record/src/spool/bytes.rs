//! Bytes in memory that another process may write at any moment.
//!
//! A plain read or write of such memory is a data race, whatever both sides agreed on: the other
//! side may be hostile, or compromised. So even data that is neither a counter nor a state word is
//! copied by relaxed atomic accesses: records in words, since their sizes are multiples of 8 bytes,
//! and texts in bytes.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU8, AtomicU64};

/// Size of a word in bytes.
const WORD: usize = size_of::<u64>();

/// Copies words out. Bytes at the end of `to` that do not fill a word are left unchanged.
///
/// # Safety
/// `from` is a multiple of 8, and `to.len()` bytes are mapped there, readable and writable. This
/// process accesses them only by atomic words.
pub(super) unsafe fn load_words(from: *const u8, to: &mut [u8]) {
    let from = from.cast_mut().cast::<u64>();
    for (index, word) in to.as_chunks_mut::<WORD>().0.iter_mut().enumerate() {
        // SAFETY: the caller promises the mapping; `index` words are before this one, inside
        // `to.len()` bytes.
        let there = unsafe { AtomicU64::from_ptr(from.add(index)) };
        *word = there.load(Relaxed).to_ne_bytes();
    }
}

/// Copies both parts in, the second one after the first.
///
/// # Safety
/// `to` is a multiple of 8, and so is the length of both parts together. This many bytes are mapped
/// there, readable and writable. This process accesses them only by atomic words.
#[inline]
pub(super) unsafe fn store_words(to: *mut u8, parts: [&[u8]; 2]) {
    let [first, second] = parts;
    let to = to.cast::<u64>();
    let (words, rest) = first.as_chunks::<WORD>();
    // SAFETY: the caller's promise, here and below: no more words are written than both parts have
    // together.
    unsafe { store(to, words) };
    let behind = second.as_chunks::<WORD>();
    if rest.is_empty() {
        // SAFETY: as above.
        unsafe { store(to.add(words.len()), behind.0) };
        return;
    }
    // The first part ends inside a word, which is rare: join the rest of both parts into words.
    let mut joined = rest.iter().chain(second).copied();
    let left = (rest.len() + second.len()) / WORD;
    for index in words.len()..words.len() + left {
        let word: [u8; WORD] = std::array::from_fn(|_| joined.next().unwrap_or(0));
        // SAFETY: as above.
        unsafe { store(to.add(index), &[word]) };
    }
}

/// # Safety
/// As for [`store_words`], for these words.
#[inline]
unsafe fn store(to: *mut u64, words: &[[u8; WORD]]) {
    for (index, word) in words.iter().enumerate() {
        // SAFETY: the caller's promise.
        let there = unsafe { AtomicU64::from_ptr(to.add(index)) };
        there.store(u64::from_ne_bytes(*word), Relaxed);
    }
}

/// Copies a text out of bytes that both sides access byte by byte.
pub(super) fn load_text(from: &[AtomicU8]) -> Vec<u8> {
    from.iter().map(|byte| byte.load(Relaxed)).collect()
}

/// Copies a text in, cut to the size of `to`.
pub(super) fn store_text(to: &[AtomicU8], text: &[u8]) {
    for (there, byte) in to.iter().zip(text) {
        there.store(*byte, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_any_length_are_joined() {
        let text: Vec<u8> = (0..48).collect();
        for cut in 0..=text.len() {
            let there = [const { AtomicU64::new(u64::MAX) }; 7];
            let at = there.as_ptr().cast_mut().cast::<u8>();
            let (first, second) = text.split_at(cut);
            // SAFETY: the memory has seven words, of which six are written.
            unsafe { store_words(at, [first, second]) };
            let mut back = [0; 56];
            // SAFETY: the memory has seven words, which are all read.
            unsafe { load_words(at, &mut back) };
            assert_eq!(back[..48], text, "{cut}");
            assert_eq!(back[48..], [0xff; 8], "{cut}");
        }
    }

    #[test]
    fn a_text_is_cut_where_it_does_not_fit() {
        let there = [const { AtomicU8::new(0) }; 4];
        store_text(&there, b"abcdef");
        assert_eq!(load_text(&there), b"abcd");
        assert_eq!(load_text(&there[..2]), b"ab");
    }
}
