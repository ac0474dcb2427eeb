//! What a GPU did long ago, summed up in buckets of time.

use super::{DOINGS, Doing};

/// The most buckets. When time goes on beyond them, each two become one.
const MOST: usize = 4096;
/// Nanoseconds of a bucket at first, about a millisecond.
const FIRST_WIDTH: u64 = 1 << 20;

/// The sums for each [`Doing`] in each bucket.
#[derive(Debug, Clone)]
pub(super) struct Past {
    /// When the first bucket starts, or 0 while there is none.
    base: u64,
    width: u64,
    buckets: Vec<[u64; DOINGS.len()]>,
}

impl Default for Past {
    fn default() -> Past {
        Past {
            base: 0,
            width: FIRST_WIDTH,
            buckets: Vec::new(),
        }
    }
}

impl Past {
    /// Adds the time from `start` to `end`, in which the GPU did this and nothing that comes
    /// earlier in [`Doing`].
    pub(super) fn add(&mut self, doing: Doing, start: u64, end: u64) {
        self.reach(start, end);
        self.each(start, end, |bucket, _, part| {
            if let Some(sum) = bucket.get_mut(doing as usize) {
                *sum += part;
            }
        });
    }

    /// Adds such a time when it becomes known late. What comes later in [`Doing`] yields to it.
    pub(super) fn displace(&mut self, doing: Doing, start: u64, end: u64) {
        self.reach(start, end);
        self.each(start, end, |bucket, width, part| {
            let before = doing as usize;
            let kept: u64 = bucket.iter().take(before).sum();
            let own = bucket.get(before).copied().unwrap_or(0);
            // The part of the bucket that was neither this nor something earlier.
            let rest = width.saturating_sub(kept + own);
            let taken = share(rest, part, width);
            for sum in bucket.iter_mut().skip(before + 1) {
                *sum -= share(*sum, part, width);
            }
            if let Some(sum) = bucket.get_mut(before) {
                *sum += taken;
            }
        });
    }

    /// Returns the nanoseconds spent on this.
    pub(super) fn total(&self, doing: Doing) -> u64 {
        let sums = self.buckets.iter();
        sums.filter_map(|bucket| bucket.get(doing as usize)).sum()
    }

    /// Makes buckets that reach this time. Whatever lies before the first one is left out.
    fn reach(&mut self, start: u64, end: u64) {
        if self.base == 0 {
            self.base = start;
        }
        let needed = |width: u64| (end.saturating_sub(self.base)).div_ceil(width);
        while needed(self.width) > MOST as u64 {
            let halves = self.buckets.chunks(2);
            self.buckets = halves
                .map(|pair| {
                    let mut sum = [0; DOINGS.len()];
                    for (at, sum) in sum.iter_mut().enumerate() {
                        *sum = pair.iter().filter_map(|bucket| bucket.get(at)).sum();
                    }
                    sum
                })
                .collect();
            // Times have 64 bits, so after 64 of these steps everything is in one bucket.
            self.width = self.width.saturating_mul(2);
        }
        let needed = usize::try_from(needed(self.width)).unwrap_or(MOST);
        if self.buckets.len() < needed {
            self.buckets.resize(needed, [0; DOINGS.len()]);
        }
    }

    /// Visits each bucket that the time touches, with its width and how much of it the time covers.
    fn each(
        &mut self,
        start: u64,
        end: u64,
        mut visit: impl FnMut(&mut [u64; DOINGS.len()], u64, u64),
    ) {
        let (width, base) = (self.width, self.base);
        let mut at = start.max(base);
        while at < end {
            let number = (at - base) / width;
            let next = base
                .saturating_add((number + 1).saturating_mul(width))
                .min(end);
            let bucket = usize::try_from(number)
                .ok()
                .and_then(|number| self.buckets.get_mut(number));
            let Some(bucket) = bucket else {
                return;
            };
            visit(bucket, width, next - at);
            at = next;
        }
    }
}

/// Returns the share `part / whole` of a number.
fn share(number: u64, part: u64, whole: u64) -> u64 {
    let product = u128::from(number) * u128::from(part);
    u64::try_from(product / u128::from(whole.max(1))).unwrap_or(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIDTH: u64 = FIRST_WIDTH;
    const BASE: u64 = 1000;

    fn totals(past: &Past) -> [u64; DOINGS.len()] {
        DOINGS.map(|doing| past.total(doing))
    }

    #[test]
    fn what_comes_later_gives_way_to_what_becomes_known_late() {
        let mut past = Past::default();
        // A bucket has a quarter of each of three, and the rest of it has nothing.
        let quarter = WIDTH / 4;
        past.add(Doing::Kernel, BASE, BASE + quarter);
        past.add(Doing::Copy, BASE + quarter, BASE + 2 * quarter);
        past.add(Doing::Waited, BASE + 2 * quarter, BASE + 3 * quarter);
        assert_eq!(totals(&past), [quarter, quarter, 0, quarter]);
        // Half of the bucket was starting: it takes half of what was neither a kernel nor a copy.
        past.displace(Doing::Starting, BASE, BASE + WIDTH / 2);
        assert_eq!(totals(&past), [quarter, quarter, quarter, quarter / 2]);
        // All of it was a kernel.
        past.displace(Doing::Kernel, BASE, BASE + WIDTH);
        assert_eq!(totals(&past), [WIDTH, 0, 0, 0]);
    }

    /// The first bucket starts with the first time, whatever comes after it.
    #[test]
    fn times_before_the_first_are_left_out() {
        let mut past = Past::default();
        past.add(Doing::Kernel, BASE + 100, BASE + 200);
        past.add(Doing::Kernel, BASE, BASE + 50);
        past.add(Doing::Kernel, BASE, BASE + 150);
        assert_eq!(totals(&past), [150, 0, 0, 0]);
        assert_eq!((past.base, past.buckets.len()), (BASE + 100, 1));
    }

    #[test]
    fn two_buckets_become_one_when_the_time_goes_on_beyond_the_last() {
        let mut past = Past::default();
        let end = |number: u64, width: u64| BASE + number * width;
        // The first and the last one of all that there may be.
        past.add(Doing::Kernel, BASE, BASE + 7);
        let last = end(MOST as u64, WIDTH);
        past.add(Doing::Copy, last - 9, last);
        assert_eq!((past.buckets.len(), past.width), (MOST, WIDTH));
        // A nanosecond more.
        past.add(Doing::Copy, last, last + 1);
        assert_eq!((past.buckets.len(), past.width), (MOST / 2 + 1, 2 * WIDTH));
        assert_eq!(totals(&past), [7, 10, 0, 0]);
        assert_eq!(past.buckets[MOST / 2 - 1], [0, 9, 0, 0]);
        assert_eq!(past.buckets[MOST / 2], [0, 1, 0, 0]);
        // Earlier times make no bucket less.
        past.add(Doing::Waited, BASE + 2 * WIDTH, BASE + 2 * WIDTH + 3);
        assert_eq!(past.buckets.len(), MOST / 2 + 1);
        assert_eq!(past.buckets[1], [0, 0, 0, 3]);
    }
}
