//! rocprofv3's csv: one file per domain that has records, and agent_info always.
//!
//! Texts are quoted, numbers are not, lines end in `\n`. AMD's tool writes quotes within a text as they are; we double them
//! (RFC 4180), since what it writes then cannot be read back. Line breaks within a text become spaces: one record, one line.
//! A dispatch or copy without times has 0 in both columns; why is said in the notes and in json.

mod agents;
mod cuda;

use crate::cuda::copy_operation;
use crate::digits;
use crate::files::{FileSet, OutputFile, WriteError};
use crate::index::{Index, is_cuda_call, is_hip};
use crate::job::{Job, Writer, address};
use crate::notes;
use crate::stats;
use midair_record::event::{
    Allocation, Api, Copy, CudaLaunch, CudaTransfer, Kernel, Marker, NO_NODE, Record, Scratch, kind,
};

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

/// Last column of tables of several processes that have none of this name.
const PROCESS: &str = "Process_Id";

/// LDS is given out in blocks of so many bytes.
const LDS_BLOCK: u32 = 512;

/// The writer.
pub(crate) struct Csv;

impl Writer for Csv {
    fn write(&self, jobs: &[Job<'_>], files: &mut FileSet) -> Result<(), WriteError> {
        traces(jobs, files)?;
        if jobs.iter().any(|job| job.plan.stats) {
            statistics(jobs, files)?;
        }
        agents::agent_info(jobs, files)?;
        notes::write(jobs, files)
    }
}

/// The files of records, all in one walk.
fn traces(jobs: &[Job<'_>], files: &mut FileSet) -> Result<(), WriteError> {
    let together = jobs.len() > 1;
    let any = |has: fn(&Index) -> bool| jobs.iter().any(|job| has(job.index));
    let calls = |wanted, suffix| open(files, wanted, suffix, CALLS);
    // Rows of these tables do not say which process they are of.
    let file = |wanted, suffix: &str, columns: &[&str]| {
        if !together {
            return open(files, wanted, suffix, columns);
        }
        open(files, wanted, suffix, &[columns, &[PROCESS]].concat())
    };
    let mut hip = calls(any(Index::has_hip), "hip_api_trace.csv")?;
    let mut hsa = calls(any(Index::has_hsa), "hsa_api_trace.csv")?;
    let mut markers = calls(any(|index| index.marker_count > 0), "marker_api_trace.csv")?;
    // What only CUDA tells stands behind AMD's columns.
    let with_cuda = any(Index::is_cuda);
    let (kernel_columns, copy_columns) = if with_cuda {
        (
            [KERNELS, cuda::KERNELS].concat(),
            [COPIES, cuda::COPIES].concat(),
        )
    } else {
        (KERNELS.to_vec(), COPIES.to_vec())
    };
    let mut kernels = file(
        any(|index| index.dispatches > 0),
        "kernel_trace.csv",
        &kernel_columns,
    )?;
    let mut copies = file(
        any(|index| index.copy_count > 0),
        "memory_copy_trace.csv",
        &copy_columns,
    )?;
    let mut allocations = file(
        any(|index| !index.allocations.is_empty()),
        "memory_allocation_trace.csv",
        ALLOCATIONS,
    )?;
    let mut scratch = file(
        any(|index| !index.scratch.is_empty()),
        "scratch_memory_trace.csv",
        SCRATCH,
    )?;
    let mut further = cuda::Tables::open(files, jobs, &file)?;
    let mut row = Row::default();
    for job in jobs {
        let walked = job.trace.records.walk(
            |kind| kind < kind::AGENT,
            |record| {
                let file = match record {
                    Record::Api(api, _) => {
                        call_row(&mut row, job, api);
                        if is_hip(api.header.kind) {
                            &mut hip
                        } else if is_cuda_call(api.header.kind) {
                            row.number(api.retval);
                            &mut further.calls
                        } else {
                            &mut hsa
                        }
                    }
                    Record::Marker(marker, message) => {
                        marker_row(&mut row, job, marker, message);
                        &mut markers
                    }
                    Record::Kernel(kernel, told) => {
                        kernel_row(&mut row, job, kernel, told.as_ref());
                        if with_cuda {
                            cuda::launch(&mut row, kernel, told.as_ref());
                        }
                        &mut kernels
                    }
                    Record::Copy(copy, told) => {
                        copy_row(&mut row, job, copy, told.as_ref());
                        if with_cuda {
                            cuda::transfer(&mut row, copy, told.as_ref());
                        }
                        &mut copies
                    }
                    Record::Allocation(allocation) => {
                        allocation_row(&mut row, job, allocation);
                        &mut allocations
                    }
                    Record::Scratch(record) => {
                        scratch_row(&mut row, job, record);
                        &mut scratch
                    }
                    Record::MemorySet(set) => {
                        cuda::set_row(&mut row, job, set);
                        &mut further.sets
                    }
                    Record::Synchronization(wait) => {
                        cuda::wait_row(&mut row, job, wait);
                        &mut further.waits
                    }
                    Record::UnifiedMemory(moved) => {
                        cuda::unified_row(&mut row, job, moved);
                        &mut further.unified
                    }
                    _ => return Ok(()),
                };
                if together && !matches!(record, Record::Api(..) | Record::Marker(..)) {
                    row.number(job.trace.process.pid);
                }
                let line = row.end();
                let written = file.as_mut().map_or(Ok(()), |file| file.put(line));
                row.clear();
                written
            },
        );
        walked?;
    }
    let all = [hip, hsa, markers, kernels, copies, allocations, scratch];
    for file in all.into_iter().chain(further.all()).flatten() {
        files.add(file)?;
    }
    Ok(())
}

/// One file per domain that has records, and one with the sums of all.
fn statistics(jobs: &[Job<'_>], files: &mut FileSet) -> Result<(), WriteError> {
    let domains = stats::collect(jobs);
    for stats in &domains {
        let entries = stats.operations.iter().map(|(n, stat)| (n.as_str(), stat));
        stats_file(files, stats.domain.file(), entries.collect())?;
    }
    let all: Vec<_> = domains
        .iter()
        .map(|stats| (stats.domain.name(), &stats.total))
        .collect();
    if all.is_empty() {
        return Ok(());
    }
    stats_file(files, "domain_stats.csv", all)
}

fn stats_file(
    files: &mut FileSet,
    suffix: &str,
    entries: Vec<stats::Entry<'_>>,
) -> Result<(), WriteError> {
    let Some(mut file) = open(files, true, suffix, STATS)? else {
        return Ok(());
    };
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

/// A share in percent: two digits after the point from 1 on, four above 0.01, else with an exponent.
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

fn open(
    files: &FileSet,
    wanted: bool,
    suffix: &str,
    columns: &[&str],
) -> Result<Option<OutputFile>, WriteError> {
    if !wanted {
        return Ok(None);
    }
    let mut file = files.create(suffix)?;
    let mut row = Row::default();
    for column in columns {
        row.text(column);
    }
    file.put(row.end())?;
    Ok(Some(file))
}

/// One line under construction; kept between records to save the allocation.
#[derive(Debug, Default)]
struct Row(Vec<u8>);

impl Row {
    fn separate(&mut self) {
        if !self.0.is_empty() {
            self.0.push(b',');
        }
    }

    fn text(&mut self, text: &str) -> &mut Self {
        self.separate();
        self.0.push(b'"');
        for byte in text.bytes() {
            match byte {
                b'"' => self.0.extend_from_slice(b"\"\""),
                b'\n' | b'\r' => self.0.push(b' '),
                other => self.0.push(other),
            }
        }
        self.0.push(b'"');
        self
    }

    fn number(&mut self, number: impl Into<i128>) -> &mut Self {
        self.separate();
        digits::push(&mut self.0, number);
        self
    }

    /// A real number of statistics: six digits after the point above 0.01, else with an exponent.
    fn real(&mut self, number: f64) -> &mut Self {
        if number > 0.01 {
            self.raw(&format!("{number:.6}"))
        } else {
            self.raw(&stats::exponent(number, 8))
        }
    }

    /// A number that is a text already.
    fn raw(&mut self, text: &str) -> &mut Self {
        self.separate();
        self.0.extend_from_slice(text.as_bytes());
        self
    }

    fn end(&mut self) -> &[u8] {
        self.0.push(b'\n');
        &self.0
    }

    fn clear(&mut self) {
        self.0.clear();
    }
}

fn call_row(row: &mut Row, job: &Job<'_>, api: &Api) {
    let kind = api.header.kind;
    row.text(&job.names.kind(kind))
        .text(&job.names.operation(kind, api.header.operation));
    row.number(job.trace.process.pid)
        .number(api.tid)
        .number(api.correlation)
        .number(api.start)
        .number(api.end);
}

fn kernel_row(row: &mut Row, job: &Job<'_>, kernel: &Kernel, told: Option<&CudaLaunch>) {
    let symbol = job
        .index
        .symbols
        .get(&kernel.kernel_id)
        .map(|symbol| symbol.record)
        .unwrap_or_default();
    row.text(&job.names.kind(kind::KERNEL_DISPATCH))
        .text(&job.agent_name(kernel.node));
    row.number(kernel.queue_id)
        .number(job.index.stream(kernel.stream))
        .number(kernel.tid)
        .number(kernel.dispatch_id);
    row.number(kernel.kernel_id)
        .text(&job.kernel_name(kernel))
        .number(kernel.correlation);
    row.number(kernel.start).number(kernel.end);
    let (lds, registers) = match told {
        // What this launch had: static and dynamic shared memory, and registers of the kernel as it was compiled for this device.
        Some(told) => (u64::from(kernel.group_segment), told.registers),
        // The size that the code object asks for, in whole blocks. Dynamic LDS is not in it: AMD's column has never had it.
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

fn copy_row(row: &mut Row, job: &Job<'_>, copy: &Copy, told: Option<&CudaTransfer>) {
    let direction = copy_operation(copy, told);
    row.text(&job.names.kind(kind::MEMORY_COPY))
        .text(&job.names.operation(kind::MEMORY_COPY, direction));
    row.number(job.index.stream(copy.stream))
        .text(&job.agent_name(copy.src_node))
        .text(&job.agent_name(copy.dst_node));
    row.number(copy.correlation)
        .number(copy.start)
        .number(copy.end);
}

fn marker_row(row: &mut Row, job: &Job<'_>, marker: &Marker, message: &[u8]) {
    row.text(&job.names.kind(marker.header.kind))
        .text(&job.names.marker(marker, message));
    row.number(job.trace.process.pid)
        .number(marker.tid)
        .number(marker.correlation)
        .number(marker.start)
        .number(marker.end);
}

fn allocation_row(row: &mut Row, job: &Job<'_>, allocation: &Allocation) {
    let operation = allocation.header.operation;
    row.text(&job.names.kind(kind::MEMORY_ALLOCATION))
        .text(&job.names.operation(kind::MEMORY_ALLOCATION, operation));
    // A release names no agent.
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

fn scratch_row(row: &mut Row, job: &Job<'_>, scratch: &Scratch) {
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

    #[test]
    fn texts_are_quoted_and_stay_on_one_line() {
        let mut row = Row::default();
        row.text("a \"b\"\nc,d").number(7_u32).number(-1_i64);
        assert_eq!(row.end(), b"\"a \"\"b\"\" c,d\",7,-1\n");
    }
}
