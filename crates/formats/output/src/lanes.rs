//! Lanes, which keep the slices of one track from crossing. At each end a viewer closes the
//! innermost open slice, whichever slice was meant.
//!
//! Kernels of one stream do overlap (several queues, clocks of the device), and so do ranges of a
//! process. AMD's tool cuts such kernels in the middle of the overlap. We keep their times, and put
//! a slice that would cross another on a further track with the same name. Viewers show these
//! tracks as one.

use std::collections::VecDeque;

/// The number of spans that a lane remembers. Older ones are remembered as a single span.
const REMEMBERED: usize = 512;

/// Which slices may share a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Only slices that do not overlap, for work on a device.
    Apart,
    /// Also slices within another, for the calls of a thread. These are written when they return,
    /// inner ones first.
    Nested,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span {
    start: u64,
    end: u64,
}

/// The slices of one track so far. Only the outermost ones are kept; they do not touch one another
/// and are sorted by time.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    spans: VecDeque<Span>,
    /// Whether the first span stands for several spans with gaps between them.
    rough: bool,
}

impl Lane {
    /// Adds a slice if it crosses none of those that are there. Returns whether it was added.
    /// Events with equal times keep the order in which they were written, so slices that only touch
    /// are compared in that order, too.
    pub(crate) fn take(&mut self, rule: Rule, start: u64, end: u64) -> bool {
        let taken = match rule {
            Rule::Apart => self.take_apart(start, end),
            Rule::Nested => self.take_nested(start, end),
        };
        if self.spans.len() > REMEMBERED
            && let Some(oldest) = self.spans.pop_front()
            && let Some(first) = self.spans.front_mut()
        {
            first.start = oldest.start;
            self.rough = true;
        }
        taken
    }

    fn take_apart(&mut self, start: u64, end: u64) -> bool {
        // Nearly always it is the last one so far.
        let at = match self.spans.back() {
            Some(last) if last.start > start => {
                self.spans.partition_point(|span| span.start <= start)
            }
            _ => self.spans.len(),
        };
        let before = at.checked_sub(1).and_then(|before| self.spans.get(before));
        // A slice that starts where this one ends was written before it, so its start would come
        // before our end.
        if before.is_some_and(|before| before.end > start)
            || self.spans.get(at).is_some_and(|next| next.start <= end)
        {
            return false;
        }
        self.spans.insert(at, Span { start, end });
        true
    }

    fn take_nested(&mut self, start: u64, end: u64) -> bool {
        let kept = match self.spans.back() {
            Some(last) if last.end > start => self.spans.partition_point(|span| span.end <= start),
            _ => self.spans.len(),
        };
        let (first, last) = (self.spans.get(kept), self.spans.back());
        let span = match (first, last) {
            // Calls of a thread nest. Where the spans are only known roughly, that is assumed.
            (Some(first), Some(_)) if kept == 0 && self.rough && first.start <= start => Span {
                start: first.start,
                end: end.max(first.end),
            },
            // A slice that starts at the same moment was written earlier, and would be taken for
            // the outer one.
            (Some(first), Some(last)) if first.start <= start || last.end > end => return false,
            _ => Span { start, end },
        };
        self.spans.truncate(kept);
        self.spans.push_back(span);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(rule: Rule, slices: &[(u64, u64)]) -> Vec<bool> {
        let mut lane = Lane::default();
        slices
            .iter()
            .map(|(start, end)| lane.take(rule, *start, *end))
            .collect()
    }

    #[test]
    fn work_on_a_device_is_kept_apart() {
        let slices = [
            (10, 20),
            (20, 30),
            (25, 40),
            (30, 35),
            (5, 9),
            (8, 9),
            (1, 5),
            (36, 36),
        ];
        let wanted = [true, true, false, true, true, false, false, true];
        assert_eq!(taken(Rule::Apart, &slices), wanted);
    }

    #[test]
    fn calls_nest_inner_ones_first() {
        let slices = [
            (11, 12),
            (13, 15),
            (10, 20),
            (5, 20),
            (20, 30),
            (25, 35),
            (20, 31),
        ];
        let wanted = [true, true, true, true, true, false, false];
        assert_eq!(taken(Rule::Nested, &slices), wanted);
        // Both start at the same time, and the start of the outer one would come after the inner
        // one's.
        assert_eq!(taken(Rule::Nested, &[(10, 12), (10, 20)]), [true, false]);
        assert_eq!(taken(Rule::Nested, &[(10, 10), (10, 20)]), [true, true]);
    }

    #[test]
    fn a_call_around_more_than_is_remembered_is_taken() {
        let mut lane = Lane::default();
        for n in 0..2000 {
            assert!(lane.take(Rule::Nested, 100 + 10 * n, 105 + 10 * n));
        }
        assert!(lane.take(Rule::Nested, 50, 100_000));
        assert!(lane.spans.len() == 1);
        for n in 0..2000 {
            assert!(lane.take(Rule::Nested, 200_000 + 10 * n, 200_005 + 10 * n));
        }
        // It starts among spans that are only known roughly.
        assert!(lane.take(Rule::Nested, 200_006, 400_000));
        assert!(lane.spans.len() <= REMEMBERED);
    }
}
