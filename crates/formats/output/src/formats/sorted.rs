//! Rows in the order of their keys, however many there are and in whatever order they come.
//!
//! Calls are recorded when they return, and each thread's records come in blocks. So ids and times are
//! nearly in order, but no distance is too large. Rows are gathered in memory, sorted when a limit is
//! reached, and written as a run into a file without a name. At the end the runs are merged.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes that are gathered before they become a run.
const GATHERED: usize = 1 << 20;
/// So many runs of one size are merged into one. Each that is merged has a buffer.
const FAN: usize = 64;
/// The size of a run's buffer.
const BUFFER: usize = 32 << 10;
/// What rows are sorted by.
pub(super) trait Key: Copy + Ord {
    /// How many bytes it has in a run.
    const LEN: usize;

    /// Appends its bytes.
    fn put(&self, to: &mut Vec<u8>);

    /// Reads it from that many bytes; none where there are fewer.
    fn get(from: &[u8]) -> Option<Self>;
}

impl Key for i64 {
    const LEN: usize = 8;

    fn put(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.to_le_bytes());
    }

    fn get(from: &[u8]) -> Option<i64> {
        Some(i64::from_le_bytes(*from.first_chunk()?))
    }
}

/// The bytes before a row in a run: its key and its length.
const fn head<K: Key>() -> usize {
    K::LEN + 4
}

/// Rows that are being gathered.
pub(super) struct Sorted<K = i64> {
    directory: PathBuf,
    limit: usize,
    /// The key, the place and the length of each row in `bytes`.
    rows: Vec<(K, u32, u32)>,
    bytes: Vec<u8>,
    file: Option<File>,
    /// The end of the file.
    end: u64,
    /// Runs by size: each of a level has about [`FAN`] times as many rows as one of the level
    /// before.
    runs: Vec<Vec<Run>>,
}

/// A place in the file.
#[derive(Clone, Copy)]
struct Run {
    at: u64,
    end: u64,
}

impl<K: Key> Sorted<K> {
    /// Makes one that keeps its runs in a directory.
    pub(super) fn new(directory: &Path) -> Sorted<K> {
        Sorted::with_limit(directory, GATHERED)
    }

    /// Makes one that gathers so many bytes before they become a run.
    pub(super) fn with_limit(directory: &Path, limit: usize) -> Sorted<K> {
        Sorted {
            directory: directory.to_owned(),
            limit,
            rows: Vec::new(),
            bytes: Vec::new(),
            file: None,
            end: 0,
            runs: Vec::new(),
        }
    }

    /// Adds a row.
    pub(super) fn push(&mut self, key: K, row: &[u8]) -> io::Result<()> {
        self.rows
            .push((key, self.bytes.len() as u32, row.len() as u32));
        self.bytes.extend_from_slice(row);
        if self.bytes.len() + size_of::<(K, u32, u32)>() * self.rows.len() < self.limit {
            return Ok(());
        }
        self.spill()
    }

    /// Writes what was gathered as a run.
    fn spill(&mut self) -> io::Result<()> {
        self.rows.sort_by_key(|(key, ..)| *key);
        let rows = std::mem::take(&mut self.rows);
        let bytes = std::mem::take(&mut self.bytes);
        let run = self.write(|put| {
            rows.iter()
                .try_for_each(|(key, at, len)| put(*key, row(&bytes, *at, *len)))
        })?;
        (self.rows, self.bytes) = (rows, bytes);
        self.rows.clear();
        self.bytes.clear();
        self.keep(0, run)
    }

    /// Keeps a run, and merges the runs of its size if there are many.
    fn keep(&mut self, level: usize, run: Run) -> io::Result<()> {
        if self.runs.len() <= level {
            self.runs.push(Vec::new());
        }
        let Some(of_level) = self.runs.get_mut(level) else {
            return Ok(());
        };
        of_level.push(run);
        if of_level.len() < FAN {
            return Ok(());
        }
        let many = std::mem::take(of_level);
        let file = self.file()?.try_clone()?;
        let merged = self.write(|put| merge(&file, &many, &|error| error, &mut *put))?;
        self.keep(level + 1, merged)
    }

    fn file(&mut self) -> io::Result<&File> {
        match &mut self.file {
            Some(file) => Ok(file),
            none => Ok(none.insert(tempfile::tempfile_in(&self.directory)?)),
        }
    }

    /// Writes rows that are in order behind what is in the file.
    fn write(
        &mut self,
        each: impl FnOnce(&mut dyn FnMut(K, &[u8]) -> io::Result<()>) -> io::Result<()>,
    ) -> io::Result<Run> {
        let (at, mut end) = (self.end, self.end);
        let file = self.file()?;
        let mut pending = Vec::with_capacity(2 * BUFFER);
        each(&mut |key, row| {
            key.put(&mut pending);
            pending.extend_from_slice(&(row.len() as u32).to_le_bytes());
            pending.extend_from_slice(row);
            if pending.len() >= BUFFER {
                file.write_all_at(&pending, end)?;
                end += pending.len() as u64;
                pending.clear();
            }
            Ok(())
        })?;
        file.write_all_at(&pending, end)?;
        self.end = end + pending.len() as u64;
        Ok(Run { at, end: self.end })
    }

    /// Gives all rows in the order of their keys. Of those with equal keys, the first that was added
    /// comes first.
    pub(super) fn each(self, put: impl FnMut(K, &[u8]) -> io::Result<()>) -> io::Result<()> {
        self.each_or(|error| error, put)
    }

    /// The same with other errors: the errors of `put`, and what `failed` makes of our own.
    pub(super) fn each_or<E>(
        mut self,
        failed: impl Fn(io::Error) -> E,
        mut put: impl FnMut(K, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.file.is_none() {
            self.rows.sort_by_key(|(key, ..)| *key);
            let bytes = &self.bytes;
            return self
                .rows
                .iter()
                .try_for_each(|(key, at, len)| put(*key, row(bytes, *at, *len)));
        }
        if !self.rows.is_empty() {
            self.spill().map_err(&failed)?;
        }
        // Runs of higher levels are older.
        let runs: Vec<Run> = self.runs.drain(..).rev().flatten().collect();
        match &self.file {
            Some(file) => merge(file, &runs, &failed, &mut put),
            None => Ok(()),
        }
    }
}

fn row(bytes: &[u8], at: u32, len: u32) -> &[u8] {
    let (at, len) = (at as usize, len as usize);
    bytes.get(at..at + len).unwrap_or_default()
}

/// A run that is being read.
struct Cursor<'f, K> {
    file: &'f File,
    run: Run,
    bytes: Vec<u8>,
    at: usize,
    key: PhantomData<K>,
}

impl<K: Key> Cursor<'_, K> {
    /// Returns the next row's key and length, if there is one, and makes its bytes available.
    fn peek(&mut self) -> io::Result<Option<(K, usize)>> {
        self.fill(head::<K>())?;
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let len = rest.get(K::LEN..).and_then(<[u8]>::first_chunk);
        let (Some(key), Some(len)) = (K::get(rest), len) else {
            return Ok(None);
        };
        let len = u32::from_le_bytes(*len) as usize;
        self.fill(head::<K>() + len)?;
        Ok(Some((key, len)))
    }

    /// Makes so many bytes available, if the run has them.
    fn fill(&mut self, wanted: usize) -> io::Result<()> {
        let left = self.bytes.len().saturating_sub(self.at);
        if left >= wanted || self.run.at >= self.run.end {
            return Ok(());
        }
        self.bytes.drain(..self.at);
        self.at = 0;
        let more = wanted.max(BUFFER) as u64;
        let more = more.min(self.run.end - self.run.at) as usize;
        self.bytes.resize(left + more, 0);
        let to = self.bytes.get_mut(left..).unwrap_or_default();
        self.file.read_exact_at(to, self.run.at)?;
        self.run.at += more as u64;
        Ok(())
    }
}

/// Gives the rows of several runs in order.
fn merge<K: Key, E>(
    file: &File,
    runs: &[Run],
    failed: &impl Fn(io::Error) -> E,
    put: &mut (impl FnMut(K, &[u8]) -> Result<(), E> + ?Sized),
) -> Result<(), E> {
    let mut cursors = Vec::with_capacity(runs.len());
    let mut next = BinaryHeap::with_capacity(runs.len());
    for (number, run) in runs.iter().enumerate() {
        let mut cursor = Cursor {
            file,
            run: *run,
            bytes: Vec::new(),
            at: 0,
            key: PhantomData,
        };
        if let Some((key, len)) = cursor.peek().map_err(failed)? {
            next.push(Reverse((key, number, len)));
        }
        cursors.push(cursor);
    }
    while let Some(Reverse((mut key, number, mut len))) = next.pop() {
        let Some(cursor) = cursors.get_mut(number) else {
            continue;
        };
        // Most rows that follow one another are in one run.
        loop {
            let from = cursor.at + head::<K>();
            put(key, cursor.bytes.get(from..from + len).unwrap_or_default())?;
            cursor.at = from + len;
            let Some((following, of)) = cursor.peek().map_err(failed)? else {
                break;
            };
            (key, len) = (following, of);
            let other = next.peek().map(|Reverse((key, number, _))| (*key, *number));
            if other.is_some_and(|other| other < (key, number)) {
                next.push(Reverse((key, number, len)));
                break;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_in_order_whatever_the_number_of_runs() {
        for (rows, limit) in [(0, 100), (50, 1 << 20), (5_000, 3_000), (40_000, 2_000)] {
            let mut sorted = Sorted::with_limit(&std::env::temp_dir(), limit);
            let mut wanted = Vec::new();
            let mut state = 1_u64;
            for number in 0..rows {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                let key = (state >> 50) as i64 - 1000;
                let row = vec![number as u8; number % 70];
                sorted.push(key, &row).unwrap();
                wanted.push((key, row));
            }
            wanted.sort_by_key(|(key, _)| *key);
            let mut found = Vec::new();
            sorted
                .each(|key, row| {
                    found.push((key, row.to_vec()));
                    Ok(())
                })
                .unwrap();
            assert_eq!(found, wanted, "{rows} rows");
        }
    }

    #[test]
    fn a_row_may_be_longer_than_a_buffer() {
        let mut sorted = Sorted::with_limit(&std::env::temp_dir(), 1000);
        for key in [3, 1, 2] {
            sorted.push(key, &vec![key as u8; 3 * BUFFER]).unwrap();
        }
        let mut found = Vec::new();
        sorted
            .each(|key, row| {
                found.push((key, row.len()));
                Ok(())
            })
            .unwrap();
        assert_eq!(found, [1, 2, 3].map(|key| (key, 3 * BUFFER)));
    }

    /// What was gathered goes into the file, and 64 runs of one size become one of the next.
    #[test]
    fn rows_do_not_stay_in_memory_and_runs_stay_few() {
        let mut sorted = Sorted::with_limit(&std::env::temp_dir(), 10 * (4 + 16));
        let runs = |sorted: &Sorted| sorted.runs.iter().map(Vec::len).collect::<Vec<_>>();
        for key in 0..9 {
            sorted.push(key, &[7; 4]).unwrap();
        }
        assert_eq!((sorted.rows.len(), runs(&sorted)), (9, vec![]));
        sorted.push(9, &[7; 4]).unwrap();
        assert_eq!((sorted.rows.len(), runs(&sorted)), (0, vec![1]));
        for key in 10..640 {
            sorted.push(-key, &[7; 4]).unwrap();
            let length = runs(&sorted)[0];
            assert!(sorted.rows.len() < 10 && length < FAN, "{key}");
        }
        assert_eq!(runs(&sorted), [0, 1]);
    }
}
