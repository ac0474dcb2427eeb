//! The files of events: one for each thread, queue or stream, and one more for each set of slices
//! that would cross others there.
//!
//! Within a location regions have to be left in the reverse order in which they were entered. Calls
//! of a thread nest by themselves. Kernels of a queue may overlap: those that do are shown on
//! further locations, with their true times.

use super::bytes::{self, Chunks, Take};
use super::definitions::Type;
use super::sort::{Event, What};
use crate::files::{ArchiveFile, NewArchive, WriteError};
use crate::lanes::Rule;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;

/// The size of a chunk of events, which is the smallest that libotf2 takes. Each open location has
/// one in memory.
pub(super) const CHUNK: usize = 1 << 18;
/// The most locations of one row. What fits on none of them is on the last one, where regions may
/// cross.
const MOST_LANES: usize = 64;
/// The most regions that are open at once on a location.
const MOST_OPEN: usize = 1 << 12;
/// The same, on the last one. A region beyond it is left at once, and has its end as an attribute.
const MOST_OPEN_LAST: usize = 1 << 16;

/// Types of records.
mod kind {
    pub(super) const TIMESTAMP: u8 = 5;
    pub(super) const ATTRIBUTES: u8 = 6;
    pub(super) const ENTER: u8 = 12;
    pub(super) const LEAVE: u8 = 13;
    pub(super) const METRIC: u8 = 31;
}

impl Take for ArchiveFile {
    fn take(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        self.put(bytes)
    }
    fn failed(&self, error: io::Error) -> WriteError {
        ArchiveFile::failed(self, error)
    }
}

/// A region that was entered, in the order in which regions are left: of those that end together
/// the one that was entered last comes first.
type Open = Reverse<(u64, Reverse<u64>, u32)>;

/// A location under construction.
struct Location {
    number: u64,
    chunks: Chunks<ArchiveFile>,
    /// The time of its last event.
    time: Option<u64>,
    open: BinaryHeap<Open>,
    entered: u64,
    record: Vec<u8>,
    list: Vec<u8>,
}

impl Location {
    fn begin(archive: &NewArchive, number: u64) -> Result<Location, WriteError> {
        // Each location has definitions of its own. Ours need none.
        let none = Chunks::begin(archive.create(&format!("{number}.def"))?, CHUNK);
        none.end()?;
        let file = archive.create(&format!("{number}.evt"))?;
        Ok(Location {
            number,
            chunks: Chunks::begin(file, CHUNK),
            time: None,
            open: BinaryHeap::new(),
            entered: 0,
            record: Vec::new(),
            list: Vec::new(),
        })
    }

    /// Adds the event in `record`, with its time and its attributes, all in one chunk.
    fn put(&mut self, time: u64, attributes: (u64, &[u8])) -> Result<(), WriteError> {
        let (count, attributes) = attributes;
        self.list.clear();
        if count > 0 {
            let mut content = Vec::with_capacity(attributes.len() + 5);
            bytes::u32(&mut content, count as u32);
            content.extend_from_slice(attributes);
            bytes::record(&mut self.list, kind::ATTRIBUTES, &content);
        }
        let room = 1 + size_of::<u64>() + self.list.len() + self.record.len();
        let is_new = self.chunks.room(room)?;
        if is_new || self.time != Some(time) {
            self.chunks.put(&[kind::TIMESTAMP]);
            self.chunks.put(&time.to_le_bytes());
            self.time = Some(time);
        }
        self.chunks.put(&self.list);
        self.chunks.put(&self.record);
        self.chunks.count();
        Ok(())
    }

    /// Leaves the regions that end until then.
    fn leave(&mut self, until: u64) -> Result<(), WriteError> {
        while let Some(Reverse((end, _, region))) = self.open.peek().copied()
            && end <= until
        {
            self.open.pop();
            self.one_region(kind::LEAVE, region);
            self.put(end, (0, &[]))?;
        }
        Ok(())
    }

    fn one_region(&mut self, kind: u8, region: u32) {
        self.record.clear();
        self.record.push(kind);
        bytes::u32(&mut self.record, region);
    }

    fn enter(&mut self, region: u32, end: u64, event: &Event<'_>) -> Result<(), WriteError> {
        self.one_region(kind::ENTER, region);
        self.put(event.start, (event.number, event.extra))?;
        self.open
            .push(Reverse((end, Reverse(self.entered), region)));
        self.entered += 1;
        Ok(())
    }

    fn metric(&mut self, metric: u32, event: &Event<'_>) -> Result<(), WriteError> {
        let mut content = Vec::new();
        bytes::u32(&mut content, metric);
        content.extend_from_slice(&[1, Type::Double as u8]);
        bytes::u64(&mut content, event.number);
        self.record.clear();
        bytes::record(&mut self.record, kind::METRIC, &content);
        self.put(event.start, (0, &[]))
    }

    /// Whether a region that ends then crosses none that is open.
    fn fits(&self, rule: Rule, end: u64) -> bool {
        match self.open.peek() {
            None => true,
            Some(Reverse((first, _, _))) => {
                rule == Rule::Nested && *first >= end && self.open.len() < MOST_OPEN
            }
        }
    }
}

/// The locations of one row, while its events are written in the order of their times.
pub(super) struct Locations<'a> {
    archive: &'a NewArchive,
    rule: Rule,
    lanes: Vec<Location>,
    /// The number of the `end` attribute.
    end: Option<u32>,
}

/// A location that was written.
pub(super) struct Written {
    pub(super) number: u64,
    pub(super) events: u64,
}

impl<'a> Locations<'a> {
    pub(super) fn begin(archive: &'a NewArchive, rule: Rule, end: Option<u32>) -> Locations<'a> {
        Locations {
            archive,
            rule,
            lanes: Vec::new(),
            end,
        }
    }

    /// Adds an event. `next` is the number of the next location.
    pub(super) fn put(&mut self, event: &Event<'_>, next: &mut u64) -> Result<(), WriteError> {
        let (rule, end) = (self.rule, event.end.max(event.start));
        let mut found = None;
        for (number, lane) in self.lanes.iter_mut().enumerate() {
            lane.leave(event.start)?;
            if lane.fits(rule, end) {
                found = Some(number);
                break;
            }
        }
        if found.is_none() && self.lanes.len() < MOST_LANES {
            self.lanes.push(Location::begin(self.archive, *next)?);
            *next += 1;
        }
        let number = found.unwrap_or(self.lanes.len().saturating_sub(1));
        let Some(lane) = self.lanes.get_mut(number) else {
            return Ok(());
        };
        match event.what {
            What::Metric(metric) => lane.metric(metric, event),
            What::Region(region) if lane.open.len() < MOST_OPEN_LAST => {
                lane.enter(region, end, event)
            }
            What::Region(region) => {
                let (mut number, mut extra) = (event.number, event.extra.to_vec());
                if let Some(attribute) = self.end {
                    number += 1;
                    bytes::u32(&mut extra, attribute);
                    extra.push(Type::U64 as u8);
                    bytes::u64(&mut extra, end);
                }
                let event = Event {
                    number,
                    extra: &extra,
                    ..*event
                };
                lane.enter(region, event.start, &event)
            }
        }
    }

    /// Makes sure that there is a location, even without events.
    pub(super) fn first(&mut self, next: &mut u64) -> Result<(), WriteError> {
        if self.lanes.is_empty() {
            self.lanes.push(Location::begin(self.archive, *next)?);
            *next += 1;
        }
        Ok(())
    }

    /// Ends all locations.
    pub(super) fn end(self) -> Result<Vec<Written>, WriteError> {
        let end = |mut lane: Location| {
            lane.leave(u64::MAX)?;
            let events = lane.chunks.events;
            lane.chunks.end()?;
            Ok(Written {
                number: lane.number,
                events,
            })
        };
        self.lanes.into_iter().map(end).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::FileSet;
    use std::fs;
    use std::path::Path;

    /// Writes an archive, and gives it to `read`.
    fn archive(write: impl FnOnce(&NewArchive), read: impl FnOnce(&Path)) {
        let directory = tempfile::tempdir().unwrap();
        let mut files = FileSet::new(directory.path(), "r").unwrap();
        let archive = files.folder().archive("results").unwrap();
        write(&archive);
        files.add_archive(archive);
        files.commit().unwrap();
        read(&directory.path().join("r_results"));
    }

    fn region(start: u64, end: u64) -> Event<'static> {
        Event {
            row: 0,
            start,
            end,
            what: What::Region(0),
            number: 0,
            extra: &[],
        }
    }

    /// Returns how many events each location has.
    fn counts(rule: Rule, events: impl Iterator<Item = Event<'static>>) -> Vec<u64> {
        let mut counts = Vec::new();
        archive(
            |archive| {
                let (mut locations, mut next) = (Locations::begin(archive, rule, Some(5)), 10);
                for event in events {
                    locations.put(&event, &mut next).unwrap();
                }
                let written = locations.end().unwrap();
                let numbers: Vec<u64> = written.iter().map(|one| one.number).collect();
                assert_eq!(numbers, (10..next).collect::<Vec<_>>());
                counts = written.iter().map(|one| one.events).collect();
            },
            |_| (),
        );
        counts
    }

    /// An event with its time and its attributes is in one chunk, which it may fill to the last
    /// byte. The end of the file takes two.
    #[test]
    fn a_chunk_is_filled_to_the_last_byte() {
        const HEAD: usize = 18;
        const TIME: usize = 9;
        const END: usize = 2;
        // Type and length of the attributes, and how many there are.
        const LIST: usize = 4;
        let first = 1000;
        for more in [0, 1] {
            archive(
                |archive| {
                    let mut location = Location::begin(archive, 3).unwrap();
                    location.record = vec![9; first];
                    location.put(7, (0, &[])).unwrap();
                    let left = CHUNK - HEAD - TIME - first - TIME - LIST - 20 - END;
                    location.record = vec![9; left + more];
                    location.put(8, (1, &[1; 20])).unwrap();
                    location.chunks.end().unwrap();
                },
                |path| {
                    let size = fs::metadata(path.join("3.evt")).unwrap().len() as usize;
                    let second = CHUNK - TIME - first;
                    let wanted = [CHUNK, CHUNK + second + more];
                    assert_eq!(size, wanted[more]);
                },
            );
        }
    }

    /// A time is not repeated, but for the first event of a chunk.
    #[test]
    fn a_time_is_told_once_in_each_chunk() {
        archive(
            |archive| {
                let mut location = Location::begin(archive, 3).unwrap();
                for record in [[12, 0], [13, 0]] {
                    location.record = record.to_vec();
                    location.put(7, (0, &[])).unwrap();
                }
                location.record = vec![9; CHUNK - 100];
                location.put(7, (0, &[])).unwrap();
                location.record = vec![9; 100];
                location.put(7, (0, &[])).unwrap();
                location.chunks.end().unwrap();
            },
            |path| {
                let file = fs::read(path.join("3.evt")).unwrap();
                let time = [&[5_u8][..], &7_u64.to_le_bytes()].concat();
                let begin = [&time[..], &[12, 0, 13, 0, 9]].concat();
                assert_eq!(file.get(18..18 + begin.len()), Some(&begin[..]));
                let second = [&time[..], &[9]].concat();
                let at = CHUNK + 18;
                assert_eq!(file.get(at..at + second.len()), Some(&second[..]));
            },
        );
    }

    /// Calls nest so deep and no deeper on one location.
    #[test]
    fn further_nested_calls_are_on_a_further_location() {
        let most = MOST_OPEN as u64;
        let deep = |calls: u64| (0..calls).map(|at| region(at, 100_000 - at));
        assert_eq!(counts(Rule::Nested, deep(most)), [2 * most]);
        assert_eq!(counts(Rule::Nested, deep(most + 1)), [2 * most, 2]);
        // One that ends with the call around it is within it, and one that ends later is not.
        let pair = |end: u64| [region(0, 10), region(5, end)].into_iter();
        assert_eq!(counts(Rule::Nested, pair(9)), [4]);
        assert_eq!(counts(Rule::Nested, pair(10)), [4]);
        assert_eq!(counts(Rule::Nested, pair(11)), [2, 2]);
        // Work is apart, but where it only touches.
        assert_eq!(counts(Rule::Apart, pair(9)), [2, 2]);
        let touching = [region(0, 10), region(10, 20)].into_iter();
        assert_eq!(counts(Rule::Apart, touching), [4]);
    }

    /// What fits on no location is on the last one, and what is open there has a limit, too.
    #[test]
    fn what_overlaps_too_much_is_on_the_last_location() {
        let most = (MOST_LANES + MOST_OPEN_LAST) as u64;
        let all = (0..most).map(|at| region(at, 1_000_000 + at));
        let counted = counts(Rule::Apart, all);
        let (last, others) = counted.split_last().unwrap();
        assert_eq!(others, [2; MOST_LANES - 1]);
        assert_eq!(*last, 2 * (MOST_OPEN_LAST as u64 + 1));
    }

    /// Returns the number of attributes, and their bytes, that the last of so many regions has.
    fn last_of(open: usize) -> Vec<u8> {
        let mut tail = Vec::new();
        archive(
            |archive| {
                let mut next = 0;
                let mut locations = Locations::begin(archive, Rule::Apart, Some(5));
                let before = MOST_LANES - 1 + open;
                for at in 0..before as u64 {
                    locations.put(&region(at, 1 << 40), &mut next).unwrap();
                }
                let last = locations.lanes.last_mut().unwrap();
                assert_eq!(last.open.len(), open);
                last.list = vec![1];
                let event = region(before as u64, 0x0102_0304_0506);
                locations.put(&event, &mut next).unwrap();
                tail.clone_from(&locations.lanes.last().unwrap().list);
            },
            |_| (),
        );
        tail
    }

    /// A region beyond the limit of the last location has its end as an attribute.
    #[test]
    fn what_is_beyond_the_last_location_s_limit_says_when_it_ends() {
        assert!(last_of(MOST_OPEN_LAST - 1).is_empty());
        let end = [6, 12, 1, 1, 1, 5, 4, 6, 6, 5, 4, 3, 2, 1];
        assert_eq!(last_of(MOST_OPEN_LAST), end);
    }

    #[test]
    fn an_archive_without_events_has_a_location() {
        archive(
            |archive| {
                let (mut locations, mut next) = (Locations::begin(archive, Rule::Nested, None), 4);
                locations.first(&mut next).unwrap();
                locations.first(&mut next).unwrap();
                let written = locations.end().unwrap();
                assert_eq!((next, written.len(), written[0].events), (5, 1, 0));
            },
            |path| {
                assert!(path.join("4.evt").exists() && path.join("4.def").exists());
            },
        );
    }
}
