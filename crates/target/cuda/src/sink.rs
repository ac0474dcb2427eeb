//! The destination of the worker thread's records: the attacher's spool, through one writer.

use midair_record::event::{self, Header, Plain, kind};
use midair_record::spool::{Area, ChunkWriter, drop_slot};
use std::sync::atomic::Ordering::Relaxed;

/// Writer into the spool of a session.
#[derive(Debug)]
pub struct Sink {
    area: Area,
    writer: ChunkWriter,
    tid: u32,
    /// Number of records that were stored.
    pub stored: u64,
}

/// The header of a record of type `T` with `tail` bytes behind it (a multiple of 8).
pub const fn header<T>(kind: u8, operation: u32, flags: u8, tail: usize) -> Header {
    Header {
        size: (size_of::<T>() + tail) as u16,
        kind,
        flags,
        operation,
    }
}

impl Sink {
    /// For the spool of a session.
    ///
    /// # Safety
    /// The spool stays mapped until [`Sink::seal`] was called, and after that nothing is stored.
    pub unsafe fn new(area: Area, tid: u32) -> Sink {
        Sink {
            area,
            writer: ChunkWriter::new(),
            tid,
            stored: 0,
        }
    }

    /// Stores a record whose header contains its size, `tail` included. Returns false if there was
    /// no space; then the loss is counted.
    #[inline]
    pub fn put<T: Plain>(&mut self, record: &T, tail: &[u8]) -> bool {
        let bytes = record.bytes();
        let kind = bytes.get(2).copied().unwrap_or(0);
        self.store(kind, [bytes, tail])
    }

    /// Stores a record with a tail of any length. Allocates.
    pub fn put_with_text<T: Plain>(&mut self, record: &T, text: &[u8]) -> bool {
        let bytes = event::encode(record, text);
        let kind = bytes.get(2).copied().unwrap_or(0);
        self.store(kind, [&bytes, &[]])
    }

    /// Stores a note for the user.
    pub fn note(&mut self, text: &str) {
        self.store(kind::NOTE, [&event::note(text), &[]]);
    }

    /// Counts this many records of a kind as lost.
    pub fn lost(&mut self, kind: u8, count: u64) {
        if let Some(lost) = self.area.head().dropped.get(drop_slot(kind)) {
            lost.fetch_add(count, Relaxed);
        }
    }

    /// Returns the spool of the session.
    pub fn area(&self) -> Area {
        self.area
    }

    /// Returns whether the reader has left space for this many bytes of records.
    pub fn has_room(&self, bytes: usize) -> bool {
        self.area.has_capacity(bytes)
    }

    /// Ends the writing: nothing more is stored after this.
    pub fn seal(&mut self) {
        // SAFETY: the caller of `new` promised a mapped spool, and nothing else uses this writer.
        unsafe { self.writer.seal() };
    }

    #[inline]
    fn store(&mut self, kind: u8, parts: [&[u8]; 2]) -> bool {
        // SAFETY: the promise of `new`.
        let stored = unsafe { self.writer.store(self.area, self.tid, kind, parts) };
        self.stored += u64::from(stored);
        stored
    }
}
