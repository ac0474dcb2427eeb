//! Samples of a whole GPU that were taken during a session, whoever used the GPU: counters over
//! time, and the means of the samples within each kernel.
//!
//! Decisions: CUDA-030 to CUDA-033 (`docs/deviations/cuda.md`).

use crate::table::{Style, fit};
use midair_record::event::Kernel;
use midair_trace::cuda::devices;
use midair_trace::index::Index;
use serde_json::{Value, json};
use std::fmt::Write;

/// The most bytes of samples. Further samples are counted, but not kept.
const MOST_BYTES: usize = 512 << 20;

/// A metric that is sampled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuMetric {
    /// Its name.
    pub name: String,
    /// Its unit.
    pub unit: String,
    /// What CUPTI calls it.
    pub expression: String,
    /// The group that it is sampled with; several groups are multiplexed.
    pub group: u32,
}

/// Samples of one group, in the order of their times.
#[derive(Debug, Clone, Default)]
struct Group {
    /// The indices of its metrics.
    metrics: Vec<usize>,
    times: Vec<(u64, u64)>,
    /// For each sample, a value of each metric.
    values: Vec<f32>,
}

/// Samples of a GPU.
#[derive(Debug, Clone, Default)]
pub struct GpuSamples {
    /// The GPU's number on the machine, in the order of places on the bus.
    pub index: u32,
    /// Its product name.
    pub name: String,
    /// Its place: `0000:17:00.0`.
    pub bus: String,
    /// The number of samples a second that was asked for.
    pub rate: u32,
    /// What is sampled.
    pub metrics: Vec<GpuMetric>,
    /// Samples that are missing between others.
    pub lost: u64,
    /// Samples that were not kept, since there were too many.
    pub left_out: u64,
    groups: Vec<Group>,
    bytes: usize,
}

/// One sample.
#[derive(Debug, Clone, Copy)]
pub struct GpuSample<'a> {
    /// The group.
    pub group: usize,
    /// When it started, CLOCK_BOOTTIME ns.
    pub start: u64,
    /// When it ended.
    pub end: u64,
    /// The indices of its metrics.
    pub metrics: &'a [usize],
    /// The value of each metric, or NaN where there was none.
    pub values: &'a [f32],
}

/// The means of the samples that lie within a kernel.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Inside {
    /// The number of samples, taken from the group that has most.
    pub samples: u64,
    /// For each metric the sum of its values and their number.
    pub sums: Vec<(f64, u64)>,
}

impl Inside {
    /// Returns the mean of a metric, or none where no sample had a value.
    pub fn mean(&self, metric: usize) -> Option<f64> {
        let (sum, count) = self.sums.get(metric)?;
        (*count > 0).then(|| sum / *count as f64)
    }

    /// Adds the samples within another kernel.
    pub fn add(&mut self, other: &Inside) {
        self.samples += other.samples;
        self.sums
            .resize(other.sums.len().max(self.sums.len()), (0.0, 0));
        for (sum, more) in self.sums.iter_mut().zip(&other.sums) {
            sum.0 += more.0;
            sum.1 += more.1;
        }
    }
}

impl GpuSamples {
    /// Makes an empty set of samples of a GPU, with these metrics.
    pub fn new(index: u32, rate: u32, metrics: Vec<GpuMetric>) -> GpuSamples {
        let count = metrics
            .iter()
            .map(|metric| metric.group + 1)
            .max()
            .unwrap_or(0);
        let mut groups = vec![Group::default(); count as usize];
        for (number, metric) in metrics.iter().enumerate() {
            if let Some(group) = groups.get_mut(metric.group as usize) {
                group.metrics.push(number);
            }
        }
        GpuSamples {
            index,
            rate,
            metrics,
            groups,
            ..GpuSamples::default()
        }
    }

    /// Adds samples of a group, which are later than the earlier ones.
    pub fn push(&mut self, group: u32, times: &[(u64, u64)], values: &[f64]) {
        let Some(group) = self.groups.get_mut(group as usize) else {
            return;
        };
        let width = group.metrics.len();
        if width == 0 || values.len() != width * times.len() {
            return;
        }
        for (time, values) in times.iter().zip(values.chunks_exact(width)) {
            let late = group.times.last().is_none_or(|last| last.1 <= time.1);
            if self.bytes >= MOST_BYTES || !late || time.1 < time.0 {
                self.left_out += 1;
                continue;
            }
            self.bytes += 16 + 4 * width;
            group.times.push(*time);
            group
                .values
                .extend(values.iter().map(|value| *value as f32));
        }
    }

    /// Keeps only what was sampled between two times.
    pub fn keep(&mut self, from: u64, to: u64) {
        for group in &mut self.groups {
            let width = group.metrics.len();
            let first = group.times.partition_point(|time| time.0 < from);
            let last = group.times.partition_point(|time| time.1 <= to).max(first);
            group.times.truncate(last);
            group.values.truncate(last * width);
            group.times.drain(..first);
            group.values.drain(..first * width);
        }
    }

    /// Returns for each metric the mean of its samples that started since then, and their number.
    pub fn means_since(&self, from: u64) -> Vec<(Option<f64>, u64)> {
        let mut sums = vec![(0.0, 0_u64); self.metrics.len()];
        for group in &self.groups {
            let width = group.metrics.len();
            let first = group.times.partition_point(|time| time.0 < from);
            for (place, value) in group.values.iter().enumerate().skip(first * width) {
                let metric = group.metrics.get(place % width.max(1));
                if let Some(sum) = metric.and_then(|metric| sums.get_mut(*metric))
                    && value.is_finite()
                {
                    *sum = (sum.0 + f64::from(*value), sum.1 + 1);
                }
            }
        }
        let mean = |(sum, count): (f64, u64)| ((count > 0).then(|| sum / count as f64), count);
        sums.into_iter().map(mean).collect()
    }

    /// Returns the number of multiplexed groups.
    pub fn groups(&self) -> usize {
        self.groups.len()
    }

    /// Returns how many samples are kept.
    pub fn count(&self) -> usize {
        self.groups.iter().map(|group| group.times.len()).sum()
    }

    /// Returns all samples, sorted by their start.
    pub fn samples(&self) -> impl Iterator<Item = GpuSample<'_>> {
        let mut at = vec![0; self.groups.len()];
        std::iter::from_fn(move || {
            let next = |(number, group): (usize, &Group)| {
                Some((group.times.get(*at.get(number)?)?.0, number))
            };
            let (_, number) = self.groups.iter().enumerate().filter_map(next).min()?;
            let place = at.get_mut(number)?;
            let sample = self.sample(number, *place);
            *place += 1;
            sample
        })
    }

    /// Gives the values of the metrics as they change. A value is valid from a sample's start on.
    /// While another group has its turn, and at the end, the metric has 0.
    ///
    /// # Errors
    /// The errors of `each`.
    pub(crate) fn changes<E>(
        &self,
        mut each: impl FnMut((usize, &GpuMetric), u64, f64) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut until: Vec<Option<u64>> = vec![None; self.metrics.len()];
        for sample in self.samples() {
            for (number, value) in sample.metrics.iter().zip(sample.values) {
                let (Some(metric), Some(until)) =
                    (self.metrics.get(*number), until.get_mut(*number))
                else {
                    continue;
                };
                let metric = (*number, metric);
                if let Some(end) = until.replace(sample.end).filter(|end| *end < sample.start) {
                    each(metric, end, 0.0)?;
                }
                let value = if value.is_finite() {
                    f64::from(*value)
                } else {
                    0.0
                };
                each(metric, sample.start, value)?;
            }
        }
        for (metric, end) in self.metrics.iter().enumerate().zip(until) {
            if let Some(end) = end {
                each(metric, end, 0.0)?;
            }
        }
        Ok(())
    }

    fn sample(&self, number: usize, at: usize) -> Option<GpuSample<'_>> {
        let group = self.groups.get(number)?;
        let (start, end) = *group.times.get(at)?;
        let width = group.metrics.len();
        let values = group.values.get(at * width..(at + 1) * width)?;
        Some(GpuSample {
            group: number,
            start,
            end,
            metrics: &group.metrics,
            values,
        })
    }

    /// Returns the means of the samples that lie wholly within `[start, end]`, or none where no
    /// sample does.
    pub fn inside(&self, start: u64, end: u64) -> Option<Inside> {
        let mut inside = Inside {
            samples: 0,
            sums: vec![(0.0, 0); self.metrics.len()],
        };
        for (number, group) in self.groups.iter().enumerate() {
            let first = group.times.partition_point(|time| time.0 < start);
            let mut count = 0;
            for at in first..group.times.len() {
                let Some(sample) = self.sample(number, at).filter(|sample| sample.end <= end)
                else {
                    break;
                };
                count += 1;
                for (metric, value) in sample.metrics.iter().zip(sample.values) {
                    if let Some(sum) = inside.sums.get_mut(*metric).filter(|_| value.is_finite()) {
                        sum.0 += f64::from(*value);
                        sum.1 += 1;
                    }
                }
            }
            inside.samples = inside.samples.max(count);
        }
        (inside.samples > 0).then_some(inside)
    }

    /// Whether records that name this node belong to the GPU. It is identified by its place on the
    /// bus, or by its number where the place is not known.
    pub(crate) fn is_node(&self, node: u32, index: &Index) -> bool {
        let Some(ordinal) = devices::ordinal(node) else {
            return false;
        };
        let Some(device) = index
            .cuda
            .devices
            .get(&ordinal)
            .filter(|_| !self.bus.is_empty())
        else {
            return ordinal == self.index;
        };
        let record = &device.record;
        let place = format!(
            "{:04x}:{:02x}:{:02x}.0",
            record.pci_domain, record.pci_bus, record.pci_device
        );
        // Domain numbers have four digits or eight.
        self.bus.to_ascii_lowercase().ends_with(&place)
    }

    /// Returns the means of a kernel's samples, if the kernel ran on this GPU.
    pub(crate) fn of_kernel(&self, kernel: &Kernel, index: &Index) -> Option<Inside> {
        if kernel.start == 0 || !self.is_node(kernel.node, index) {
            return None;
        }
        self.inside(kernel.start, kernel.end)
    }
}

const COUNT: usize = 10;
const VALUE: usize = 12;
const UNIT: usize = 8;

/// Returns for each metric the number of its values, their sum, the least and the most.
fn lines(samples: &GpuSamples) -> Vec<(u64, f64, f64, f64)> {
    let mut lines = vec![(0_u64, 0.0_f64, f64::INFINITY, f64::NEG_INFINITY); samples.metrics.len()];
    for sample in samples.samples() {
        for (metric, value) in sample.metrics.iter().zip(sample.values) {
            let value = f64::from(*value);
            if let Some(line) = lines.get_mut(*metric).filter(|_| value.is_finite()) {
                *line = (
                    line.0 + 1,
                    line.1 + value,
                    line.2.min(value),
                    line.3.max(value),
                );
            }
        }
    }
    lines
}

/// Returns the metrics as members of the JSON document.
pub(crate) fn fields(samples: &GpuSamples) -> Vec<Value> {
    let field = |(metric, (count, sum, least, most)): (&GpuMetric, (u64, f64, f64, f64))| {
        let of = |value: f64| (count > 0).then_some(value);
        json!({
            "gpu": samples.index,
            "gpu_name": samples.name,
            "name": metric.name,
            "unit": metric.unit,
            "samples": count,
            "mean": of(sum / count.max(1) as f64),
            "min": of(least),
            "max": of(most),
        })
    };
    let lines = lines(samples);
    samples.metrics.iter().zip(lines).map(field).collect()
}

/// Returns the table at the end of `midair attach`: for each metric the mean, least and most over
/// the session. Empty where no GPU was sampled.
pub(crate) fn gpu_table(samples: Option<&GpuSamples>, style: Style) -> String {
    let Some(samples) = samples.filter(|samples| samples.count() > 0) else {
        return String::new();
    };
    let lines = lines(samples);
    let (bold, plain) = if style.colour {
        ("\x1b[1m", "\x1b[0m")
    } else {
        ("", "")
    };
    let width = style.columns.clamp(70, 160) - COUNT - 3 * VALUE - UNIT;
    // Writing to a String cannot fail.
    let mut out = String::new();
    let head = fit(
        &format!("GPU {} {}", samples.index, samples.name),
        width,
        style.unicode,
    );
    let _ = writeln!(
        out,
        "{bold}{head:<width$}{:>COUNT$}{:>VALUE$}{:>VALUE$}{:>VALUE$}  UNIT{plain}",
        "SAMPLES", "MEAN", "LEAST", "MOST"
    );
    for (metric, (count, sum, least, most)) in samples.metrics.iter().zip(lines) {
        let [mean, least, most] = match count {
            0 => ["-", "-", "-"].map(str::to_owned),
            _ => [sum / count as f64, least, most].map(|value| format!("{value:.2}")),
        };
        let name = fit(&format!("  {}", metric.name), width, style.unicode);
        let _ = writeln!(
            out,
            "{name:<width$}{count:>COUNT$}{mean:>VALUE$}{least:>VALUE$}{most:>VALUE$}  {}",
            metric.unit
        );
    }
    if samples.groups() > 1 {
        let _ = writeln!(
            out,
            "({} groups were multiplexed: each metric was sampled only part of the time)",
            samples.groups()
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use midair_record::event::{CudaDevice, NO_NODE, cuda_node};
    use midair_trace::cuda::devices::Device;

    fn metric(name: &str, group: u32) -> GpuMetric {
        GpuMetric {
            name: name.into(),
            unit: "%".into(),
            expression: name.into(),
            group,
        }
    }

    fn two_groups() -> GpuSamples {
        let mut samples = GpuSamples::new(
            0,
            1000,
            vec![metric("a", 0), metric("b", 1), metric("c", 0)],
        );
        samples.push(0, &[(100, 200), (200, 300)], &[1.0, 10.0, 3.0, f64::NAN]);
        samples.push(1, &[(400, 500), (500, 600)], &[7.0, 9.0]);
        samples.push(0, &[(700, 800)], &[5.0, 20.0]);
        samples
    }

    #[test]
    fn samples_come_in_the_order_of_their_times() {
        let samples = two_groups();
        let all: Vec<(usize, u64)> = samples
            .samples()
            .map(|sample| (sample.group, sample.start))
            .collect();
        assert_eq!(all, [(0, 100), (0, 200), (1, 400), (1, 500), (0, 700)]);
        assert_eq!((samples.count(), samples.groups()), (5, 2));
    }

    #[test]
    fn a_kernel_has_the_samples_that_lie_within_it_as_a_whole() {
        let samples = two_groups();
        assert_eq!(samples.inside(101, 299), None);
        let inside = samples.inside(100, 300).unwrap();
        assert_eq!(
            (
                inside.samples,
                inside.mean(0),
                inside.mean(1),
                inside.mean(2)
            ),
            (2, Some(2.0), None, Some(10.0))
        );
        let mut all = samples.inside(450, 800).unwrap();
        assert_eq!(
            (all.samples, all.mean(0), all.mean(1)),
            (1, Some(5.0), Some(9.0))
        );
        all.add(&inside);
        assert_eq!(
            (all.samples, all.mean(0), all.mean(2)),
            (3, Some(3.0), Some(15.0))
        );
    }

    #[test]
    fn what_is_beside_the_session_is_left_out() {
        let mut samples = two_groups();
        let means = samples.means_since(400);
        assert_eq!(means, [(Some(5.0), 1), (Some(8.0), 2), (Some(20.0), 1)]);
        samples.keep(200, 600);
        let all: Vec<(u64, f32)> = samples
            .samples()
            .map(|sample| (sample.start, sample.values[0]))
            .collect();
        assert_eq!(all, [(200, 3.0), (400, 7.0), (500, 9.0)]);
        samples.keep(1000, 1);
        assert_eq!(samples.count(), 0);
    }

    #[test]
    fn what_makes_no_sense_is_not_kept() {
        let mut samples = two_groups();
        samples.push(9, &[(1, 2)], &[1.0]);
        // The values do not fit the times, which are plausible.
        samples.push(0, &[(900, 950)], &[1.0]);
        samples.push(0, &[(900, 950)], &[1.0, 2.0, 3.0, 4.0]);
        // One is earlier than what is there, and one ends before it starts.
        samples.push(0, &[(1, 2), (900, 850)], &[1.0, 2.0, 3.0, 4.0]);
        assert_eq!((samples.count(), samples.left_out), (5, 2));
        // No metric belongs to the first group.
        let mut gap = GpuSamples::new(0, 1000, vec![metric("a", 1)]);
        gap.push(0, &[(100, 200)], &[]);
        gap.push(1, &[(100, 200)], &[1.0]);
        assert_eq!((gap.groups(), gap.count()), (2, 1));
        assert!(gpu_table(None, Style::default()).is_empty());
        let table = gpu_table(Some(&samples), Style::default());
        assert!(
            table.contains("were multiplexed") && table.contains("  a  "),
            "{table}"
        );
    }

    #[test]
    fn what_is_cut_off_at_the_end_has_no_values_left() {
        let mut samples = GpuSamples::new(0, 1000, vec![metric("a", 0)]);
        let times = [(100, 200), (200, 300), (300, 400)];
        samples.push(0, &times, &[1.0, 2.0, 3.0]);
        samples.keep(0, 200);
        assert_eq!(samples.means_since(0), [(Some(1.0), 1)]);
        assert_eq!(samples.means_since(200), [(None, 0)]);
    }

    /// Returns the index of a process that sees two GPUs, which are not the first ones of the
    /// machine.
    fn two_devices() -> Index {
        let mut index = Index::default();
        for (ordinal, pci_bus) in [(0, 0x1b), (1, 0x1c)] {
            let record = CudaDevice {
                ordinal,
                pci_bus,
                ..CudaDevice::default()
            };
            let name = String::new();
            index.cuda.devices.insert(ordinal, Device { record, name });
        }
        index
    }

    #[test]
    fn a_gpu_is_known_by_its_place_and_else_by_its_number() {
        let (described, unknown) = (two_devices(), Index::default());
        let mut samples = GpuSamples::new(1, 1000, Vec::new());
        let nodes = [cuda_node(0), cuda_node(1), 1, NO_NODE];
        let are = |samples: &GpuSamples, index| nodes.map(|node| samples.is_node(node, index));
        samples.bus = "00000000:1B:00.0".to_owned();
        assert_eq!(are(&samples, &described), [true, false, false, false]);
        assert_eq!(are(&samples, &unknown), [false, true, false, false]);
        samples.bus.clear();
        assert_eq!(are(&samples, &described), [false, true, false, false]);
    }

    #[test]
    fn only_kernels_with_times_on_this_gpu_have_samples() {
        let (samples, index) = (two_groups(), Index::default());
        let kernel = Kernel {
            start: 100,
            end: 300,
            node: cuda_node(0),
            ..Kernel::default()
        };
        let inside = samples.of_kernel(&kernel, &index).unwrap();
        assert_eq!((inside.samples, inside.mean(0)), (2, Some(2.0)));
        let elsewhere = cuda_node(1);
        for (start, node) in [(0, kernel.node), (100, elsewhere), (0, elsewhere)] {
            let kernel = Kernel {
                start,
                node,
                ..kernel
            };
            assert_eq!(samples.of_kernel(&kernel, &index), None, "{start} {node}");
        }
    }

    /// Returns samples of which a metric has no values.
    fn one_without_values() -> GpuSamples {
        let metrics = vec![metric("a", 0), metric("long_name_of_a_metric", 0)];
        let mut samples = GpuSamples::new(3, 1000, metrics);
        samples.name = "NVIDIA H200".to_owned();
        let times = [(100, 200), (200, 300), (300, 400)];
        let none = f64::NAN;
        samples.push(0, &times, &[2.5, none, -1.0, f64::INFINITY, 6.0, none]);
        samples
    }

    #[test]
    fn the_table_has_the_mean_the_least_and_the_most_of_each_metric() {
        let style = Style {
            columns: 70,
            unicode: false,
            ..Style::default()
        };
        assert_eq!(
            gpu_table(Some(&two_groups()), style),
            concat!(
                "GPU 0              SAMPLES        MEAN       LEAST        MOST  UNIT\n",
                "  a                      3        3.00        1.00        5.00  %\n",
                "  b                      2        8.00        7.00        9.00  %\n",
                "  c                      2       15.00       10.00       20.00  %\n",
                "(2 groups were multiplexed: each metric was sampled only part of the time)\n"
            )
        );
        // A single group is not multiplexed. Names are cut where the columns end.
        let wanted = concat!(
            "GPU 3 NVIDIA ...   SAMPLES        MEAN       LEAST        MOST  UNIT\n",
            "  a                      3        2.50       -1.00        6.00  %\n",
            "  long_name_o...         0           -           -           -  %\n"
        );
        let samples = one_without_values();
        assert_eq!(gpu_table(Some(&samples), style), wanted);
        let narrow = Style {
            columns: 10,
            ..style
        };
        assert_eq!(gpu_table(Some(&samples), narrow), wanted);
        // Nothing was sampled.
        let nothing = GpuSamples::new(3, 1000, vec![metric("a", 0)]);
        assert_eq!(gpu_table(Some(&nothing), style), "");
    }

    #[test]
    fn metrics_are_fields_and_what_is_not_known_is_null() {
        assert_eq!(
            Value::from(fields(&one_without_values())),
            json!([
                {
                    "gpu": 3, "gpu_name": "NVIDIA H200", "name": "a", "unit": "%",
                    "samples": 3, "mean": 2.5, "min": -1.0, "max": 6.0,
                },
                {
                    "gpu": 3, "gpu_name": "NVIDIA H200", "name": "long_name_of_a_metric",
                    "unit": "%", "samples": 0, "mean": null, "min": null, "max": null,
                },
            ])
        );
    }
}
