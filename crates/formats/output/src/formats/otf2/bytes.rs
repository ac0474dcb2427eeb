//! The bytes of OTF2's files: numbers, records, and chunks of records.
//!
//! A file is a series of chunks of one size, which its anchor file names. A chunk starts with the
//! numbers of its first and last event, and ends with zeros. Source: the files that libotf2 3.0.2
//! and 3.2 write (`docs/sources.md#otf2`).

use crate::files::WriteError;
use std::io;

/// Starts a chunk, followed by the byte order.
const CHUNK: u8 = 3;
/// Little endian.
const LITTLE: u8 = b'B';
/// The end of the last chunk, and of the file.
const END: [u8; 2] = [2, 1];
/// The size of a chunk's head.
const HEAD: usize = 18;
/// The place of its last event in the head, behind the first one.
const LAST: usize = 10;
/// The length of a record that does not fit into one byte.
const LONG: u8 = 255;

/// Adds a number: the count of its bytes, which is 0 for 0, and those bytes. A number whose bits are
/// all set stands for nothing and has a single byte. `undefined` is that number.
fn compressed(out: &mut Vec<u8>, number: u64, undefined: u64) {
    if number == undefined {
        out.push(LONG);
        return;
    }
    let bytes = number.to_le_bytes();
    let count = 8 - number.leading_zeros() as usize / 8;
    out.push(count as u8);
    out.extend_from_slice(bytes.get(..count).unwrap_or_default());
}

/// Adds a 32-bit number.
pub(super) fn u32(out: &mut Vec<u8>, number: u32) {
    compressed(out, u64::from(number), u64::from(u32::MAX));
}

/// Adds a 64-bit number.
pub(super) fn u64(out: &mut Vec<u8>, number: u64) {
    compressed(out, number, u64::MAX);
}

/// Adds a text, which ends with a zero. Zeros within it are replaced.
pub(super) fn text(out: &mut Vec<u8>, text: &str) {
    let kept = text.bytes().map(|byte| match byte {
        0 => b' ',
        byte => byte,
    });
    out.extend(kept);
    out.push(0);
}

/// Adds a record: its type, its length, and what it contains.
pub(super) fn record(out: &mut Vec<u8>, kind: u8, content: &[u8]) {
    out.push(kind);
    match u8::try_from(content.len()) {
        Ok(length) if length < LONG => out.push(length),
        _ => {
            out.push(LONG);
            out.extend_from_slice(&(content.len() as u64).to_le_bytes());
        }
    }
    out.extend_from_slice(content);
}

/// A file of chunks under construction. The present chunk is in memory.
pub(super) struct Chunks<W> {
    out: W,
    chunk: Vec<u8>,
    size: usize,
    /// Events so far.
    pub(super) events: u64,
}

/// What takes the chunks.
pub(super) trait Take {
    fn take(&mut self, bytes: &[u8]) -> Result<(), WriteError>;
    fn failed(&self, error: io::Error) -> WriteError;
}

impl<W: Take> Chunks<W> {
    pub(super) fn begin(out: W, size: usize) -> Chunks<W> {
        let mut chunks = Chunks {
            out,
            chunk: Vec::new(),
            size,
            events: 0,
        };
        chunks.head(0);
        chunks
    }

    fn head(&mut self, before: u64) {
        self.chunk.clear();
        self.chunk.extend_from_slice(&[CHUNK, LITTLE]);
        self.chunk.extend_from_slice(&(before + 1).to_le_bytes());
        self.chunk.extend_from_slice(&before.to_le_bytes());
    }

    /// Makes room for so many bytes. Returns whether a new chunk started for them.
    pub(super) fn room(&mut self, bytes: usize) -> Result<bool, WriteError> {
        if self.chunk.len() + bytes + END.len() <= self.size {
            return Ok(false);
        }
        if HEAD + bytes + END.len() > self.size {
            let error = io::Error::other("a record is longer than a chunk");
            return Err(self.out.failed(error));
        }
        self.chunk.resize(self.size, 0);
        self.out.take(&self.chunk)?;
        // Definitions are not counted, and all of their chunks start alike.
        self.head(self.events);
        Ok(true)
    }

    /// Adds bytes for which there is room.
    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.chunk.extend_from_slice(bytes);
    }

    /// Counts an event that was added.
    pub(super) fn count(&mut self) {
        self.events += 1;
        if let Some(place) = self.chunk.get_mut(LAST..HEAD) {
            place.copy_from_slice(&self.events.to_le_bytes());
        }
    }

    /// Writes the last chunk, and returns what took the chunks.
    pub(super) fn end(mut self) -> Result<W, WriteError> {
        self.chunk.extend_from_slice(&END);
        self.out.take(&self.chunk)?;
        Ok(self.out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Memory(Vec<u8>);

    impl Take for Memory {
        fn take(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
            self.0.extend_from_slice(bytes);
            Ok(())
        }
        fn failed(&self, error: io::Error) -> WriteError {
            WriteError::Records(error)
        }
    }

    #[test]
    fn numbers_are_as_short_as_libotf2_makes_them() {
        // Bytes of files that libotf2 3.0.2 wrote.
        for (number, wanted) in [
            (0, &[0][..]),
            (7, &[1, 7]),
            (1000, &[2, 0xe8, 3]),
            (0xff, &[1, 0xff]),
            (1 << 40, &[6, 0, 0, 0, 0, 0, 1]),
            (u64::MAX, &[0xff]),
            (u64::from(u32::MAX), &[4, 0xff, 0xff, 0xff, 0xff]),
        ] {
            let mut out = Vec::new();
            u64(&mut out, number);
            assert_eq!(out, wanted, "{number}");
        }
        let mut out = Vec::new();
        u32(&mut out, u32::MAX);
        text(&mut out, "a\0b");
        assert_eq!(out, b"\xffa b\0");
    }

    #[test]
    fn a_long_record_has_a_long_length() {
        let mut out = Vec::new();
        record(&mut out, 10, &[1; 254]);
        assert_eq!(out.get(..3), Some(&[10, 254, 1][..]));
        out.clear();
        record(&mut out, 10, &[1; 255]);
        assert_eq!(
            out.get(..11),
            Some(&[10, 255, 255, 0, 0, 0, 0, 0, 0, 0, 1][..])
        );
    }

    /// A record may be as long as a chunk has room for, and no longer.
    #[test]
    fn a_record_may_fill_a_chunk() {
        let longest = 64 - HEAD - END.len();
        let mut chunks = Chunks::begin(Memory(Vec::new()), 64);
        for (bytes, begins) in [(longest - 1, false), (1, false), (1, true), (longest, true)] {
            assert_eq!(chunks.room(bytes).unwrap(), begins);
            chunks.put(&vec![12; bytes]);
        }
        assert!(chunks.room(longest + 1).is_err());
        let Memory(all) = chunks.end().unwrap();
        assert_eq!(all.len(), 3 * 64);
    }

    #[test]
    fn chunks_are_full_and_say_which_events_they_have() {
        let mut chunks = Chunks::begin(Memory(Vec::new()), 64);
        let mut begun = 0;
        for _event in 0..5 {
            begun += usize::from(chunks.room(20).unwrap());
            chunks.put(&[12; 20]);
            chunks.count();
        }
        let too_long = chunks.room(45).unwrap_err().to_string();
        assert!(too_long.contains("longer than a chunk"), "{too_long}");
        let Memory(all) = chunks.end().unwrap();
        assert_eq!((begun, all.len()), (2, 64 + 64 + HEAD + 20 + 2));
        let numbers = |at: usize| {
            let number = |at: usize| {
                let bytes = all.get(at..at + 8).unwrap();
                u64::from_le_bytes(bytes.try_into().unwrap())
            };
            (number(at + 2), number(at + LAST))
        };
        assert_eq!([0, 64, 128].map(numbers), [(1, 2), (3, 4), (5, 5)]);
        assert_eq!(all.get(58..66), Some(&[0, 0, 0, 0, 0, 0, 3, b'B'][..]));
        assert!(all.ends_with(&[2, 1]));
    }
}
