//! Samples of the whole GPU: `rocpd_info_pmc` describes the metrics, and each sample is a `rocpd_sample` with an
//! event of its own, whose `rocpd_pmc_event` rows have the values. They are on the process's first thread.

use super::database::{Database, Step, whole};
use super::info::Info;
use super::rows::Rows;
use crate::gpu::GpuSamples;
use crate::job::Job;
use midair_record::event::{cuda_node, kind};
use rusqlite::params;

/// The first id of these metrics, which is greater than the ids of all others.
const FIRST: u64 = 1 << 32;

/// Returns the device of the samples, in the form in which records name it.
fn node(job: &Job<'_>, samples: &GpuSamples) -> u32 {
    let devices = job
        .index
        .cuda
        .devices
        .keys()
        .map(|ordinal| cuda_node(*ordinal));
    let mut of_it = devices.filter(|node| samples.is_node(*node, job.index));
    of_it.next().unwrap_or(cuda_node(samples.index))
}

/// Describes the metrics.
pub(super) fn describe(
    database: &Database<'_>,
    job: &Job<'_>,
    info: &mut Info<'_, '_>,
) -> Step<()> {
    let Some(samples) = &job.trace.gpu else {
        return Ok(());
    };
    let mut statement = database.insert(
        "info_pmc",
        "id, nid, pid, agent_id, target_arch, name, symbol, description, long_description, component, units, value_type, block, expression, is_constant, is_derived, extdata",
    )?;
    let agent = info.agent(node(job, samples))?;
    for (number, metric) in samples.metrics.iter().enumerate() {
        let extdata = serde_json::json!({"group": metric.group, "groups": samples.groups(), "gpu": samples.index, "bus": samples.bus});
        statement.execute(params![
            whole(FIRST + number as u64),
            info.nid,
            info.pid,
            agent,
            "GPU",
            metric.name,
            metric.name,
            "sampled on the whole GPU, for all processes",
            "",
            "cupti",
            metric.unit,
            "ABS",
            "",
            metric.expression,
            0,
            true,
            extdata.to_string(),
        ])?;
    }
    Ok(())
}

impl Rows<'_, '_> {
    /// Writes all samples of the session.
    pub(super) fn gpu_samples(&mut self, samples: &GpuSamples) -> Step<()> {
        let name = format!("Metrics of GPU {}", samples.index);
        let pid = self.job.trace.process.pid;
        for sample in samples.samples() {
            let event = self.event(kind::COUNTER_COLLECTION, 0, 0, "{}")?;
            let extdata = format!("{{\"start\":{},\"end\":{}}}", sample.start, sample.end);
            let row = self.sample_on(pid, &name, sample.end, event, &extdata)?;
            for (metric, value) in sample.metrics.iter().zip(sample.values) {
                if value.is_finite() {
                    let id = whole(FIRST + *metric as u64);
                    self.long
                        .value(event, Some(row), id, f64::from(*value), [None; 3])?;
                }
            }
        }
        Ok(())
    }
}
