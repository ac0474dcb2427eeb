//! rocprofv3's json: a list with one object per process, with all of AMD's keys in AMD's order, and
//! no spaces.
//!
//! The document has one list of records for each kind, behind what describes them. So the records
//! are read once more for each list that has some: a record is a fraction of its text, and reading
//! it again takes less time than keeping the text. What comes of windows and markers is gathered in
//! blocks that wait in one file until the document has come to that list. What we report beyond
//! AMD's keys is in `metadata.midair` and nowhere else, so that readers of AMD's files find what
//! they expect.
//!
//! Decisions: FMT-015, FMT-016 (`docs/deviations/formats.md`).

mod agent_read;
mod agents;
mod calls;
pub(crate) mod counters;
mod cuda;
mod driver;
mod emit;
mod events;
mod graphs;
mod memory;
mod metadata;
mod parts;
pub(crate) mod pieces;
mod samples;
mod size;
mod spill;
mod summary;
mod symbols;

use crate::counters::{Counts, Reading};
use crate::files::{FileSet, OutputFile, WriteError};
use crate::job::Job;
use crate::progress::{self, Walked};
use crate::sink::{Opened, Sink, Writer};
pub use agent_read::agent_of_json;
use calls::Calls;
use emit::{Emit, follows};
use midair_domain::{KindSet, sets};
use midair_record::event::{Copy, CudaLaunch, CudaTransfer, Kernel, Marker, Record, kind};
use midair_trace::api::{Kind, has_message, number_in_files};
use midair_trace::cuda::copy_direction;
use midair_trace::limits;
use midair_trace::record_file::WalkError;
use parts::{correlation, dispatch_correlation, dispatch_info, times};
use spill::{List, Spill};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;

/// The writer.
struct Json {
    out: Emit<OutputFile>,
    spill: Spill,
}

/// Starts the document.
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
        let records = lists(job);
        for _ in records.iter().filter(|of| job.index.has(of.kinds)) {
            progress::expect_walk(job.trace.records.records());
        }
        Ok(Box::new(Session {
            job,
            out: &mut self.out,
            messages: self.spill.list(),
            records,
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
struct Records {
    name: &'static str,
    kinds: KindSet,
}

/// Returns all lists of records in AMD's order. In a CUDA process's session they are followed by
/// those that AMD's json does not have.
fn lists(job: &Job<'_>) -> Vec<Records> {
    let mut all: BTreeMap<u8, Records> = BTreeMap::new();
    for domain in &midair_domain::DOMAINS {
        let Some(json) = domain.files.json else {
            continue;
        };
        // AMD's json has the lists of driver events, graphs and events only since 2026, and none of
        // OpenMP's events.
        let rare = [
            sets::DRIVER,
            sets::TOLD,
            KindSet::of(&[kind::HIP_GRAPH]),
            KindSet::of(&[kind::HIP_EVENT]),
        ];
        let rare = rare.into_iter().find(|kinds| kinds.contains(domain.kind));
        let is_there = rare.is_none_or(|kinds| job.index.has(kinds));
        if is_there && (domain.runtimes.amd || job.index.is_cuda()) {
            let records = all.entry(json.rank).or_insert_with(|| Records {
                name: json.name,
                kinds: KindSet::EMPTY,
            });
            records.kinds = records.kinds.with_if(domain.kind, domain.built);
        }
    }
    all.into_values().collect()
}

/// One session's object. It is written when its records are known, since the lists are in the
/// middle of what describes them.
struct Session<'s> {
    job: &'s Job<'s>,
    out: &'s mut Emit<OutputFile>,
    /// The messages of marks and ranges by correlation id. The marker records refer to them.
    messages: List<'s>,
    records: Vec<Records>,
    /// Dispatches with counters.
    counted: List<'s>,
    /// The readings of whole devices.
    read: List<'s>,
    /// Batches: several dispatches with the counters of all of them together.
    batches: List<'s>,
}

impl Sink for Session<'_> {
    fn wants(&self) -> Option<KindSet> {
        let wanted = sets::MARKERS.with(kind::COUNTER_COLLECTION);
        // Values of a database come with their dispatches.
        Some(match self.job.trace.known.counts.is_empty() {
            true => wanted,
            false => wanted.with(kind::KERNEL_DISPATCH),
        })
    }

    fn record(&mut self, record: &Record<'_>) -> Result<(), WriteError> {
        let Record::Marker(marker, text) = record else {
            return Ok(());
        };
        message(&mut self.messages.0, marker, text).map_err(|error| self.out.writer().failed(error))
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
        let written = session(out, job, messages, &records, (counted, batches, read));
        written.map_err(|error| match error {
            WalkError::Read(source) => WriteError::Records(source),
            WalkError::Visit(source) => out.writer().failed(source),
        })
    }
}

fn session<W: io::Write>(
    out: &mut Emit<W>,
    job: &Job<'_>,
    messages: List<'_>,
    records: &[Records],
    (counted, batches, read): (List<'_>, List<'_>, List<'_>),
) -> Result<(), WalkError<io::Error>> {
    out.open_object()?;
    metadata::write(out, job)?;
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
    let mut calls = Calls::new(job);
    for of in records {
        list(out, job, of, &mut calls)?;
    }
    if job.trace.counters.interval != 0 {
        read.put("device_counter_collection", out)?;
    }
    out.close_object()?;
    Ok(out.close_object()?)
}

/// Writes a list of records.
fn list<W: io::Write>(
    out: &mut Emit<W>,
    job: &Job<'_>,
    of: &Records,
    calls: &mut Calls<'_>,
) -> Result<(), WalkError<io::Error>> {
    out.key(of.name)?;
    out.open_array()?;
    if job.index.has(of.kinds) {
        let walked = RefCell::new(Walked::default());
        job.trace.records.walk(
            // Records of other kinds are passed over without being decoded.
            |kind| {
                walked.borrow_mut().add();
                of.kinds.contains(kind)
            },
            |record| element(out, job, record, calls),
        )?;
    }
    Ok(out.close_array()?)
}

fn empty_arrays<W: io::Write>(out: &mut Emit<W>, keys: &[&'static str]) -> io::Result<()> {
    for key in keys {
        out.key(key)?;
        out.open_array()?;
        out.close_array()?;
    }
    Ok(())
}

fn strings<W: io::Write>(out: &mut Emit<W>, job: &Job<'_>, messages: List<'_>) -> io::Result<()> {
    out.key("strings")?;
    out.open_object()?;
    kinds(out, "callback_records", &job.names.callback)?;
    if job.index.is_cuda() {
        kinds(out, "buffer_records", &cuda::kinds(job.names))?;
    } else if job
        .index
        .has(KindSet::of(&[kind::HIP_GRAPH, kind::HIP_EVENT]))
    {
        let all = [&job.names.buffer[..], &job.names.newer[..]].concat();
        kinds(out, "buffer_records", &all)?;
    } else {
        kinds(out, "buffer_records", &job.names.buffer)?;
    }
    messages.put("marker_api", out)?;
    out.key("correlation_id")?;
    out.open_object()?;
    external(out, job)?;
    out.close_object()?;
    out.key("counters")?;
    out.open_object()?;
    counters::dimensions(out, job)?;
    out.close_object()?;
    let sampled = job.sampled();
    out.texts("pc_sample_instructions", sampled.instructions())?;
    out.texts("pc_sample_comments", sampled.comments())?;
    empty_arrays(out, &["att_filenames"])?;
    // AMD's list starts with an empty name.
    out.texts("code_object_snapshot_filenames", &[""])?;
    out.close_object()
}

/// Writes a message, where markers of this kind have one.
fn message<W: io::Write>(out: &mut Emit<W>, marker: &Marker, text: &[u8]) -> io::Result<()> {
    if !has_message(marker.header.kind, marker.header.operation) {
        return Ok(());
    }
    out.open_object()?;
    out.number("key", marker.correlation)?;
    out.text("value", &limits::text(text))?;
    out.close_object()
}

fn kinds<W: io::Write>(out: &mut Emit<W>, key: &'static str, kinds: &[Kind]) -> io::Result<()> {
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

/// Writes one record into its list.
fn element<W: io::Write>(
    out: &mut Emit<W>,
    job: &Job<'_>,
    record: &Record<'_>,
    calls: &mut Calls<'_>,
) -> io::Result<()> {
    match record {
        Record::Kernel(record, extra) => kernel(out, job, record, extra.as_ref()),
        Record::Copy(record, extra) => copy(out, job, record, extra.as_ref()),
        Record::Api(record, _) if sets::CUDA_CALLS.contains(record.header.kind) => {
            cuda::call(out, record)
        }
        Record::Api(record, words) => calls.put(out, record, words),
        Record::MemorySet(record) => cuda::set(out, job, record),
        Record::Synchronization(record) => cuda::wait(out, job, record),
        Record::UnifiedMemory(record) => cuda::unified(out, job, record),
        Record::Marker(record, _) => memory::marker(out, record),
        Record::Allocation(record) => memory::allocation(out, job, record),
        Record::Scratch(record) => memory::scratch(out, job, record),
        Record::Graph(record) => graphs::launch(out, job, record),
        Record::Event(record) => events::event(out, job, record),
        Record::Kfd(record) if record.is_in_files() => driver::event(out, job, record),
        Record::PcSample(record) if record.is_in_files() => samples::sample(out, job, record),
        _ => Ok(()),
    }
}

/// Writes the messages to which external ids refer: the ranges after which kernels are named.
fn external<W: io::Write>(out: &mut Emit<W>, job: &Job<'_>) -> io::Result<()> {
    out.key("external")?;
    out.open_array()?;
    for (key, message) in job.renamed.iter().flat_map(|renamed| renamed.messages()) {
        out.open_object()?;
        out.number("key", key)?;
        out.text("value", message)?;
        out.close_object()?;
    }
    out.close_array()
}

fn kernel<W: io::Write>(
    out: &mut Emit<W>,
    job: &Job<'_>,
    record: &Kernel,
    extra: Option<&CudaLaunch>,
) -> io::Result<()> {
    out.open_object()?;
    out.next(follows!("size"), size::KERNEL_DISPATCH);
    out.next(follows!("kind"), number_in_files(record.header.kind).into());
    out.next(follows!("operation"), record.header.operation.into());
    out.next(follows!("thread_id"), record.tid.into());
    dispatch_correlation(out, job, record);
    times(out, record.start, record.end);
    dispatch_info(out, job, record);
    out.next_handle(
        follows!("stream_id", "{\"handle\":"),
        job.index.stream(record.stream),
    );
    if let Some(extra) = extra {
        cuda::launch(out, record, extra)?;
    } else if job.index.count_of(kind::HIP_GRAPH) > 0 {
        out.next(follows!("graph_exec_id"), job.graphs.of_kernel(record));
        // Which node it was is not known.
        out.next(follows!("graph_node_id"), 0);
    }
    out.close_object()
}

fn copy<W: io::Write>(
    out: &mut Emit<W>,
    job: &Job<'_>,
    record: &Copy,
    extra: Option<&CudaTransfer>,
) -> io::Result<()> {
    out.open_object()?;
    out.next(follows!("size"), size::MEMORY_COPY);
    out.next(follows!("kind"), number_in_files(record.header.kind).into());
    out.next(follows!("operation"), copy_direction(record, extra).into());
    out.next(follows!("thread_id"), record.tid.into());
    correlation(out, record.correlation, None);
    times(out, record.start, record.end);
    let (to, from) = (job.handle(record.dst_node), job.handle(record.src_node));
    out.next_handle(follows!("dst_agent_id", "{\"handle\":"), to);
    out.next_handle(follows!("src_agent_id", "{\"handle\":"), from);
    out.next(follows!("bytes"), record.bytes);
    out.next_handle(
        follows!("stream_id", "{\"handle\":"),
        job.index.stream(record.stream),
    );
    if let Some(extra) = extra {
        cuda::transfer(out, record, extra)?;
    }
    out.close_object()
}
