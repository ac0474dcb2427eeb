//! Commands that the device skips until they are opened.
//!
//! A `NOP` command skips the words behind it, whose number is in its header. The header's first form
//! skips all other commands, and its second form skips one word. So one store opens them, and the device
//! sees either form.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Release;

/// `NOP` with one word behind it.
const SKIP_ONE: u32 = 0xc000_1000;
/// Where the header has the number of words, less one.
const COUNT: u32 = 16;
/// The words before the commands: the header, and the word that is always skipped.
const BEFORE: usize = 2;

/// The most words of commands, for which the header has 14 bits.
pub(super) const MOST: usize = (1 << 14) - 1;

/// Returns how many words closed commands take.
pub(super) fn words_of(commands: usize) -> usize {
    BEFORE + commands
}

/// Returns commands behind a header that skips them.
pub(super) fn closed(commands: &[u32]) -> Vec<u32> {
    let mut words = vec![SKIP_ONE | (commands.len() as u32) << COUNT, 0];
    words.extend(commands);
    words
}

/// The header of commands in memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head(u64);

impl Head {
    pub(super) fn at(address: u64) -> Head {
        Head(address)
    }

    /// Opens the commands.
    ///
    /// # Safety
    /// There are [`closed`] commands at the address.
    pub(super) unsafe fn open(self) {
        // SAFETY: the caller promises a live, aligned word.
        unsafe { self.word() }.store(SKIP_ONE, Release);
    }

    /// Closes commands of this number of words again.
    ///
    /// # Safety
    /// The same, and the device does not read them now.
    pub(super) unsafe fn close(self, commands: u32) {
        // SAFETY: as above.
        unsafe { self.word() }.store(SKIP_ONE | commands << COUNT, Release);
    }

    /// # Safety
    /// The word is alive.
    unsafe fn word<'a>(self) -> &'a AtomicU32 {
        // SAFETY: the caller's promise.
        unsafe { &*std::ptr::with_exposed_provenance(self.0 as usize) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns which words a device would execute.
    fn executed(words: &[u32]) -> Vec<u32> {
        let mut left = words;
        while let Some((header, rest)) = left.split_first() {
            if header >> 8 & 0xff != 0x10 || header >> 30 != 3 {
                return left.to_vec();
            }
            left = &rest[(header >> 16 & 0x3fff) as usize + 1..];
        }
        Vec::new()
    }

    #[test]
    fn one_store_opens_commands_and_one_closes_them() {
        for count in [1, 2, 119, MOST] {
            let commands = vec![0xc001_7900; count];
            let words = closed(&commands);
            assert_eq!(words.len(), words_of(count));
            assert_eq!(executed(&words), [], "{count}");
            let head = Head::at(words.as_ptr().expose_provenance() as u64);
            // SAFETY: the words are alive, and nothing else uses them.
            unsafe { head.open() };
            assert_eq!(executed(&words), commands);
            // SAFETY: as above.
            unsafe { head.close(count as u32) };
            assert_eq!(executed(&words), []);
        }
    }
}
