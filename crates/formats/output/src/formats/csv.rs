//! rocprofv3's csv: one file for each domain that has records, and agent_info always.
//!
//! Texts are quoted, numbers are not, and lines end in `\n`. AMD's tool writes quotes within a text
//! unchanged, which cannot be read back. We double them (RFC 4180). Line breaks within a text
//! become spaces, so that one record is one line. A dispatch or copy without times has 0 in both
//! columns; the notes and json give the reason.
//!
//! Decisions: FMT-001, FMT-020 (`docs/deviations/formats.md`).

mod agents;
mod batches;
mod cuda;
mod given;
mod gpu;
mod row;
mod samples;

use crate::counters::values::sum;
use crate::counters::{Counts, Reading};
use crate::files::{FileSet, OutputFile, WriteError};
use crate::job::{Job, address};
use crate::notes;
use crate::sink::{Opened, Sink, Writer};
use crate::stats;
use midair_domain::KindSet;
use midair_record::event::{Kernel, NO_NODE, Record, kind};
use midair_trace::cuda::copy_operation;
use row::{PROCESS, Row, begin, call_row};

const CALLS: &[&str] = &[
    "Domain",
    "Function",
    "Process_Id",
    "Thread_Id",
    "Correlation_Id",
    "Start_Timestamp",
    "End_Timestamp",
];

const KERNELS: &[&str] = &[
    "Kind",
    "Agent_Id",
    "Queue_Id",
    "Stream_Id",
    "Thread_Id",
    "Dispatch_Id",
    "Kernel_Id",
    "Kernel_Name",
    "Correlation_Id",
    "Start_Timestamp",
    "End_Timestamp",
    "LDS_Block_Size",
    "Scratch_Size",
    "VGPR_Count",
    "Accum_VGPR_Count",
    "SGPR_Count",
    "Workgroup_Size_X",
    "Workgroup_Size_Y",
    "Workgroup_Size_Z",
    "Grid_Size_X",
    "Grid_Size_Y",
    "Grid_Size_Z",
];

const COPIES: &[&str] = &[
    "Kind",
    "Direction",
    "Stream_Id",
    "Source_Agent_Id",
    "Destination_Agent_Id",
    "Correlation_Id",
    "Start_Timestamp",
    "End_Timestamp",
];

const ALLOCATIONS: &[&str] = &[
    "Kind",
    "Operation",
    "Agent_Id",
    "Allocation_Size",
    "Address",
    "Correlation_Id",
    "Start_Timestamp",
    "End_Timestamp",
];

const SCRATCH: &[&str] = &[
    "Kind",
    "Operation",
    "Agent_Id",
    "Queue_Id",
    "Thread_Id",
    "Alloc_Flags",
    "Start_Timestamp",
    "End_Timestamp",
    "Allocation_Size",
];

const COUNTERS: &[&str] = &[
    "Correlation_Id",
    "Dispatch_Id",
    "Agent_Id",
    "Queue_Id",
    "Process_Id",
    "Thread_Id",
    "Grid_Size",
    "Kernel_Id",
    "Kernel_Name",
    "Workgroup_Size",
    "LDS_Block_Size",
    "Scratch_Size",
    "VGPR_Count",
    "Accum_VGPR_Count",
    "SGPR_Count",
    "Counter_Name",
    "Counter_Value",
    "Start_Timestamp",
    "End_Timestamp",
];

const READINGS: &[&str] = &[
    "Reading_Id",
    "Agent_Id",
    "Process_Id",
    "Counter_Name",
    "Counter_Value",
    "Start_Timestamp",
    "End_Timestamp",
];
/// The file of these rows.
const READINGS_FILE: &str = "device_counter_collection.csv";
/// The file of the agents.
pub(crate) use agents::FILE as AGENTS;
pub use given::{CounterCsv, CounterRow};
/// The file with the sums of all domains.
const ALL_DOMAINS: &str = "domain_stats.csv";

/// Returns the names of all files behind the prefix.
pub(crate) fn suffixes() -> impl Iterator<Item = &'static str> {
    let domains = midair_domain::DOMAINS.iter();
    let domains = domains.flat_map(|domain| {
        let statistics = domain.files.statistics.map(|statistics| statistics.csv);
        [domain.files.csv, statistics].into_iter().flatten()
    });
    let gpu = [gpu::SAMPLES, gpu::KERNELS, gpu::STATISTICS];
    let others = [READINGS_FILE, AGENTS, ALL_DOMAINS, batches::FILE];
    let all: std::collections::BTreeSet<_> = domains.chain(gpu).chain(others).collect();
    all.into_iter()
}

const STATS: &[&str] = &[
    "Name",
    "Calls",
    "TotalDurationNs",
    "AverageNs",
    "Percentage",
    "MinNs",
    "MaxNs",
    "StdDev",
];

/// A kernel's name stands in each of its rows. If the names of a trace take more than this plus
/// [`NAME_SHARE`] bytes for each byte of the records, the remaining rows have short names.
const LONG_NAMES: u64 = 64 << 20;
const NAME_SHARE: u64 = 16;
/// LDS is allocated in blocks of this many bytes.
const LDS_BLOCK: u32 = 512;

/// The columns behind AMD's, and the function that writes a record's fields into them.
type Further = (&'static [&'static str], fn(&mut Row, &Record<'_>));

/// A table: the domains whose records share one file, according to the table of domains.
struct Layout {
    /// One of these domains.
    kind: u8,
    columns: &'static [&'static str],
    row: fn(&mut Row, &Job<'_>, &Record<'_>),
    /// The columns behind AMD's, where a session has CUDA's records.
    cuda: Option<Further>,
}

/// All tables of records, in the order in which their files are named to the user.
static LAYOUTS: [Layout; 17] = [
    Layout::of(kind::HIP_RUNTIME_API_EXT, CALLS, call_row),
    Layout::of(kind::HSA_CORE_API, CALLS, call_row),
    Layout::of(kind::MARKER_CORE_RANGE_API, CALLS, marker_row),
    Layout {
        cuda: Some((cuda::KERNELS, cuda::launch)),
        ..Layout::of(kind::KERNEL_DISPATCH, KERNELS, kernel_row)
    },
    Layout {
        cuda: Some((cuda::COPIES, cuda::transfer)),
        ..Layout::of(kind::MEMORY_COPY, COPIES, copy_row)
    },
    Layout::of(kind::MEMORY_ALLOCATION, ALLOCATIONS, allocation_row),
    Layout::of(kind::SCRATCH_MEMORY, SCRATCH, scratch_row),
    // Its rows come from windows, and not from single records.
    Layout::of(kind::COUNTER_COLLECTION, COUNTERS, |_, _, _| ()),
    Layout::of(
        kind::PC_SAMPLING_HOST_TRAP,
        samples::HOST_TRAP,
        samples::host_trap_row,
    ),
    Layout::of(
        kind::PC_SAMPLING_STOCHASTIC,
        samples::STOCHASTIC,
        samples::stochastic_row,
    ),
    Layout::of(kind::RCCL_API, CALLS, call_row),
    Layout::of(kind::ROCDECODE_API_EXT, CALLS, call_row),
    Layout::of(kind::ROCJPEG_API, CALLS, call_row),
    Layout::of(kind::CUDA_RUNTIME_API, cuda::CALLS, cuda::call_row),
    Layout::of(kind::MEMORY_SET, cuda::SETS, cuda::set_row),
    Layout::of(kind::SYNCHRONIZATION, cuda::WAITS, cuda::wait_row),
    Layout::of(kind::UNIFIED_MEMORY, cuda::UNIFIED, cuda::unified_row),
];

impl Layout {
    const fn of(
        kind: u8,
        columns: &'static [&'static str],
        row: fn(&mut Row, &Job<'_>, &Record<'_>),
    ) -> Layout {
        Layout {
            kind,
            columns,
            row,
            cuda: None,
        }
    }

    /// Returns the file's name, and the domains whose records it has.
    fn file(&self) -> Option<(&'static str, KindSet)> {
        let name = midair_domain::domain(self.kind)?.files.csv?;
        let same = midair_domain::built().filter(|domain| domain.files.csv == Some(name));
        Some((name, same.map(|domain| domain.kind).collect()))
    }
}

/// A table that has rows, and its file.
struct Table {
    kinds: KindSet,
    file: OutputFile,
    row: fn(&mut Row, &Job<'_>, &Record<'_>),
    cuda: Option<fn(&mut Row, &Record<'_>)>,
    /// Whether each row ends with the process. That is so for several processes whose rows do not
    /// contain it.
    of_process: bool,
}

/// The writer.
struct Csv<'a> {
    jobs: &'a [Job<'a>],
    tables: Vec<Table>,
    batches: Option<OutputFile>,
    gpu: Option<gpu::Gpu>,
    agents: OutputFile,
    row: Row,
    /// The number of names that were written short.
    shortened: u64,
}

/// Starts the files of the records, as far as there are any, and the file of agents.
pub(crate) fn open<'a>(jobs: &'a [Job<'a>], files: &FileSet) -> Opened<'a> {
    let together = jobs.len() > 1;
    let with_cuda = jobs.iter().any(|job| job.index.is_cuda());
    let mut tables = Vec::new();
    for layout in &LAYOUTS {
        let Some((name, kinds)) = layout.file() else {
            continue;
        };
        if !jobs.iter().any(|job| job.index.has(kinds)) {
            continue;
        }
        // Counters of whole devices have a file of their own.
        let of_devices = layout.kind == kind::COUNTER_COLLECTION
            && jobs.iter().any(|job| job.trace.counters.interval != 0);
        let (name, columns) = match of_devices {
            true => (READINGS_FILE, READINGS),
            false => (name, layout.columns),
        };
        let cuda = layout.cuda.filter(|_| with_cuda);
        let of_process = together && !columns.contains(&PROCESS);
        let mut columns = columns.to_vec();
        columns.extend(cuda.iter().flat_map(|(columns, _)| *columns));
        columns.extend(of_process.then_some(PROCESS));
        tables.push(Table {
            kinds,
            file: begin(files, name, &columns)?,
            row: layout.row,
            cuda: cuda.map(|(_, row)| row),
            of_process,
        });
    }
    Ok(Box::new(Csv {
        jobs,
        tables,
        batches: batches::begin(files, jobs)?,
        gpu: gpu::begin(files, jobs)?,
        agents: agents::begin(files, together)?,
        row: Row::default(),
        shortened: 0,
    }))
}

impl Writer for Csv<'_> {
    fn begin<'s>(&'s mut self, job: &'s Job<'s>) -> Result<Box<dyn Sink + 's>, WriteError> {
        let bytes = job.trace.records.bytes();
        // Another session may have other names for its agents.
        self.row.texts.clear();
        self.row.names = LONG_NAMES.saturating_add(NAME_SHARE.saturating_mul(bytes));
        if let (Some(gpu), Some(samples)) = (&mut self.gpu, &job.trace.gpu) {
            gpu.samples(&mut self.row, samples)?;
        }
        Ok(Box::new(Rows {
            job,
            tables: &mut self.tables,
            batches: &mut self.batches,
            gpu: &mut self.gpu,
            row: &mut self.row,
            shortened: &mut self.shortened,
        }))
    }

    fn finish(mut self: Box<Self>, files: &mut FileSet) -> Result<(), WriteError> {
        for table in self.tables {
            files.add(table.file)?;
        }
        if let Some(gpu) = self.gpu {
            gpu.finish(&mut self.row, files)?;
        }
        if let Some(file) = self.batches {
            files.add(file)?;
        }
        if self.jobs.iter().any(|job| job.plan.stats) {
            statistics(self.jobs, files)?;
        }
        files.add(agents::fill(self.agents, self.jobs)?)?;
        notes::write_with(self.jobs, files, self.shortened)
    }
}

/// The rows of one session.
struct Rows<'s> {
    job: &'s Job<'s>,
    tables: &'s mut [Table],
    batches: &'s mut Option<OutputFile>,
    gpu: &'s mut Option<gpu::Gpu>,
    row: &'s mut Row,
    shortened: &'s mut u64,
}

impl Sink for Rows<'_> {
    fn record(&mut self, record: &Record<'_>) -> Result<(), WriteError> {
        let Some(kind) = record.header().map(|header| header.kind) else {
            return Ok(());
        };
        if matches!(record, Record::PcSample(sample) if !sample.is_in_files()) {
            return Ok(());
        }
        if let (Some(gpu), Record::Kernel(kernel, _)) = (&mut *self.gpu, record) {
            gpu.kernel(self.row, self.job, kernel)?;
        }
        let mut tables = self.tables.iter_mut();
        let Some(table) = tables.find(|table| table.kinds.contains(kind)) else {
            return Ok(());
        };
        (table.row)(self.row, self.job, record);
        if let Some(cuda) = table.cuda {
            cuda(self.row, record);
        }
        if table.of_process {
            self.row.number(self.job.trace.process.pid);
        }
        let written = table.file.put(self.row.end());
        self.row.clear();
        written
    }

    fn counted(&mut self, counts: &Counts<'_>) -> Result<(), WriteError> {
        if let Some(batch) = counts.batch {
            let Some(file) = self.batches else {
                return Ok(());
            };
            return batches::rows(file, self.row, self.job, counts, batch);
        }
        let mut tables = self.tables.iter_mut();
        let Some(table) = tables.find(|table| table.kinds.contains(kind::COUNTER_COLLECTION))
        else {
            return Ok(());
        };
        for (_, name, values) in &counts.counters {
            counter_row(self.row, self.job, counts.kernel, name, sum(values));
            let written = table.file.put(self.row.end());
            self.row.clear();
            written?;
        }
        Ok(())
    }

    fn read(&mut self, reading: &Reading) -> Result<(), WriteError> {
        let mut tables = self.tables.iter_mut();
        let Some(table) = tables.find(|table| table.kinds.contains(kind::COUNTER_COLLECTION))
        else {
            return Ok(());
        };
        for (_, name, values, _) in &reading.counters {
            self.row
                .number(reading.number)
                .text(&self.job.agent_name(reading.node))
                .number(self.job.trace.process.pid)
                .text(name)
                .real(sum(values))
                .number(reading.start)
                .number(reading.end);
            let written = table.file.put(self.row.end());
            self.row.clear();
            written?;
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), WriteError> {
        *self.shortened += std::mem::take(&mut self.row.shortened);
        Ok(())
    }
}

/// One file per domain that has records, and one with the sums of all.
fn statistics(jobs: &[Job<'_>], files: &mut FileSet) -> Result<(), WriteError> {
    let domains = stats::collect(jobs);
    for stats in &domains {
        let entries = stats.operations.iter().map(|(n, stat)| (n.as_str(), stat));
        stats_file(files, stats.domain.csv, entries.collect())?;
    }
    let all: Vec<_> = domains
        .iter()
        .map(|stats| (stats.domain.name, &stats.total))
        .collect();
    if all.is_empty() {
        return Ok(());
    }
    stats_file(files, ALL_DOMAINS, all)
}

fn stats_file(
    files: &mut FileSet,
    suffix: &str,
    entries: Vec<stats::Entry<'_>>,
) -> Result<(), WriteError> {
    let mut file = begin(files, suffix, STATS)?;
    let sum = entries
        .iter()
        .fold(0_u64, |sum, (_, stat)| sum.saturating_add(stat.total));
    for (name, stat) in stats::by_total(entries) {
        let mut row = Row::default();
        row.text(name).number(stat.calls).number(stat.total);
        row.real(stat.mean());
        row.raw(&percentage(stat.total, sum));
        row.number(stat.min).number(stat.max);
        row.real(stat.deviation());
        file.put(row.end())?;
    }
    files.add(file)
}

/// Returns a share in percent: with two digits after the point from 1 on, with four above 0.01, and
/// else with an exponent.
fn percentage(part: u64, all: u64) -> String {
    let percent = if all == 0 {
        0.0
    } else {
        part as f64 * 100.0 / all as f64
    };
    if percent >= 1.0 {
        format!("{percent:.2}")
    } else if percent > 0.01 {
        format!("{percent:.4}")
    } else {
        stats::exponent(percent, 3)
    }
}

fn kernel_row(row: &mut Row, job: &Job<'_>, record: &Record<'_>) {
    let Record::Kernel(kernel, extra) = record else {
        return;
    };
    let symbol = job
        .index
        .symbols
        .get(&kernel.kernel_id)
        .map(|symbol| symbol.record)
        .unwrap_or_default();
    row.text(&job.names.kind(kind::KERNEL_DISPATCH))
        .agent(job, kernel.node);
    row.number(kernel.queue_id)
        .number(job.index.stream(kernel.stream))
        .number(kernel.tid)
        .number(kernel.dispatch_id);
    row.number(kernel.kernel_id)
        .name(job.dispatch_name(kernel))
        .number(kernel.correlation);
    row.number(kernel.start).number(kernel.end);
    let (lds, registers) = match extra {
        // These are the values of this launch: its static and dynamic shared memory, and the
        // registers of the kernel as compiled for this device.
        Some(extra) => (u64::from(kernel.group_segment), extra.registers),
        // This is the size that the code object asks for, in whole blocks. It does not contain
        // dynamic LDS, because AMD's column never has.
        None => (
            u64::from(symbol.group_segment).next_multiple_of(u64::from(LDS_BLOCK)),
            symbol.arch_vgpr,
        ),
    };
    row.number(lds);
    row.number(kernel.private_segment)
        .number(registers)
        .number(symbol.accum_vgpr)
        .number(symbol.sgpr);
    for size in kernel.workgroup.into_iter().chain(kernel.grid) {
        row.number(size);
    }
}

/// Writes one counter of a dispatch: its sum over all places.
fn counter_row(row: &mut Row, job: &Job<'_>, kernel: &Kernel, name: &str, value: f64) {
    let symbol = job.index.symbols.get(&kernel.kernel_id);
    let symbol = symbol.map(|symbol| symbol.record).unwrap_or_default();
    let product = |sizes: [u32; 3]| sizes.into_iter().map(u64::from).fold(1, u64::wrapping_mul);
    row.number(kernel.correlation)
        .number(kernel.dispatch_id)
        .agent(job, kernel.node)
        .number(kernel.queue_id)
        .number(job.trace.process.pid)
        .number(kernel.tid)
        .number(product(kernel.grid))
        .number(kernel.kernel_id)
        .name(job.dispatch_name(kernel))
        .number(product(kernel.workgroup));
    row.number(u64::from(symbol.group_segment).next_multiple_of(u64::from(LDS_BLOCK)))
        .number(kernel.private_segment)
        .number(symbol.arch_vgpr)
        .number(symbol.accum_vgpr)
        .number(symbol.sgpr)
        .text(name)
        .real(value)
        .number(kernel.start)
        .number(kernel.end);
}

fn copy_row(row: &mut Row, job: &Job<'_>, record: &Record<'_>) {
    let Record::Copy(copy, extra) = record else {
        return;
    };
    let direction = copy_operation(copy, extra.as_ref());
    row.text(&job.names.kind(kind::MEMORY_COPY))
        .operation(job, kind::MEMORY_COPY, direction);
    row.number(job.index.stream(copy.stream))
        .agent(job, copy.src_node)
        .agent(job, copy.dst_node);
    row.number(copy.correlation)
        .number(copy.start)
        .number(copy.end);
}

fn marker_row(row: &mut Row, job: &Job<'_>, record: &Record<'_>) {
    let Record::Marker(marker, message) = record else {
        return;
    };
    row.text(&job.names.kind(marker.header.kind))
        .text(&job.names.marker(marker, message));
    row.number(job.trace.process.pid)
        .number(marker.tid)
        .number(marker.correlation)
        .number(marker.start)
        .number(marker.end);
}

fn allocation_row(row: &mut Row, job: &Job<'_>, record: &Record<'_>) {
    let Record::Allocation(allocation) = record else {
        return;
    };
    let operation = allocation.header.operation;
    row.text(&job.names.kind(kind::MEMORY_ALLOCATION))
        .text(&job.names.operation(kind::MEMORY_ALLOCATION, operation));
    // The record of a release names no agent.
    match allocation.node {
        NO_NODE => row.text(""),
        node => row.text(&job.agent_name(node)),
    };
    row.number(allocation.bytes)
        .text(&address(allocation.address));
    row.number(allocation.correlation)
        .number(allocation.start)
        .number(allocation.end);
}

fn scratch_row(row: &mut Row, job: &Job<'_>, record: &Record<'_>) {
    let Record::Scratch(scratch) = record else {
        return;
    };
    let operation = scratch.header.operation;
    row.text(&job.names.kind(kind::SCRATCH_MEMORY))
        .text(&job.names.operation(kind::SCRATCH_MEMORY, operation))
        .text(&job.agent_name(scratch.node));
    row.number(scratch.queue_id)
        .number(scratch.tid)
        .number(scratch.flags)
        .number(scratch.start)
        .number(scratch.end)
        .number(scratch.bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// AMD's columns, as `api/compatibility.tsv` has them for docs/compatibility.md.
    #[test]
    fn tables_have_amds_columns() {
        let table = include_str!("../../../../../api/compatibility.tsv").lines();
        let mut seen = 0;
        for row in table.filter_map(|line| line.strip_prefix("csv\t")) {
            let fields: Vec<&str> = row.split('\t').collect();
            let of_name = |layout: &&Layout| {
                midair_domain::domain(layout.kind)
                    .is_some_and(|domain| domain.files.csv == Some(fields[0]))
            };
            let ours = match (fields[0], LAYOUTS.iter().find(of_name)) {
                ("kernel_stats.csv", _) => Some(STATS),
                (_, layout) => layout.map(|layout| layout.columns),
            };
            match fields.get(4) {
                Some(columns) => {
                    let theirs: Vec<&str> = columns.split(',').collect();
                    let ours = ours.unwrap_or_default();
                    // Samples have midair's own columns behind AMD's.
                    let most = match fields[0].starts_with("pc_sampling_") {
                        true => theirs.len().min(ours.len()),
                        false => ours.len(),
                    };
                    assert_eq!(ours[..most], theirs, "{row}");
                    seen += 1;
                }
                None => assert!(ours.is_none() && fields[2] == "none", "{row}"),
            }
        }
        assert!(seen > 10, "{seen}");
    }
}
