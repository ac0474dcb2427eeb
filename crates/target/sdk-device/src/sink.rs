//! Where the worker thread writes records.

use midair_record::spool::{Area, ChunkWriter};

/// Where the worker thread writes.
#[derive(Debug)]
pub struct Sink {
    /// The session's spool.
    pub area: Area,
    /// Our place in it.
    pub writer: ChunkWriter,
    /// The worker thread id.
    pub tid: u32,
}

impl Sink {
    /// Returns whether a record of so many bytes finds room now, unless other threads take it first.
    pub fn has_room(&self, bytes: usize) -> bool {
        self.writer.has_room(bytes) || self.area.has_capacity(bytes)
    }

    /// Stores a record.
    pub fn put(&mut self, record_kind: u8, bytes: &[u8]) {
        self.store(record_kind, bytes);
    }

    /// Stores a record. Returns whether it had room.
    pub fn store(&mut self, record_kind: u8, bytes: &[u8]) -> bool {
        // SAFETY: the session keeps the spool mapped as long as its Sink lives, and the writer is
        // only used with it.
        unsafe {
            self.writer
                .store(self.area, self.tid, record_kind, [bytes, &[]])
        }
    }
}
