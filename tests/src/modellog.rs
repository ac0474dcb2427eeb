//! What the modelled GPU consumed.
//!
//! The format and its reader belong to the model itself (`midair_gpu_model::log`). This module has
//! what tests ask of the log.

use crate::Result;
pub use midair_gpu_model::log::{Copy, Dispatch, Event, Packet, Record};
pub use midair_gpu_model::sampling::Taken;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a line may take until it is complete.
const WHOLE: Duration = Duration::from_secs(5);

/// A log, in the order in which it was written.
#[derive(Debug, Clone, Default)]
pub struct ModelLog {
    /// All records.
    pub records: Vec<Record>,
}

/// What was read of a file before. Tests that wait for work read a log again and again while it
/// grows to many MB.
struct Seen {
    /// The device and the number of the file: a new file starts again.
    file: (u64, u64),
    bytes: u64,
    log: ModelLog,
}

static SEEN: Mutex<BTreeMap<PathBuf, Seen>> = Mutex::new(BTreeMap::new());

impl ModelLog {
    /// Reads a log. A log that does not exist yet is empty, since the model makes it when the
    /// runtime starts.
    ///
    /// # Errors
    /// Fails when the log cannot be read or holds something that is not a record.
    pub fn read(path: &Path) -> Result<ModelLog> {
        let mut file = match File::open(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(ModelLog::default());
            }
            file => file?,
        };
        let now = file.metadata()?;
        let now = ((now.dev(), now.ino()), now.len());
        let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
        let before = seen
            .remove(path)
            .filter(|before| before.file == now.0 && before.bytes <= now.1);
        let mut before = before.unwrap_or_else(|| Seen {
            file: now.0,
            bytes: 0,
            log: ModelLog::default(),
        });
        let mut read = || -> std::io::Result<String> {
            file.seek(SeekFrom::Start(before.bytes))?;
            let mut text = String::new();
            file.read_to_string(&mut text)?;
            Ok(text)
        };
        let mut text = read()?;
        // A record is one write, but a reader that reads meanwhile sees it page by page.
        let end = Instant::now() + WHOLE;
        while !text.is_empty() && !text.ends_with('\n') && Instant::now() < end {
            std::thread::yield_now();
            text = read()?;
        }
        let records = midair_gpu_model::log::parse(&text)?;
        before.log.records.extend(records);
        before.bytes += text.len() as u64;
        let log = before.log.clone();
        seen.insert(path.to_owned(), before);
        Ok(log)
    }
    /// Returns the dispatches that ran to their end.
    pub fn dispatches(&self) -> impl Iterator<Item = &Dispatch> {
        self.records.iter().filter_map(|r| {
            if let Event::Dispatch(d) = &r.event {
                Some(d)
            } else {
                None
            }
        })
    }
    /// Returns the samples of program counters that were taken, with the kernel's descriptor.
    pub fn samples(&self) -> impl Iterator<Item = (u64, &Taken)> {
        self.records.iter().filter_map(|r| match &r.event {
            Event::Samples {
                kernel_object,
                taken,
                ..
            } => Some((*kernel_object, taken)),
            _ => None,
        })
    }
    /// Returns the dispatches with a time of their own that started, whether or not they ended.
    pub fn begun(&self) -> impl Iterator<Item = &Dispatch> {
        self.records.iter().filter_map(|r| {
            if let Event::Begin(d) = &r.event {
                Some(d)
            } else {
                None
            }
        })
    }
    /// Returns the copies by the DMA engines.
    pub fn copies(&self) -> impl Iterator<Item = &Copy> {
        self.records.iter().filter_map(|r| {
            if let Event::Copy(c) = &r.event {
                Some(c)
            } else {
                None
            }
        })
    }
    /// Returns all AQL packets that the device has processed: dispatches, barriers and vendor
    /// packets.
    pub fn packets(&self) -> impl Iterator<Item = &Packet> {
        self.records.iter().filter_map(|r| match &r.event {
            Event::Dispatch(d) => Some(&d.packet),
            Event::Barrier { packet, .. } | Event::Vendor { packet, .. } => Some(packet),
            _ => None,
        })
    }
    /// Returns how many dispatches there were of each grid (x, y, z).
    pub fn grids(&self) -> BTreeMap<[u32; 3], usize> {
        let mut grids = BTreeMap::new();
        for dispatch in self.dispatches() {
            *grids.entry(dispatch.grid).or_default() += 1;
        }
        grids
    }
    /// Checks the log against itself. In each queue the packet indices follow one another without a
    /// gap, times do not run backwards, and there is nothing unknown.
    ///
    /// # Errors
    /// Returns the first record that is wrong.
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests may panic")]

    use super::*;
    use std::io::Write;

    const LINE: &str = "t=1 pid=2 q=0 ev=queue-end idx=";

    #[test]
    fn a_log_that_grew_is_read_on_and_one_that_was_made_anew_from_its_beginning() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        assert!(ModelLog::read(&path).unwrap().records.is_empty());
        let mut file = File::create(&path).unwrap();
        let mut count = 0;
        for more in [1, 0, 3] {
            for index in 0..more {
                writeln!(file, "{LINE}{index}").unwrap();
            }
            count += more;
            assert_eq!(ModelLog::read(&path).unwrap().records.len(), count);
        }
        let other = directory.path().join("other");
        std::fs::write(&other, format!("{LINE}7\n").repeat(9)).unwrap();
        std::fs::rename(&other, &path).unwrap();
        assert_eq!(ModelLog::read(&path).unwrap().records.len(), 9);
        std::fs::write(&path, format!("{LINE}7\n")).unwrap();
        assert_eq!(ModelLog::read(&path).unwrap().records.len(), 1);
        std::fs::write(&path, format!("{LINE}7\nno record\n")).unwrap();
        assert!(ModelLog::read(&path).is_err());
        // And is so at every look.
        assert!(ModelLog::read(&path).is_err());
    }
}
