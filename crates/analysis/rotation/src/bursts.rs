//! When a recording in bursts is on, so that it costs the application no more than a share of its
//! speed.
//!
//! Time is cut into *periods*. Each has one burst, at a random place: programs are periodic, and a
//! fixed place would meet the same part of their loops again and again. The periods' other parts
//! are the control: how fast the application launches there, and in bursts, tells what recording
//! costs. The length of the bursts follows from that cost. Until it is known, bursts are so short
//! that even a recording which stopped the application altogether would keep the share.
//!
//! Only one thread uses this, and it reads the clock for it.

use crate::random::mix;
use crate::switching::{GAP, Switching};
use std::collections::VecDeque;

/// The usual length of a period, in nanoseconds.
const PERIOD: u64 = 100_000_000;
/// The shortest burst, in nanoseconds: the thread that switches wakes up once a millisecond.
const SHORTEST: u64 = 2_000_000;
/// The longest period, in nanoseconds: a session of some seconds should have several.
const LONGEST_PERIOD: u64 = 1_000_000_000;
/// The largest part of a period that a burst may be. The rest is the control.
const MOST: f64 = 0.9;
/// From how many of the last periods the cost is taken.
const KEPT: usize = 128;
/// In fewer periods with launches on both sides, nothing is measured.
const FEWEST: usize = 8;
/// The part of a period may grow by this factor from one period to the next.
const GROWTH: f64 = 1.5;
/// Bursts are as short as if the cost were at this quantile of what was measured (95 %, one side).
const CAUTION: f64 = 1.645;

/// How the cost of recording is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Basis {
    /// It is not: bursts are as short as if recording stopped the application.
    Unknown,
    /// The application's launches in bursts were compared with those between them.
    Measured,
    /// It follows from the number of records, and from an assumed cost of each.
    Assumed,
}

/// What is to be done next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// Switch the recording on, then call [`Bursts::begin`].
    Begin,
    /// Switch the recording off, then call [`Bursts::end`].
    End,
    /// The period is over: call [`Bursts::over`].
    Over,
}

/// A period that is over. Times are nanoseconds of the caller's clock.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Period {
    /// When it started.
    pub from: u64,
    /// When its burst started, just before the recording was switched on.
    pub start: u64,
    /// When its burst ended, just after the recording was switched off.
    pub end: u64,
    /// When it ended.
    pub to: u64,
    /// The launches in the burst, where launches are counted.
    pub inside: u64,
    /// All launches in the period, where they are counted.
    pub all: u64,
    /// What recording costs, as a part of the application's speed while it is on.
    pub cost: f64,
    /// How that is known.
    pub basis: Basis,
    /// How long it took to switch the recording on and off, in nanoseconds; 0 where that costs nothing.
    pub switched: u64,
}

/// Launches and nanoseconds, in a burst and outside of it.
#[derive(Debug, Clone, Copy, Default)]
struct Sample {
    on: (f64, f64),
    off: (f64, f64),
}

/// The controller of a session.
#[derive(Debug)]
pub struct Bursts {
    /// The share of its speed that the application may lose.
    share: f64,
    /// Nanoseconds of the application that a record is assumed to cost; 0 where nothing is assumed.
    per_record: f64,
    seed: u64,
    number: u64,
    /// The part of a period that its burst is.
    part: f64,
    from: u64,
    start: u64,
    end: u64,
    to: u64,
    stage: Turn,
    /// Counts of launches when the period and its burst started, and when the burst ended.
    counts: [u64; 3],
    samples: VecDeque<Sample>,
    /// Records in bursts, and the nanoseconds of these bursts.
    records: (f64, f64),
    /// Present where switching the recording on and off costs something.
    switching: Option<Switching>,
    /// How long that took in this period, in nanoseconds.
    switched: u64,
}

impl Bursts {
    /// Starts with a period now. `percent` is what the application may lose of its speed.
    /// `per_record` is used where launches are not counted between bursts.
    pub fn new(percent: u32, per_record: u64, seed: u64, now: u64, launches: u64) -> Bursts {
        let share = f64::from(percent.clamp(1, 100)) / 100.0;
        let mut bursts = Bursts {
            share,
            per_record: per_record as f64,
            seed,
            number: 0,
            part: share.min(MOST),
            from: now,
            start: now,
            end: now,
            to: now,
            stage: Turn::Begin,
            counts: [launches; 3],
            samples: VecDeque::with_capacity(KEPT),
            records: (0.0, 0.0),
            switching: None,
            switched: 0,
        };
        bursts.plan(now, launches);
        bursts
    }

    /// The same for a recording that is expensive to switch on and off: [`Bursts::switched`] tells how
    /// long that takes. `worst` is the largest part of its speed that an application loses while it
    /// is recorded; no launches are counted.
    pub fn rare(percent: u32, per_record: u64, worst: f64, seed: u64, now: u64) -> Bursts {
        let mut bursts = Bursts::new(percent, per_record, seed, now, 0);
        bursts.switching = Some(Switching::new(bursts.share, worst));
        bursts.number = 0;
        bursts.plan(now, 0);
        bursts
    }

    /// Plans the period that starts now.
    fn plan(&mut self, now: u64, launches: u64) {
        let (period, burst, room, gap) = match &self.switching {
            Some(switching) => {
                let plan = switching.plan();
                (plan.period, plan.burst, plan.burst + plan.switching, GAP)
            }
            None => {
                let period = (SHORTEST as f64 / self.part).max(PERIOD as f64);
                let period = period.min(LONGEST_PERIOD as f64);
                let burst = (period * self.part).min(period);
                (period, burst, burst, 0.0)
            }
        };
        let random = mix(self.seed ^ mix(self.number));
        let place = (random >> 11) as f64 / (1_u64 << 53) as f64;
        let before = (gap + (period - room - gap).max(0.0) * place) as u64;
        self.number += 1;
        self.from = now;
        self.start = now + before;
        self.end = self.start + burst as u64;
        self.to = now + period as u64;
        self.stage = Turn::Begin;
        self.counts = [launches; 3];
        self.switched = 0;
    }

    /// Switching took so many nanoseconds, in which the application may have stood still. Called
    /// before [`Bursts::over`], as often as there was something to tell.
    pub fn switched(&mut self, took: u64) {
        self.switched = self.switched.saturating_add(took);
    }

    /// Returns what comes next, and when it is due.
    pub fn next(&self) -> (Turn, u64) {
        let at = match self.stage {
            Turn::Begin => self.start,
            Turn::End => self.end,
            Turn::Over => self.to,
        };
        (self.stage, at)
    }

    /// Whether a burst is on.
    pub fn is_on(&self) -> bool {
        self.stage == Turn::End
    }

    /// Returns when the current period and its burst started.
    pub fn began(&self) -> (u64, u64) {
        (self.from, self.start)
    }

    /// The recording was switched on. `now` and `launches` are from just before. Where switching takes
    /// long, `now` is when recording started.
    pub fn begin(&mut self, now: u64, launches: u64) {
        let length = self.end.saturating_sub(self.start);
        self.start = now;
        // A burst that starts late is as long as it was meant to be; the period grows if need be.
        self.end = now + length;
        self.to = self.to.max(self.end);
        let [_, start, _] = &mut self.counts;
        *start = launches;
        self.stage = Turn::End;
    }

    /// The recording was switched off. `now` and `launches` are from just after. `records` is how
    /// many were made meanwhile.
    pub fn end(&mut self, now: u64, launches: u64, records: u64) {
        self.end = now;
        self.to = self.to.max(now);
        let [_, _, end] = &mut self.counts;
        *end = launches;
        self.records.0 += records as f64;
        self.records.1 += now.saturating_sub(self.start) as f64;
        self.stage = Turn::Over;
    }

    /// The period is over. The next one starts.
    pub fn over(&mut self, now: u64, launches: u64) -> Period {
        self.to = self.to.max(now);
        let [from, start, end] = self.counts;
        let all = launches.saturating_sub(from);
        let inside = end.saturating_sub(start).min(all);
        let length = self.end.saturating_sub(self.start) as f64;
        let sample = Sample {
            on: (inside as f64, length),
            off: (
                all.saturating_sub(inside) as f64,
                self.to.saturating_sub(self.from) as f64 - length,
            ),
        };
        if self.samples.len() == KEPT {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
        let (cost, caution, basis) = self.cost();
        let period = Period {
            from: self.from,
            start: self.start,
            end: self.end,
            to: self.to,
            inside,
            all,
            cost,
            basis,
            switched: self.switched,
        };
        if let Some(switching) = &mut self.switching {
            let next = switching.over(self.from, self.to, length, self.switched);
            self.plan(next, launches);
            return period;
        }
        let wanted = (self.share / caution.max(1e-6)).min(MOST);
        self.part = wanted.min(self.part * GROWTH);
        self.plan(self.to, launches);
        period
    }

    /// Returns what recording costs while it is on, what it may cost at most as far as is known, and
    /// how that is known.
    fn cost(&self) -> (f64, f64, Basis) {
        if let Some((cost, error)) = measured(&self.samples) {
            let caution = (cost + CAUTION * error).clamp(0.0, 1.0);
            return (cost.clamp(0.0, 1.0), caution, Basis::Measured);
        }
        let (records, time) = self.records;
        if self.per_record > 0.0 && records > 0.0 && time > 0.0 {
            let cost = (records * self.per_record / time).min(1.0);
            let cost = self.switching.as_ref().map_or(cost, |it| it.cost(cost));
            return (cost, cost, Basis::Assumed);
        }
        (1.0, 1.0, Basis::Unknown)
    }
}

/// Returns by which part the application is slower in bursts, and the standard error of that. None
/// where too little was launched to tell.
fn measured(samples: &VecDeque<Sample>) -> Option<(f64, f64)> {
    let sum = |of: fn(&Sample) -> f64| samples.iter().map(of).sum::<f64>();
    let (on, on_time) = (sum(|s| s.on.0), sum(|s| s.on.1));
    let (off, off_time) = (sum(|s| s.off.0), sum(|s| s.off.1));
    let telling = samples.iter().filter(|s| s.on.0 > 0.0 && s.off.0 > 0.0);
    if telling.count() < FEWEST || on_time <= 0.0 || off_time <= 0.0 {
        return None;
    }
    let (rate_on, rate_off) = (on / on_time, off / off_time);
    let kept = rate_on / rate_off;
    // The variance of the ratio's logarithm, by its linear part in each period.
    let squares = samples.iter().map(|s| {
        let part = (s.on.0 - rate_on * s.on.1) / on - (s.off.0 - rate_off * s.off.1) / off;
        part * part
    });
    let count = samples.len() as f64;
    let variance = squares.sum::<f64>() * count / (count - 1.0);
    Some((1.0 - kept, kept * variance.sqrt()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// An application that launches so often, which is slower by `cost` while it is recorded, and
    /// whose speed changes by `noise` from millisecond to millisecond.
    struct Run {
        /// What it did of what it would have done without us.
        kept: f64,
        /// The part of the time in which it was recorded.
        coverage: f64,
        last: Option<Period>,
        starts: Vec<u64>,
    }

    fn run(percent: u32, cost: f64, noise: f64, seed: u64, seconds: u64, counted: bool) -> Run {
        let mut bursts = Bursts::new(percent, if counted { 0 } else { 1_000 }, seed, 0, 0);
        let (mut launches, mut records, mut free, mut on, mut last) = (0.0, 0.0, 0.0, 0_u64, None);
        let mut starts = Vec::new();
        for tick in 1..=seconds * 1000 {
            let random = (mix(seed ^ mix(tick ^ 77)) >> 11) as f64 / (1_u64 << 53) as f64;
            let rate = 200.0 * (1.0 + noise * (2.0 * random - 1.0));
            free += rate;
            let made = if bursts.is_on() {
                on += 1;
                rate * (1.0 - cost)
            } else {
                rate
            };
            launches += made;
            if bursts.is_on() {
                records += made;
            }
            let (now, seen) = (tick * MS, if counted { launches as u64 } else { 0 });
            while let (turn, at) = bursts.next()
                && at <= now
            {
                match turn {
                    Turn::Begin => {
                        bursts.begin(now, seen);
                        records = 0.0;
                        starts.push(now - bursts.began().0);
                    }
                    Turn::End => bursts.end(now, seen, records as u64),
                    Turn::Over => last = Some(bursts.over(now, seen)),
                }
            }
        }
        Run {
            kept: launches / free,
            coverage: on as f64 / (seconds * 1000) as f64,
            last,
            starts,
        }
    }

    #[test]
    fn the_share_is_kept_whatever_recording_costs() {
        for (at, cost) in [0.0, 0.05, 0.16, 0.37, 0.8, 1.0].into_iter().enumerate() {
            for seed in 0..10 {
                let run = run(2, cost, 0.2, seed * 100 + at as u64, 30, true);
                assert!(run.kept >= 0.975, "{cost}: {} of its speed", run.kept);
                // And what may be lost is used: a cost of 16 % leaves an eighth of the time.
                if cost > 0.1 && cost < 0.9 {
                    let most = 0.02 / cost;
                    assert!(run.coverage > 0.7 * most, "{cost}: {}", run.coverage);
                }
            }
        }
    }

    #[test]
    fn the_cost_is_measured_and_told() {
        let last = run(2, 0.16, 0.1, 3, 30, true).last.unwrap();
        assert_eq!(last.basis, Basis::Measured);
        assert!((last.cost - 0.16).abs() < 0.03, "{last:?}");
        assert!(last.all > last.inside && last.inside > 0);
        // What costs nothing is recorded nearly all the time, with a control.
        let free = run(2, 0.0, 0.05, 3, 30, true);
        assert!(
            free.coverage > 0.6 && free.coverage < 0.95,
            "{}",
            free.coverage
        );
    }

    #[test]
    fn without_counts_the_records_tell_the_cost() {
        // 200 records, at 1 us each, make a millisecond of work 1.2 ms: a sixth is lost.
        let run = run(2, 1.0 / 6.0, 0.1, 5, 30, false);
        let last = run.last.unwrap();
        assert_eq!(last.basis, Basis::Assumed);
        assert!((0.12..0.20).contains(&last.cost), "{last:?}");
        assert!(run.kept >= 0.975, "{}", run.kept);
        // Nothing is launched: nothing is known, and bursts stay short.
        let mut idle = Bursts::new(2, 1_000, 1, 0, 0);
        for _ in 0..20 {
            let (_, at) = idle.next();
            idle.begin(at, 0);
            let (_, at) = idle.next();
            idle.end(at, 0, 0);
            let (_, at) = idle.next();
            let period = idle.over(at, 0);
            assert_eq!((period.basis, period.cost), (Basis::Unknown, 1.0));
            assert_eq!(period.to - period.from, PERIOD);
            assert_eq!(period.end - period.start, SHORTEST);
        }
    }

    #[test]
    fn bursts_lie_anywhere_in_their_periods() {
        let starts = run(2, 1.0, 0.0, 11, 200, true).starts;
        assert!(starts.len() > 1_900, "{}", starts.len());
        let mut tenths = [0; 10];
        for start in &starts {
            tenths[(start / (10 * MS)).min(9) as usize] += 1;
        }
        // 200 each on average; the standard deviation is 13.
        assert!(tenths.iter().all(|n| (130..270).contains(n)), "{tenths:?}");
    }
}
