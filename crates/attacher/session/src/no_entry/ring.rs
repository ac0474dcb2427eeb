//! The rings of a dispatch log: checks the layout that the kernel describes, and reads the rings.
//!
//! The firmware writes records and then an index, and never waits for a reader. On some GPUs the
//! index counts records; on others it is the next slot's number and starts again at 0. Either way
//! only the low 32 bits exist. If a counting index shows that a whole lap was missed, the records
//! are counted as lost. With the other kind a whole lap between two looks cannot be noticed, so
//! looks are frequent and rings are large.

use midair_ptrace::kfd::{Mapping, STREAM_VERSIONS, StreamInfo};

/// Bytes of a record.
const RECORD: usize = 20;
/// The most rings that are accepted.
const MOST_REGIONS: u32 = 64;
/// The most bytes that are mapped.
const MOST_BYTES: u64 = 256 << 20;

/// A record that the firmware wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Record {
    /// Ticks of the GPU.
    pub ticks: u64,
    /// See [`BEGIN`] and [`END`].
    pub what: u32,
    /// The low 32 bits of the packet's index in its queue.
    pub packet: u32,
    /// The queue, as the offset of its doorbell in the process's page of doorbells.
    pub doorbell: u32,
}

/// A kernel started.
pub(super) const BEGIN: u32 = 1;
/// A kernel ended.
pub(super) const END: u32 = 2;

/// Memory of 32-bit words.
pub(super) trait Words {
    /// The word at this offset in bytes.
    fn word(&self, offset: usize) -> Option<u32>;
    /// Stores 64 bits at this offset, if they may be stored there.
    fn store(&self, offset: usize, value: u64);
}

impl Words for Mapping {
    fn word(&self, offset: usize) -> Option<u32> {
        Mapping::word(self, offset)
    }
    fn store(&self, offset: usize, value: u64) {
        Mapping::store(self, offset, value);
    }
}

/// Memory as it was at one moment. It cannot be changed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Look<'a>(pub &'a [u8]);

impl Words for Look<'_> {
    fn word(&self, offset: usize) -> Option<u32> {
        let bytes = self.0.get(offset..)?.first_chunk()?;
        Some(u32::from_le_bytes(*bytes))
    }
    fn store(&self, _: usize, _: u64) {}
}

/// A layout that fits into the mapped memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    regions: usize,
    /// Records of a region, a power of two.
    slots: u32,
    records_at: usize,
    writes_at: usize,
    reads_at: Option<usize>,
    /// Bytes to map.
    pub bytes: usize,
}

impl Layout {
    /// Checks the layout that the kernel describes.
    ///
    /// # Errors
    /// What is not as we know it, in words.
    pub fn of(info: &StreamInfo, gpu_id: u32, process: u32) -> Result<Layout, String> {
        let StreamInfo {
            version,
            record_bytes,
            regions,
            region_records,
            ..
        } = *info;
        if !STREAM_VERSIONS.contains(&version) || (version == 3) != info.reads_at.is_some() {
            return Err(format!(
                "its stream has version {version}; midair supports {}",
                STREAM_VERSIONS.map(|known| known.to_string()).join(" and ")
            ));
        }
        if record_bytes as usize != RECORD {
            return Err(format!(
                "its records have {record_bytes} bytes, not {RECORD}"
            ));
        }
        if (info.gpu_id, info.process) != (gpu_id, process) {
            return Err("it belongs to another GPU or process".to_owned());
        }
        let inside = |at: u64, bytes: u64| {
            at.is_multiple_of(8)
                && at
                    .checked_add(bytes)
                    .is_some_and(|end| end <= info.map_bytes)
        };
        let slots = u64::from(regions) * u64::from(region_records);
        let rings = slots.saturating_mul(RECORD as u64);
        let indices = u64::from(regions) * 8;
        let is_sound = (1..=MOST_REGIONS).contains(&regions)
            && region_records.is_power_of_two()
            && region_records > 1
            && info.map_bytes <= MOST_BYTES
            && info.buffer_bytes == rings
            && inside(info.records_at, rings)
            && inside(info.writes_at, indices)
            && info.reads_at.is_none_or(|at| inside(at, indices));
        if !is_sound {
            return Err(format!(
                "the layout of its stream contradicts itself: {info:?}"
            ));
        }
        Ok(Layout {
            regions: regions as usize,
            slots: region_records,
            records_at: info.records_at as usize,
            writes_at: info.writes_at as usize,
            reads_at: info.reads_at.map(|at| at as usize),
            bytes: info.map_bytes as usize,
        })
    }

    fn written(&self, memory: &impl Words, region: usize) -> u32 {
        memory.word(self.writes_at + 8 * region).unwrap_or(0)
    }

    fn record(&self, memory: &impl Words, region: usize, index: u32) -> Option<Record> {
        let slot = region * self.slots as usize + (index & (self.slots - 1)) as usize;
        let at = self.records_at + slot * RECORD;
        let word = |number: usize| memory.word(at + 4 * number);
        let (low, high) = (word(0)?, word(1)?);
        Some(Record {
            ticks: u64::from(high) << 32 | u64::from(low),
            what: word(2)?,
            packet: word(3)?,
            doorbell: word(4)?,
        })
    }
}

/// How far a reader has got in each region.
#[derive(Debug)]
pub(super) struct Cursors {
    read: Vec<u32>,
    /// Whether an index beyond the ring's end was seen, so that it must count records.
    counts: Vec<bool>,
}

impl Cursors {
    /// Starts with what will be written from now on.
    pub fn at_the_end(layout: &Layout, memory: &impl Words) -> Cursors {
        let read: Vec<u32> = (0..layout.regions)
            .map(|region| layout.written(memory, region))
            .collect();
        Cursors {
            counts: read.iter().map(|read| *read >= layout.slots).collect(),
            read,
        }
    }

    /// Copies the new records into `out`. Returns how many records were overwritten before they
    /// could be read.
    pub fn take(&mut self, layout: &Layout, memory: &impl Words, out: &mut Vec<Record>) -> u64 {
        let mut lost = 0;
        for (region, (read, counts)) in self.read.iter_mut().zip(&mut self.counts).enumerate() {
            let written = layout.written(memory, region);
            *counts |= written >= layout.slots;
            let behind = |written: u32, read: u32| match *counts {
                true => written.wrapping_sub(read),
                false => written.wrapping_sub(read) & (layout.slots - 1),
            };
            let mut unread = behind(written, *read);
            if unread > layout.slots {
                lost += u64::from(unread - layout.slots);
                unread = layout.slots;
            }
            let first = written.wrapping_sub(unread);
            let from = out.len();
            out.extend(
                (0..unread).filter_map(|n| layout.record(memory, region, first.wrapping_add(n))),
            );
            // Records that were written meanwhile may have overwritten the oldest of those that
            // were copied.
            let since = behind(layout.written(memory, region), written);
            let torn =
                (u64::from(unread) + u64::from(since)).saturating_sub(u64::from(layout.slots) - 1);
            if since > 0 && torn > 0 {
                let torn = torn.min(u64::from(unread));
                lost += torn;
                out.drain(from..from + (torn as usize).min(out.len() - from));
            }
            *read = written;
            if let Some(at) = layout.reads_at {
                memory.store(at + 8 * region, u64::from(written));
            }
        }
        // This removes padding, and slots that had not been written yet.
        out.retain(|record| record.doorbell != 0 && (BEGIN..=END).contains(&record.what));
        lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    const SLOTS: u32 = 8;

    /// Two regions of eight records, then the indices.
    struct Log(RefCell<Vec<u8>>);

    impl Words for Log {
        fn word(&self, offset: usize) -> Option<u32> {
            let bytes = self.0.borrow();
            Some(u32::from_le_bytes(
                bytes.get(offset..offset + 4)?.try_into().unwrap(),
            ))
        }
        fn store(&self, offset: usize, value: u64) {
            self.put(offset, &value.to_le_bytes());
        }
    }

    impl Log {
        fn put(&self, offset: usize, bytes: &[u8]) {
            self.0.borrow_mut()[offset..offset + bytes.len()].copy_from_slice(bytes);
        }
        /// Record `index` of a region; its ticks are the index.
        fn write(&self, region: usize, index: u32) {
            let at = RECORD * (region * SLOTS as usize + (index % SLOTS) as usize);
            for (n, word) in [index, 0, BEGIN, index, 0x100].into_iter().enumerate() {
                self.put(at + 4 * n, &word.to_le_bytes());
            }
        }
        fn index(&self, region: usize, value: u32) {
            self.put(320 + 8 * region, &value.to_le_bytes());
        }
    }

    fn info() -> StreamInfo {
        StreamInfo {
            version: 4,
            record_bytes: 20,
            regions: 2,
            region_records: SLOTS,
            buffer_bytes: 320,
            map_bytes: 4096,
            records_at: 0,
            writes_at: 320,
            reads_at: None,
            gpu_id: 5,
            process: 77,
        }
    }

    fn log() -> (Log, Layout) {
        let layout = Layout::of(&info(), 5, 77).unwrap();
        (Log(RefCell::new(vec![0; 4096])), layout)
    }

    fn ticks(records: &[Record]) -> Vec<u64> {
        records.iter().map(|record| record.ticks).collect()
    }

    #[test]
    fn an_index_that_begins_again_is_followed_around() {
        let (log, layout) = log();
        let mut cursors = Cursors::at_the_end(&layout, &log);
        let mut out = Vec::new();
        (0..5).for_each(|index| log.write(1, index));
        log.index(1, 5);
        assert_eq!(cursors.take(&layout, &log, &mut out), 0);
        assert_eq!(ticks(&out), [0, 1, 2, 3, 4]);
        out.clear();
        (5..11).for_each(|index| log.write(1, index));
        log.index(1, 11 % SLOTS);
        assert_eq!(cursors.take(&layout, &log, &mut out), 0);
        assert_eq!(ticks(&out), [5, 6, 7, 8, 9, 10]);
        out.clear();
        assert_eq!(cursors.take(&layout, &log, &mut out), 0);
        assert!(out.is_empty());
    }

    #[test]
    fn what_a_counting_index_has_lapped_is_counted() {
        let (log, layout) = log();
        log.index(0, u32::MAX - 2);
        let mut cursors = Cursors::at_the_end(&layout, &log);
        let mut out = Vec::new();
        for n in 0..20_u32 {
            log.write(0, (u32::MAX - 2).wrapping_add(n));
        }
        log.index(0, 17);
        assert_eq!(cursors.take(&layout, &log, &mut out), 12);
        assert_eq!(ticks(&out), [9, 10, 11, 12, 13, 14, 15, 16]);
    }

    #[test]
    fn version_3_is_told_what_was_read() {
        let told = StreamInfo {
            version: 3,
            reads_at: Some(336),
            ..info()
        };
        let layout = Layout::of(&told, 5, 77).unwrap();
        let log = Log(RefCell::new(vec![0; 4096]));
        let mut cursors = Cursors::at_the_end(&layout, &log);
        log.write(1, 0);
        log.index(1, 1);
        cursors.take(&layout, &log, &mut Vec::new());
        assert_eq!((log.word(336), log.word(344)), (Some(0), Some(1)));
    }

    #[test]
    fn padding_and_other_records_are_passed() {
        let (log, layout) = log();
        let mut cursors = Cursors::at_the_end(&layout, &log);
        let mut out = Vec::new();
        (0..3).for_each(|index| log.write(0, index));
        log.put(8, &0_u32.to_le_bytes());
        log.put(20 + 16, &0_u32.to_le_bytes());
        log.index(0, 3);
        assert_eq!(cursors.take(&layout, &log, &mut out), 0);
        assert_eq!(ticks(&out), [2]);
    }

    #[test]
    fn what_is_not_known_is_refused_by_name() {
        let wrong = |change: fn(&mut StreamInfo)| {
            let mut told = info();
            change(&mut told);
            Layout::of(&told, 5, 77).unwrap_err()
        };
        assert_eq!(
            wrong(|told| told.version = 5),
            "its stream has version 5; midair supports 3 and 4"
        );
        assert!(wrong(|told| told.version = 3).contains("version 3"));
        assert!(wrong(|told| told.reads_at = Some(336)).contains("version 4"));
        assert_eq!(
            wrong(|told| told.record_bytes = 24),
            "its records have 24 bytes, not 20"
        );
        let others: [fn(&mut StreamInfo); 8] = [
            |told| told.regions = 0,
            |told| told.regions = 65,
            |told| told.region_records = 6,
            |told| told.region_records = 1,
            |told| told.buffer_bytes = 340,
            |told| told.map_bytes = 1 << 40,
            |told| told.writes_at = 4088,
            |told| told.records_at = u64::MAX - 7,
        ];
        for change in others {
            assert!(wrong(change).contains("contradicts itself"));
        }
        assert!(wrong(|told| told.gpu_id = 6).contains("another GPU"));
        assert!(wrong(|told| told.process = 78).contains("another GPU"));
    }
}
