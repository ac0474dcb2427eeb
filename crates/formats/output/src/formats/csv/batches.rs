//! What several dispatches counted together that were launched at once. It has a file of its own: a
//! row of AMD's table is one dispatch, and its readers would take these values for one dispatch's.
//!
//! Decisions: FMT-030 (`docs/deviations/formats.md`).

use super::row::{Row, begin as begin_table};
use crate::counters::Counts;
use crate::counters::batch::Batch;
use crate::counters::values::sum;
use crate::files::{FileSet, OutputFile, WriteError};
use crate::job::Job;

/// The file's name behind the prefix.
pub(super) const FILE: &str = "counter_batches.csv";

const COLUMNS: &[&str] = &[
    "Batch_Id",
    "Correlation_Id",
    "Agent_Id",
    "Queue_Id",
    "Process_Id",
    "Thread_Id",
    "Dispatches",
    "Dispatch_Ids",
    "Kernel_Names",
    "Counter_Name",
    "Counter_Value",
    "Start_Timestamp",
    "End_Timestamp",
];

/// Starts the file, if a session has such values.
pub(super) fn begin(files: &FileSet, jobs: &[Job<'_>]) -> Result<Option<OutputFile>, WriteError> {
    let mut jobs = jobs.iter();
    if !jobs.any(|job| job.counting.windows.has_batches()) {
        return Ok(None);
    }
    begin_table(files, FILE, COLUMNS).map(Some)
}

/// Writes a row for each counter.
pub(super) fn rows(
    file: &mut OutputFile,
    row: &mut Row,
    job: &Job<'_>,
    counts: &Counts<'_>,
    batch: &Batch,
) -> Result<(), WriteError> {
    let kernel = counts.kernel;
    let (ids, kernels) = (
        batch.dispatch_ids(),
        batch.kernels(|id| job.kernel_name_by_id(id)),
    );
    for (_, name, values) in &counts.counters {
        row.number(counts.window)
            .number(kernel.correlation)
            .text(&job.agent_name(kernel.node))
            .number(kernel.queue_id)
            .number(job.trace.process.pid)
            .number(kernel.tid)
            .number(batch.count)
            .name((&*ids).into())
            .name((&*kernels).into())
            .text(name)
            .real(sum(values))
            .number(batch.start)
            .number(batch.end);
        let written = file.put(row.end());
        row.clear();
        written?;
    }
    Ok(())
}
