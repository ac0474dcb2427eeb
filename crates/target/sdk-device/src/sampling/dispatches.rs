//! Which dispatch a sample is of. A sample has the number of its queue's doorbell, its packet's place in
//! the ring, and a time. The same doorbell and place belong to one dispatch after the other.

use midair_record::event::Untimed;
use std::collections::{HashMap, VecDeque};

/// How many dispatches are remembered.
const MOST: usize = 1 << 17;

/// A dispatch that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ended {
    /// When it started, or when its doorbell was rung if it has no times.
    pub start: u64,
    /// When it ended; `u64::MAX` if it has no times.
    pub end: u64,
    /// Its number in the session.
    pub dispatch_id: u64,
    /// The launching call's correlation id.
    pub correlation: u64,
}

/// The dispatches that ended last. The worker thread owns them.
#[derive(Debug, Default)]
pub(crate) struct Dispatches {
    is_on: bool,
    /// By doorbell and place in the ring, in the order in which they ended.
    ended: HashMap<(u32, u64), VecDeque<Ended>>,
    order: VecDeque<(u32, u64)>,
}

impl Dispatches {
    /// Remembers dispatches from now on.
    pub fn begin(&mut self) {
        *self = Dispatches {
            is_on: true,
            ..Dispatches::default()
        };
    }

    /// Forgets all.
    pub fn end(&mut self) {
        *self = Dispatches::default();
    }

    /// Returns whether dispatches are remembered.
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// Adds a dispatch that has ended. `place` is its doorbell's number and its place in the ring.
    pub fn add(
        &mut self,
        place: (u32, u64),
        (dispatch_id, correlation, rung): (u64, u64, u64),
        outcome: Result<(u64, u64), Untimed>,
    ) {
        let (start, end) = outcome.unwrap_or((rung, u64::MAX));
        while self.order.len() >= MOST {
            let Some(oldest) = self.order.pop_front() else {
                break;
            };
            if let Some(list) = self.ended.get_mut(&oldest) {
                list.pop_front();
                if list.is_empty() {
                    self.ended.remove(&oldest);
                }
            }
        }
        self.order.push_back(place);
        self.ended.entry(place).or_default().push_back(Ended {
            start,
            end,
            dispatch_id,
            correlation,
        });
    }

    /// Returns the dispatch that was in this place at this time.
    pub fn find(&self, place: (u32, u64), time: u64) -> Option<Ended> {
        let list = self.ended.get(&place)?;
        let last = list.iter().rev().find(|ended| ended.start <= time)?;
        (time <= last.end).then_some(*last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_belongs_to_one_dispatch_after_the_other() {
        let mut dispatches = Dispatches::default();
        dispatches.begin();
        let place = (3, 5);
        dispatches.add(place, (1, 11, 90), Ok((100, 200)));
        dispatches.add(place, (2, 12, 290), Ok((300, 400)));
        dispatches.add(place, (3, 13, 500), Err(Untimed::NoSignal));
        let of = |time| dispatches.find(place, time).map(|it| it.dispatch_id);
        assert_eq!(of(99), None);
        assert_eq!([of(100), of(200), of(350)], [Some(1), Some(1), Some(2)]);
        assert_eq!(of(250), None, "between two");
        assert_eq!(of(1000), Some(3), "its end is not known");
        assert_eq!(dispatches.find((3, 6), 100), None);
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let mut dispatches = Dispatches::default();
        for n in 0..MOST as u64 + 1 {
            dispatches.add((0, n % 7), (n, 0, 0), Ok((10 * n, 10 * n + 5)));
        }
        assert_eq!(dispatches.find((0, 0), 0), None);
        assert_eq!(dispatches.find((0, 1), 10).unwrap().dispatch_id, 1);
        assert_eq!(dispatches.order.len(), MOST);
    }
}
