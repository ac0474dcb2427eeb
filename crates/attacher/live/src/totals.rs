//! Sums since the start of a session that records in bursts, for monitors that read them now and then.
//!
//! In each burst every moment of a GPU has one state, by the same rule as on the screens. Sums of bursts
//! grow for ever and are divided by the recorded time, so a reader may come as rarely as it likes.

use crate::class;
use crate::delays::Delays;
use crate::model::{FURTHER, Lanes, MOST_DEVICES, Model};
use crate::snapshot::{FURTHER_KERNELS, UNSEEN, direction_name};
use midair_output::{Shares, Stat};
use midair_record::event::Burst;
use std::collections::BTreeMap;

/// The states of a GPU, as [`Totals::gpus`] has their times.
pub const STATES: [&str; 5] = ["busy", "copies", "launching", "waiting", "nothing_queued"];

/// The sums of one process. Times are ns.
#[derive(Debug, Clone, Default)]
pub struct Totals {
    /// How many bursts there were.
    pub bursts: u64,
    /// How long the recording was on.
    pub recorded: u64,
    /// The time that the bursts stand for.
    pub time: u64,
    /// The share of its speed that the process lost in that time.
    pub overhead: f64,
    /// The time of each GPU in each of [`STATES`], by the number that people know it by.
    pub gpus: Vec<(u32, [u64; 5])>,
    /// Kernels by class.
    pub classes: BTreeMap<&'static str, Stat>,
    /// Copies: direction, bytes, times.
    pub copies: Vec<(String, u64, Stat)>,
    /// Times from a dispatch's doorbell to its start.
    pub delays: Delays,
    /// Records that were lost.
    pub lost: u64,
    /// Dispatches and copies without times.
    pub untimed: u64,
    /// Processor time of our worker thread in the process, where it is known.
    pub worker: Option<u64>,
}

impl Totals {
    /// Adds the sums of a later session with the same process.
    pub fn add(&mut self, later: &Totals) {
        let weighted = |of: &Totals| of.overhead * of.time as f64;
        let time = self.time.saturating_add(later.time);
        self.overhead = (weighted(self) + weighted(later)) / time.max(1) as f64;
        self.bursts += later.bursts;
        self.recorded = self.recorded.saturating_add(later.recorded);
        self.time = time;
        for (gpu, times) in &later.gpus {
            let is_full = self.gpus.len() >= MOST_DEVICES;
            let known = self.gpus.iter_mut().find(|(known, _)| known == gpu);
            match known {
                // A process may invent others in each session.
                None if is_full => {}
                None => self.gpus.push((*gpu, *times)),
                Some((_, sums)) => {
                    for (sum, time) in sums.iter_mut().zip(times) {
                        *sum = sum.saturating_add(*time);
                    }
                }
            }
        }
        for (class, stat) in &later.classes {
            self.classes.entry(class).or_default().merge(stat);
        }
        for (direction, bytes, stat) in &later.copies {
            let known = self
                .copies
                .iter_mut()
                .find(|(known, ..)| known == direction);
            match known {
                None => self.copies.push((direction.clone(), *bytes, *stat)),
                Some((_, sum, times)) => {
                    *sum = sum.saturating_add(*bytes);
                    times.merge(stat);
                }
            }
        }
        self.delays.merge(&later.delays);
        self.lost = self.lost.saturating_add(later.lost);
        self.untimed = self.untimed.saturating_add(later.untimed);
        // The thread is the same one in all sessions.
        self.worker = later.worker.max(self.worker);
    }
}

impl Model {
    /// Counts a burst that is over. All times in it are the target's words.
    pub(crate) fn add_burst(&mut self, burst: &Burst) {
        let (start, end) = (self.time(burst.start), self.time(burst.end));
        if burst.end == 0 || end <= start || start < self.since {
            return;
        }
        let length = end - start;
        let period = self.time(burst.to).saturating_sub(burst.from);
        let device = |(node, lanes): (&u32, &Lanes)| {
            let lanes = [&lanes.busy, &lanes.copying, &lanes.queued, &self.waiting];
            let [busy, copying, queued, waiting] = lanes.map(|lane| lane.within(start, end));
            let shares = Shares::of([&busy, &copying, &queued, &waiting], start, end);
            let times = [
                shares.busy,
                shares.copies,
                shares.starting,
                shares.waited,
                shares.nothing,
            ];
            (*node, times)
        };
        let gpus = self.devices.iter().filter(|(_, lanes)| lanes.is_gpu);
        let found: Vec<(u32, [u64; 5])> = gpus.map(device).collect();
        let sums = &mut self.sums;
        for (node, times) in found {
            let all = sums.devices.entry(node).or_default();
            for (sum, time) in all.iter_mut().zip(times) {
                *sum = sum.saturating_add(time);
            }
        }
        sums.bursts += 1;
        sums.recorded = sums.recorded.saturating_add(length);
        sums.time = sums.time.saturating_add(period.max(length));
        sums.switched = sums.switched.saturating_add(burst.switched.min(period));
        sums.cost = burst.cost.min(1_000_000);
    }

    /// Finds the classes of kernels that are new.
    fn classify(&mut self) {
        let known = &self.sums.classes;
        let new = self.kernels.keys().filter(|id| !known.contains_key(id));
        let new: Vec<(u64, &'static str)> = new
            .filter_map(|id| Some((*id, class::of(self.symbol(*id)?))))
            .collect();
        self.sums.classes.extend(new);
    }

    /// Returns the calls and the time (ns) of each kernel so far, by its name in the code object.
    pub fn kernel_times(&self) -> BTreeMap<String, (u64, u64)> {
        let mut all = BTreeMap::new();
        for (id, ran) in &self.kernels {
            let name = match self.symbol(*id) {
                Some(symbol) => String::from_utf8_lossy(symbol).into_owned(),
                None if *id == FURTHER => FURTHER_KERNELS.to_owned(),
                None => UNSEEN.to_owned(),
            };
            let sum: &mut (u64, u64) = all.entry(name).or_default();
            sum.0 = sum.0.saturating_add(ran.total.calls);
            sum.1 = sum.1.saturating_add(ran.total.total);
        }
        all
    }

    /// Returns the sums so far.
    pub fn totals(&mut self) -> Totals {
        self.classify();
        let sums = &self.sums;
        let time = sums.time.max(1) as f64;
        let part = sums.recorded as f64 / time;
        let mut classes: BTreeMap<&'static str, Stat> = BTreeMap::new();
        for (id, ran) in &self.kernels {
            let of = sums.classes.get(id).copied().unwrap_or(class::OTHER);
            classes.entry(of).or_default().merge(&ran.total);
        }
        Totals {
            bursts: sums.bursts,
            recorded: sums.recorded,
            time: sums.time,
            overhead: f64::from(sums.cost) / 1e6 * part + sums.switched as f64 / time,
            gpus: (sums.devices.iter())
                .map(|(node, times)| (self.gpu(*node), *times))
                .collect(),
            classes,
            copies: (self.copies.iter())
                .map(|(direction, all)| (direction_name(self, *direction), all.bytes, all.total))
                .collect(),
            delays: sums.delays.clone(),
            lost: self.pulse.lost,
            untimed: self.untimed,
            worker: self.pulse.worker_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server adds up the sessions of days, and each device is a series of its page.
    #[test]
    fn devices_that_a_process_invents_are_limited() {
        let mut all = Totals::default();
        for node in 0..1000 {
            let gpus = vec![(0, [1, 0, 0, 0, 0]), (node, [0, 2, 0, 0, 0])];
            all.add(&Totals {
                gpus,
                ..Totals::default()
            });
        }
        assert_eq!(all.gpus.len(), MOST_DEVICES);
        assert_eq!(all.gpus[0], (0, [1000, 2, 0, 0, 0]));
    }
}
