//! Spans of time, united where they touch.

/// The number of spans that are gathered before they are sorted.
const MOST_PENDING: usize = 4096;

/// A set of instants, in nanoseconds.
#[derive(Debug, Clone, Default)]
pub(super) struct Spans {
    /// The sorted spans, which do not touch one another.
    settled: Vec<(u64, u64)>,
    /// The spans as they came, which may lie after the settled ones or among them.
    pending: Vec<(u64, u64)>,
}

impl Spans {
    /// Adds the instants from `start` to before `end`. Returns whether it is time to settle.
    pub(super) fn add(&mut self, start: u64, end: u64) -> bool {
        if end <= start {
            return false;
        }
        // On a busy queue a span often follows the last one without a gap, or overlaps it.
        match self.pending.last_mut() {
            Some(last) if last.0 <= start && start <= last.1 => last.1 = last.1.max(end),
            _ => self.pending.push((start, end)),
        }
        self.pending.len() >= MOST_PENDING
    }

    pub(super) fn is_empty(&self) -> bool {
        self.settled.is_empty() && self.pending.is_empty()
    }

    /// Merges the added spans with the settled ones.
    pub(super) fn settle(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        self.settled.append(&mut self.pending);
        // The list mostly consists of two sorted runs, which this sort merges in linear time.
        self.settled.sort();
        self.settled.dedup_by(|next, before| {
            let touches = next.0 <= before.1;
            if touches {
                before.1 = before.1.max(next.1);
            }
            touches
        });
    }

    /// Returns the start of the span in the middle, where there are more spans than `most`.
    pub(super) fn middle(&self, most: usize) -> Option<u64> {
        let more = self.settled.len() > most;
        let middle = self.settled.get(self.settled.len() / 2).filter(|_| more);
        middle.map(|(start, _)| *start)
    }

    /// Returns the settled spans that end after a time.
    pub(super) fn from(&self, time: u64) -> &[(u64, u64)] {
        let first = self.settled.partition_point(|(_, end)| *end <= time);
        self.settled.get(first..).unwrap_or_default()
    }

    /// Removes the instants before a time.
    pub(super) fn cut_before(&mut self, time: u64) {
        let gone = self.settled.partition_point(|(_, end)| *end <= time);
        self.settled.drain(..gone);
        if let Some(first) = self.settled.first_mut() {
            first.0 = first.0.max(time);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_middle_where_there_are_more_spans_than_wanted() {
        let mut spans = Spans::default();
        for start in [50, 10, 30, 20, 40] {
            spans.add(start, start + 5);
        }
        spans.settle();
        assert_eq!(spans.middle(4), Some(30));
        assert_eq!(spans.middle(5), None);
        assert_eq!(Spans::default().middle(0), None);
    }
}
