//! Samples of the whole GPU: `gpu_metrics.csv` has a row for each sample, `gpu_metrics_kernels.csv` one for each
//! kernel within which samples lie, and `gpu_metrics_stats.csv` (with `--stats`) one for each kernel's name.

use super::row::{Row, begin as begin_table};
use crate::files::{FileSet, OutputFile, WriteError};
use crate::gpu::{GpuSamples, Inside};
use crate::job::Job;
use midair_record::event::Kernel;
use std::collections::BTreeMap;

pub(super) const SAMPLES: &str = "gpu_metrics.csv";
pub(super) const KERNELS: &str = "gpu_metrics_kernels.csv";
pub(super) const STATISTICS: &str = "gpu_metrics_stats.csv";

/// The most names that are summed up, since a target can invent any number.
const MOST_NAMES: usize = 1 << 16;

/// The files, and the sums for the last of them.
pub(super) struct Gpu {
    samples: OutputFile,
    kernels: OutputFile,
    statistics: Option<OutputFile>,
    names: BTreeMap<String, Sum>,
    metrics: usize,
}

#[derive(Default)]
struct Sum {
    calls: u64,
    with_samples: u64,
    inside: Inside,
}

/// Starts the files, if a GPU was sampled during a session. Of several sessions, the first one with
/// samples decides the columns, since all belong to one command.
pub(super) fn begin(files: &FileSet, jobs: &[Job<'_>]) -> Result<Option<Gpu>, WriteError> {
    let Some(samples) = jobs.iter().find_map(|job| job.trace.gpu.as_ref()) else {
        return Ok(None);
    };
    let names: Vec<&str> = samples
        .metrics
        .iter()
        .map(|metric| metric.name.as_str())
        .collect();
    let table = |file: &str, head: &[&str]| begin_table(files, file, &[head, &names].concat());
    let stats = jobs.iter().any(|job| job.plan.stats);
    Ok(Some(Gpu {
        samples: table(
            SAMPLES,
            &["Gpu", "Group", "Start_Timestamp", "End_Timestamp"],
        )?,
        kernels: table(
            KERNELS,
            &[
                "Process_Id",
                "Dispatch_Id",
                "Correlation_Id",
                "Kernel_Name",
                "Start_Timestamp",
                "End_Timestamp",
                "Samples",
            ],
        )?,
        statistics: match stats {
            true => Some(table(
                STATISTICS,
                &["Name", "Calls", "Calls_With_Samples", "Samples"],
            )?),
            false => None,
        },
        names: BTreeMap::new(),
        metrics: names.len(),
    }))
}

fn put(file: &mut OutputFile, row: &mut Row) -> Result<(), WriteError> {
    let written = file.put(row.end());
    row.clear();
    written
}

impl Gpu {
    /// Writes all samples of a session.
    pub(super) fn samples(
        &mut self,
        row: &mut Row,
        samples: &GpuSamples,
    ) -> Result<(), WriteError> {
        for sample in samples.samples() {
            row.number(samples.index)
                .number(sample.group as u64)
                .number(sample.start)
                .number(sample.end);
            for metric in 0..self.metrics {
                let value = sample
                    .metrics
                    .iter()
                    .position(|it| *it == metric)
                    .and_then(|at| sample.values.get(at));
                match value.filter(|value| value.is_finite()) {
                    Some(value) => row.real(f64::from(*value)),
                    None => row.text(""),
                };
            }
            put(&mut self.samples, row)?;
        }
        Ok(())
    }

    /// Writes a kernel.
    pub(super) fn kernel(
        &mut self,
        row: &mut Row,
        job: &Job<'_>,
        kernel: &Kernel,
    ) -> Result<(), WriteError> {
        let Some(samples) = job
            .trace
            .gpu
            .as_ref()
            .filter(|samples| samples.is_node(kernel.node, job.index))
        else {
            return Ok(());
        };
        let inside = samples.of_kernel(kernel, job.index);
        let name = job.kernel_name(kernel);
        if self.statistics.is_some()
            && (self.names.contains_key(&*name) || self.names.len() < MOST_NAMES)
        {
            let sum = self.names.entry(name.clone().into_owned()).or_default();
            sum.calls += 1;
            if let Some(inside) = &inside {
                sum.with_samples += 1;
                sum.inside.add(inside);
            }
        }
        let Some(inside) = inside else { return Ok(()) };
        row.number(job.trace.process.pid)
            .number(kernel.dispatch_id)
            .number(kernel.correlation)
            .name(name)
            .number(kernel.start)
            .number(kernel.end)
            .number(inside.samples);
        self.means(row, &inside);
        put(&mut self.kernels, row)
    }

    fn means(&self, row: &mut Row, inside: &Inside) {
        for metric in 0..self.metrics {
            match inside.mean(metric) {
                Some(mean) => row.real(mean),
                None => row.text(""),
            };
        }
    }

    /// Adds the files to the set.
    pub(super) fn finish(mut self, row: &mut Row, files: &mut FileSet) -> Result<(), WriteError> {
        if let Some(mut file) = self.statistics.take() {
            for (name, sum) in std::mem::take(&mut self.names) {
                row.name(name.into())
                    .number(sum.calls)
                    .number(sum.with_samples)
                    .number(sum.inside.samples);
                self.means(row, &sum.inside);
                put(&mut file, row)?;
            }
            files.add(file)?;
        }
        files.add(self.samples)?;
        files.add(self.kernels)
    }
}
