//! Counters of whole GPUs: what they were in the last seconds.

use crate::model::Model;
use crate::recent::{SLOT, WINDOW};
use midair_output::{DeviceReadings, DeviceValue};
use std::collections::VecDeque;

/// The most counters, and the most readings of one that are kept.
const MOST_COUNTERS: usize = 512;
const MOST_READINGS: usize = 4096;

/// A counter of a GPU at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Counter {
    /// The number that people know the GPU by.
    pub gpu: u32,
    /// Its name.
    pub name: String,
    /// Its unit; empty for plain numbers.
    pub unit: String,
    /// Its mean over the window.
    pub mean: f64,
    /// The number of readings in the window.
    pub readings: u64,
}

/// The readings of one counter.
#[derive(Debug, Default)]
pub(crate) struct Gauge {
    per_second: bool,
    /// Start, end and value of each reading, in the order of their ends.
    readings: VecDeque<(u64, u64, f64)>,
}

impl Gauge {
    fn add(&mut self, value: &DeviceValue) {
        self.per_second = value.per_second;
        if self.readings.len() >= MOST_READINGS {
            self.readings.pop_front();
        }
        self.readings
            .push_back((value.start, value.end, value.value));
    }

    fn forget_before(&mut self, horizon: u64) {
        while self.readings.front().is_some_and(|first| first.1 < horizon) {
            self.readings.pop_front();
        }
    }

    /// Returns the mean over time of the readings that ended since then, and their number.
    fn mean(&self, from: u64) -> Option<(f64, u64)> {
        let recent = self.readings.iter().filter(|reading| reading.1 >= from);
        let (mut sum, mut time, mut count) = (0.0, 0.0, 0);
        for (start, end, value) in recent {
            let took = end.saturating_sub(*start).max(1) as f64;
            sum += value * took;
            time += took;
            count += 1;
        }
        (count > 0).then(|| (sum / time, count))
    }
}

impl Model {
    /// Has the model read counters of whole devices from now on.
    pub fn read_devices(&mut self, readings: DeviceReadings) {
        self.readings = Some(readings);
    }

    /// Takes the values of a reading.
    pub(crate) fn add_values(&mut self, values: &[DeviceValue]) {
        for value in values {
            let key = (value.node, value.name);
            if self.gauges.len() < MOST_COUNTERS || self.gauges.contains_key(&key) {
                self.gauges.entry(key).or_default().add(value);
            }
        }
    }

    /// Forgets readings that are too old to be shown.
    pub(crate) fn forget_readings(&mut self) {
        let horizon = self.pulse.now.saturating_sub(WINDOW * SLOT);
        for gauge in self.gauges.values_mut() {
            gauge.forget_before(horizon);
        }
    }

    /// Returns the counters that have readings in the window, by GPU and name.
    pub(crate) fn counters(&self, from: u64) -> Vec<Counter> {
        let of_gauge = |((node, name), gauge): (&(u32, &'static str), &Gauge)| {
            let (mean, readings) = gauge.mean(from)?;
            Some(Counter {
                gpu: self.gpu(*node),
                name: (*name).to_owned(),
                unit: if gauge.per_second { "/s" } else { "" }.to_owned(),
                mean,
                readings,
            })
        };
        let mut all: Vec<Counter> = self.gauges.iter().filter_map(of_gauge).collect();
        all.extend(self.pulse.metrics.iter().cloned());
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use midair_output::Names;
    use std::sync::Arc;

    #[test]
    fn a_counter_is_the_mean_of_its_last_readings() {
        const MS: u64 = 1_000_000;
        let mut model = Model::new(Arc::new(Names::amd()), 0);
        let value = |start: u64, end: u64, value: f64| DeviceValue {
            node: 3,
            name: "SQ_WAVES",
            per_second: true,
            start: start * MS,
            end: end * MS,
            value,
        };
        // Longer readings weigh more, and what has no readings is not shown.
        model.add_values(&[value(0, 10, 5.0), value(1000, 1010, 10.0)]);
        model.add_values(&[value(1010, 1040, 20.0)]);
        let counters = model.counters(500 * MS);
        assert_eq!(counters.len(), 1);
        assert_eq!((counters[0].gpu, counters[0].readings), (3, 2));
        assert_eq!((counters[0].mean, counters[0].unit.as_str()), (17.5, "/s"));
        assert!(model.counters(2000 * MS).is_empty());
        // A target that invents readings does not fill the memory.
        for number in 0..2 * MOST_READINGS as u64 {
            model.add_values(&[value(number, number + 1, 1.0)]);
        }
        let gauge = &model.gauges[&(3, "SQ_WAVES")];
        assert_eq!(gauge.readings.len(), MOST_READINGS);
        model.pulse.now = 3_600_000 * MS;
        model.forget_readings();
        assert!(model.gauges[&(3, "SQ_WAVES")].readings.is_empty());
    }
}
