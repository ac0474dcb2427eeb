//! rocprofv3's json: one object per process in a list, all keys of AMD's in AMD's order, no spaces.
//!
//! The lists of records are streamed, each in blocks that wait in one file until the document has
//! come to them. What we have to say beyond AMD's keys is in `metadata.midair` and nowhere else, so
//! that a reader of AMD's files finds what it expects.
//!
//! Decisions: FMT-015, FMT-016 (`docs/deviations/formats.md`).

mod agents;
pub(crate) mod counters;
mod cuda;
mod driver;
mod emit;
mod memory;
pub(crate) mod pieces;
mod spill;
mod summary;
mod symbols;

use crate::api::Kind;
use crate::api::{has_message, number_in_files};
use crate::arguments;
use crate::counters::{Counts, Reading};
use crate::cuda::copy_direction;
use crate::files::{FileSet, OutputFile, WriteError};
use crate::job::Job;
use crate::limits;
use crate::model::{Console, Format, SummaryTo};
use crate::sink::{Opened, Sink, Writer};
use emit::Emit;
use midair_domain::{KindSet, sets};
use midair_record::event::{Api, Copy, CudaLaunch, CudaTransfer, Kernel, Marker, Record, kind};
use spill::{List, Spill};
use std::collections::BTreeMap;
use std::io;

/// Sizes of AMD's structs, which each record names (source: api/rocprofiler_sdk.json; the golden
/// json for those of the tool).
mod size {
    pub(super) const HIP_API: u64 = 176;
    pub(super) const HSA_API: u64 = 64;
    pub(super) const ROCDECODE_API: u64 = 112;
    pub(super) const MEMORY_COPY: u64 = 96;
    pub(super) const KERNEL_DISPATCH: u64 = 184;
    pub(super) const DISPATCH_INFO: u64 = 72;
    pub(super) const DISPATCH_COUNTING: u64 = 168;
    pub(super) const MARKER_API: u64 = 64;
    pub(super) const MEMORY_ALLOCATION: u64 = 88;
    pub(super) const SCRATCH_MEMORY: u64 = 96;
}

/// The writer.
struct Json {
    out: Emit<OutputFile>,
    spill: Spill,
}

/// Begins the document.
pub(crate) fn open<'a>(_: &'a [Job<'a>], files: &FileSet) -> Opened<'a> {
    let mut out = Emit::new(files.create("results.json")?);
    match begin(&mut out) {
        Ok(()) => Ok(Box::new(Json {
            out,
            spill: Spill::new(files.directory()),
        })),
        Err(error) => Err(out.writer().failed(error)),
    }
}

fn begin<W: io::Write>(out: &mut Emit<W>) -> io::Result<()> {
    out.open_object()?;
    out.key("rocprofiler-sdk-tool")?;
    out.open_array()
}

fn end<W: io::Write>(out: &mut Emit<W>) -> io::Result<()> {
    out.close_array()?;
    out.close_object()?;
    out.flush()
}

impl Writer for Json {
    fn begin<'s>(&'s mut self, job: &'s Job<'s>) -> Result<Box<dyn Sink + 's>, WriteError> {
        self.spill.clear();
        Ok(Box::new(Session {
            job,
            out: &mut self.out,
            messages: self.spill.list(),
            records: lists(job, &self.spill),
            counted: self.spill.list(),
            read: self.spill.list(),
            batches: self.spill.list(),
        }))
    }

    fn finish(mut self: Box<Self>, files: &mut FileSet) -> Result<(), WriteError> {
        end(&mut self.out).map_err(|error| self.out.writer().failed(error))?;
        files.add(self.out.into_parts().0)
    }
}

/// A list of `buffer_records`.
struct Records<'s> {
    name: &'static str,
    kinds: KindSet,
    list: List<'s>,
}

/// All lists of records in AMD's order, and behind them those that AMD's json does not have, where
/// the session is a CUDA process's.
fn lists<'s>(job: &Job<'_>, spill: &'s Spill) -> Vec<Records<'s>> {
    let mut all: BTreeMap<u8, Records<'s>> = BTreeMap::new();
    for domain in &midair_domain::DOMAINS {
        let Some(json) = domain.files.json else {
            continue;
        };
        // AMD's json has the list of driver events since 2026 only.
        let is_there = !sets::DRIVER.contains(domain.kind) || job.index.has(sets::DRIVER);
        if is_there && (domain.runtimes.amd || job.index.is_cuda()) {
            let records = all.entry(json.rank).or_insert_with(|| Records {
                name: json.name,
                kinds: KindSet::EMPTY,
                list: spill.list(),
            });
            records.kinds = records.kinds.with_if(domain.kind, domain.built);
        }
    }
    all.into_values().collect()
}

/// One session's object. It is written when its records are known: the lists stand between what describes them.
struct Session<'s> {
    job: &'s Job<'s>,
    out: &'s mut Emit<OutputFile>,
    /// Messages of marks and ranges by correlation id, which their records refer to.
    messages: List<'s>,
    records: Vec<Records<'s>>,
    /// Dispatches with counters.
    counted: List<'s>,
    /// What whole devices counted.
    read: List<'s>,
    /// Several dispatches with the counters of all of them together.
    batches: List<'s>,
}

impl Session<'_> {
    fn put(&mut self, record: &Record<'_>) -> io::Result<()> {
        let Some(header) = record.header() else {
            return Ok(());
        };
        if let Record::Marker(marker, text) = record {
            message(&mut self.messages.0, marker, text)?;
        }
        let mut lists = self.records.iter_mut();
        match lists.find(|records| records.kinds.contains(header.kind)) {
            Some(records) => element(&mut records.list.0, self.job, record),
            None => Ok(()),
        }
    }
}

impl Sink for Session<'_> {
    fn record(&mut self, record: &Record<'_>) -> Result<(), WriteError> {
        self.put(record)
            .map_err(|error| self.out.writer().failed(error))
    }

    fn counted(&mut self, counts: &Counts<'_>) -> Result<(), WriteError> {
        let written = match counts.batch {
            None => counters::element(&mut self.counted.0, self.job, counts),
            Some(batch) => counters::batch(&mut self.batches.0, self.job, counts, batch),
        };
        written.map_err(|error| self.out.writer().failed(error))
    }

    fn read(&mut self, reading: &Reading) -> Result<(), WriteError> {
        counters::reading(&mut self.read.0, self.job, reading)
            .map_err(|error| self.out.writer().failed(error))
    }

    fn finish(self: Box<Self>) -> Result<(), WriteError> {
        let Session {
            job,
            out,
            messages,
            records,
            counted,
            read,
            batches,
        } = *self;
        session(out, job, messages, records, (counted, batches, read))
            .map_err(|error| out.writer().failed(error))
    }
}

fn session<W: io::Write>(
    out: &mut Emit<W>,
    job: &Job<'_>,
    messages: List<'_>,
    records: Vec<Records<'_>>,
    (counted, batches, read): (List<'_>, List<'_>, List<'_>),
) -> io::Result<()> {
    out.open_object()?;
    metadata(out, job)?;
    agents::write(out, job.agents())?;
    counters::list(out, job)?;
    strings(out, job, messages)?;
    symbols::code_objects(out, job)?;
    symbols::kernel_symbols(out, job)?;
    symbols::host_functions(out)?;
    summary::write(out, job)?;
    out.key("callback_records")?;
    out.open_object()?;
    counted.put("counter_collection", out)?;
    if job.counting.windows.has_batches() {
        batches.put("counter_batches", out)?;
    }
    out.close_object()?;
    out.key("buffer_records")?;
    out.open_object()?;
    for records in records {
        records.list.put(records.name, out)?;
    }
    if job.trace.counters.interval != 0 {
        read.put("device_counter_collection", out)?;
    }
    out.close_object()?;
    out.close_object()
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
    counters::windows(out, job)?;
    memory::runtimes(out, job)?;
    out.close_object()
}

fn strings<W: io::Write>(out: &mut Emit<W>, job: &Job<'_>, messages: List<'_>) -> io::Result<()> {
    out.key("strings")?;
    out.open_object()?;
    kinds(out, "callback_records", &job.names.callback)?;
    if job.index.is_cuda() {
        kinds(out, "buffer_records", &cuda::kinds(job.names))?;
    } else {
        kinds(out, "buffer_records", &job.names.buffer)?;
    }
    messages.put("marker_api", out)?;
    out.key("correlation_id")?;
    out.open_object()?;
    empty_arrays(out, &["external"])?;
    out.close_object()?;
    out.key("counters")?;
    out.open_object()?;
    counters::dimensions(out, job)?;
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
    out.close_object()
}

/// A message, where the marker has one by its nature.
fn message<W: io::Write>(out: &mut Emit<W>, marker: &Marker, text: &[u8]) -> io::Result<()> {
    if !has_message(marker.header.kind, marker.header.operation) {
        return Ok(());
    }
    out.open_object()?;
    out.number("key", marker.correlation)?;
    out.text("value", &limits::text(text))?;
    out.close_object()
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

/// One record, in its list.
fn element<W: io::Write>(out: &mut Emit<W>, job: &Job<'_>, record: &Record<'_>) -> io::Result<()> {
    match record {
        Record::Kernel(record, extra) => kernel(out, job, record, extra.as_ref()),
        Record::Copy(record, extra) => copy(out, job, record, extra.as_ref()),
        Record::Api(record, words) if sets::HIP_CALLS.contains(record.header.kind) => {
            hip(out, job, record, words)
        }
        Record::Api(record, words) if record.header.kind == kind::ROCDECODE_API_EXT => {
            rocdecode(out, job, record, words)
        }
        Record::Api(record, _) if sets::CUDA_CALLS.contains(record.header.kind) => {
            cuda::call(out, record)
        }
        Record::Api(record, _) => hsa(out, record),
        Record::MemorySet(record) => cuda::set(out, job, record),
        Record::Synchronization(record) => cuda::wait(out, job, record),
        Record::UnifiedMemory(record) => cuda::unified(out, job, record),
        Record::Marker(record, _) => memory::marker(out, record),
        Record::Allocation(record) => memory::allocation(out, job, record),
        Record::Scratch(record) => memory::scratch(out, job, record),
        Record::Kfd(record) if record.is_in_files() => driver::event(out, job, record),
        _ => Ok(()),
    }
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
    extra: Option<&CudaLaunch>,
) -> io::Result<()> {
    out.open_object()?;
    out.number("size", size::KERNEL_DISPATCH)?;
    out.number("kind", number_in_files(record.header.kind))?;
    out.number("operation", record.header.operation)?;
    out.number("thread_id", record.tid)?;
    correlation(out, record.correlation, None)?;
    times(out, record.start, record.end)?;
    dispatch_info(out, job, record)?;
    out.handle("stream_id", job.index.stream(record.stream))?;
    if let Some(extra) = extra {
        cuda::launch(out, record, extra)?;
    }
    out.close_object()
}

fn dispatch_info<W: io::Write>(
    out: &mut Emit<W>,
    job: &Job<'_>,
    record: &Kernel,
) -> io::Result<()> {
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
    out.close_object()
}

fn copy<W: io::Write>(
    out: &mut Emit<W>,
    job: &Job<'_>,
    record: &Copy,
    extra: Option<&CudaTransfer>,
) -> io::Result<()> {
    out.open_object()?;
    out.number("size", size::MEMORY_COPY)?;
    out.number("kind", number_in_files(record.header.kind))?;
    out.number("operation", copy_direction(record, extra))?;
    out.number("thread_id", record.tid)?;
    correlation(out, record.correlation, None)?;
    times(out, record.start, record.end)?;
    out.handle("dst_agent_id", job.handle(record.dst_node))?;
    out.handle("src_agent_id", job.handle(record.src_node))?;
    out.number("bytes", record.bytes)?;
    out.handle("stream_id", job.index.stream(record.stream))?;
    if let Some(extra) = extra {
        cuda::transfer(out, record, extra)?;
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
    call_arguments(out, job, record, words)?;
    out.handle("stream_id", job.index.stream(record.stream))?;
    out.close_object()
}

fn rocdecode<W: io::Write>(
    out: &mut Emit<W>,
    job: &Job<'_>,
    record: &Api,
    words: &[u8],
) -> io::Result<()> {
    out.open_object()?;
    call(out, record, size::ROCDECODE_API)?;
    call_arguments(out, job, record, words)?;
    out.close_object()
}

/// `args` and `retval` of a call.
fn call_arguments<W: io::Write>(
    out: &mut Emit<W>,
    job: &Job<'_>,
    record: &Api,
    words: &[u8],
) -> io::Result<()> {
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
    out.close_object()
}
