//! Samples of the whole GPU: a track for each metric, and with each kernel the means of the samples
//! within it.

use super::Scene;
use super::annotations::Value;
use crate::files::WriteError;
use crate::gpu::GpuSamples;
use midair_record::event::Kernel;

/// Keeps the numbers of these tracks different from other tracks' numbers.
const SAMPLES: u64 = u64::MAX - 4;

impl Scene<'_> {
    /// Writes the samples.
    pub(super) fn gpu_samples(&mut self, samples: &GpuSamples) -> Result<(), WriteError> {
        samples.changes(|(number, metric), time, value| {
            let track = [SAMPLES, number as u64, u64::from(samples.index)];
            let uuid = self.out.uuid(&track);
            if self.out.describe(uuid) {
                let name = format!("GPU [{}] {} ({})", samples.index, metric.name, metric.unit);
                self.out.number_track(uuid, &name)?;
            }
            self.out.number(uuid, time, value)
        })
    }
}

/// Returns the means of a kernel's samples.
pub(super) fn annotations<'a>(
    samples: Option<&'a GpuSamples>,
    kernel: &Kernel,
    index: &midair_trace::index::Index,
) -> Vec<(&'a str, Value)> {
    let Some(samples) = samples else {
        return Vec::new();
    };
    let Some(inside) = samples.of_kernel(kernel, index) else {
        return Vec::new();
    };
    let mut all = vec![("gpu_samples", Value::Uint(inside.samples))];
    for (number, metric) in samples.metrics.iter().enumerate() {
        if let Some(mean) = inside.mean(number) {
            all.push((metric.name.as_str(), Value::Real(mean)));
        }
    }
    all
}
