//! Pairs the starts of kernels with their ends.

use super::ring::{BEGIN, Record};
use std::collections::HashMap;

/// The most running kernels that are remembered. The queues of a GPU cannot hold more.
const MOST: usize = 1 << 20;

/// Identifies a dispatch by its queue and the low 32 bits of its packet's index there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Dispatch {
    /// Its queue's doorbell.
    pub doorbell: u32,
    /// Its packet.
    pub packet: u32,
}

/// A kernel that has run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ran {
    /// Which.
    pub dispatch: Dispatch,
    /// Ticks of the GPU.
    pub begin: u64,
    /// Ticks of the GPU.
    pub end: u64,
}

/// Starts whose ends have not been seen so far.
#[derive(Debug, Default)]
pub(super) struct Pairs {
    open: HashMap<Dispatch, u64>,
    /// Ends without a start: the kernel started before the recording, or its start was overwritten.
    pub without_begin: u64,
    /// Starts whose end never came: it was overwritten.
    pub without_end: u64,
}

impl Pairs {
    /// Takes a record. Returns the kernel when it is complete.
    pub fn take(&mut self, record: &Record) -> Option<Ran> {
        let dispatch = Dispatch {
            doorbell: record.doorbell,
            packet: record.packet,
        };
        if record.what == BEGIN {
            // The same packet index occurs again. Either the queue has gone through 2^32 packets,
            // or it is a new queue with the doorbell of one that is gone.
            if self.open.insert(dispatch, record.ticks).is_some() {
                self.without_end += 1;
            }
            if self.open.len() > MOST {
                self.forget_oldest();
            }
            return None;
        }
        match self.open.remove(&dispatch) {
            Some(begin) if begin <= record.ticks => Some(Ran {
                dispatch,
                begin,
                end: record.ticks,
            }),
            // This is the end of an earlier kernel with the same number.
            Some(begin) => {
                self.open.insert(dispatch, begin);
                self.without_begin += 1;
                None
            }
            None => {
                self.without_begin += 1;
                None
            }
        }
    }

    fn forget_oldest(&mut self) {
        let mut begins: Vec<u64> = self.open.values().copied().collect();
        let half = begins.len() / 2;
        let (_, middle, _) = begins.select_nth_unstable(half);
        let middle = *middle;
        let before = self.open.len();
        self.open.retain(|_, begin| *begin > middle);
        self.without_end += (before - self.open.len()) as u64;
    }

    /// Returns the kernels that still run, in the order of their starts.
    pub fn under_way(&self) -> Vec<(Dispatch, u64)> {
        let mut all: Vec<_> = self
            .open
            .iter()
            .map(|(which, begin)| (*which, *begin))
            .collect();
        all.sort_by_key(|(which, begin)| (*begin, which.doorbell, which.packet));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::super::ring::END;
    use super::*;

    fn record(what: u32, packet: u32, ticks: u64) -> Record {
        Record {
            ticks,
            what,
            packet,
            doorbell: 0x100,
        }
    }

    #[test]
    fn an_end_belongs_to_the_begin_of_its_packet() {
        let mut pairs = Pairs::default();
        assert_eq!(pairs.take(&record(BEGIN, 1, 10)), None);
        assert_eq!(pairs.take(&record(BEGIN, 2, 11)), None);
        let ran = pairs.take(&record(END, 2, 15)).unwrap();
        assert_eq!((ran.dispatch.packet, ran.begin, ran.end), (2, 11, 15));
        assert_eq!(pairs.under_way().len(), 1);
        assert_eq!((pairs.without_begin, pairs.without_end), (0, 0));
    }

    #[test]
    fn what_has_no_other_half_is_counted() {
        let mut pairs = Pairs::default();
        assert_eq!(pairs.take(&record(END, 1, 10)), None);
        pairs.take(&record(BEGIN, 2, 20));
        pairs.take(&record(BEGIN, 2, 30));
        // The end of the first of the two.
        assert_eq!(pairs.take(&record(END, 2, 25)), None);
        assert!(pairs.take(&record(END, 2, 40)).is_some());
        assert_eq!((pairs.without_begin, pairs.without_end), (2, 1));
    }

    #[test]
    fn memory_for_begins_is_limited() {
        let mut pairs = Pairs::default();
        for packet in 0..=MOST as u32 {
            pairs.take(&record(BEGIN, packet, packet.into()));
        }
        assert!(pairs.under_way().len() <= MOST / 2 + 1);
        assert!(pairs.take(&record(END, MOST as u32, u64::MAX)).is_some());
        assert!(pairs.without_end > 0);
    }
}
