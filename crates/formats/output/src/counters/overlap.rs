//! Counts how many intervals overlap each of some windows.
//!
//! The windows are known first. The intervals come one by one, in any order, and are not kept. An
//! interval overlaps a window if it starts before the window's end and ends after its start. So
//! the number of overlaps is the number of intervals that start before the end, less the number of
//! those that are over at the start. Both are counted by their positions among the sorted
//! windows.

/// The windows, and the counts so far.
#[derive(Debug, Default)]
pub(super) struct Overlaps {
    /// The sorted ends, each with the number of its window.
    ends: Vec<(u64, usize)>,
    /// The sorted beginnings, each with the number of its window.
    starts: Vec<(u64, usize)>,
    /// For each end, how many intervals start before it and not before any earlier end.
    begun: Vec<u64>,
    /// For each start, how many intervals are over at it and not at any earlier start.
    over: Vec<u64>,
}

/// Returns an interval whose end is not before its start.
fn ordered((start, end): (u64, u64)) -> (u64, u64) {
    (start, end.max(start))
}

/// Returns a window that lasts at least one nanosecond.
fn window((start, end): (u64, u64)) -> (u64, u64) {
    (start, end.max(start.saturating_add(1)))
}

/// Whether an interval overlaps a window. An interval that ends where the window starts does not.
pub(super) fn overlaps(of: (u64, u64), interval: (u64, u64)) -> bool {
    let ((from, to), (start, end)) = (window(of), ordered(interval));
    start < to && end > from
}

impl Overlaps {
    /// Prepares for these windows, each with its start and end.
    pub(super) fn new(windows: &[(u64, u64)]) -> Overlaps {
        let numbered = || windows.iter().map(|w| window(*w)).zip(0..);
        let mut starts: Vec<(u64, usize)> = numbered().map(|((start, _), n)| (start, n)).collect();
        let mut ends: Vec<(u64, usize)> = numbered().map(|((_, end), n)| (end, n)).collect();
        starts.sort_unstable();
        ends.sort_unstable();
        Overlaps {
            begun: vec![0; ends.len()],
            over: vec![0; starts.len()],
            ends,
            starts,
        }
    }

    /// Adds an interval.
    pub(super) fn add(&mut self, interval: (u64, u64)) {
        let (start, end) = ordered(interval);
        let begun = self.ends.partition_point(|(to, _)| *to <= start);
        if let Some(count) = self.begun.get_mut(begun) {
            *count += 1;
        }
        let over = self.starts.partition_point(|(from, _)| *from < end);
        if let Some(count) = self.over.get_mut(over) {
            *count += 1;
        }
    }

    /// Returns how many intervals overlap each window, in the order in which the windows were
    /// given.
    pub(super) fn counts(&self) -> Vec<u64> {
        let mut counts = vec![0_u64; self.ends.len()];
        let mut sum = 0_u64;
        for ((_, number), begun) in self.ends.iter().zip(&self.begun) {
            sum += begun;
            if let Some(count) = counts.get_mut(*number) {
                *count = sum;
            }
        }
        let mut sum = 0_u64;
        for ((_, number), over) in self.starts.iter().zip(&self.over) {
            sum += over;
            if let Some(count) = counts.get_mut(*number) {
                *count = count.saturating_sub(sum);
            }
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Marsaglia's xorshift, which gives the same numbers in each run.
    struct Numbers(u64);

    impl Numbers {
        fn below(&mut self, limit: u64) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0 % limit
        }

        fn intervals(&mut self, most: u64, times: u64) -> Vec<(u64, u64)> {
            let count = self.below(most + 1);
            let interval = |this: &mut Numbers| {
                let start = this.below(times);
                // A few end before they start, since a target can write anything.
                (
                    start,
                    (start + this.below(times / 3 + 1)).saturating_sub(this.below(3)),
                )
            };
            (0..count).map(|_| interval(self)).collect()
        }
    }

    #[test]
    fn counts_are_those_of_comparing_each_with_each() {
        let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
        let mut found = 0;
        for round in 0..2_000 {
            // If times are small, equal ones are frequent.
            let times = if round % 2 == 0 { 12 } else { 100_000 };
            let windows = numbers.intervals(30, times);
            let intervals = numbers.intervals(60, times);
            let mut sums = Overlaps::new(&windows);
            intervals.iter().for_each(|interval| sums.add(*interval));
            let naive = |of: &(u64, u64)| {
                let all = intervals.iter();
                all.filter(|interval| overlaps(*of, **interval)).count() as u64
            };
            let wanted: Vec<u64> = windows.iter().map(naive).collect();
            found += wanted.iter().sum::<u64>();
            assert_eq!(sums.counts(), wanted, "{windows:?} {intervals:?}");
        }
        assert!(found > 10_000, "{found}");
    }

    #[test]
    fn what_only_touches_does_not_overlap() {
        assert!(!overlaps((10, 20), (0, 10)) && !overlaps((10, 20), (20, 30)));
        assert!(overlaps((10, 20), (0, 11)) && overlaps((10, 20), (19, 30)));
        assert!(overlaps((10, 20), (15, 15)) && overlaps((10, 20), (0, u64::MAX)));
        // A window without length, and one at the end of time.
        assert!(overlaps((10, 10), (9, 11)) && !overlaps((10, 10), (10, 10)));
        let mut end = Overlaps::new(&[(u64::MAX, u64::MAX)]);
        end.add((0, u64::MAX));
        assert_eq!(end.counts(), [0]);
    }
}
