//! Writers of traces.
//!
//! A session collects records into a [`RecordWriter`] (`midair-trace`), finishes it into a
//! [`RecordFile`], puts a [`Trace`] together, and calls [`write()`]. [`names::expand`] makes directory and prefix from what the user asked for.
//! [`Screen`] is what `midair attach` prints at its end.
//!
//! Writers stream: their memory depends on how many different kernels, streams and calls there are,
//! not on how many records. They know records and names ([`Names`]), not runtimes. Each format is
//! one module and one row of a table. One walk over the records feeds all formats that a thread
//! writes. Files appear whole or not at all.
#![forbid(unsafe_code)]

mod agent_numbers;
mod arguments;
mod burst_report;
mod code;
mod counted_so_far;
mod counter_findings;
mod counter_report;
mod counter_table;
mod counters;
mod device_readings;
mod device_table;
mod digits;
mod events;
pub mod files;
mod formats;
mod gpu;
mod graphs;
mod job;
mod labels;
mod lanes;
mod model;
pub mod names;
mod notes;
mod options;
mod process;
mod profile;
mod progress;
pub mod screen;
mod sink;
mod stats;
mod summary;
pub mod table;
pub mod threads;

pub use arguments::words_of;
pub use counted_so_far::write_counted_so_far;
pub use counter_report::CounterReport;
pub use counter_table::counter_table;
pub use device_readings::{DeviceReadings, DeviceValue};
pub use files::{Numbering, WriteError};
pub use formats::csv::{CounterCsv, CounterRow};
pub use formats::difference::Difference;
pub use formats::json::agent_of_json;
pub use formats::rocpd::{SchemaPart, rocpd_schema};
pub use gpu::{GpuMetric, GpuSample, GpuSamples, Inside};
pub use labels::distinct_labels;
pub use midair_demangle::{demangle as demangled, demangle_host, shortened as short_names};
pub use midair_trace::activity::{Activity, Shares, is_wait};
pub use midair_trace::api::{Field, Kind, Names, Parameter, Shape, Text};
pub use midair_trace::code::{CodeLine, NO_STACK, frame as frame_name};
pub use midair_trace::cuda::devices::Device;
pub use midair_trace::frame_names::{Part, is_module_call};
pub use midair_trace::index::{
    Cuda, Function, Index, LATE, LiveGraphs, Mapped, Object, ROCCLR_KERNEL, Snapshot, StackSummary,
    Stacks, Stat, Symbol,
};
pub use midair_trace::kernel_filter::KernelFilter;
pub use midair_trace::range_names::GivenRanges;
pub use midair_trace::record_file::{
    Cursor, NoRoom, Observed, Observer, RecordFile, RecordWriter, Times, WalkError,
};
pub use midair_trace::rolling::{Keep, Window};
pub use midair_trace::samples::{Hottest, Kernels as SampledKernels, Samples};
pub use model::{Attach, KnownCounter, KnownCounts, KnownOfDispatches, Plan, Trace};
pub use options::{
    AgentIndex, Console, Format, Frames, KernelNames, PerfettoBuffers, SummaryTo, Unit,
};
pub use process::{Node, Outcome, Place, Process};
pub use progress::written;
pub use screen::Screen;
pub use summary::check_group;

pub use job::KernelLabels;

use job::Job;
use std::path::PathBuf;

/// Writes a trace in all formats of the plan. Returns the files in the order in which they were
/// written.
///
/// Either all files get their names or none does (unless the renaming itself fails half-way, which
/// the error then says). On failure no temporary file is left.
///
/// # Errors
/// [`WriteError`] names the file or directory that could not be written.
pub fn write(trace: &Trace, names: &Names, plan: &Plan) -> Result<Vec<PathBuf>, WriteError> {
    write_together(std::slice::from_ref(trace), names, plan)
}

/// Writes several sessions into one set of files, like [`write()`]. Each format keeps them apart:
/// rocpd by guid and process, json by one object per process, and Perfetto by process tracks. In
/// csv, each table without a column for the process ends with a column `Process_Id`.
///
/// # Errors
/// As [`write()`].
pub fn write_together(
    parts: &[Trace],
    names: &Names,
    plan: &Plan,
) -> Result<Vec<PathBuf>, WriteError> {
    formats::write(parts, names, plan)
}

/// The most sessions in one rocpd file, because SQLite unites at most 500 tables in a view.
pub const MOST_TOGETHER: usize = 400;

/// Checks whether the files of a plan could be written. It is meant for the time before anything is
/// recorded, and leaves nothing behind.
///
/// # Errors
/// What [`write()`] would fail with. Free space is not checked, since the size of the files is not
/// known yet.
pub fn check(plan: &Plan) -> Result<(), WriteError> {
    files::probe(&plan.directory, &plan.prefix)
}

/// Returns everything that a reader of a trace should know, a sentence each: the trace's own notes, and
/// the sentences that its records give rise to.
pub fn notes(trace: &Trace, names: &Names, plan: &Plan) -> Vec<String> {
    Job::new(trace, names, plan).notes()
}

/// Returns the tables of the plan's summaries and the console for them, where they go to a console.
/// The caller prints them. A tool inside the target has no console to print on.
pub fn console_summary(trace: &Trace, names: &Names, plan: &Plan) -> Option<(Console, String)> {
    if !plan.has_summary() {
        return None;
    }
    summary::console(&[Job::new(trace, names, plan)], plan)
}

/// Does the same as [`console_summary`] for several sessions.
pub fn console_summary_together(
    parts: &[Trace],
    names: &Names,
    plan: &Plan,
) -> Option<(Console, String)> {
    if !plan.has_summary() {
        return None;
    }
    let jobs: Vec<Job<'_>> = parts
        .iter()
        .map(|trace| Job::new(trace, names, plan))
        .collect();
    summary::console(&jobs, plan)
}
