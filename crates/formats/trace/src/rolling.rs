//! The store that keeps only the records of the latest seconds: a sequence of files, of which the
//! oldest are removed.
//!
//! Descriptions to which other records refer (names of kernels, queues) are not in the files but in
//! the [`Index`], which puts them in front of the records of a [`Window`]. Descriptions of stacks
//! are in memory as well ([`stacks`]).

mod stacks;

use crate::index::Index;
use crate::record_file::{RecordFile, RecordWriter, is_about_room};
use midair_record::event::{self, MAX_RECORD, Record, graph_build};
use nix::fcntl::{FallocateFlags, fallocate};
use stacks::Stacks;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The number of bytes that are gathered before a write, and that one read takes.
const BLOCK: usize = 256 * 1024;
/// The number of files that hold the requested time. Up to one such part more is kept.
const PARTS: u32 = 8;
/// The longest time between an event and its record. Files are kept for so much longer than is
/// asked for.
pub const LATE: Duration = Duration::from_secs(1);

/// Which of its records a session keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// All records, up to the limit of bytes.
    All,
    /// The records of the latest time, as far as they fit. None at all where the time is 0.
    Latest {
        /// The time that results cover. In between, the records of somewhat more are kept: some may
        /// come late.
        time: Duration,
        /// The most bytes on the disk.
        bytes: u64,
    },
}

/// A file of records.
#[derive(Debug)]
struct Segment {
    file: Arc<File>,
    len: u64,
    began: Instant,
    /// When its last record came.
    ended: Instant,
}

/// The files.
#[derive(Debug)]
pub struct Rolling {
    directory: PathBuf,
    time: Duration,
    limit: u64,
    segments: VecDeque<Segment>,
    pending: Vec<u8>,
    bytes: u64,
    /// When the last record came that is no longer here. All that happened later is here.
    since: Instant,
    /// The descriptions of all stacks so far.
    described: Vec<u8>,
}

impl Rolling {
    /// Keeps the latest records of this time, in at most so many bytes, in a file without a name below
    /// the directory.
    pub fn new(directory: &Path, time: Duration, bytes: u64) -> Rolling {
        Rolling {
            directory: directory.to_owned(),
            time,
            limit: bytes,
            segments: VecDeque::new(),
            pending: Vec::new(),
            bytes: 0,
            since: Instant::now(),
            described: Vec::new(),
        }
    }

    /// Returns the number of bytes that are kept.
    pub fn bytes(&self) -> u64 {
        self.bytes + self.pending.len() as u64
    }

    /// Returns the moment since which all records are here.
    pub fn since(&self) -> Instant {
        self.since
    }

    /// Sets the time to keep from now on. It applies to the records that are there as well.
    pub fn keep(&mut self, time: Duration, bytes: u64) {
        (self.time, self.limit) = (time, bytes);
    }

    /// Appends whole records.
    pub fn push(&mut self, bytes: &[u8], now: Instant) -> io::Result<()> {
        stacks::describe(&mut self.described, bytes);
        if self.time.is_zero() {
            self.segments.clear();
            self.pending.clear();
            self.bytes = 0;
            self.since = now;
            return Ok(());
        }
        self.expire(now);
        self.pending.extend_from_slice(bytes);
        if self.pending.len() >= BLOCK || self.is_due(now) {
            self.flush(now)?;
        }
        Ok(())
    }

    /// Whether it is time to start another file.
    fn is_due(&self, now: Instant) -> bool {
        let Some(last) = self.segments.back() else {
            return false;
        };
        now.duration_since(last.began) >= self.time / PARTS
            || last.len >= self.limit / u64::from(PARTS)
    }

    fn flush(&mut self, now: Instant) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        // Where there is no room, the oldest records make some.
        while let Err(error) = self.write(now) {
            if !is_about_room(&error) {
                return Err(error);
            }
            // A file that has nothing yet was started for these records alone.
            if self.segments.iter().all(|segment| segment.len == 0) {
                self.segments.clear();
                self.pending.clear();
                self.since = now;
                return Ok(());
            }
            self.drop_first();
        }
        let Some(last) = self.segments.back_mut() else {
            return Ok(());
        };
        last.len += self.pending.len() as u64;
        last.ended = now;
        self.bytes += self.pending.len() as u64;
        self.pending.clear();
        self.expire(now);
        Ok(())
    }

    /// Writes what was gathered behind the last file's records.
    fn write(&mut self, now: Instant) -> io::Result<()> {
        if self.segments.is_empty() || self.is_due(now) {
            self.segments.push_back(Segment {
                file: Arc::new(tempfile::tempfile_in(&self.directory)?),
                len: 0,
                began: now,
                ended: now,
            });
        }
        match self.segments.back_mut() {
            Some(last) => last.file.write_all_at(&self.pending, last.len),
            None => Ok(()),
        }
    }

    /// Removes the oldest file.
    fn drop_first(&mut self) {
        if let Some(first) = self.segments.pop_front() {
            self.bytes = self.bytes.saturating_sub(first.len);
            self.since = self.since.max(first.ended);
        }
    }

    /// Removes files that are too old or too much.
    fn expire(&mut self, now: Instant) {
        while let Some(first) = self.segments.front() {
            let old = now.duration_since(first.ended) > self.time;
            if !old && self.bytes <= self.limit {
                break;
            }
            self.drop_first();
        }
    }

    /// Returns the records that are there now. `index` has the descriptions to which they refer.
    pub fn window(&mut self, index: &Index, now: Instant) -> io::Result<Window> {
        self.flush(now)?;
        let segment = |segment: &Segment| (Arc::clone(&segment.file), segment.len);
        let mut descriptions = index.descriptions();
        descriptions.extend_from_slice(&self.described);
        Ok(Window {
            directory: self.directory.clone(),
            descriptions,
            stacks: Stacks::of(index),
            segments: self.segments.iter().map(segment).collect(),
        })
    }
}

/// The latest records of a session that goes on. The value can be moved to another thread.
#[derive(Debug)]
pub struct Window {
    directory: PathBuf,
    descriptions: Vec<u8>,
    stacks: Option<Stacks>,
    segments: Vec<(Arc<File>, u64)>,
}

impl Window {
    /// Returns the records that overlap a span of time, CLOCK_BOOTTIME ns, as if nothing else had
    /// been recorded.
    ///
    /// # Errors
    /// When a file cannot be read or written.
    pub fn between(self, from: u64, to: u64) -> io::Result<RecordFile> {
        self.copy(from, to, |_, _, _| {})
    }

    /// Does the same as [`Window::between`] for files that are not used any more. It frees each block
    /// before it writes the copy: there may be no room for both.
    ///
    /// # Errors
    /// As [`Window::between`].
    pub fn into_between(self, from: u64, to: u64) -> io::Result<RecordFile> {
        self.copy(from, to, |file, at, len| {
            let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
            // Where the file system cannot do this, the file is freed as a whole later.
            if let (Ok(at), Ok(len)) = (i64::try_from(at), i64::try_from(len)) {
                let _ = fallocate(file, flags, at, len);
            }
        })
    }

    /// Copies the records that overlap a span of time. `free` gets the file and place of each block
    /// that was read, and its length.
    fn copy(self, from: u64, to: u64, free: impl Fn(&File, u64, u64)) -> io::Result<RecordFile> {
        let mut writer = RecordWriter::create_in(&self.directory)?.since(from);
        let mut rest = self.descriptions.as_slice();
        while let Ok((_, size)) = event::decode(rest) {
            let (record, more) = rest.split_at(size);
            writer.append(record)?;
            rest = more;
        }
        let mut block = vec![0; BLOCK.max(MAX_RECORD)];
        for (file, len) in self.segments {
            let mut at = 0;
            while at < len {
                let size = block
                    .len()
                    .min(usize::try_from(len - at).unwrap_or(usize::MAX));
                let bytes = block.get_mut(..size).unwrap_or_default();
                file.read_exact_at(bytes, at)?;
                let used = whole(bytes) as u64;
                if used == 0 {
                    let changed = "the file of records changed";
                    return Err(io::Error::new(io::ErrorKind::InvalidData, changed));
                }
                free(&file, at, used);
                let overlaps = |record: &Record<'_>| {
                    times(record).is_some_and(|(start, end)| start <= to && end >= from)
                };
                if let Some(stacks) = &self.stacks {
                    stacks.append(bytes, overlaps, &mut writer)?;
                }
                copy(bytes, overlaps, &mut writer)?;
                at += used;
            }
        }
        writer.finish()
    }
}

/// Returns how many bytes the whole records of a block take.
fn whole(block: &[u8]) -> usize {
    let mut used = 0;
    while let Some(rest) = block.get(used..).filter(|rest| !rest.is_empty())
        && let Ok((_, size)) = event::decode(rest)
    {
        used += size;
    }
    used
}

/// Copies the whole records of a block that are wanted, in runs.
fn copy(
    block: &[u8],
    is_wanted: impl Fn(&Record<'_>) -> bool,
    writer: &mut RecordWriter,
) -> io::Result<()> {
    let (mut run, mut used) = (0, 0);
    while let Some(rest) = block.get(used..).filter(|rest| !rest.is_empty()) {
        let Ok((record, size)) = event::decode(rest) else {
            break;
        };
        if !is_wanted(&record) {
            writer.append(block.get(run..used).unwrap_or_default())?;
            run = used + size;
        }
        used += size;
    }
    writer.append(block.get(run..used).unwrap_or_default())?;
    Ok(())
}

/// Returns when the thing that a record describes happened. None for descriptions, and for work
/// without times.
pub fn times(record: &Record<'_>) -> Option<(u64, u64)> {
    let (start, end) = match record {
        Record::Api(it, _) => (it.start, it.end),
        Record::Kernel(it, _) if it.end == 0 => (it.rung, it.rung),
        Record::Kernel(it, _) => (it.start, it.end),
        Record::Copy(it, _) => (it.start, it.end),
        Record::Marker(it, _) => (it.start, it.end),
        Record::Allocation(it) => (it.start, it.end),
        Record::Scratch(it) => (it.start, it.end),
        Record::Kfd(it) => (it.start, it.end),
        Record::Graph(it) => (it.start, it.end),
        Record::Event(it) => (it.start, it.end),
        Record::Barrier(it) => (it.rung, it.end.max(it.seen)),
        Record::MemorySet(it) => (it.start, it.end),
        Record::Synchronization(it) => (it.start, it.end),
        Record::UnifiedMemory(it) => (it.start, it.end),
        Record::Burst(it) => (it.start, it.end),
        Record::CounterWindow(it, _) => (it.start, it.read_end.max(it.end)),
        Record::RuntimeInit(it) => (it.time, it.time),
        Record::TraceData(it, _) => (it.start, it.end),
        Record::PcSample(it) => (it.time, it.time),
        Record::GraphBuild(it) if it.header.operation == graph_build::REPLAY => (it.start, it.end),
        Record::Agent(_)
        | Record::CodeObject(..)
        | Record::KernelSymbol(..)
        | Record::Queue(_)
        | Record::QueueCounts(_)
        | Record::Note(_)
        | Record::CudaDevice(..)
        | Record::Code(..)
        | Record::Stack(..)
        | Record::LaunchStack(_)
        | Record::NativeCode(_)
        | Record::Module(..)
        | Record::Instruction(..)
        | Record::GraphBuild(_) => return None,
    };
    Some((start, end.max(start)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record_file::{Times, WalkError};
    use midair_record::event::{Header, Kernel, KernelSymbol, encode, kind};

    fn kernel(id: u64, start: u64) -> Vec<u8> {
        let header = Header {
            kind: kind::KERNEL_DISPATCH,
            ..Header::default()
        };
        let kernel = Kernel {
            header,
            start,
            end: start + 5,
            dispatch_id: id,
            kernel_id: 7,
            ..Kernel::default()
        };
        encode(&kernel, &[])
    }

    fn symbol() -> Vec<u8> {
        let header = Header {
            kind: kind::KERNEL_SYMBOL,
            ..Header::default()
        };
        let symbol = KernelSymbol {
            header,
            kernel_id: 7,
            name_len: 4,
            ..KernelSymbol::default()
        };
        encode(&symbol, b"gemm")
    }

    fn ids(file: &RecordFile) -> Vec<u64> {
        let mut ids = Vec::new();
        let walked: Result<(), WalkError<()>> = file.walk(
            |_| true,
            |record| {
                if let Record::Kernel(kernel, _) = record {
                    ids.push(kernel.dispatch_id);
                }
                Ok(())
            },
        );
        walked.unwrap();
        ids
    }

    #[test]
    fn a_window_is_a_recording_of_its_own() {
        let mut writer = RecordWriter::create_in(&std::env::temp_dir()).unwrap();
        writer.keep(Keep::Latest {
            time: Duration::from_secs(3_600),
            bytes: 1 << 30,
        });
        writer.append(&symbol()).unwrap();
        let many = (2 * BLOCK / kernel(0, 0).len()) as u64;
        for id in 0..many {
            writer.append(&kernel(id, 100 * id)).unwrap();
        }
        let cut = writer
            .window()
            .unwrap()
            .between(100 * 10, 100 * 20)
            .unwrap();
        assert_eq!(ids(&cut), (10..=20).collect::<Vec<_>>());
        assert_eq!(cut.index().symbols[&7].name, b"gemm");
        assert_eq!(cut.index().kernels[&7].calls, 11);
        // The session goes on, and its index covers all records.
        writer.append(&kernel(many, 100 * many)).unwrap();
        assert_eq!(writer.index().kernels[&7].calls, many + 1);
        let last = writer
            .window()
            .unwrap()
            .between(100 * many, u64::MAX)
            .unwrap();
        assert_eq!(ids(&last), [many]);
    }

    /// The copy of the latest records needs no room next to them.
    #[test]
    fn blocks_are_freed_as_they_are_copied() {
        use std::os::unix::fs::MetadataExt;
        let mut writer = RecordWriter::create_in(&std::env::temp_dir()).unwrap();
        writer.keep(Keep::Latest {
            time: Duration::from_secs(3_600),
            bytes: 1 << 30,
        });
        let many = (3 * BLOCK / kernel(0, 0).len()) as u64;
        for id in 0..many {
            writer.append(&kernel(id, id)).unwrap();
        }
        let window = writer.window().unwrap();
        let files: Vec<_> = window.segments.iter().map(|it| Arc::clone(&it.0)).collect();
        let bytes = || -> u64 {
            let blocks = files.iter().map(|file| file.metadata().unwrap().blocks());
            512 * blocks.sum::<u64>()
        };
        assert!(bytes() > 2 * BLOCK as u64, "{}", bytes());
        let copy = window.into_between(0, u64::MAX).unwrap();
        assert_eq!(ids(&copy).len() as u64, many);
        // A file system keeps pages of which only a part was freed.
        assert!(bytes() < BLOCK as u64, "{}", bytes());
    }

    /// The results of a session that keeps only the latest records are as long as was asked for.
    #[test]
    fn the_latest_records_are_those_of_the_time_before_the_end() {
        const SECOND: u64 = 1_000_000_000;
        let written = || {
            let mut writer = RecordWriter::create_in(&std::env::temp_dir()).unwrap();
            writer.keep(Keep::Latest {
                time: Duration::from_secs(2),
                bytes: 1 << 30,
            });
            for id in 0..=10 {
                writer.append(&kernel(id, id * SECOND)).unwrap();
            }
            writer
        };
        // All of these were written in the last moments, which were before the session's start.
        let times = |begin, end| Times { begin, end, now: 0 };
        let (file, covered) = written()
            .finish_session(times(3 * SECOND, 10 * SECOND))
            .unwrap();
        assert_eq!(covered, (8 * SECOND, 10 * SECOND));
        assert_eq!(ids(&file), [8, 9, 10]);
        // The session was shorter than that.
        let (file, covered) = written()
            .finish_session(times(9 * SECOND, 10 * SECOND))
            .unwrap();
        assert_eq!(covered, (9 * SECOND, 10 * SECOND));
        assert_eq!(ids(&file), [9, 10]);
        // What is older was removed, because it was too much.
        let mut writer = written();
        writer.keep(Keep::Latest {
            time: Duration::from_secs(2),
            bytes: 0,
        });
        writer.append(&kernel(11, 11)).unwrap();
        let times = Times {
            begin: 3 * SECOND,
            end: 10 * SECOND,
            now: 10 * SECOND,
        };
        let (file, (from, to)) = writer.finish_session(times).unwrap();
        assert_eq!((ids(&file).len(), to), (0, 10 * SECOND));
        assert!(from > 9 * SECOND && from <= to, "{from}");
        // A target's clock may say anything.
        for (begin, end, now) in [(5, 3, 1), (u64::MAX, 0, u64::MAX), (0, u64::MAX, 0)] {
            let (_, (from, to)) = written().finish_session(Times { begin, end, now }).unwrap();
            assert!(from <= to.max(begin), "{from} {to}");
        }
    }

    /// A span that starts before a window counts in it from the window's start on.
    #[test]
    fn a_window_has_no_activity_of_the_time_before_it() {
        let mut writer = RecordWriter::create_in(&std::env::temp_dir()).unwrap();
        writer.keep(Keep::Latest {
            time: Duration::from_secs(3_600),
            bytes: 1 << 30,
        });
        // So many spans are summed up.
        for id in 1..20_000 {
            writer.append(&kernel(id, 10 * id)).unwrap();
        }
        let (from, to) = (50_003, 200_000);
        let window = writer.window().unwrap().between(from, to).unwrap();
        let shares = window.index().activity.shares(0, from, to);
        assert_eq!((shares.busy, shares.sum()), (74_997, to - from));
    }

    #[test]
    fn the_oldest_go_by_time_and_by_bytes() {
        let start = Instant::now();
        let mut rolling = Rolling::new(&std::env::temp_dir(), Duration::from_secs(8), 1 << 20);
        let piece = kernel(1, 1).repeat(100);
        for second in 0..60 {
            rolling
                .push(&piece, start + Duration::from_secs(second))
                .unwrap();
        }
        // These are the records of eight seconds, and those that share a file with them.
        let kept = rolling.bytes() / piece.len() as u64;
        assert!((8..=11).contains(&kept), "{kept}");
        let large = kernel(1, 1).repeat(1 << 10);
        for _ in 0..60 {
            rolling
                .push(&large, start + Duration::from_secs(60))
                .unwrap();
            let most = (1 << 20) + (BLOCK + large.len()) as u64;
            assert!(rolling.bytes() <= most, "{}", rolling.bytes());
        }
        rolling.keep(Duration::ZERO, 0);
        rolling
            .push(&large, start + Duration::from_secs(61))
            .unwrap();
        assert_eq!((rolling.bytes(), rolling.segments.len()), (0, 0));
    }

    /// A file takes an eighth of the time, or of the bytes.
    #[test]
    fn records_are_gathered_and_files_begin_when_they_are_due() {
        let start = Instant::now();
        let later = |milliseconds| start + Duration::from_millis(milliseconds);
        let bytes = 32 * BLOCK as u64;
        let mut rolling = Rolling::new(&std::env::temp_dir(), Duration::from_secs(8), bytes);
        let small = kernel(1, 1);
        let block = kernel(1, 1).repeat(BLOCK / small.len() + 1);
        rolling.push(&small, start).unwrap();
        assert_eq!(
            (rolling.segments.len(), rolling.pending.len()),
            (0, small.len())
        );
        rolling.push(&block, start).unwrap();
        assert_eq!((rolling.segments.len(), rolling.pending.len()), (1, 0));
        // An eighth of the time is a second.
        rolling.push(&small, later(999)).unwrap();
        assert_eq!(
            (rolling.segments.len(), rolling.pending.len()),
            (1, small.len())
        );
        rolling.push(&small, later(1000)).unwrap();
        assert_eq!((rolling.segments.len(), rolling.pending.len()), (2, 0));
        // An eighth of the bytes is four blocks.
        let count = |rolling: &Rolling| rolling.segments.len();
        for wanted in [2, 2, 2, 2, 3] {
            rolling.push(&block, later(1000)).unwrap();
            assert_eq!(count(&rolling), wanted);
        }
        assert_eq!(
            rolling.bytes(),
            3 * small.len() as u64 + 6 * block.len() as u64
        );
    }

    #[test]
    fn a_file_goes_when_its_last_record_is_older_than_the_time() {
        let start = Instant::now();
        let time = Duration::from_secs(8);
        let mut rolling = Rolling::new(&std::env::temp_dir(), time, 1 << 30);
        rolling.push(&kernel(1, 1), start).unwrap();
        rolling.flush(start).unwrap();
        for (passed, kept) in [
            (Duration::ZERO, 1),
            (time, 1),
            (time + Duration::from_nanos(1), 0),
        ] {
            rolling.expire(start + passed);
            assert_eq!(rolling.segments.len(), kept, "{passed:?}");
        }
        assert_eq!(rolling.bytes(), 0);
    }

    /// A kernel without times belongs to the time of its launch.
    #[test]
    fn a_kernel_that_has_not_ended_is_at_its_launch() {
        let header = Header {
            kind: kind::KERNEL_DISPATCH,
            ..Header::default()
        };
        for (start, end, wanted) in [(0, 0, (50, 50)), (60, 70, (60, 70)), (60, 55, (60, 60))] {
            let kernel = Kernel {
                header,
                rung: 50,
                start,
                end,
                ..Kernel::default()
            };
            let bytes = encode(&kernel, &[]);
            let (record, _) = event::decode(&bytes).unwrap();
            assert_eq!(times(&record), Some(wanted));
        }
    }
}
