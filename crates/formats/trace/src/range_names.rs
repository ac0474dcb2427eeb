//! Kernels that are named after the ROCTx range in which they were launched (`--kernel-rename`).
//!
//! A range is recorded when it ends, often after the records of the kernels that were launched in
//! it. So all ranges of threads are read first. A kernel gets the message of the innermost range
//! that its launching thread was in when the doorbell rang. Kernels of CUDA have no such time, and
//! keep their names.
//!
//! Decision: FMT-053 (`docs/deviations/formats.md`).

use crate::index::{Stat, untimed};
use crate::limits::{self, Budget};
use crate::record_file::{RecordFile, WalkError};
use midair_record::event::{Kernel, Marker, Record, kind};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::io;

/// The most ranges that are remembered. Kernels that were launched in others keep their names.
const MOST_RANGES: usize = 1 << 21;
/// The most bytes of different messages.
const MESSAGES: usize = 64 << 20;
/// The operation of a range of a thread (`ROCPROFILER_MARKER_CORE_RANGE_API_ID_*`).
const THREAD_RANGE: u32 = 1;
/// The most ranges around a moment that are looked at. Ranges that lie inside each other end one
/// after the other, so more than these come only from a target that invents records.
const DEEPEST: usize = 256;

/// A range of a thread.
#[derive(Debug, Clone, Copy)]
struct Range {
    start: u64,
    end: u64,
    message: u32,
    /// The range around it, by its place among the thread's ranges.
    outer: Option<u32>,
}

/// What kernels are summed up by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum By {
    Message(u32),
    Kernel(u64),
}

/// The ranges in which dispatches were launched, where a database gives them.
#[derive(Debug, Clone, Default)]
pub struct GivenRanges {
    messages: Vec<String>,
    numbers: HashMap<String, u32>,
    budget: Budget<MESSAGES>,
    of: HashMap<u64, u32>,
    beyond: u64,
}

impl GivenRanges {
    /// Adds the message of the range in which a dispatch was launched.
    pub fn add(&mut self, dispatch_id: u64, message: &str) {
        let number = match self.numbers.get(message) {
            Some(number) => Some(*number),
            None if self.budget.take(2 * message.len() + 64) => {
                let number = self.messages.len() as u32;
                self.messages.push(message.to_owned());
                self.numbers.insert(message.to_owned(), number);
                Some(number)
            }
            None => None,
        };
        match number.filter(|_| self.of.len() < MOST_RANGES) {
            Some(number) => drop(self.of.insert(dispatch_id, number)),
            None => self.beyond += 1,
        }
    }

    /// Whether no dispatch has a range.
    pub fn is_empty(&self) -> bool {
        self.of.is_empty()
    }
}

/// The ranges of a session, and the times of kernels by their names.
#[derive(Debug, Default)]
pub struct Renamed {
    messages: Vec<String>,
    threads: HashMap<u32, Vec<Range>>,
    /// The messages of dispatches by their numbers, in the place of ranges of threads.
    given: Option<HashMap<u64, u32>>,
    sums: BTreeMap<By, Stat>,
    /// The number of ranges that were too many to remember.
    beyond: u64,
    failed: Option<String>,
}

impl Renamed {
    /// Reads the ranges, and sums up the kernels that are in the results.
    pub fn read(records: &RecordFile) -> Renamed {
        Renamed::within::<MOST_RANGES, MESSAGES>(records)
    }

    /// Takes these ranges, and sums up the kernels that are in the results.
    pub fn given(ranges: &GivenRanges, records: &RecordFile) -> Renamed {
        let mut all = Renamed {
            messages: ranges.messages.clone(),
            given: Some(ranges.of.clone()),
            beyond: ranges.beyond,
            ..Renamed::default()
        };
        let read = all.sum_up(records);
        all.failed = read.err().map(|error| error.to_string());
        all
    }

    /// Does so with at most so many ranges, and so many bytes of messages.
    fn within<const RANGES: usize, const BYTES: usize>(records: &RecordFile) -> Renamed {
        let mut all = Renamed::default();
        let read = all.read_ranges::<RANGES, BYTES>(records);
        let read = read.and_then(|()| all.sum_up(records));
        all.failed = read.err().map(|error| error.to_string());
        all
    }

    fn read_ranges<const RANGES: usize, const BYTES: usize>(
        &mut self,
        records: &RecordFile,
    ) -> io::Result<()> {
        let mut known: HashMap<Vec<u8>, u32> = HashMap::new();
        let mut budget = Budget::<BYTES>::default();
        let mut count = 0;
        let walked = records.walk(
            |of| of == kind::MARKER_CORE_RANGE_API,
            |record| {
                if let Record::Marker(marker, message) = record
                    && marker.header.operation == THREAD_RANGE
                {
                    let message = match known.get(*message) {
                        Some(known) => Some(*known),
                        None if budget.take(message.len() + 64) => {
                            let number = self.messages.len() as u32;
                            self.messages.push(limits::text(message).into_owned());
                            known.insert(message.to_vec(), number);
                            Some(number)
                        }
                        None => None,
                    };
                    match message.filter(|_| count < RANGES) {
                        Some(message) => self.add(marker, message),
                        None => self.beyond += 1,
                    }
                    count += 1;
                }
                Ok::<(), Infallible>(())
            },
        );
        read(walked)?;
        self.threads.values_mut().for_each(|of| nest(of));
        Ok(())
    }

    fn add(&mut self, marker: &Marker, message: u32) {
        self.threads.entry(marker.tid).or_default().push(Range {
            start: marker.start,
            end: marker.end,
            message,
            outer: None,
        });
    }

    fn sum_up(&mut self, records: &RecordFile) -> io::Result<()> {
        let mut sums: BTreeMap<By, Stat> = BTreeMap::new();
        let walked = records.walk(
            |of| of == kind::KERNEL_DISPATCH,
            |record| {
                if let Record::Kernel(kernel, _) = record
                    && untimed(kernel.header.flags, kernel.untimed).is_none()
                {
                    let by = self
                        .message(kernel)
                        .map_or(By::Kernel(kernel.kernel_id), By::Message);
                    let sum = sums.entry(by).or_default();
                    sum.count(kernel.end.saturating_sub(kernel.start));
                }
                Ok::<(), Infallible>(())
            },
        );
        self.sums = sums;
        read(walked)
    }

    fn message(&self, kernel: &Kernel) -> Option<u32> {
        if let Some(given) = &self.given {
            return given.get(&kernel.dispatch_id).copied();
        }
        let ranges = self.threads.get(&kernel.tid).filter(|_| kernel.rung > 0)?;
        let after = ranges.partition_point(|range| range.start <= kernel.rung);
        let mut at = after.checked_sub(1).and_then(|at| ranges.get(at));
        for _ in 0..DEEPEST {
            let range = at?;
            if range.end >= kernel.rung {
                return Some(range.message);
            }
            at = range.outer.and_then(|outer| ranges.get(outer as usize));
        }
        None
    }

    /// Returns the number, from 1, and the message of the range in which a kernel was launched.
    pub fn of(&self, kernel: &Kernel) -> Option<(u64, &str)> {
        let message = self.message(kernel)?;
        let text = self.messages.get(message as usize)?;
        Some((u64::from(message) + 1, text))
    }

    /// Returns all messages with their numbers.
    pub fn messages(&self) -> impl Iterator<Item = (u64, &str)> {
        (1..).zip(self.messages.iter().map(String::as_str))
    }

    /// Returns the times of kernels: the message, or the id of a kernel that was launched in no
    /// range.
    pub fn sums(&self) -> impl Iterator<Item = (Result<&str, u64>, &Stat)> {
        self.sums.iter().map(|(by, stat)| match by {
            By::Message(message) => {
                let text = self.messages.get(*message as usize);
                (Ok(text.map_or("", String::as_str)), stat)
            }
            By::Kernel(id) => (Err(*id), stat),
        })
    }

    /// Returns what a reader has to know.
    pub fn note(&self) -> Option<String> {
        if let Some(failed) = &self.failed {
            return Some(format!("cannot rename kernels: {failed}"));
        }
        (self.beyond > 0).then(|| {
            format!(
                "kernels in {} ranges keep their names: there were too many ranges",
                self.beyond
            )
        })
    }
}

fn read(walked: Result<(), WalkError<Infallible>>) -> io::Result<()> {
    walked.map_err(|error| match error {
        WalkError::Read(error) => error,
        WalkError::Visit(never) => match never {},
    })
}

/// Sorts the ranges of a thread, and finds the range around each.
fn nest(ranges: &mut [Range]) {
    ranges.sort_by_key(|range| (range.start, Reverse(range.end)));
    let mut open: Vec<(u32, u64)> = Vec::new();
    for (place, range) in (0..).zip(ranges) {
        while open.last().is_some_and(|(_, end)| *end < range.start) {
            open.pop();
        }
        range.outer = open.last().map(|(outer, _)| *outer);
        open.push((place, range.end));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record_file::RecordWriter;
    use midair_record::event::{self, Header};

    fn range(tid: u32, start: u64, end: u64, operation: u32, message: &str) -> Vec<u8> {
        let marker = Marker {
            header: Header {
                kind: kind::MARKER_CORE_RANGE_API,
                operation,
                ..Header::default()
            },
            start,
            end,
            tid,
            len: message.len() as u32,
            ..Marker::default()
        };
        event::encode(&marker, message.as_bytes())
    }

    fn kernel(tid: u32, rung: u64, kernel_id: u64) -> Kernel {
        Kernel {
            header: Header {
                kind: kind::KERNEL_DISPATCH,
                ..Header::default()
            },
            rung,
            start: rung + 1_000,
            end: rung + 1_010,
            tid,
            kernel_id,
            ..Kernel::default()
        }
    }

    #[test]
    fn the_innermost_range_of_the_launching_thread_counts() {
        let mut writer = RecordWriter::create_in(&std::env::temp_dir()).unwrap();
        let mut append = |bytes: &[u8]| assert_eq!(writer.append(bytes).unwrap(), 1);
        for (rung, id) in [(5, 1), (15, 1), (25, 2), (35, 1), (45, 3), (0, 3)] {
            append(&event::encode(&kernel(7, rung, id), &[]));
        }
        append(&event::encode(&kernel(8, 25, 1), &[]));
        // Ranges are recorded when they end.
        append(&range(7, 20, 30, 1, "inner"));
        append(&range(7, 12, 13, 1, "before"));
        append(&range(7, 10, 40, 1, "outer"));
        // This is a range of the process, and a mark.
        append(&range(7, 1, 60, 2, "process"));
        append(&range(7, 45, 45, 0, "mark"));
        append(&range(9, 0, 90, 1, "another thread"));
        let renamed = Renamed::read(&writer.finish().unwrap());
        let name = |tid, rung| renamed.of(&kernel(tid, rung, 1)).map(|(_, name)| name);
        assert_eq!(name(7, 5), None);
        assert_eq!(name(7, 15), Some("outer"));
        assert_eq!(name(7, 25), Some("inner"));
        assert_eq!(name(7, 35), Some("outer"));
        assert_eq!(name(7, 45), None);
        assert_eq!(name(7, 0), None, "no time of the launch");
        assert_eq!(name(8, 25), None, "another thread");
        let sums: BTreeMap<_, u64> = renamed.sums().map(|(by, sum)| (by, sum.calls)).collect();
        let wanted = [(Ok("inner"), 1), (Ok("outer"), 2), (Err(1), 2), (Err(3), 2)];
        assert_eq!(sums, BTreeMap::from(wanted));
        let (number, _) = renamed.of(&kernel(7, 25, 1)).unwrap();
        assert!(renamed.messages().any(|known| known == (number, "inner")));
        assert_eq!(renamed.note(), None);
    }

    #[test]
    fn ranges_that_a_target_invents_take_no_time() {
        let mut ranges: Vec<Range> = (0..100_000)
            .map(|start| Range {
                start,
                end: 100_000,
                message: 0,
                outer: None,
            })
            .collect();
        nest(&mut ranges);
        let all = Renamed {
            messages: vec!["deep".to_owned()],
            threads: HashMap::from([(7, ranges)]),
            ..Renamed::default()
        };
        assert_eq!(all.of(&kernel(7, 200_000, 1)), None);
        assert_eq!(all.of(&kernel(7, 99_999, 1)), Some((1, "deep")));
    }

    /// Returns the messages of the first ranges, all of one thread and 10 ns apart, as far as their
    /// kernels are named after them, and what is said about the others.
    fn named<const RANGES: usize, const BYTES: usize>(
        messages: &[&str],
    ) -> (Vec<Option<String>>, Option<String>) {
        let mut writer = RecordWriter::create_in(&std::env::temp_dir()).unwrap();
        for (at, message) in (1..).zip(messages) {
            let range = range(7, 10 * at, 10 * at + 5, 1, message);
            assert_eq!(writer.append(&range).unwrap(), 1);
        }
        let records = writer.finish().unwrap();
        let renamed = Renamed::within::<RANGES, BYTES>(&records);
        let of = |at| renamed.of(&kernel(7, 10 * at + 1, 1));
        let names = (1..=messages.len() as u64).map(|at| Some(of(at)?.1.to_owned()));
        (names.collect(), renamed.note())
    }

    #[test]
    fn kernels_in_ranges_beyond_the_limits_keep_their_names() {
        let some = |name: &str| Some(name.to_owned());
        let note = |ranges: u32| {
            Some(format!(
                "kernels in {ranges} ranges keep their names: there were too many ranges"
            ))
        };
        let all = ["a", "b", "a", "c"];
        let every = vec![some("a"), some("b"), some("a"), some("c")];
        assert_eq!(named::<4, 1000>(&all), (every.clone(), None));
        let three = vec![some("a"), some("b"), some("a"), None];
        assert_eq!(named::<3, 1000>(&all), (three.clone(), note(1)));
        let two = vec![some("a"), some("b"), None, None];
        assert_eq!(named::<2, 1000>(&all), (two, note(2)));
        // A message counts once, and as 64 bytes more than it has.
        assert_eq!(named::<4, { 3 * 65 }>(&all), (every, None));
        assert_eq!(named::<4, { 3 * 65 - 1 }>(&all), (three, note(1)));
        let longer = ["aaaa", "b", "b"];
        let first = vec![some("aaaa"), None, None];
        assert_eq!(named::<4, { 68 + 64 }>(&longer), (first, note(2)));
    }

    #[test]
    fn a_launch_at_an_unknown_time_is_in_no_range() {
        let mut writer = RecordWriter::create_in(&std::env::temp_dir()).unwrap();
        writer
            .append(&range(7, 0, 90, 1, "from the begin"))
            .unwrap();
        let renamed = Renamed::read(&writer.finish().unwrap());
        let name = |rung| renamed.of(&kernel(7, rung, 1)).map(|(_, name)| name);
        assert_eq!([name(0), name(1)], [None, Some("from the begin")]);
    }

    /// Ranges that have ended are not around later ones, so the search does not have to go through
    /// all of them.
    #[test]
    fn a_range_around_many_others_is_found_behind_them() {
        let mut writer = RecordWriter::create_in(&std::env::temp_dir()).unwrap();
        for step in 1..=2 * DEEPEST as u64 {
            let range = range(7, 10 * step, 10 * step + 5, 1, "step");
            assert_eq!(writer.append(&range).unwrap(), 1);
        }
        writer.append(&range(7, 1, 100_000, 1, "loop")).unwrap();
        let renamed = Renamed::read(&writer.finish().unwrap());
        let name = |rung| renamed.of(&kernel(7, rung, 1)).map(|(_, name)| name);
        assert_eq!([name(13), name(17)], [Some("step"), Some("loop")]);
        assert_eq!(name(90_000), Some("loop"));
    }

    #[test]
    fn records_that_cannot_be_read_are_told() {
        assert!(read(Ok(())).is_ok());
        let broken = WalkError::Read(io::ErrorKind::StorageFull.into());
        let error = read(Err(broken)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        let renamed = Renamed {
            failed: Some("it is full".to_owned()),
            beyond: 3,
            ..Renamed::default()
        };
        let wanted = "cannot rename kernels: it is full";
        assert_eq!(renamed.note().as_deref(), Some(wanted));
    }
}
