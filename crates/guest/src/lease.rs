//! Whether the attacher still lives, by a count that it moves on.
//!
//! Decisions: ENG-020 (`docs/deviations/engine.md`).

/// What one round of ours can add to the attacher's silence, in ns. A round takes milliseconds; one that took longer was no silence that
/// we listened to: we had no turn, and the attacher may have had none either (a machine that was suspended, a cgroup that was frozen).
const ROUND: u64 = 250_000_000;

/// The attacher's lease.
#[derive(Debug)]
pub(crate) struct Lease {
    /// How long it may be silent, in ns; 0 = for ever.
    lasts: u64,
    silent: u64,
    heard: u64,
    looked_at: u64,
}

impl Lease {
    /// `heard` is the count now, `time` this moment in ns.
    pub(crate) fn new(heard: u64, time: u64, lease_ms: u32) -> Lease {
        Lease {
            lasts: u64::from(lease_ms) * 1_000_000,
            silent: 0,
            heard,
            looked_at: time,
        }
    }

    /// To be asked in each round.
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
    fn silence_ends_it_and_a_word_begins_it_anew() {
        let mut lease = Lease::new(7, 0, 100);
        assert!(!lease.has_run_out(7, 60 * MS));
        assert!(!lease.has_run_out(8, 120 * MS));
        assert!(!lease.has_run_out(8, 200 * MS));
        assert!(lease.has_run_out(8, 221 * MS));
    }

    #[test]
    fn time_in_which_nobody_had_a_turn_does_not_count() {
        let mut lease = Lease::new(0, 0, 5000);
        // An hour of standstill, of both sides.
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
    fn without_one_nothing_runs_out() {
        let mut lease = Lease::new(0, 0, 0);
        assert!((1..1000).all(|round| !lease.has_run_out(0, round * 200 * MS)));
    }
}
