//! rocprofv3's json: one object per process in a list, all keys of AMD's in AMD's order, no spaces.
//!
//! The lists of records are streamed, one walk over the records each. What we have to say beyond AMD's keys is in
//! `metadata.midair` and nowhere else, so that a reader of AMD's files finds what it expects.
//!
//! Decisions: FMT-015, FMT-016 (`docs/deviations/formats.md`).

mod agents;
mod cuda;
mod emit;
mod memory;
pub(crate) mod pieces;
mod summary;
mod symbols;

use crate::api::Kind;
use crate::api::{has_message, number_in_files};
use crate::arguments;
use crate::cuda::copy_direction;
use crate::files::{FileSet, WriteError};
use crate::index::{is_cuda_call, is_hip, is_hsa, is_marker};
use crate::job::{Job, Writer};
use crate::model::{Console, Format, SummaryTo};
use crate::record_file::WalkError;
use emit::Emit;
use midair_record::event::{Api, Copy, CudaLaunch, CudaTransfer, Kernel, Record, kind};
use std::io;

/// Sizes of AMD's structs, which each record names (source: api/rocprofiler_sdk.json; the golden json for those of the tool).
mod size {
    pub(super) const HIP_API: u64 = 176;
    pub(super) const HSA_API: u64 = 64;
    pub(super) const MEMORY_COPY: u64 = 96;
    pub(super) const KERNEL_DISPATCH: u64 = 184;
    pub(super) const DISPATCH_INFO: u64 = 72;
    pub(super) const MARKER_API: u64 = 64;
    pub(super) const MEMORY_ALLOCATION: u64 = 88;
    pub(super) const SCRATCH_MEMORY: u64 = 96;
}

/// A failure while writing: of this file, or of the store of records.
#[derive(Debug)]
enum Stop {
    Write(io::Error),
    Read(io::Error),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Stop::Write(error)
    }
}

impl From<WalkError<Stop>> for Stop {
    fn from(error: WalkError<Stop>) -> Self {
        match error {
            WalkError::Read(source) => Stop::Read(source),
            WalkError::Visit(stop) => stop,
        }
    }
}

type Done = Result<(), Stop>;

/// The writer.
pub(crate) struct Json;

impl Writer for Json {
    fn write(&self, jobs: &[Job<'_>], files: &mut FileSet) -> Result<(), WriteError> {
        let mut file = files.create("results.json")?;
        let mut out = Emit::new(&mut file);
        match document(&mut out, jobs).and_then(|()| Ok(out.finish()?)) {
            Ok(()) => files.add(file),
            Err(Stop::Read(source)) => Err(WriteError::Records(source)),
            Err(Stop::Write(source)) => Err(file.failed(source)),
        }
    }
}

fn document<W: io::Write>(out: &mut Emit<W>, jobs: &[Job<'_>]) -> Done {
    out.open_object()?;
    out.key("rocprofiler-sdk-tool")?;
    out.open_array()?;
    for job in jobs {
        session(out, job)?;
    }
    out.close_array()?;
    out.close_object()?;
    Ok(())
}

fn session<W: io::Write>(out: &mut Emit<W>, job: &Job<'_>) -> Done {
    out.open_object()?;
    metadata(out, job)?;
    agents::write(out, job.agents())?;
    empty_arrays(out, &["counters"])?;
    strings(out, job)?;
    symbols::code_objects(out, job)?;
    symbols::kernel_symbols(out, job)?;
    symbols::host_functions(out)?;
    summary::write(out, job)?;
    out.key("callback_records")?;
    out.open_object()?;
    empty_arrays(out, &["counter_collection"])?;
    out.close_object()?;
    out.key("buffer_records")?;
    out.open_object()?;
    records(out, job)?;
    out.close_object()?;
    out.close_object()?;
    Ok(())
}

fn empty_arrays<W: io::Write>(out: &mut Emit<W>, keys: &[&str]) -> io::Result<()> {
    for key in keys {
        out.key(key)?;
        out.open_array()?;
        out.close_array()?;
    }
    Ok(())
}

fn metadata<W: io::Write>(out: &mut Emit<W>, job: &Job<'_>) -> io::Result<()> {
    let process = &job.trace.process;
    let node = &process.node;
    out.key("metadata")?;
    out.open_object()?;
    out.key("node")?;
    out.open_object()?;
    out.number("id", node.id())?;
    out.number("hash", node.hash())?;
    out.text("machine_id", &node.machine_id)?;
    out.text("system_name", &node.system_name)?;
    out.text("hostname", &node.hostname)?;
    out.text("release", &node.release)?;
    out.text("version", &node.version)?;
    out.text("hardware_name", &node.hardware_name)?;
    out.text("domain_name", &node.domain_name)?;
    out.close_object()?;
    out.number("pid", process.pid)?;
    out.number("init_time", process.init_time)?;
    out.number("fini_time", process.fini_time)?;
    out.texts("command", &process.command)?;
    config(out, job)?;
    midair(out, job)?;
    out.close_object()
}

/// AMD's tool writes all its settings here. Those that have no meaning in ours have AMD's defaults.
fn config<W: io::Write>(out: &mut Emit<W>, job: &Job<'_>) -> io::Result<()> {
    let plan = job.plan;
    let directory = plan.directory.to_string_lossy();
    let asks_for = |format: Format| plan.formats.contains(&format);
    out.key("config")?;
    out.open_object()?;
    out.text("output_path", &directory)?;
    out.text("output_file", &plan.prefix)?;
    out.text("tmp_directory", &directory)?;
    out.text("raw_output_path", &plan.raw_directory)?;
    out.text("raw_output_file", &plan.raw_prefix)?;
    out.text("raw_tmp_directory", &plan.raw_directory)?;
    let buffers = &plan.perfetto;
    out.number("perfetto_shmem_size_hint", buffers.shmem_size_hint)?;
    out.number("perfetto_buffer_size", buffers.buffer_size)?;
    out.text("perfetto_buffer_fill_policy", &buffers.fill_policy)?;
    out.text("perfetto_backend", "inprocess")?;
    out.boolean("summary", plan.summary)?;
    out.boolean("summary_per_domain", plan.summary_per_domain)?;
    out.texts("summary_groups", &plan.summary_groups)?;
    out.text("summary_unit", plan.summary_unit.text())?;
    let summary_file = match &plan.summary_to {
        SummaryTo::Console(Console::Stdout) => "stdout",
        SummaryTo::Console(Console::Stderr) => "stderr",
        SummaryTo::File(name) => name,
    };
    out.text("summary_file", summary_file)?;
    out.boolean("csv_output", asks_for(Format::Csv))?;
    out.boolean("json_output", asks_for(Format::Json))?;
    out.boolean("pftrace_output", asks_for(Format::Pftrace))?;
    out.boolean("otf2_output", false)?;
    out.boolean("summary_output", plan.has_summary())?;
    out.boolean("rocpd_output", asks_for(Format::Rocpd))?;
    out.boolean("kernel_rename", false)?;
    out.boolean("group_by_queue", plan.group_by_queue)?;
    out.close_object()
}

/// What a reader has to know to trust the rest: what is missing, and why.
fn midair<W: io::Write>(out: &mut Emit<W>, job: &Job<'_>) -> io::Result<()> {
    let index = job.index;
    out.key("midair")?;
    out.open_object()?;
    out.text("outcome", &job.trace.outcome.text)?;
    out.key("lost")?;
    out.open_object()?;
    for (what, count) in &job.trace.lost {
        out.number(what, *count)?;
    }
    out.close_object()?;
    out.key("untimed")?;
    out.open_object()?;
    for (reason, count) in &index.untimed {
        out.number(reason, *count)?;
    }
    out.close_object()?;
    out.number("open_at_detach", index.open_at_detach)?;
    out.number("without_traced_caller", index.orphans)?;
    out.number("malformed_bytes", job.trace.records.malformed_bytes())?;
    out.texts("notes", &job.notes())?;
    memory::runtimes(out, job)?;
    out.close_object()
}

fn strings<W: io::Write>(out: &mut Emit<W>, job: &Job<'_>) -> Done {
    out.key("strings")?;
    out.open_object()?;
    kinds(out, "callback_records", &job.names.callback)?;
    if job.index.is_cuda() {
        kinds(out, "buffer_records", &cuda::kinds(job.names))?;
    } else {
        kinds(out, "buffer_records", &job.names.buffer)?;
    }
    messages(out, job)?;
    out.key("correlation_id")?;
    out.open_object()?;
    empty_arrays(out, &["external"])?;
    out.close_object()?;
    out.key("counters")?;
    out.open_object()?;
    empty_arrays(out, &["dimension_ids"])?;
    out.close_object()?;
    empty_arrays(
        out,
        &[
            "pc_sample_instructions",
            "pc_sample_comments",
            "att_filenames",
        ],
    )?;
    // AMD's list begins with an empty name.
    out.texts("code_object_snapshot_filenames", &[""])?;
    out.close_object()?;
    Ok(())
}

/// Messages of marks and ranges by correlation id, which their records refer to.
fn messages<W: io::Write>(out: &mut Emit<W>, job: &Job<'_>) -> Done {
    out.key("marker_api")?;
    out.open_array()?;
    job.trace.records.walk(is_marker, |record| -> Done {
        let Record::Marker(marker, message) = record else {
            return Ok(());
        };
        if has_message(marker.header.kind, marker.header.operation) {
            out.open_object()?;
            out.number("key", marker.correlation)?;
            out.text("value", &String::from_utf8_lossy(message))?;
            out.close_object()?;
        }
        Ok(())
    })?;
    out.close_array()?;
    Ok(())
}

fn kinds<W: io::Write>(out: &mut Emit<W>, key: &str, kinds: &[Kind]) -> io::Result<()> {
    out.key(key)?;
    out.open_array()?;
    for kind in kinds {
        out.open_object()?;
        out.text("kind", &kind.name)?;
        out.texts("operations", &kind.operations)?;
        out.close_object()?;
    }
    out.close_array()
}

/// All lists of records in AMD's order; those that are not collected are empty.
fn records<W: io::Write>(out: &mut Emit<W>, job: &Job<'_>) -> Done {
    list(out, job, "kernel_dispatch", |k| k == kind::KERNEL_DISPATCH)?;
    list(out, job, "hip_api", is_hip)?;
    list(out, job, "hsa_api", is_hsa)?;
    list(out, job, "marker_api", is_marker)?;
    empty_arrays(out, &["rccl_api"])?;
    list(out, job, "memory_copy", |k| k == kind::MEMORY_COPY)?;
    list(out, job, "memory_allocation", |k| {
        k == kind::MEMORY_ALLOCATION
    })?;
    list(out, job, "scratch_memory", |k| k == kind::SCRATCH_MEMORY)?;
    empty_arrays(
        out,
        &[
            "rocdecode_api",
            "rocjpeg_api",
            "pc_sample_host_trap",
            "pc_sample_stochastic",
        ],
    )?;
    // Lists that AMD's json does not have, behind those that it has.
    if job.index.is_cuda() {
        list(out, job, "cuda_api", is_cuda_call)?;
        list(out, job, "memory_set", |k| k == kind::MEMORY_SET)?;
        list(out, job, "synchronization", |k| k == kind::SYNCHRONIZATION)?;
        list(out, job, "unified_memory", |k| k == kind::UNIFIED_MEMORY)?;
    }
    Ok(())
}

fn list<W: io::Write>(out: &mut Emit<W>, job: &Job<'_>, key: &str, want: fn(u8) -> bool) -> Done {
    out.key(key)?;
    out.open_array()?;
    job.trace.records.walk(want, |record| -> Done {
        match record {
            Record::Kernel(record, told) => kernel(out, job, record, told.as_ref())?,
            Record::Copy(record, told) => copy(out, job, record, told.as_ref())?,
            Record::Api(record, words) if is_hip(record.header.kind) => {
                hip(out, job, record, words)?
            }
            Record::Api(record, _) if is_cuda_call(record.header.kind) => cuda::call(out, record)?,
            Record::Api(record, _) => hsa(out, record)?,
            Record::MemorySet(record) => cuda::set(out, job, record)?,
            Record::Synchronization(record) => cuda::wait(out, job, record)?,
            Record::UnifiedMemory(record) => cuda::unified(out, job, record)?,
            Record::Marker(record, _) => memory::marker(out, record)?,
            Record::Allocation(record) => memory::allocation(out, job, record)?,
            Record::Scratch(record) => memory::scratch(out, job, record)?,
            _ => {}
        }
        Ok(())
    })?;
    out.close_array()?;
    Ok(())
}

/// `internal` and `external`: what device work has. The external id belongs to tools that push one.
fn correlation<W: io::Write>(
    out: &mut Emit<W>,
    internal: u64,
    ancestor: Option<u64>,
) -> io::Result<()> {
    out.key("correlation_id")?;
    out.open_object()?;
    out.number("internal", internal)?;
    out.number("external", 0)?;
    if let Some(ancestor) = ancestor {
        out.number("ancestor", ancestor)?;
    }
    out.close_object()
}

fn times<W: io::Write>(out: &mut Emit<W>, start: u64, end: u64) -> io::Result<()> {
    out.number("start_timestamp", start)?;
    out.number("end_timestamp", end)
}

fn kernel<W: io::Write>(
    out: &mut Emit<W>,
    job: &Job<'_>,
    record: &Kernel,
    told: Option<&CudaLaunch>,
) -> io::Result<()> {
    out.open_object()?;
    out.number("size", size::KERNEL_DISPATCH)?;
    out.number("kind", number_in_files(record.header.kind))?;
    out.number("operation", record.header.operation)?;
    out.number("thread_id", record.tid)?;
    correlation(out, record.correlation, None)?;
    times(out, record.start, record.end)?;
    out.key("dispatch_info")?;
    out.open_object()?;
    out.number("size", size::DISPATCH_INFO)?;
    out.handle("agent_id", job.handle(record.node))?;
    out.handle("queue_id", u64::from(record.queue_id))?;
    out.number("kernel_id", record.kernel_id)?;
    out.number("dispatch_id", record.dispatch_id)?;
    out.number("private_segment_size", record.private_segment)?;
    out.number("group_segment_size", record.group_segment)?;
    out.extents("workgroup_size", record.workgroup)?;
    out.extents("grid_size", record.grid)?;
    out.close_object()?;
    out.handle("stream_id", job.index.stream(record.stream))?;
    if let Some(told) = told {
        cuda::launch(out, record, told)?;
    }
    out.close_object()
}

fn copy<W: io::Write>(
    out: &mut Emit<W>,
    job: &Job<'_>,
    record: &Copy,
    told: Option<&CudaTransfer>,
) -> io::Result<()> {
    out.open_object()?;
    out.number("size", size::MEMORY_COPY)?;
    out.number("kind", number_in_files(record.header.kind))?;
    out.number("operation", copy_direction(record, told))?;
    out.number("thread_id", record.tid)?;
    correlation(out, record.correlation, None)?;
    times(out, record.start, record.end)?;
    out.handle("dst_agent_id", job.handle(record.dst_node))?;
    out.handle("src_agent_id", job.handle(record.src_node))?;
    out.number("bytes", record.bytes)?;
    out.handle("stream_id", job.index.stream(record.stream))?;
    if let Some(told) = told {
        cuda::transfer(out, record, told)?;
    }
    out.close_object()
}

/// What HIP and HSA calls have in common.
fn call<W: io::Write>(out: &mut Emit<W>, record: &Api, size: u64) -> io::Result<()> {
    out.number("size", size)?;
    out.number("kind", number_in_files(record.header.kind))?;
    out.number("operation", record.header.operation)?;
    correlation(out, record.correlation, Some(record.ancestor))?;
    times(out, record.start, record.end)?;
    out.number("thread_id", record.tid)
}

fn hsa<W: io::Write>(out: &mut Emit<W>, record: &Api) -> io::Result<()> {
    out.open_object()?;
    call(out, record, size::HSA_API)?;
    out.close_object()
}

fn hip<W: io::Write>(
    out: &mut Emit<W>,
    job: &Job<'_>,
    record: &Api,
    words: &[u8],
) -> io::Result<()> {
    out.open_object()?;
    call(out, record, size::HIP_API)?;
    out.key("args")?;
    out.open_array()?;
    let parameters = job
        .names
        .parameters(record.header.kind, record.header.operation);
    arguments::each(parameters, words, |parameter, text| -> io::Result<()> {
        out.open_object()?;
        out.text("type", &parameter.type_name)?;
        out.text("name", &parameter.name)?;
        out.text("value", text)?;
        out.close_object()
    })?;
    out.close_array()?;
    out.key("retval")?;
    out.open_object()?;
    out.number("uint64_t_retval", record.retval)?;
    out.close_object()?;
    out.handle("stream_id", job.index.stream(record.stream))?;
    out.close_object()
}
