//! Ranges that have started and not ended.

use midair_lockfree::{AtomicKey, SlotTable};
use midair_record::event::{Header, MAX_RECORD, Marker, kind};
use std::sync::atomic::AtomicU64;

/// How many bytes of a message are kept.
pub const MAX_MESSAGE: usize = 1024;
/// How many ranges can be open in one thread at one time.
pub const MAX_LEVELS: usize = 128;
/// Bytes for the messages of one thread's open ranges; a multiple of 8.
pub const THREAD_TEXT: usize = 16 << 10;
/// How many process ranges can be open at one time; a power of two.
pub const MAX_PROCESS_RANGES: usize = 4096;
const _: () =
    assert!(size_of::<Marker>() + MAX_MESSAGE <= MAX_RECORD && MAX_MESSAGE.is_multiple_of(8));

/// A range that has started.
#[derive(Debug, Clone, Copy)]
pub struct Range {
    /// When it started.
    pub start: u64,
    /// Correlation id of the call that started it.
    pub correlation: u64,
    /// Correlation id of the traced call around that call.
    pub ancestor: u64,
    /// Raw return value of that call: level or id.
    pub retval: u64,
    /// Thread that started it.
    pub tid: u32,
    /// Bytes of its message.
    pub len: u32,
    /// Operation of the record.
    pub operation: u32,
    /// Where its message starts in the thread's text.
    pub text: u32,
    /// Bits of [`midair_record::event::flag`], as they were when it started.
    pub flags: u8,
}

impl Range {
    /// Returns its record.
    pub fn record(&self, end: u64, flags: u8, message: &[u8]) -> Marker {
        Marker {
            header: Header {
                size: (size_of::<Marker>() + message.len()) as u16,
                kind: kind::MARKER_CORE_RANGE_API,
                flags: flags | self.flags,
                operation: self.operation,
            },
            start: self.start,
            end,
            correlation: self.correlation,
            ancestor: self.ancestor,
            retval: self.retval,
            tid: self.tid,
            len: self.len,
        }
    }
}

/// A thread's open ranges. Zeroed memory is an empty stack.
#[repr(C)]
pub(crate) struct Stack {
    /// The session that the rest belongs to.
    pub generation: u64,
    /// The number of open ranges.
    pub depth: usize,
    /// How many ranges around these were left out, since there was no room for all.
    pub left_out: usize,
    /// How many bytes of the text are in use.
    pub used: usize,
    pub ranges: [Range; MAX_LEVELS],
    pub text: [u8; THREAD_TEXT],
}

impl Stack {
    /// Makes room by leaving out the outermost eighth of the open ranges: ranges that a program forgets to
    /// pop are the outermost in the end. Returns how many they were.
    pub fn make_room(&mut self) -> usize {
        let (depth, used) = (self.depth.min(MAX_LEVELS), self.used.min(THREAD_TEXT));
        let gone = depth.div_ceil(8);
        let first = self.ranges.get(gone).filter(|_| gone < depth);
        let text = first.map_or(used, |range| (range.text as usize).min(used));
        self.ranges.copy_within(gone..depth, 0);
        self.text.copy_within(text..used, 0);
        for range in self.ranges.get_mut(..depth - gone).unwrap_or_default() {
            range.text = range.text.saturating_sub(text as u32);
        }
        (self.depth, self.used) = (depth - gone, used - text);
        self.left_out += gone;
        gone
    }
}

/// The part of an open process range that only the entry's holder uses.
pub(crate) struct ProcessRange {
    pub range: Range,
    pub text: [u8; MAX_MESSAGE],
}

/// Open process ranges by id, with the session that each belongs to. Zeroed memory is an empty
/// table.
pub(crate) type ProcessRanges = SlotTable<AtomicKey, MAX_PROCESS_RANGES, AtomicU64, ProcessRange>;

#[cfg(test)]
mod tests {
    use super::*;

    fn stack() -> Box<Stack> {
        // SAFETY: zeroed memory is an empty stack.
        unsafe { Box::new(std::mem::zeroed()) }
    }

    /// Pushes a range whose message is its number.
    fn push(stack: &mut Stack, number: u64) {
        let text = stack.used;
        stack.text[text..text + 8].copy_from_slice(&number.to_ne_bytes());
        stack.ranges[stack.depth].start = number;
        stack.ranges[stack.depth].text = text as u32;
        stack.depth += 1;
        stack.used += 8;
    }

    #[test]
    fn the_inner_ranges_stay_with_their_messages() {
        let mut stack = stack();
        for (count, gone) in [(0, 0), (1, 1), (2, 1), (9, 2), (MAX_LEVELS, MAX_LEVELS / 8)] {
            (stack.depth, stack.used, stack.left_out) = (0, 0, 3);
            for number in 0..count {
                push(&mut stack, number as u64);
            }
            assert_eq!(stack.make_room(), gone);
            assert_eq!((stack.depth, stack.left_out), (count - gone, 3 + gone));
            assert_eq!(stack.used, 8 * (count - gone));
            for (at, number) in (gone..count).enumerate() {
                let range = stack.ranges[at];
                let text = range.text as usize;
                assert_eq!(range.start, number as u64);
                assert_eq!(stack.text[text..text + 8], (number as u64).to_ne_bytes());
            }
        }
    }
}
