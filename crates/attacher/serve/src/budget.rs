//! What recording all the time may take of a processor.
//!
//! Time in which less was taken is not saved up beyond the advance: a server that had nothing to do for a day takes
//! no more in the next minute than another. What strangers make it work counts for nothing here: they would stop the
//! recording.

use nix::time::{ClockId, clock_gettime};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The share of a processor that this program may take, and how much it may take in advance. In each minute that
/// is less than 3 %.
const SHARE: f64 = 0.02;
const ADVANCE: Duration = Duration::from_millis(500);

/// The time (ns) that does not count.
static UNCOUNTED: AtomicU64 = AtomicU64::new(0);

/// Does something whose processor time does not count.
pub(crate) async fn uncounted<F: Future>(work: F) -> F::Output {
    let mut work = pin!(work);
    poll_fn(|context| {
        let before = taken(ClockId::CLOCK_THREAD_CPUTIME_ID);
        let polled = work.as_mut().poll(context);
        let took = taken(ClockId::CLOCK_THREAD_CPUTIME_ID).saturating_sub(before);
        UNCOUNTED.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
        polled
    })
    .await
}

fn taken(of: ClockId) -> Duration {
    clock_gettime(of).map(Duration::from).unwrap_or_default()
}

/// How much is left.
#[derive(Debug)]
pub(crate) struct Budget {
    /// The seconds that are left; below 0 it is spent.
    left: f64,
    /// When that was, and what had been taken by then.
    at: Duration,
    taken: Duration,
    /// How much faster time passes than it does.
    pace: u32,
}

impl Budget {
    /// `at` is the present, since any moment.
    pub(crate) fn new(at: Duration, pace: u32) -> Budget {
        Budget {
            left: ADVANCE.as_secs_f64(),
            at,
            taken: Duration::ZERO,
            pace,
        }
    }

    /// Whether this program has taken more than it may by now.
    pub(crate) fn is_spent(&mut self, now: Duration) -> bool {
        let uncounted = Duration::from_nanos(UNCOUNTED.load(Ordering::Relaxed));
        let all = taken(ClockId::CLOCK_PROCESS_CPUTIME_ID);
        self.count(now, all.saturating_sub(uncounted))
    }

    fn count(&mut self, now: Duration, taken: Duration) -> bool {
        let passed = now.saturating_sub(self.at).as_secs_f64() * f64::from(self.pace);
        let spent = taken.saturating_sub(self.taken).as_secs_f64();
        (self.at, self.taken) = (now, taken);
        self.left = (self.left + passed * SHARE).min(ADVANCE.as_secs_f64()) - spent;
        self.left < 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise whoever shakes hands by TLS, with no token, stops the recording.
    #[test]
    fn what_strangers_take_is_not_counted() {
        let works = async || {
            let until = taken(ClockId::CLOCK_THREAD_CPUTIME_ID) + Duration::from_millis(60);
            while taken(ClockId::CLOCK_THREAD_CPUTIME_ID) < until {}
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.unwrap().block_on(async {
            let mut budget = Budget::new(Duration::ZERO, 1);
            budget.is_spent(Duration::ZERO);
            budget.left = 0.05;
            uncounted(works()).await;
            assert!(!budget.is_spent(Duration::ZERO), "{budget:?}");
            works().await;
            assert!(budget.is_spent(Duration::ZERO), "{budget:?}");
        });
    }

    #[test]
    fn a_minute_has_no_more_than_its_share_and_the_advance() {
        let second = Duration::from_secs;
        let mut budget = Budget::new(second(0), 1);
        // A day without work saves nothing up.
        assert!(!budget.count(second(86_400), Duration::ZERO));
        let mut taken = Duration::ZERO;
        for at in 0..600 {
            let now = second(86_400) + Duration::from_millis(100 * at);
            if !budget.count(now, taken) {
                taken += Duration::from_millis(20);
            }
        }
        assert!(taken <= Duration::from_millis(1_740), "{taken:?}");
        assert!(taken >= Duration::from_millis(1_600), "{taken:?}");
    }
}
