//! Limits how many connections the listener accepts in a given time. A stranger who connects again
//! and again must not cost the process more than a small share of one processor.

use std::time::{Duration, Instant};

/// The length of one window of time.
const WINDOW: Duration = Duration::from_millis(10);
/// The most connections that are accepted in one window. A connection that comes to nothing takes
/// some 15 µs, or 100 µs if its peer has this process's user. That is 1 % of a processor, or 8 %.
const MOST: u32 = 8;

/// The count of the current window.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    window: Option<Instant>,
    count: u32,
}

impl Pace {
    /// Returns how long no further connection is to be accepted, or zero when one may be accepted
    /// now.
    pub(crate) fn wait(&self, now: Instant) -> Duration {
        match self.window {
            Some(began) if self.count >= MOST => {
                WINDOW.saturating_sub(now.saturating_duration_since(began))
            }
            _ => Duration::ZERO,
        }
    }

    /// Counts a connection that is accepted now.
    pub(crate) fn count(&mut self, now: Instant) {
        let runs = |began: &Instant| now.saturating_duration_since(*began) < WINDOW;
        if !self.window.as_ref().is_some_and(runs) {
            *self = Pace {
                window: Some(now),
                count: 0,
            };
        }
        self.count += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_in_a_time_and_no_more() {
        let (start, mut pace) = (Instant::now(), Pace::default());
        let (mut now, mut accepted) = (start, 0_u32);
        // A peer connects without end, for a second.
        while now - start < Duration::from_secs(1) {
            let wait = pace.wait(now);
            if wait.is_zero() {
                pace.count(now);
                accepted += 1;
                now += Duration::from_micros(15);
            } else {
                assert!(wait <= WINDOW);
                now += wait;
            }
        }
        assert!((700..=MOST * 100).contains(&accepted), "{accepted}");
        // A peer that comes after a pause does not wait.
        assert_eq!(pace.wait(now + WINDOW), Duration::ZERO);
    }
}
