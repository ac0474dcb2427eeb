//! What a GPU did long ago, summed up in buckets of time.

use super::{DOINGS, Doing};

/// The most buckets. When time goes on beyond them, each two become one.
const MOST: usize = 4096;
/// Nanoseconds of a bucket at first, about a millisecond.
const FIRST_WIDTH: u64 = 1 << 20;

/// The sums for each [`Doing`] in each bucket.
#[derive(Debug, Clone)]
pub(super) struct Past {
    /// When the first bucket begins, or 0 while there is none.
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

    /// Adds such a time when it becomes known late. What comes later in [`Doing`] gives way to it.
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
