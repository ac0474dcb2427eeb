//! A place in a file of records, for a reader that takes them one at a time.

use super::{BLOCK, MAX_RECORD, RecordFile};
use midair_record::event::{self, Header, Plain, Record, kind};
use std::io;
use std::os::unix::fs::FileExt;

/// A place in a [`RecordFile`].
#[derive(Debug)]
pub struct Cursor<'a> {
    records: &'a RecordFile,
    /// A part of the file, and how much of it was read and used.
    block: Vec<u8>,
    filled: usize,
    used: usize,
    /// Where the next part starts in the file.
    at: u64,
    /// How much was used of the records behind the file.
    used_of_rest: usize,
}

impl RecordFile {
    /// Returns a place at the first record.
    pub fn cursor(&self) -> Cursor<'_> {
        Cursor {
            records: self,
            block: vec![0; BLOCK.max(MAX_RECORD)],
            filled: 0,
            used: 0,
            at: 0,
            used_of_rest: 0,
        }
    }
}

impl Cursor<'_> {
    /// Returns what `take` makes of the next record of these kinds for which it makes something,
    /// or none behind the last record. Dispatches that are left out ([`RecordFile::choose`]) are
    /// not shown to it.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn next<T>(
        &mut self,
        want: impl Fn(u8) -> bool,
        mut take: impl FnMut(&Record<'_>) -> Option<T>,
    ) -> io::Result<Option<T>> {
        let records = self.records;
        let mut visit = |bytes: &[u8]| -> Option<(usize, Option<T>)> {
            let header = Header::read(bytes)?;
            let size = usize::from(header.size);
            if size == 0 || bytes.len() < size {
                return None;
            }
            let is_hidden = records.hidden && header.kind == kind::KERNEL_DISPATCH;
            if is_hidden || !want(header.kind) {
                return Some((size, None));
            }
            let (record, _) = event::decode(bytes).ok()?;
            let taken = match &record {
                Record::Kernel(kernel, _) if !records.is_chosen(kernel) => None,
                record => take(record),
            };
            Some((size, taken))
        };
        loop {
            let rest = self.block.get(self.used..self.filled).unwrap_or_default();
            if let Some((size, taken)) = visit(rest) {
                self.used += size;
                if taken.is_some() {
                    return Ok(taken);
                }
                continue;
            }
            // A record that is cut by the end of the block starts the next one.
            self.at += self.used as u64;
            (self.used, self.filled) = (0, 0);
            let left = records.len.saturating_sub(self.at);
            if left == 0 {
                break;
            }
            let size =
                usize::try_from(left).map_or(self.block.len(), |left| left.min(self.block.len()));
            let bytes = self.block.get_mut(..size).unwrap_or_default();
            records.file.read_exact_at(bytes, self.at)?;
            if visit(bytes).is_none() {
                let changed = "the file of records changed";
                return Err(io::Error::new(io::ErrorKind::InvalidData, changed));
            }
            self.filled = size;
        }
        while let Some((size, taken)) =
            visit(records.rest.get(self.used_of_rest..).unwrap_or_default())
        {
            self.used_of_rest += size;
            if taken.is_some() {
                return Ok(taken);
            }
        }
        Ok(None)
    }
}
