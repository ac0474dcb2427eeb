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
