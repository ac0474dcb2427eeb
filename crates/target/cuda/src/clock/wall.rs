//! Conversion from the wall clock to CLOCK_BOOTTIME.
//!
//! Between two pairs of readings the offset is interpolated, since the wall clock is slewed by some
//! ten ppm. If it was set between two pairs, their offsets differ by much, and a timestamp gets the
//! offset that places it between the two.

/// The number of pairs kept. There is one pair for each flush, and CUPTI holds records back for at
/// most this many flushes.
const KEPT: usize = 256;
/// A change of the offset beyond this was not caused by drift, in ns.
const STEP: i64 = 1_000_000;

/// One moment, on both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pair {
    /// The wall clock, ns.
    pub(super) wall: u64,
    /// CLOCK_BOOTTIME, ns.
    pub(super) boot: u64,
}

impl Pair {
    fn difference(self) -> i64 {
        self.boot.wrapping_sub(self.wall).cast_signed()
    }
}

/// The interval between two pairs.
#[derive(Debug, Clone, Copy)]
struct Interval {
    from: Pair,
    to: Pair,
}

impl Interval {
    fn has(&self, time: u64) -> bool {
        // If the clock was set back, the later pair may have the smaller time.
        let (low, high) = (self.from.wall, self.to.wall);
        (low.min(high)..=low.max(high)).contains(&time)
    }

    fn convert(&self, time: u64) -> u64 {
        let (first, last) = (self.from.difference(), self.to.difference());
        let change = last.wrapping_sub(first);
        if change == 0 {
            return time.wrapping_add_signed(first);
        }
        if change.abs() > STEP {
            let late = time.wrapping_add_signed(last);
            let early = time.wrapping_add_signed(first);
            // The clock was set within this interval. If it was set by more than the interval's
            // length, only one of the two times is possible.
            let possible = (self.from.boot..=self.to.boot).contains(&early);
            return if possible { early } else { late };
        }
        let length = self.to.wall.wrapping_sub(self.from.wall).cast_signed();
        let part = time.wrapping_sub(self.from.wall).cast_signed();
        // An interval is hours long at most (2^45 ns), and the change is below 2^20: no overflow.
        let share = part.saturating_mul(change) / length.max(1);
        time.wrapping_add_signed(first + share)
    }
}

/// What a session knows about the wall clock.
#[derive(Debug, Default)]
pub(super) struct Wall {
    pairs: Vec<Pair>,
    /// Interval of the last conversion; the next timestamp is nearly always in it.
    last: Option<Interval>,
    /// How many times the wall clock was set.
    pub(super) steps: u32,
}

impl Wall {
    /// Adds a pair.
    pub(super) fn add(&mut self, pair: Pair) {
        if let Some(last) = self.pairs.last() {
            let change = pair.difference().wrapping_sub(last.difference());
            self.steps += u32::from(change.unsigned_abs() > STEP.unsigned_abs());
        }
        if self.pairs.len() == KEPT {
            self.pairs.remove(1);
        }
        self.pairs.push(pair);
        self.last = None;
    }

    /// Converts a time of the wall clock to CLOCK_BOOTTIME.
    #[inline]
    pub(super) fn convert(&mut self, time: u64) -> u64 {
        match (self.last, self.pairs.last()) {
            (Some(interval), _) if interval.has(time) => interval.convert(time),
            // The time is later than the newest pair. If the clock was set back, it may also be
            // from before that, and is searched.
            (_, Some(newest)) if self.steps == 0 && time >= newest.wall => {
                time.wrapping_add_signed(newest.difference())
            }
            _ => self.search(time),
        }
    }

    fn search(&mut self, time: u64) -> u64 {
        let intervals = self.pairs.windows(2).filter_map(|two| match two {
            [from, to] => Some(Interval {
                from: *from,
                to: *to,
            }),
            _ => None,
        });
        // The newest interval that contains the time.
        if let Some(interval) = intervals.rev().find(|interval| interval.has(time)) {
            self.last = Some(interval);
            return interval.convert(time);
        }
        let (Some(first), Some(newest)) = (self.pairs.first(), self.pairs.last()) else {
            return time;
        };
        let nearest = if time.abs_diff(first.wall) < time.abs_diff(newest.wall) {
            first
        } else {
            newest
        };
        time.wrapping_add_signed(nearest.difference())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(wall: u64, boot: u64) -> Pair {
        Pair { wall, boot }
    }

    #[test]
    fn drift_is_interpolated_and_the_nearest_pair_counts_outside() {
        let mut clock = Wall::default();
        assert_eq!(clock.convert(5), 5);
        clock.add(pair(1_000_000, 0));
        assert_eq!(clock.convert(1_000_500), 500);
        // 100 ns per 100 ms.
        clock.add(pair(101_000_000, 100_000_100));
        assert_eq!(clock.convert(51_000_000), 50_000_050);
        assert_eq!(clock.convert(51_000_010), 50_000_060);
        assert_eq!(clock.convert(900_000), u64::MAX - 99_999);
        assert_eq!(clock.convert(101_000_007), 100_000_107);
        assert_eq!(clock.steps, 0);
    }

    #[test]
    fn a_wall_clock_that_is_set_forward() {
        let mut clock = Wall::default();
        clock.add(pair(1_000_000_000, 0));
        clock.add(pair(1_100_000_000, 100_000_000));
        // An hour forward, in the middle of this interval.
        let hour = 3_600_000_000_000;
        clock.add(pair(1_200_000_000 + hour, 200_000_000));
        assert_eq!(clock.steps, 1);
        assert_eq!(clock.convert(1_050_000_000), 50_000_000);
        assert_eq!(clock.convert(1_120_000_000), 120_000_000);
        assert_eq!(clock.convert(1_190_000_000 + hour), 190_000_000);
    }

    #[test]
    fn a_wall_clock_that_is_set_back() {
        let mut clock = Wall::default();
        let hour = 3_600_000_000_000;
        clock.add(pair(2 * hour, 1_000_000_000));
        clock.add(pair(hour + 100_000_000, 1_100_000_000));
        clock.add(pair(hour + 200_000_000, 1_200_000_000));
        assert_eq!(clock.convert(2 * hour + 30_000_000), 1_030_000_000);
        assert_eq!(clock.convert(hour + 60_000_000), 1_060_000_000);
        assert_eq!(clock.convert(hour + 160_000_000), 1_160_000_000);
    }

    #[test]
    fn many_pairs_keep_the_first_and_the_newest() {
        let mut clock = Wall::default();
        for at in 0..10_000_u64 {
            clock.add(pair(1 + at * 1000, at * 1000));
        }
        assert!(clock.pairs.len() <= KEPT);
        for at in [0, 17, 4_999_500, 9_998_777] {
            assert_eq!(clock.convert(at + 1), at);
        }
    }

    /// Records from before the first flush may come last, so the first pair is kept.
    #[test]
    fn the_first_pair_is_kept_whatever_the_drift_since() {
        let mut clock = Wall::default();
        for at in 0..10_000_u64 {
            // 1 ns per us.
            clock.add(pair(1 + at * 1000, 50 + at * 1001));
        }
        assert_eq!(clock.convert(1), 50);
        // Between the first pair and the second of those that are left, it is interpolated.
        assert_eq!(clock.convert(1 + 500_000), 50 + 500_500);
        assert_eq!(clock.convert(1 + 9_999_000), 50 + 9_999 * 1001);
    }
}
