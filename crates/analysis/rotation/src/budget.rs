//! How much time windows may take from the application.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// How much may be taken at once after a pause, in nanoseconds of elapsed time: at 2 %, this is 4
/// ms of counting.
const BURST: u64 = 200_000_000;
/// How much of the share is used. The rest pays for the first burst, which comes before any time has
/// passed, and for windows that are open when a session ends: a session of four seconds keeps its
/// share.
const USED: f64 = 0.95;
/// How often a thread tries again when another thread took from the budget in the meantime.
const TRIES: u32 = 4;

/// A share of the elapsed time. A cost that is taken is paid for by the time that follows;
/// `paid_until` says until when. If all words are zero, there is no limit.
#[derive(Debug, Default)]
pub struct Budget {
    /// The elapsed nanoseconds per nanosecond of cost, times 1,000; 0 = no limit.
    scale: AtomicU64,
    /// A time of the callers' clock.
    paid_until: AtomicU64,
}

impl Budget {
    /// Returns a budget without a limit.
    pub const fn new() -> Budget {
        Budget {
            scale: AtomicU64::new(0),
            paid_until: AtomicU64::new(0),
        }
    }

    /// Sets the share in percent, from now on. 100 and more mean no limit; 0 and less allow nothing
    /// after the first burst.
    pub fn set(&self, percent: f64, now: u64) {
        let scale = if percent >= 100.0 {
            0
        } else if percent > 0.0 {
            ((100_000.0 / (percent * USED)) as u64).max(1)
        } else {
            u64::MAX
        };
        self.paid_until.store(now.saturating_sub(BURST), Relaxed);
        self.scale.store(scale, Relaxed);
    }

    /// Whether there is a limit.
    pub fn is_limited(&self) -> bool {
        self.scale.load(Relaxed) != 0
    }

    /// Whether what was taken before is paid for.
    pub fn is_paid(&self, now: u64) -> bool {
        !self.is_limited() || self.paid_until.load(Relaxed) <= now
    }

    fn elapsed(scale: u64, cost: u64) -> u64 {
        if scale == u64::MAX && cost > 0 {
            return u64::MAX;
        }
        u64::try_from(u128::from(cost) * u128::from(scale) / 1000).unwrap_or(u64::MAX)
    }

    /// Takes `cost` nanoseconds, if what was taken before is paid for. Takes constant time.
    #[inline]
    pub fn take(&self, now: u64, cost: u64) -> bool {
        let scale = self.scale.load(Relaxed);
        if scale == 0 {
            return true;
        }
        let mut paid = self.paid_until.load(Relaxed);
        for _ in 0..TRIES {
            if paid > now {
                return false;
            }
            let from = paid.max(now.saturating_sub(BURST));
            let until = from.saturating_add(Self::elapsed(scale, cost));
            match self
                .paid_until
                .compare_exchange_weak(paid, until, Relaxed, Relaxed)
            {
                Ok(_) => return true,
                Err(changed) => paid = changed,
            }
        }
        false
    }

    /// Corrects the budget: a cost was `measured` instead of the `assumed` one that was taken.
    pub fn correct(&self, assumed: u64, measured: u64) {
        let scale = self.scale.load(Relaxed);
        if scale == 0 {
            return;
        }
        let more = Self::elapsed(scale, measured.saturating_sub(assumed));
        let less = Self::elapsed(scale, assumed.saturating_sub(measured));
        let corrected = |paid: u64| Some(paid.saturating_add(more).saturating_sub(less));
        // The closure always returns Some, so this cannot fail.
        let _ = self.paid_until.fetch_update(Relaxed, Relaxed, corrected);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tries to take at every microsecond of a second. Returns how often that succeeds, without the
    /// first burst.
    fn taken(budget: &Budget, from: u64, cost: u64, measured: u64) -> u64 {
        let mut count = 0;
        for now in (from..from + 1_000_000_000).step_by(1000) {
            if budget.take(now, cost) {
                budget.correct(cost, measured);
                count += 1;
            }
        }
        count
    }

    #[test]
    fn no_more_is_taken_than_the_share() {
        let budget = Budget::new();
        let start = 50_000_000_000;
        budget.set(2.0, start);
        // Of the share 95 % are used: 3.8 ms at once, and then 19 ms of each second.
        let first = taken(&budget, start, 10_000, 10_000);
        assert!((2279..=2282).contains(&first), "{first}");
        let next = taken(&budget, start + 1_000_000_000, 10_000, 10_000);
        assert!((1899..=1901).contains(&next), "{next}");
        // The measured cost counts, not the assumed one.
        let dear = taken(&budget, start + 2_000_000_000, 10_000, 40_000);
        assert!((474..=476).contains(&dear), "{dear}");
        let cheap = taken(&budget, start + 3_000_000_000, 10_000, 5_000);
        assert!((3798..=3804).contains(&cheap), "{cheap}");
    }

    #[test]
    fn a_pause_saves_no_more_than_a_burst() {
        let budget = Budget::new();
        budget.set(2.0, 10_000_000_000);
        let late = 90_000_000_000;
        let mut count = 0;
        while budget.take(late, 10_000) {
            count += 1;
        }
        assert_eq!(count, 381);
    }

    #[test]
    fn shares_without_a_limit_and_of_nothing() {
        let free = Budget::new();
        assert!((0..100_000).all(|_| free.take(5, u64::MAX)));
        free.set(100.0, 5);
        free.correct(1, u64::MAX);
        assert!(free.take(5, u64::MAX) && free.take(5, u64::MAX));
        let none = Budget::new();
        none.set(0.0, 5_000_000_000);
        assert!(none.take(5_000_000_000, 1));
        assert!(!none.take(u64::MAX - 1, 1));
    }
}
