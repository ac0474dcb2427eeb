//! Spans of time, united where they touch.

/// Spans that are gathered before they are put in order.
const MOST_PENDING: usize = 4096;

/// A set of instants, in nanoseconds.
#[derive(Debug, Clone, Default)]
pub(super) struct Spans {
    /// In order, and apart from one another.
    settled: Vec<(u64, u64)>,
    /// As they came, all after or among the settled ones.
    pending: Vec<(u64, u64)>,
}

impl Spans {
    /// Adds the instants from `start` to before `end`. Returns whether it is time to settle.
    pub(super) fn add(&mut self, start: u64, end: u64) -> bool {
        if end <= start {
            return false;
        }
        // What a busy queue does follows the last without a gap, or overlaps it.
        match self.pending.last_mut() {
            Some(last) if last.0 <= start && start <= last.1 => last.1 = last.1.max(end),
            _ => self.pending.push((start, end)),
        }
        self.pending.len() >= MOST_PENDING
    }

    pub(super) fn is_empty(&self) -> bool {
        self.settled.is_empty() && self.pending.is_empty()
    }

    /// Unites what was added with what was there.
    pub(super) fn settle(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        self.settled.append(&mut self.pending);
        // Two runs in order, mostly: this sort takes a time that grows with their number alone.
        self.settled.sort();
        self.settled.dedup_by(|next, before| {
            let touches = next.0 <= before.1;
            if touches {
                before.1 = before.1.max(next.1);
            }
            touches
        });
    }

    /// The start of the span in the middle, where there are more than so many.
    pub(super) fn middle(&self, most: usize) -> Option<u64> {
        let more = self.settled.len() > most;
        let middle = self.settled.get(self.settled.len() / 2).filter(|_| more);
        middle.map(|(start, _)| *start)
    }

    /// The settled spans that end after a time.
    pub(super) fn from(&self, time: u64) -> &[(u64, u64)] {
        let first = self.settled.partition_point(|(_, end)| *end <= time);
        self.settled.get(first..).unwrap_or_default()
    }

    /// Takes the instants before a time out.
    pub(super) fn cut_before(&mut self, time: u64) {
        let gone = self.settled.partition_point(|(_, end)| *end <= time);
        self.settled.drain(..gone);
        if let Some(first) = self.settled.first_mut() {
            first.0 = first.0.max(time);
        }
    }
}
