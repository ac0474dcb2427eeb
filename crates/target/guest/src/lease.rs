//! The attacher's lease: whether the attacher is alive, judged by a counter that it increments.
//!
//! Decisions: ENG-020 (`docs/deviations/engine.md`).

/// The most that one round can add to the attacher's silence, in ns. A round takes milliseconds. A
/// longer round does not show that the attacher was silent: this thread did not run, and the
/// attacher may not have run either (a suspended machine, a frozen cgroup).
const ROUND: u64 = 250_000_000;

/// The attacher's lease.
#[derive(Debug)]
pub(crate) struct Lease {
    /// How long the attacher may be silent, in ns. 0 means no limit.
    lasts: u64,
    silent: u64,
    heard: u64,
    looked_at: u64,
}

impl Lease {
    /// Starts a lease. `heard` is the current value of the counter, and `time` the current time in
    /// ns.
    pub(crate) fn new(heard: u64, time: u64, lease_ms: u32) -> Lease {
        Lease {
            lasts: u64::from(lease_ms) * 1_000_000,
            silent: 0,
            heard,
            looked_at: time,
        }
    }

    /// Returns whether the attacher has been silent for too long. Called in each round.
    pub(crate) fn has_run_out(&mut self, heard: u64, time: u64) -> bool {
        let round = time.saturating_sub(self.looked_at);
        self.looked_at = time;
        if heard != self.heard {
            self.heard = heard;
            self.silent = 0;
        } else {
            self.silent += round.min(ROUND);
        }
        self.lasts != 0 && self.silent > self.lasts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn silence_ends_the_lease_and_a_tick_renews_it() {
        let mut lease = Lease::new(7, 0, 100);
        assert!(!lease.has_run_out(7, 60 * MS));
        assert!(!lease.has_run_out(8, 120 * MS));
        assert!(!lease.has_run_out(8, 200 * MS));
        assert!(lease.has_run_out(8, 221 * MS));
    }

    #[test]
    fn time_in_which_neither_side_runs_does_not_count() {
        let mut lease = Lease::new(0, 0, 5000);
        // For an hour, neither side runs.
        assert!(!lease.has_run_out(0, 3_600_000 * MS));
        assert!(!lease.has_run_out(1, 3_600_001 * MS));
        let mut silent = 0;
        while !lease.has_run_out(1, (3_600_001 + silent) * MS) {
            silent += 5;
            assert!(silent <= 5010, "{lease:?}");
        }
        assert!(silent > 5000);
    }

    #[test]
    fn without_a_lease_nothing_expires() {
        let mut lease = Lease::new(0, 0, 0);
        assert!((1..1000).all(|round| !lease.has_run_out(0, round * 200 * MS)));
    }
}
