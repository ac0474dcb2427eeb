//! The store between collecting and writing: records one after the other, in a file that no other
//! process can open by name.
//!
//! The collecting side appends what it drained from the spool while the target runs. The writers
//! read it afterwards, in one walk and in constant memory. The bytes come from the target, so each
//! record is decoded once before it is kept, and what the writers read later is well formed. The
//! same decoding feeds the [`Index`], so no pass over the file is needed for it.
//!
//! The file has a limit. When it is reached, or the file system has no more room, further records are
//! counted and not kept. What records refer to is in the index all the same, and what was taken over
//! before is whole: the block that could not be written stays in memory.

use crate::index::Index;
use crate::kernel_filter::{KernelFilter, Missed, Selection};
use crate::kernel_name::KernelNames;
use crate::rolling::{Keep, LATE, Rolling, Window};
use midair_record::event::{self, CudaLaunch, Header, Kernel, MAX_RECORD, Plain, Record, kind};
use midair_record::spool::{DROP_SLOTS, drop_slot};
use std::convert::Infallible;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The number of bytes that are gathered before a write, and that one read takes.
const BLOCK: usize = 256 * 1024;

/// Why a walk ended early: the file, or the visitor.
#[derive(Debug)]
pub enum WalkError<E> {
    /// The file could not be read.
    Read(io::Error),
    /// The visitor stopped.
    Visit(E),
}

/// Is notified of every record when it is appended. A view of the running session is one.
pub trait Observer: Send + std::fmt::Debug {
    /// Takes the next record. It may be one that is not kept because of the limit of bytes.
    fn record(&mut self, record: &Record<'_>);
}

/// An observer that its view reads at the same time.
pub type Observed = Arc<Mutex<dyn Observer>>;

/// Why no more records could be kept, apart from the limit of bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoRoom {
    /// The directory of the file.
    pub directory: PathBuf,
    /// What the system said.
    pub why: String,
}

/// Whether a write failed for lack of room: on the file system, by a quota, or by the limit of this
/// process for the size of files.
pub fn is_about_room(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

/// The appending half.
#[derive(Debug)]
pub struct RecordWriter {
    file: File,
    pending: Vec<u8>,
    written: u64,
    records: u64,
    malformed_bytes: u64,
    limit: u64,
    beyond: [u64; DROP_SLOTS],
    index: Index,
    observer: Option<Observed>,
    directory: PathBuf,
    /// Replaces the file where only the latest records are kept.
    rolling: Option<Rolling>,
    /// The time that these are to cover in the results.
    latest: Duration,
    /// When the first record was left out because of the limit.
    full_since: Option<Instant>,
    /// Why no more can be written, since the last block could not be.
    no_room: Option<NoRoom>,
}

/// Adds the time by which records may be late. Nothing is kept where no time is asked for.
fn with_late(time: Duration) -> Duration {
    match time.is_zero() {
        true => time,
        false => time.saturating_add(LATE),
    }
}

/// The times of a session, in ns of the clock of its records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// When it started.
    pub begin: u64,
    /// When it ended, or the present.
    pub end: u64,
    /// The present.
    pub now: u64,
}

impl RecordWriter {
    /// Makes a file without a name in `directory`. It vanishes with this process.
    ///
    /// # Errors
    /// When the file cannot be made there.
    pub fn create_in(directory: &Path) -> io::Result<RecordWriter> {
        let file = tempfile::tempfile_in(directory)?;
        Ok(RecordWriter {
            file,
            pending: Vec::with_capacity(BLOCK),
            written: 0,
            records: 0,
            malformed_bytes: 0,
            limit: u64::MAX,
            beyond: [0; DROP_SLOTS],
            index: Index::default(),
            observer: None,
            directory: directory.to_owned(),
            rolling: None,
            latest: Duration::ZERO,
            full_since: None,
            no_room: None,
        })
    }

    /// Requires that there is room for the first records. A file system that is full still makes files.
    ///
    /// # Errors
    /// When there is none.
    pub fn with_room(self) -> io::Result<RecordWriter> {
        self.file.write_all_at(&vec![0; BLOCK], 0)?;
        self.file.set_len(0)?;
        Ok(self)
    }

    /// Sets what is kept from now on. The index covers all records regardless.
    pub fn keep(&mut self, keep: Keep) {
        if let Keep::Latest { time, .. } = keep {
            self.latest = time;
            self.index.stacks.launches.keep_recent();
        }
        match (keep, &mut self.rolling) {
            (Keep::All, rolling) => *rolling = None,
            (Keep::Latest { time, bytes }, Some(rolling)) => rolling.keep(with_late(time), bytes),
            (Keep::Latest { time, bytes }, none) => {
                let rolling = Rolling::new(&self.directory, with_late(time), bytes);
                *none = Some(rolling);
            }
        }
    }

    /// Numbers streams with these handles before the first record. The handle of one without a handle (0)
    /// is its number.
    #[must_use]
    pub fn with_streams(mut self, handles: impl IntoIterator<Item = u64>) -> RecordWriter {
        self.index.number_streams(handles);
        self
    }

    /// Makes the writer's index ignore what devices did before this time.
    #[must_use]
    pub fn since(mut self, time: u64) -> RecordWriter {
        self.index.activity.begin_at(time);
        self
    }

    /// Returns the latest records, where only these are kept. The session goes on.
    ///
    /// # Errors
    /// When they cannot be written, or all are kept.
    pub fn window(&mut self) -> io::Result<Window> {
        match &mut self.rolling {
            Some(rolling) => rolling.window(&self.index, Instant::now()),
            None => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "all records are kept",
            )),
        }
    }

    /// Tells this observer about all records from now on. It is locked while a piece is appended.
    pub fn observed(&mut self, observer: Observed) {
        self.observer = Some(observer);
    }

    /// Limits the bytes of records.
    #[must_use]
    pub fn limited(mut self, bytes: u64) -> RecordWriter {
        self.limit = bytes;
        self
    }

    /// Whether a record was left out because of the limit, or there is no room for more. From then on
    /// all are.
    pub fn is_full(&self) -> bool {
        self.no_room.is_some() || self.beyond.iter().any(|count| *count > 0)
    }

    /// Appends whole records, as the spool's reader hands them over. At the first malformed record
    /// the rest of `bytes` is counted and dropped, since there is no way to find where the next
    /// record would start. Returns how many were kept.
    ///
    /// # Errors
    /// When the disk fails. What was appended before stays; of `bytes` nothing is kept or counted.
    pub fn append(&mut self, bytes: &[u8]) -> io::Result<u64> {
        if self.pending.len() + bytes.len() > BLOCK && self.no_room.is_none() {
            self.flush()?;
        }
        let (mut at, mut kept, mut kept_bytes) = (0, 0, 0);
        let (before, mut full) = (self.bytes(), self.is_full());
        let limited = self.rolling.is_none();
        let mut observer = self
            .observer
            .as_ref()
            .map(|observer| observer.lock().unwrap_or_else(PoisonError::into_inner));
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            match event::decode(rest) {
                Ok((record, size)) => {
                    at += size;
                    if let Some(observer) = &mut observer {
                        observer.record(&record);
                    }
                    // A note has no header, and counts as a description.
                    let kind = record.header().map_or(kind::NOTE, |header| header.kind);
                    let describes = kind >= kind::FIRST_DESCRIPTION && kind != kind::BARRIER;
                    full |= limited && before.saturating_add(at as u64) > self.limit && !describes;
                    if !full {
                        kept_bytes = at;
                        kept += 1;
                    }
                    // The index has everything that is needed of descriptions.
                    if !full || describes {
                        self.index.add(&record);
                    } else if let Some(count) = self.beyond.get_mut(drop_slot(kind)) {
                        *count += 1;
                    }
                }
                Err(_) => {
                    self.malformed_bytes += rest.len() as u64;
                    break;
                }
            }
        }
        drop(observer);
        let kept_bytes = bytes.get(..kept_bytes).unwrap_or_default();
        match &mut self.rolling {
            Some(rolling) => rolling.push(kept_bytes, Instant::now())?,
            None => self.pending.extend_from_slice(kept_bytes),
        }
        if full && self.full_since.is_none() {
            self.full_since = Some(Instant::now());
        }
        self.records += kept;
        Ok(kept)
    }

    /// Returns what the records kept so far say. A view of the running session reads it, or takes
    /// [`Index::snapshot`] where it needs values of its own.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// Returns the number of records kept so far.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Returns the number of bytes kept so far.
    pub fn bytes(&self) -> u64 {
        let rolling = self.rolling.as_ref().map_or(0, Rolling::bytes);
        self.written + self.pending.len() as u64 + rolling
    }

    /// Returns the number of bytes that were not records.
    pub fn malformed_bytes(&self) -> u64 {
        self.malformed_bytes
    }

    /// Writes what was gathered. It stays in memory if there is no room for it.
    fn flush(&mut self) -> io::Result<()> {
        // The offset is our own, so that a write that failed half-way can be tried again.
        let written = self.file.write_all_at(&self.pending, self.written);
        match written.and_then(|()| self.file.flush()) {
            Ok(()) => {
                self.written += self.pending.len() as u64;
                self.pending.clear();
                Ok(())
            }
            Err(error) if is_about_room(&error) => {
                self.no_room.get_or_insert_with(|| NoRoom {
                    directory: self.directory.clone(),
                    why: error.to_string(),
                });
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Returns what was appended so far, to be read while more is appended.
    ///
    /// # Errors
    /// When the last block cannot be written.
    pub fn so_far(&mut self) -> io::Result<RecordFile> {
        self.flush()?;
        Ok(RecordFile {
            file: self.file.try_clone()?,
            len: self.written,
            rest: self.pending.clone(),
            no_room: self.no_room.clone(),
            records: self.records,
            malformed_bytes: self.malformed_bytes,
            limit: self.limit,
            beyond: self.beyond,
            index: self.index.clone(),
            chosen: None,
            none_chosen: None,
            hidden: false,
        })
    }

    /// Returns the time that the records cover: what started and ended in it is here, as far as it was
    /// recorded at all. It is a part of the session where only the latest records are kept, or where
    /// the limit of bytes was reached.
    pub fn covered(&self, session: Times) -> (u64, u64) {
        let Times { begin, end, now } = session;
        let ago = |moment: Instant| u64::try_from(moment.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let at = |moment: Instant| now.saturating_sub(ago(moment));
        let end = match self.full_since {
            Some(full) => at(full).max(begin).min(end),
            None => end,
        };
        let since = self.rolling.as_ref().map(|rolling| at(rolling.since()));
        (since.unwrap_or(0).max(begin).min(end), end)
    }

    /// Ends the appending.
    ///
    /// # Errors
    /// When the last block cannot be written.
    pub fn finish(self) -> io::Result<RecordFile> {
        self.finish_from(0)
    }

    /// Does the same as [`RecordWriter::finish`]. Where only the latest records are kept, these are
    /// the ones of the requested time before the end. Returns as well the time that they cover.
    ///
    /// # Errors
    /// As [`RecordWriter::finish`].
    pub fn finish_session(self, session: Times) -> io::Result<(RecordFile, (u64, u64))> {
        let (mut from, end) = self.covered(session);
        if self.rolling.is_some() {
            let latest = u64::try_from(self.latest.as_nanos()).unwrap_or(u64::MAX);
            from = from.max(end.saturating_sub(latest));
        }
        Ok((self.finish_from(from)?, (from, end)))
    }

    /// Ends the appending. Of the latest records, those before this time are left out.
    fn finish_from(mut self, from: u64) -> io::Result<RecordFile> {
        if self.rolling.is_some() {
            let window = self.window()?;
            self.rolling = None;
            let window = window.into_between(from, u64::MAX)?;
            return Ok(RecordFile {
                malformed_bytes: self.malformed_bytes,
                ..window
            });
        }
        self.flush()?;
        Ok(RecordFile {
            file: self.file,
            len: self.written,
            rest: self.pending,
            no_room: self.no_room,
            records: self.records,
            malformed_bytes: self.malformed_bytes,
            limit: self.limit,
            beyond: self.beyond,
            index: self.index,
            chosen: None,
            none_chosen: None,
            hidden: false,
        })
    }
}

/// The reading half; can be walked any number of times.
#[derive(Debug)]
pub struct RecordFile {
    file: File,
    len: u64,
    /// The records after the file's last one, for which there was no room in it.
    rest: Vec<u8>,
    no_room: Option<NoRoom>,
    records: u64,
    malformed_bytes: u64,
    limit: u64,
    beyond: [u64; DROP_SLOTS],
    index: Index,
    /// Which dispatches are in the results, where not all are.
    chosen: Option<Selection>,
    /// Why there are no kernels, if a choice leaves all of them out.
    none_chosen: Option<String>,
    /// Whether dispatches were recorded only for other records.
    hidden: bool,
}

impl RecordFile {
    /// Returns what the records say, put together while they were appended.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// Returns the index alone, and gives up the file.
    pub fn into_index(self) -> Index {
        self.index
    }

    /// Returns the number of records.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Returns the number of bytes of records.
    pub fn bytes(&self) -> u64 {
        self.len + self.rest.len() as u64
    }

    /// Returns why the records end before the session did, if there was no room for more.
    pub fn no_room(&self) -> Option<&NoRoom> {
        self.no_room.as_ref()
    }

    /// Returns the number of bytes from the target that were not records.
    pub fn malformed_bytes(&self) -> u64 {
        self.malformed_bytes
    }

    /// Returns the limit of bytes.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the number of records that were left out because of the limit, by [`drop_slot`].
    pub fn beyond(&self) -> &[u64; DROP_SLOTS] {
        &self.beyond
    }

    /// Finds the stacks that captured the kernels of graphs. Call it before [`RecordFile::choose`].
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn find_captures(&mut self) -> io::Result<()> {
        let Some(mut matching) = self.index.matching() else {
            return Ok(());
        };
        let mut index = std::mem::take(&mut self.index);
        let matched = self.each_launch(|kernel, cuda| {
            index.match_node(&mut matching, kernel, cuda);
        });
        index.stacks.forget_kernels();
        let added = self.each_kernel(|kernel| index.add_to_stack(kernel));
        self.index = index;
        matched.and(added)
    }

    /// Leaves dispatches out of walks and of the index. Those that are not chosen are left out, by
    /// the names that kernels have in the results. Without `kernels` all are, because they were
    /// recorded only so that other records can refer to them.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn choose(
        &mut self,
        filter: &KernelFilter,
        names: KernelNames,
        kernels: bool,
    ) -> io::Result<()> {
        if filter.is_all() && kernels {
            return Ok(());
        }
        let mut chosen = Selection::new(filter, &self.index, names);
        if chosen.counts() {
            self.each_kernel(|kernel| chosen.see(kernel))?;
            chosen.seen();
        }
        let mut index = std::mem::take(&mut self.index);
        index.forget_kernels();
        let (mut kept, mut missed) = (0_u64, Missed::default());
        let walked = self.each_kernel(|kernel| {
            if kernels && chosen.has(kernel) {
                index.keep_kernel(kernel);
                kept += 1;
            } else {
                index.drop_kernel(kernel);
                missed.see(kernel);
            }
        });
        self.index = index;
        if kernels && kept == 0 {
            self.none_chosen = missed.described(&self.index, names);
        }
        self.hidden = !kernels;
        self.chosen = (!filter.is_all()).then_some(chosen);
        walked
    }

    /// Returns why there are no kernels, if dispatches were recorded and none is chosen.
    pub fn none_chosen(&self) -> Option<String> {
        self.none_chosen.clone()
    }

    fn each_kernel(&self, mut visit: impl FnMut(&Kernel)) -> io::Result<()> {
        self.each_launch(|kernel, _| visit(kernel))
    }

    fn each_launch(&self, mut visit: impl FnMut(&Kernel, Option<&CudaLaunch>)) -> io::Result<()> {
        let walked = self.walk_all(
            |kind| kind == kind::KERNEL_DISPATCH,
            |record| {
                if let Record::Kernel(kernel, cuda) = record {
                    visit(kernel, cuda.as_ref());
                }
                Ok::<(), Infallible>(())
            },
        );
        walked.map_err(|error| match error {
            WalkError::Read(error) => error,
            WalkError::Visit(never) => match never {},
        })
    }

    /// Whether a dispatch is chosen.
    pub fn is_chosen(&self, kernel: &Kernel) -> bool {
        self.chosen.as_ref().is_none_or(|chosen| chosen.has(kernel))
    }

    /// Whether a kernel is among the chosen ones, regardless of the dispatch.
    pub fn is_chosen_kernel(&self, kernel: &Kernel) -> bool {
        let chosen = self.chosen.as_ref();
        chosen.is_none_or(|chosen| chosen.takes(kernel.kernel_id))
    }

    /// Visits the records of the wanted kinds, in the order in which they were appended. Dispatches
    /// that are left out ([`RecordFile::choose`]) are not visited.
    ///
    /// # Errors
    /// [`WalkError::Read`] when the file fails, [`WalkError::Visit`] when the visitor does.
    pub fn walk<E>(
        &self,
        want: impl Fn(u8) -> bool,
        mut visit: impl FnMut(&Record<'_>) -> Result<(), E>,
    ) -> Result<(), WalkError<E>> {
        let hidden = self.hidden;
        self.walk_all(
            |kind| want(kind) && !(hidden && kind == kind::KERNEL_DISPATCH),
            |record| match record {
                Record::Kernel(kernel, _) if !self.is_chosen(kernel) => Ok(()),
                record => visit(record),
            },
        )
    }

    /// Does the same as [`RecordFile::walk`], with all dispatches.
    ///
    /// # Errors
    /// As [`RecordFile::walk`].
    pub fn walk_all<E>(
        &self,
        want: impl Fn(u8) -> bool,
        mut visit: impl FnMut(&Record<'_>) -> Result<(), E>,
    ) -> Result<(), WalkError<E>> {
        let mut block = vec![0_u8; BLOCK.max(MAX_RECORD)];
        let mut at = 0_u64;
        while at < self.len {
            let size = block
                .len()
                .min(usize::try_from(self.len - at).unwrap_or(usize::MAX));
            let bytes = block.get_mut(..size).unwrap_or_default();
            self.file
                .read_exact_at(bytes, at)
                .map_err(WalkError::Read)?;
            let used = visit_block(bytes, &want, &mut visit)?;
            if used == 0 {
                return Err(WalkError::Read(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "the file of records changed",
                )));
            }
            at += used as u64;
        }
        visit_block(&self.rest, &want, &mut visit).map(drop)
    }
}

impl From<io::Error> for WalkError<io::Error> {
    fn from(error: io::Error) -> Self {
        WalkError::Visit(error)
    }
}

/// Visits the whole records of a block, and returns how many bytes they took.
fn visit_block<E>(
    bytes: &[u8],
    want: &impl Fn(u8) -> bool,
    visit: &mut impl FnMut(&Record<'_>) -> Result<(), E>,
) -> Result<usize, WalkError<E>> {
    let mut used = 0;
    while let Some(rest) = bytes.get(used..) {
        let Some(header) = Header::read(rest) else {
            break;
        };
        let size = header.size as usize;
        if size == 0 || rest.len() < size {
            break;
        }
        if want(header.kind) {
            let Ok((record, _)) = event::decode(rest) else {
                break;
            };
            visit(&record).map_err(WalkError::Visit)?;
        }
        used += size;
    }
    Ok(used)
}

mod cursor;

pub use cursor::Cursor;

#[cfg(test)]
mod tests;
