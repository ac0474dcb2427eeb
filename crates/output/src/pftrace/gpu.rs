//! Samples of the whole GPU: a track for each metric, and with each kernel the means of the samples
//! within it.

use super::{Annotations, Scene};
use crate::files::WriteError;
use crate::gpu::GpuSamples;
use crate::pftrace::packets::Value;
use midair_record::event::Kernel;

/// Keeps the numbers of these tracks different from those of others.
const SAMPLES: u64 = u64::MAX - 4;

impl Scene<'_> {
    /// Writes the samples. A value is valid from a sample's begin on. While another group has its
    /// turn, and at the end, the track has 0.
    pub(super) fn gpu_samples(&mut self, samples: &GpuSamples) -> Result<(), WriteError> {
        let mut until: Vec<Option<u64>> = vec![None; samples.metrics.len()];
        let track = |metric: usize| [SAMPLES, metric as u64, u64::from(samples.index)];
        for sample in samples.samples() {
            for (metric, value) in sample.metrics.iter().zip(sample.values) {
                let (Some(known), Some(until)) =
                    (samples.metrics.get(*metric), until.get_mut(*metric))
                else {
                    continue;
                };
                let uuid = self.out.uuid(&track(*metric));
                if self.out.describe(uuid) {
                    let name = format!("GPU [{}] {} ({})", samples.index, known.name, known.unit);
                    self.out.number_track(uuid, &name)?;
                }
                if let Some(end) = until.replace(sample.end).filter(|end| *end < sample.start) {
                    self.out.number(uuid, end, 0.0)?;
                }
                let value = if value.is_finite() {
                    f64::from(*value)
                } else {
                    0.0
                };
                self.out.number(uuid, sample.start, value)?;
            }
        }
        for (metric, end) in until.into_iter().enumerate() {
            if let Some(end) = end {
                let uuid = self.out.uuid(&track(metric));
                self.out.number(uuid, end, 0.0)?;
            }
        }
        Ok(())
    }
}

/// Adds the means of a kernel's samples.
pub(super) fn annotations<'a>(
    samples: Option<&'a GpuSamples>,
    kernel: &Kernel,
    index: &crate::Index,
) -> Annotations<'a> {
    let Some(samples) = samples else {
        return Vec::new();
    };
    let Some(inside) = samples.of_kernel(kernel, index) else {
        return Vec::new();
    };
    let mut all: Annotations<'a> = vec![("gpu_samples", Value::Uint(inside.samples))];
    for (number, metric) in samples.metrics.iter().enumerate() {
        if let Some(mean) = inside.mean(number) {
            all.push((metric.name.as_str(), Value::Real(mean)));
        }
    }
    all
}
