//! What the modelled GPU consumed.
//!
//! The format and its reader are the model's own (`midair_gpu_model::log`); here is what tests ask of it.

use crate::Result;
pub use midair_gpu_model::log::{Copy, Dispatch, Event, Packet, Record};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a line may take until it is whole.
const WHOLE: Duration = Duration::from_secs(5);

/// A log, in the order in which it was written.
#[derive(Debug, Clone, Default)]
pub struct ModelLog {
    /// All records.
    pub records: Vec<Record>,
}

impl ModelLog {
    /// Reads a log; a log that is not there yet is empty (the model makes it when the runtime starts).
    ///
    /// # Errors
    /// When it cannot be read or holds something that is not a record.
    pub fn read(path: &Path) -> Result<ModelLog> {
        let read = || match std::fs::read_to_string(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
            text => text,
        };
        let mut text = read()?;
        // A record is one write; but whoever reads while it lasts sees it page by page.
        let end = Instant::now() + WHOLE;
        while !text.is_empty() && !text.ends_with('\n') && Instant::now() < end {
            std::thread::yield_now();
            text = read()?;
        }
        Ok(ModelLog {
            records: midair_gpu_model::log::parse(&text)?,
        })
    }
    /// Dispatches that ran to their end.
    pub fn dispatches(&self) -> impl Iterator<Item = &Dispatch> {
        self.records.iter().filter_map(|r| {
            if let Event::Dispatch(d) = &r.event {
                Some(d)
            } else {
                None
            }
        })
    }
    /// Dispatches with a time of their own that were begun (whether or not they ended).
    pub fn begun(&self) -> impl Iterator<Item = &Dispatch> {
        self.records.iter().filter_map(|r| {
            if let Event::Begin(d) = &r.event {
                Some(d)
            } else {
                None
            }
        })
    }
    /// Copies by the DMA engines.
    pub fn copies(&self) -> impl Iterator<Item = &Copy> {
        self.records.iter().filter_map(|r| {
            if let Event::Copy(c) = &r.event {
                Some(c)
            } else {
                None
            }
        })
    }
    /// All AQL packets that were passed: dispatches, barriers, vendor packets.
    pub fn packets(&self) -> impl Iterator<Item = &Packet> {
        self.records.iter().filter_map(|r| match &r.event {
            Event::Dispatch(d) => Some(&d.packet),
            Event::Barrier { packet, .. } | Event::Vendor { packet, .. } => Some(packet),
            _ => None,
        })
    }
    /// How many dispatches there were of each grid (x, y, z).
    pub fn grids(&self) -> BTreeMap<[u32; 3], usize> {
        let mut grids = BTreeMap::new();
        for dispatch in self.dispatches() {
            *grids.entry(dispatch.grid).or_default() += 1;
        }
        grids
    }
    /// Checks the log against itself: per queue the packet indices follow one another without a gap, times do not run
    /// backwards, and nothing unknown was met.
    ///
    /// # Errors
    /// The first record that is wrong.
    pub fn check(&self) -> Result<()> {
        let mut next: BTreeMap<(u32, u32), (u64, u64)> = BTreeMap::new();
        for record in &self.records {
            let packet = match &record.event {
                Event::Unknown { .. } => return Err(format!("unknown packet: {record}").into()),
                Event::Dispatch(d) => &d.packet,
                Event::Barrier { packet, .. } | Event::Vendor { packet, .. } => packet,
                _ => continue,
            };
            let (index, time) = next.entry((record.pid, record.queue)).or_default();
            if packet.index != *index
                || packet.start < *time
                || packet.end < packet.start
                || record.time < packet.end
            {
                return Err(format!("expected index {index} after {time}: {record}").into());
            }
            (*index, *time) = (packet.index + 1, packet.end);
        }
        Ok(())
    }
}
