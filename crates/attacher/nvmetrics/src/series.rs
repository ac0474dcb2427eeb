//! Sums of samples: the mean, the least and the greatest value, and how many samples there were and
//! were lost.

use crate::wire::{Metric, Samples};

/// A gap between two samples that is shorter than this share of an interval is not counted: the
/// times are rounded.
const TOLERANCE: f64 = 0.5;

/// The sums of one metric.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Line {
    /// Samples that have a value.
    pub samples: u64,
    /// Sum of values times nanoseconds.
    total: f64,
    /// Nanoseconds.
    time: f64,
    /// The least value.
    pub least: f64,
    /// The greatest value.
    pub most: f64,
}

impl Line {
    /// Adds a sample that lasted `time` nanoseconds.
    pub fn add(&mut self, value: f64, time: u64) {
        if !value.is_finite() {
            return;
        }
        let first = self.samples == 0;
        self.least = if first { value } else { self.least.min(value) };
        self.most = if first { value } else { self.most.max(value) };
        self.samples += 1;
        self.total += value * time as f64;
        self.time += time as f64;
    }

    /// Returns the mean over time, or none without samples.
    pub fn mean(&self) -> Option<f64> {
        (self.time > 0.0).then(|| self.total / self.time)
    }
}

/// All metrics of a sampling.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Series {
    /// What is sampled.
    pub metrics: Vec<Metric>,
    /// The sums of each metric.
    pub lines: Vec<Line>,
    /// Nanoseconds between samples.
    interval: u64,
    /// Samples of all groups.
    pub samples: u64,
    /// Samples that are missing between others.
    pub lost: u64,
    /// Nanoseconds that samples cover.
    pub covered: u64,
    /// Start of the first and end of the last.
    pub span: Option<(u64, u64)>,
    /// The group and the end of the last sample in the current turn.
    last: Option<(u32, u64)>,
}

impl Series {
    /// Makes the sums for these metrics, sampled at this interval.
    pub fn new(metrics: Vec<Metric>, interval: u64) -> Series {
        Series {
            lines: vec![Line::default(); metrics.len()],
            metrics,
            interval: interval.max(1),
            ..Series::default()
        }
    }

    /// The number of multiplexed groups.
    pub fn groups(&self) -> u32 {
        self.metrics
            .iter()
            .map(|metric| metric.group + 1)
            .max()
            .unwrap_or(0)
    }

    /// Returns the indices of a group's metrics, in the order of the group's values.
    pub fn of_group(&self, group: u32) -> impl Iterator<Item = usize> {
        let metrics = self.metrics.iter().enumerate();
        metrics.filter_map(move |(number, metric)| (metric.group == group).then_some(number))
    }

    /// Adds samples.
    pub fn add(&mut self, samples: &Samples) {
        let numbers: Vec<usize> = self.of_group(samples.group).collect();
        if numbers.is_empty() || samples.values.len() != numbers.len() * samples.times.len() {
            return;
        }
        for ((start, end), values) in samples
            .times
            .iter()
            .zip(samples.values.chunks_exact(numbers.len()))
        {
            // The gap before a turn is not a loss.
            if let Some((group, last)) = self.last
                && group == samples.group
                && self.groups() == 1
            {
                let gap = start.saturating_sub(last) as f64 / self.interval as f64;
                if gap > TOLERANCE {
                    self.lost += gap.round().max(1.0) as u64;
                }
            }
            self.last = Some((samples.group, *end));
            self.samples += 1;
            let time = end.saturating_sub(*start);
            self.covered += time;
            let span = self.span.get_or_insert((*start, *end));
            *span = (span.0.min(*start), span.1.max(*end));
            for (number, value) in numbers.iter().zip(values) {
                if let Some(line) = self.lines.get_mut(*number) {
                    line.add(*value, time);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metric(name: &str, group: u32) -> Metric {
        Metric {
            name: name.into(),
            unit: "%".into(),
            expression: name.into(),
            group,
        }
    }

    #[test]
    fn means_are_over_time_and_gaps_are_lost_samples() {
        let mut series = Series::new(vec![metric("a", 0), metric("b", 0)], 100);
        series.add(&Samples {
            group: 0,
            times: vec![(0, 100), (100, 400)],
            values: vec![1.0, f64::NAN, 3.0, 5.0],
        });
        series.add(&Samples {
            group: 0,
            times: vec![(600, 700)],
            values: vec![2.0, 5.0],
        });
        assert_eq!(
            series.lines[0].mean(),
            Some((100.0 + 900.0 + 200.0) / 500.0)
        );
        assert_eq!((series.lines[0].least, series.lines[0].most), (1.0, 3.0));
        assert_eq!((series.lines[0].samples, series.lines[1].samples), (3, 2));
        assert_eq!((series.samples, series.lost, series.covered), (3, 2, 500));
        assert_eq!(series.span, Some((0, 700)));
    }

    #[test]
    fn what_takes_turns_loses_nothing_between_them() {
        let mut series = Series::new(vec![metric("a", 0), metric("b", 1)], 100);
        series.add(&Samples {
            group: 0,
            times: vec![(0, 100)],
            values: vec![1.0],
        });
        series.add(&Samples {
            group: 1,
            times: vec![(1000, 1100)],
            values: vec![7.0],
        });
        series.add(&Samples {
            group: 0,
            times: vec![(2000, 2100)],
            values: vec![3.0],
        });
        // Of another number of values: not understood.
        series.add(&Samples {
            group: 0,
            times: vec![(2100, 2200)],
            values: vec![3.0, 1.0],
        });
        assert_eq!((series.groups(), series.lost, series.samples), (2, 0, 3));
        assert_eq!(
            (series.lines[0].mean(), series.lines[1].mean()),
            (Some(2.0), Some(7.0))
        );
        assert_eq!(Series::new(vec![metric("a", 0)], 1).lines[0].mean(), None);
    }
}
