//! For how long nothing was recorded within a part of a session.

use std::collections::VecDeque;
use std::time::Duration;

/// The least distance between two samples, ns.
const APART: u64 = 50_000_000;
/// The most samples.
const MOST: usize = 1 << 17;

/// What the target's side says at moments of the latest time: for how long nothing was recorded
/// since the session started. Both are in ns, in the target's clock.
#[derive(Debug, Default)]
pub(super) struct TimeOff {
    samples: VecDeque<(u64, u64)>,
}

impl TimeOff {
    /// Adds what is said now. Samples that are older than `kept` are forgotten.
    pub(super) fn add(&mut self, now: u64, off: u64, kept: Duration) {
        let last = self.samples.back();
        if last.is_some_and(|(time, before)| now.saturating_sub(*time) < APART || off < *before) {
            return;
        }
        self.end(now, off);
        let kept = u64::try_from(kept.as_nanos()).unwrap_or(u64::MAX);
        let horizon = now.saturating_sub(kept);
        // The one before the time is needed as well.
        while self
            .samples
            .get(1)
            .is_some_and(|(time, _)| *time <= horizon)
        {
            self.samples.pop_front();
        }
        if self.samples.len() > MOST {
            self.samples.pop_front();
        }
    }

    /// Adds what is said at the end.
    pub(super) fn end(&mut self, now: u64, off: u64) {
        self.samples.push_back((now, off));
    }

    /// Returns the time off between two moments.
    pub(super) fn within(&self, from: u64, to: u64) -> u64 {
        self.until(to).saturating_sub(self.until(from))
    }

    /// Returns the time off from the start of the session to a moment.
    fn until(&self, time: u64) -> u64 {
        let later = self.samples.partition_point(|(at, _)| *at <= time);
        let before = later.checked_sub(1).and_then(|at| self.samples.get(at));
        match (before, self.samples.get(later)) {
            (Some((start, from)), Some((end, to))) => {
                let part = (time - start) as f64 / (end - start) as f64;
                from + (to.saturating_sub(*from) as f64 * part) as u64
            }
            (Some((_, off)), None) => *off,
            (None, _) => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn the_time_off_is_that_between_two_moments() {
        let mut off = TimeOff::default();
        assert_eq!(off.within(0, 1000 * MS), 0);
        let kept = Duration::from_secs(1);
        // The recording is off in every second half of a second.
        for step in 0..100 {
            let now = step * 100 * MS;
            let (halves, rest) = (now / (1000 * MS), now % (1000 * MS));
            let time = halves * 500 * MS + rest.saturating_sub(500 * MS);
            off.add(now, time, kept);
            off.add(now + MS, time, kept);
        }
        assert!(off.samples.len() <= 12, "{}", off.samples.len());
        assert_eq!(off.within(9000 * MS, 9500 * MS), 0);
        assert_eq!(off.within(9500 * MS, 9900 * MS), 400 * MS);
        assert_eq!(off.within(9650 * MS, 9750 * MS), 100 * MS);
        off.end(9950 * MS, 4950 * MS);
        assert_eq!(off.within(9000 * MS, u64::MAX), 450 * MS);
    }
}
