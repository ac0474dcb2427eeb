//! What bursts tell about the whole time: a recording that was on for a part of it only
//! (`--max-overhead`).
//!
//! Each period of the recording has one burst, at a random place. What was launched in a burst stands
//! for its period: it is weighted by how much longer the period is. Calls, times and shares of
//! kernels are ratios of such sums, and their intervals come from how much the periods differ
//! (linearised ratios, Student's quantile): a burst counts as one sample, however many kernels it
//! has, since kernels that follow one another are not independent. Periods that differ by
//! themselves, because the program changed, make the intervals wider than they need to be.
//!
//! That a part of a period was recorded makes no interval narrower, unless all of it was. Such a factor
//! assumes that the rest of the period does not depend on that part. Programs repeat themselves: what
//! one part has more, the rest has less. With it, intervals at 20 % held 9 of 10 true shares
//! (`bench-results/gpu-check-bursts.md`).
//!
//! Sums are kept for each kernel, not for each burst, so that the memory does not grow with the
//! time. A few bursts stay open, since kernels may end long after their launch.

use foldhash::fast::RandomState;
use midair_counters::statistics::quantile;
use midair_record::event::{Burst, Kernel, basis};
use std::collections::{HashMap, VecDeque};

/// How many bursts wait for kernels that end late. Later ones count for the oldest of these.
const OPEN: usize = 4;

/// With fewer bursts there is no interval.
const FEWEST: f64 = 3.0;
/// Places of what all kernels had in a burst: calls, time, and the length of the period.
const CALLS: usize = 0;
const TIME: usize = 1;
const PERIODS: usize = 2;

/// A value, and how far the true one may be from it (95 %).
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Interval {
    /// The estimate.
    pub estimate: f64,
    /// Half of the interval's width; infinite where there are too few bursts to tell.
    pub half: f64,
}

/// A kernel, as it was in the whole time.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Estimate {
    /// Launches.
    pub calls: Interval,
    /// Nanoseconds on the device.
    pub total: Interval,
    /// The part of all kernels' time.
    pub share: Interval,
}

/// The bursts of a session.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Coverage {
    /// How many there were.
    pub bursts: u64,
    /// How long they were, in ns.
    pub recorded: u64,
    /// How long it was from the start of the first one's period to the end of the last one's, in ns.
    pub time: u64,
    /// How long the application stood still at most while the recording was switched on and off, in ns.
    pub switched: u64,
    /// Millionths of its speed that the application loses while it is recorded.
    pub cost: u32,
    /// How that is known ([`basis`]).
    pub basis: u32,
}

impl Coverage {
    /// Returns the part of the time that was recorded.
    pub fn part(&self) -> f64 {
        self.recorded as f64 / self.time.max(1) as f64
    }

    /// Returns the part of its speed that the application lost in all of the time.
    pub fn lost(&self) -> f64 {
        let switched = self.switched as f64 / self.time.max(1) as f64;
        f64::from(self.cost) / 1e6 * self.part() + switched
    }
}

/// Calls and nanoseconds.
type Sums = (f64, f64);

/// A burst whose kernels may still arrive.
#[derive(Debug, Clone, Default)]
struct Open {
    record: Burst,
    /// How long before its start the first kernels may have been recorded, in ns: it takes time to
    /// switch the recording on.
    before: u64,
    kernels: HashMap<u64, Sums, RandomState>,
}

/// Sums over bursts for one kernel: what it had in a burst, times the burst's weight.
#[derive(Debug, Clone, Copy, Default)]
struct Moments {
    calls: Products,
    time: Products,
}

/// The sum of a value over bursts, of its squares, and of its products with what all kernels had in
/// the same burst: calls, time, and the length of the period.
#[derive(Debug, Clone, Copy, Default)]
struct Products {
    sum: f64,
    squares: f64,
    by: [f64; 3],
}

impl Products {
    fn add(&mut self, value: f64, all: [f64; 3]) {
        self.sum += value;
        self.squares += value * value;
        for (product, all) in self.by.iter_mut().zip(all) {
            *product += value * all;
        }
    }
}

/// The bursts of a session so far.
#[derive(Debug, Clone, Default)]
pub struct Bursts {
    open: VecDeque<Open>,
    coverage: Coverage,
    /// When the first period started.
    since: Option<u64>,
    kernels: HashMap<u64, Moments, RandomState>,
    /// Calls and time of all kernels, and the lengths of periods: sums and sums of squares.
    all: [(f64, f64); 3],
    /// The variances of bursts, as far as they follow from lengths and weights: their sum, and the
    /// sum of their squares.
    variances: (f64, f64),
}

impl Bursts {
    /// Adds the record of a burst, which comes at its start and at the end of its period.
    pub fn add(&mut self, burst: &Burst) {
        if burst.end == 0 {
            self.open.push_back(Open {
                record: *burst,
                before: burst.switched,
                ..Open::default()
            });
            while self.open.len() > OPEN {
                let Some(oldest) = self.open.pop_front() else {
                    return;
                };
                self.fold(&oldest);
            }
            return;
        }
        let is_first = self.is_empty();
        let mut known = self.open.iter_mut().rev();
        match known.find(|open| open.record.start == burst.start) {
            Some(known) => known.record = *burst,
            // Of the latest records, the first may be the end of a burst.
            None if is_first => self.open.push_back(Open {
                record: *burst,
                before: burst.switched,
                ..Open::default()
            }),
            None => {}
        }
    }

    /// Adds a kernel with times to the burst in which it was launched.
    pub fn add_kernel(&mut self, id: u64, kernel: &Kernel) {
        if self.open.is_empty() {
            return;
        }
        // CUPTI does not tell when it was launched. It ran soon after that, unless the device lags
        // behind by more than the time between two bursts.
        let at = match kernel.rung {
            0 => kernel.start,
            rung => rung,
        };
        let begun = self
            .open
            .iter()
            .rposition(|open| open.record.start.saturating_sub(open.before) <= at);
        if let Some(open) = self.open.get_mut(begun.unwrap_or(0)) {
            let (calls, time) = open.kernels.entry(id).or_default();
            *calls += 1.0;
            *time += kernel.end.saturating_sub(kernel.start) as f64;
        }
    }

    /// Adds a burst to the sums. One that never ended, or whose times make no sense, is left out.
    fn fold(&mut self, open: &Open) {
        let Burst {
            from,
            start,
            end,
            to,
            ..
        } = open.record;
        if !(from <= start && start < end && end <= to) {
            return;
        }
        let (length, period) = (end - start, to - from);
        let weight = period as f64 / length as f64;
        self.coverage.bursts += 1;
        self.coverage.recorded = self.coverage.recorded.saturating_add(length);
        // Between periods there may be a rest, which was not recorded, either.
        let since = *self.since.get_or_insert(from);
        self.coverage.time = to.saturating_sub(since).max(self.coverage.time);
        self.coverage.switched = self.coverage.switched.saturating_add(open.record.switched);
        self.coverage.cost = open.record.cost;
        self.coverage.basis = open.record.basis;
        let all = open.kernels.values();
        let (all_calls, all_time) = all.fold((0.0, 0.0), |sum: Sums, one| {
            (sum.0 + weight * one.0, sum.1 + weight * one.1)
        });
        let all = [all_calls, all_time, period as f64];
        for ((sum, squares), value) in self.all.iter_mut().zip(all) {
            *sum += value;
            *squares += value * value;
        }
        let unseen = 1.0 - length as f64 / period as f64;
        let variance = weight * weight * length as f64 * unseen;
        self.variances.0 += variance;
        self.variances.1 += variance * variance;
        for (id, (calls, time)) in &open.kernels {
            let sums = self.kernels.entry(*id).or_default();
            sums.calls.add(weight * calls, all);
            sums.time.add(weight * time, all);
        }
    }

    /// Whether the recording was in bursts.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty() && self.coverage.bursts == 0
    }

    /// Returns the same with the bursts that are still open.
    fn complete(&self) -> Bursts {
        let mut all = self.clone();
        while let Some(open) = all.open.pop_front() {
            all.fold(&open);
        }
        all
    }

    /// Returns how much of the time was recorded. None where all of it was.
    pub fn coverage(&self) -> Option<Coverage> {
        (!self.is_empty()).then(|| self.complete().coverage)
    }

    /// Returns kernels by their ids, as they were in the whole time, in ns. `launches` is how many
    /// there were in all, where that is known. Otherwise the application counts as slower in bursts
    /// by what recording costs.
    pub fn estimates(&self, launches: Option<u64>, time: u64) -> HashMap<u64, Estimate> {
        let all = self.complete();
        // By calls where all launches are known; otherwise by time, in which the application launches
        // less while it is recorded.
        let (of, factor) = match launches {
            Some(launches) => (CALLS, launches as f64),
            None => {
                let cost = match all.coverage.basis {
                    basis::UNKNOWN => 0.0,
                    _ => f64::from(all.coverage.cost.min(900_000)) / 1e6,
                };
                let slower = (1.0 - all.coverage.part() * cost) / (1.0 - cost);
                (PERIODS, time.max(all.coverage.time) as f64 * slower)
            }
        };
        let estimate = |sums: &Moments| Estimate {
            calls: all.ratio(&sums.calls, of).times(factor),
            total: all.ratio(&sums.time, of).times(factor),
            share: all.ratio(&sums.time, TIME),
        };
        let kernels = all.kernels.iter();
        kernels.map(|(id, sums)| (*id, estimate(sums))).collect()
    }

    /// Returns the ratio of a kernel's sum to what all had ([`CALLS`] and so on).
    fn ratio(&self, of: &Products, which: usize) -> Interval {
        let (all, all_squares) = self.all.get(which).copied().unwrap_or_default();
        let by = of.by.get(which).copied().unwrap_or_default();
        if all <= 0.0 {
            return Interval::default();
        }
        let estimate = of.sum / all;
        let count = self.coverage.bursts as f64;
        let (variances, squares) = self.variances;
        if variances <= 0.0 {
            // All of the time was recorded.
            return Interval {
                estimate,
                half: 0.0,
            };
        }
        if count < FEWEST {
            return Interval {
                estimate,
                half: f64::INFINITY,
            };
        }
        // Where a few bursts stand for most of the time, the interval is as wide as theirs.
        let degrees = (variances * variances / squares - 1.0).max(1.0);
        let residuals = of.squares - 2.0 * estimate * by + estimate * estimate * all_squares;
        let variance = residuals.max(0.0) * (degrees + 1.0) / degrees / (all * all);
        Interval {
            estimate,
            half: quantile(degrees) * variance.sqrt(),
        }
    }
}

impl Interval {
    fn times(self, factor: f64) -> Interval {
        Interval {
            estimate: self.estimate * factor,
            half: self.half * factor,
        }
    }

    /// Adds another value, whose error may have the same cause as the first one's.
    pub fn plus(self, other: Interval) -> Interval {
        Interval {
            estimate: self.estimate + other.estimate,
            half: self.half + other.half,
        }
    }

    /// Returns the least and the greatest value; neither is below zero.
    pub fn bounds(&self) -> (f64, f64) {
        (
            (self.estimate - self.half).max(0.0),
            self.estimate + self.half,
        )
    }
}

#[cfg(test)]
mod tests;
