//! Bursts of a recording that is expensive to switch on and off: how long they are, and how far apart.
//!
//! A burst costs the time that switching takes, as if the application stood still meanwhile, and the
//! worst part of its speed that recording was ever seen to cost. Both together stay below the share
//! of the period. A burst is so long that recording costs as much as switching does: then neither
//! is paid for nothing.
//!
//! What switching takes is known only afterwards. If it took longer than was planned for, as the first
//! time often does, a *rest* follows the period: no burst starts before the application has made up
//! for the last one. Rests belong to no period, so that the burst before one counts no more than others.

use std::collections::VecDeque;

/// The shortest period, in nanoseconds: the fewer turns, the better.
const PERIOD: f64 = 1e9;
/// No burst starts this soon after the start of its period: the last one may just have ended.
pub(crate) const GAP: f64 = 100e6;
/// The shortest burst and the longest one, in nanoseconds. Where the share is large, a burst may be longer.
const SHORTEST: f64 = 20e6;
const LONGEST: f64 = 200e6;
/// What switching is taken to cost before it was done, in nanoseconds.
const UNKNOWN: f64 = 40e6;
/// The largest part of a period that its burst and the switching may be.
const MOST: f64 = 0.9;
/// From how many of the last bursts the cost is taken.
const KEPT: usize = 8;

/// A period as it is planned, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Plan {
    pub(crate) period: f64,
    pub(crate) burst: f64,
    /// For switching on and off.
    pub(crate) switching: f64,
}

/// What switching costs in a session, as far as it is known.
#[derive(Debug)]
pub(crate) struct Switching {
    share: f64,
    /// The part of its speed that the application loses in a burst, at most.
    worst: f64,
    /// What it took the first time, which may have done more than the others.
    first: Option<f64>,
    /// What it took the last times, without the first.
    last: VecDeque<f64>,
}

impl Switching {
    pub(crate) fn new(share: f64, worst: f64) -> Switching {
        Switching {
            share,
            worst: worst.clamp(0.01, 1.0),
            first: None,
            last: VecDeque::with_capacity(KEPT),
        }
    }

    /// What it is expected to take next.
    fn expected(&self) -> f64 {
        if self.last.is_empty() {
            return self.first.unwrap_or(UNKNOWN).min(UNKNOWN);
        }
        self.last.iter().sum::<f64>() / self.last.len() as f64
    }

    pub(crate) fn plan(&self) -> Plan {
        let switching = self.expected();
        let burst = match self.first {
            // A short one, which is paid for soon: short sessions should have a burst at all.
            None => SHORTEST,
            Some(_) => (switching / self.worst).clamp(SHORTEST, LONGEST),
        };
        let period = (switching + self.worst * burst) / self.share;
        if period >= PERIOD {
            return Plan {
                period,
                burst,
                switching,
            };
        }
        // More is left than a burst of that length needs.
        let affordable = (self.share * PERIOD - switching) / self.worst;
        let burst = affordable.min(MOST * PERIOD - switching).max(burst);
        let period = PERIOD.max((burst + switching) / MOST);
        Plan {
            period,
            burst,
            switching,
        }
    }

    /// What recording costs the application, as far as `assumed` makes sense.
    pub(crate) fn cost(&self, assumed: f64) -> f64 {
        assumed.min(self.worst)
    }

    /// A period is over: when it started and ended, how long its burst was and how long switching took.
    /// Returns when the next one may start.
    pub(crate) fn over(&mut self, from: u64, to: u64, burst: f64, switched: u64) -> u64 {
        let switched = switched as f64;
        if self.first.is_none() {
            self.first = Some(switched);
        } else {
            if self.last.len() == KEPT {
                self.last.pop_front();
            }
            self.last.push_back(switched);
        }
        let paid = (switched + self.worst * burst) / self.share;
        to.max(from.saturating_add(paid as u64))
    }
}

#[cfg(test)]
mod tests {
    use crate::random::mix;
    use crate::{Basis, Bursts, Period, Turn};

    const MS: u64 = 1_000_000;

    fn random(seed: u64) -> f64 {
        (mix(seed) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// An application and a profiler that takes its time to come and to go.
    struct Program {
        /// The part of its speed that it loses while it is recorded.
        loss: f64,
        /// Milliseconds that it stands still at the first burst, and at each at most.
        first: f64,
        most: f64,
        seed: u64,
    }

    struct Run {
        /// The largest part of its speed that it lost from the start to the end of any period and its rest.
        lost: f64,
        periods: Vec<Period>,
    }

    fn run(percent: u32, worst: f64, program: &Program, seconds: u64) -> Run {
        let mut bursts = Bursts::rare(percent, 2_000, worst, program.seed, 0);
        let (mut lost_time, mut lost, mut periods) = (0.0, 0.0_f64, Vec::new());
        let mut now = 0;
        while now < seconds * 1000 * MS {
            let (turn, at) = bursts.next();
            let late = (random(program.seed ^ mix(now)) * 5e6) as u64;
            now = now.max(at) + late;
            match turn {
                Turn::Begin => {
                    // What was lost so far is made up for when the next burst is due.
                    if !periods.is_empty() {
                        lost = lost.max(lost_time / at as f64);
                    }
                    let share = random(program.seed ^ mix(now ^ 7));
                    let length = match periods.is_empty() {
                        true => program.first,
                        false => program.most * (0.3 + 0.7 * share),
                    };
                    let took = (length / 2.0 * 1e6) as u64;
                    lost_time += took as f64;
                    now += took;
                    bursts.switched(took);
                    bursts.begin(now, 0);
                    let (from, start) = bursts.began();
                    assert!(from <= start && start == now);
                    assert!(bursts.is_on());
                }
                Turn::End => {
                    let (_, start) = bursts.began();
                    let length = (now - start) as f64;
                    lost_time += length * program.loss;
                    bursts.end(now, 0, (length * program.loss / 2_000.0) as u64);
                    let took = (program.most / 2.0 * 1e6) as u64;
                    lost_time += took as f64;
                    now += took;
                    bursts.switched(took);
                }
                Turn::Over => periods.push(bursts.over(now, 0)),
            }
        }
        Run { lost, periods }
    }

    #[test]
    fn the_share_is_kept_from_the_first_burst_on() {
        for percent in [1, 2, 5, 20, 60, 99] {
            for (at, (loss, first, most)) in
                [(0.45, 300.0, 30.0), (0.17, 80.0, 60.0), (0.0, 10.0, 10.0)]
                    .into_iter()
                    .enumerate()
            {
                for seed in 0..10 {
                    let program = Program {
                        loss,
                        first,
                        most,
                        seed: seed * 10 + at as u64,
                    };
                    let run = run(percent, 0.45, &program, 300);
                    let share = f64::from(percent) / 100.0;
                    assert!(run.lost <= share, "{percent} %, {loss}: lost {}", run.lost);
                    assert!(
                        run.periods.len() >= 10,
                        "{percent} %: {}",
                        run.periods.len()
                    );
                    for period in &run.periods {
                        assert!(period.end - period.start >= 20 * MS, "{period:?}");
                        assert!(period.end <= period.to && period.to - period.from >= 1000 * MS);
                    }
                }
            }
        }
    }

    #[test]
    fn what_may_be_lost_is_used() {
        let program = Program {
            loss: 0.45,
            first: 100.0,
            most: 30.0,
            seed: 3,
        };
        let at = run(2, 0.45, &program, 300);
        // About 25 ms of switching and 55 ms of recording in 2.5 s.
        assert!(at.lost > 0.015, "{}", at.lost);
        assert!(
            (90..160).contains(&at.periods.len()),
            "{}",
            at.periods.len()
        );
        let recorded: u64 = at.periods.iter().map(|p| p.end - p.start).sum();
        assert!(recorded > 5_000 * MS, "{recorded}");
        // With half of the speed to lose, most of the time is recorded.
        let all = run(60, 0.45, &program, 60);
        let recorded: u64 = all.periods.iter().map(|p| p.end - p.start).sum();
        assert!(recorded > 45_000 * MS, "{recorded}");
    }

    #[test]
    fn an_expensive_first_burst_is_followed_by_a_rest() {
        let program = Program {
            loss: 0.3,
            first: 400.0,
            most: 20.0,
            seed: 5,
        };
        let periods = run(2, 0.45, &program, 120).periods;
        let [first, second, ..] = periods.as_slice() else {
            panic!("{} periods", periods.len());
        };
        // 0.2 s and more are made up for in 10 s; the period itself is not longer for it.
        assert!(first.switched > 200 * MS, "{first:?}");
        assert!(first.to - first.from < 4_000 * MS, "{first:?}");
        assert!(second.from - first.from > 10_000 * MS, "{second:?}");
        // Later ones follow one another, and their lengths are alike.
        let later = periods.get(3..).unwrap();
        let lengths: Vec<u64> = later.iter().map(|p| p.to - p.from).collect();
        let (least, most) = (lengths.iter().min().unwrap(), lengths.iter().max().unwrap());
        assert!(*most < 2 * *least, "{lengths:?}");
    }

    #[test]
    fn records_tell_what_was_lost_and_places_are_random() {
        let program = Program {
            loss: 0.3,
            first: 40.0,
            most: 20.0,
            seed: 9,
        };
        let periods = run(2, 0.45, &program, 2_000).periods;
        let last = periods.last().unwrap();
        assert_eq!(last.basis, Basis::Assumed);
        assert!((last.cost - 0.3).abs() < 0.01, "{last:?}");
        let mut quarters = [0; 4];
        for period in &periods {
            let place = (period.start - period.from) as f64 / (period.to - period.from) as f64;
            quarters[((place * 4.0) as usize).min(3)] += 1;
        }
        let each = periods.len() / 4;
        assert!(
            quarters.iter().all(|n| (each / 2..each * 2).contains(n)),
            "{quarters:?}"
        );
    }
}
