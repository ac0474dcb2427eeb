//! The events of a location in the order of their times. Records come when a call returns or a kernel
//! has ended, and from one queue after the other.

use super::super::sorted::{Key, Sorted};
use std::cmp::Reverse;
use std::io;
use std::path::Path;

/// Bytes that are gathered before they become a run.
const GATHERED: usize = 32 << 20;

/// What happens on a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// A region is entered and left.
    Region(u32),
    /// A metric has a value, which is in `extra`.
    Metric(u32),
}

/// An event of a row, or the start and the end of a region together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Event<'a> {
    pub(super) row: u32,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) what: What,
    /// The number of attributes in `extra`, or the bits of a metric's value.
    pub(super) number: u64,
    pub(super) extra: &'a [u8],
}

/// The order of events: by row and start. Of two that start together, the longer one comes first,
/// since it encloses the other. Of two that also end together, the enclosing one was recorded later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    row: u32,
    start: u64,
    end: Reverse<u64>,
    /// The order in which events came.
    turn: Reverse<u64>,
}

impl Key for Place {
    const LEN: usize = 28;

    fn put(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.row.to_le_bytes());
        for word in [self.start, self.end.0, self.turn.0] {
            to.extend_from_slice(&word.to_le_bytes());
        }
    }

    fn get(from: &[u8]) -> Option<Place> {
        let (row, rest) = from.split_first_chunk()?;
        let (start, rest) = word(rest)?;
        let (end, rest) = word(rest)?;
        let (turn, _) = word(rest)?;
        Some(Place {
            row: u32::from_le_bytes(*row),
            start,
            end: Reverse(end),
            turn: Reverse(turn),
        })
    }
}

fn word(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (word, rest) = bytes.split_first_chunk()?;
    Some((u64::from_le_bytes(*word), rest))
}

/// Events that are being gathered.
pub(super) struct Sorter {
    events: Sorted<Place>,
    turn: u64,
    /// What is kept of an event besides its place.
    bytes: Vec<u8>,
}

impl Sorter {
    /// Makes a sorter that keeps its runs in a directory.
    pub(super) fn new(directory: &Path) -> Sorter {
        Sorter {
            events: Sorted::with_limit(directory, GATHERED),
            turn: 0,
            bytes: Vec::new(),
        }
    }

    /// Adds an event.
    pub(super) fn push(&mut self, event: Event<'_>) -> io::Result<()> {
        let (is_metric, what) = match event.what {
            What::Region(region) => (0, region),
            What::Metric(metric) => (1, metric),
        };
        self.bytes.clear();
        self.bytes.extend_from_slice(&event.number.to_le_bytes());
        self.bytes.extend_from_slice(&what.to_le_bytes());
        self.bytes.push(is_metric);
        self.bytes.extend_from_slice(event.extra);
        let place = Place {
            row: event.row,
            start: event.start,
            end: Reverse(event.end),
            turn: Reverse(self.turn),
        };
        self.turn += 1;
        self.events.push(place, &self.bytes)
    }

    /// Gives all events in their order.
    ///
    /// # Errors
    /// The errors of `each`, and what `failed` makes of our own.
    pub(super) fn each<E>(
        self,
        failed: impl Fn(io::Error) -> E,
        mut each: impl FnMut(&Event<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let odd = |_: &Place| failed(io::ErrorKind::InvalidData.into());
        self.events.each_or(&failed, |place, bytes| {
            let event = event(place, bytes).ok_or_else(|| odd(&place))?;
            each(&event)
        })
    }
}

/// Returns an event, if these are its bytes.
fn event(place: Place, bytes: &[u8]) -> Option<Event<'_>> {
    let (number, rest) = word(bytes)?;
    let (what, rest) = rest.split_first_chunk()?;
    let what = u32::from_le_bytes(*what);
    let (is_metric, extra) = rest.split_first()?;
    Some(Event {
        row: place.row,
        start: place.start,
        end: place.end.0,
        what: match is_metric {
            0 => What::Region(what),
            _ => What::Metric(what),
        },
        number,
        extra,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    type Found = (u32, u64, u64, What, u64, Vec<u8>);

    fn sorted(sorter: Sorter) -> Vec<Found> {
        let mut all = Vec::new();
        let each = |event: &Event<'_>| {
            let extra = event.extra.to_vec();
            let (row, start, end) = (event.row, event.start, event.end);
            all.push((row, start, end, event.what, event.number, extra));
            io::Result::Ok(())
        };
        sorter.each(|error| error, each).unwrap();
        all
    }

    #[test]
    fn outer_regions_come_before_inner_ones() {
        let mut sorter = Sorter::new(&std::env::temp_dir());
        for (row, start, end, region) in [
            (1, 5, 9, 1),
            (0, 12, 14, 2),
            (0, 10, 20, 3),
            (0, 10, 12, 4),
            (0, 10, 20, 5),
        ] {
            let event = Event {
                row,
                start,
                end,
                what: What::Region(region),
                number: 0,
                extra: &[],
            };
            sorter.push(event).unwrap();
        }
        let order: Vec<What> = sorted(sorter).iter().map(|event| event.3).collect();
        assert_eq!(order, [5, 3, 4, 2, 1].map(What::Region));
    }

    /// With a small limit there are runs of several levels. The order is the same as from a single
    /// sort.
    #[test]
    fn runs_are_merged_into_one_order() {
        let mut sorter = Sorter::new(&std::env::temp_dir());
        sorter.events = Sorted::with_limit(&std::env::temp_dir(), 400);
        let mut wanted = Vec::new();
        let mut state = 1_u64;
        for turn in 0..5000_u64 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let (row, start) = ((state >> 60) as u32 & 3, state >> 40 & 0xff);
            let end = start + (state >> 50 & 7);
            let what = match turn % 3 {
                0 => What::Metric(turn as u32),
                _ => What::Region(turn as u32),
            };
            let extra = turn.to_le_bytes();
            let extra = extra.get(..turn as usize % 9).unwrap();
            let event = Event {
                row,
                start,
                end,
                what,
                number: u64::MAX - turn,
                extra,
            };
            sorter.push(event).unwrap();
            wanted.push((row, start, end, what, u64::MAX - turn, extra.to_vec()));
        }
        let turn = |number: u64| Reverse(u64::MAX - number);
        wanted.sort_by_key(|event| (event.0, event.1, Reverse(event.2), turn(event.4)));
        assert_eq!(sorted(sorter), wanted);
    }
}
