//! Records that only CUDA processes have, and what CUDA tells about kernels and copies in addition:
//! an object `cuda` at the end of their objects.

use super::emit::Emit;
use super::parts::{correlation, times};
use crate::job::{Job, address};
use midair_record::event::{
    Api, Copy, CudaLaunch, CudaTransfer, Kernel, MemorySet, Synchronization, UnifiedMemory,
};
use midair_trace::api::{Kind, Names, number_in_files};
use midair_trace::cuda::devices::ordinal;
use midair_trace::cuda::{FIRST_KIND, NONE, memories, memory, names_stream, stream_parts};
use std::borrow::Cow;
use std::io;

/// Returns the size of a record. AMD has no structs for these records, so it is the size of our
/// own.
const fn size<T>() -> u64 {
    size_of::<T>() as u64
}

/// Returns AMD's kinds and ours, so that numbers index the list. The entries between AMD's last and
/// our first are empty.
pub(super) fn kinds(names: &Names) -> Vec<Kind> {
    let mut all = names.buffer.clone();
    let empty = Kind {
        name: Cow::Borrowed("NONE"),
        operations: Vec::new(),
    };
    all.resize(FIRST_KIND, empty);
    all.extend(names.cuda.iter().cloned());
    all
}

/// Writes context and stream as CUPTI counts them, or nothing for a record that does not belong to
/// a single stream.
fn stream<W: io::Write>(out: &mut Emit<W>, handle: u64) -> io::Result<()> {
    let (context, stream) = stream_parts(handle);
    out.number("context_id", context)?;
    if stream == NONE {
        return Ok(());
    }
    out.number("stream", stream)
}

/// Writes the device as CUDA counts it.
fn device<W: io::Write>(out: &mut Emit<W>, node: u32) -> io::Result<()> {
    match ordinal(node) {
        Some(ordinal) => out.number("device", ordinal),
        None => Ok(()),
    }
}

fn graph<W: io::Write>(out: &mut Emit<W>, graph: u32, node: u64) -> io::Result<()> {
    out.number("graph_id", graph)?;
    out.number("graph_node_id", node)
}

pub(super) fn launch<W: io::Write>(
    out: &mut Emit<W>,
    kernel: &Kernel,
    extra: &CudaLaunch,
) -> io::Result<()> {
    out.key("cuda")?;
    out.open_object()?;
    device(out, kernel.node)?;
    out.number("context_id", extra.context)?;
    out.number("stream", stream_parts(kernel.stream).1)?;
    out.number("registers", extra.registers)?;
    out.number("static_shared_memory", extra.static_shared)?;
    out.number("dynamic_shared_memory", extra.dynamic_shared)?;
    graph(out, extra.graph, extra.graph_node)?;
    out.close_object()
}

pub(super) fn transfer<W: io::Write>(
    out: &mut Emit<W>,
    copy: &Copy,
    extra: &CudaTransfer,
) -> io::Result<()> {
    let (from, to) = memories(extra);
    out.key("cuda")?;
    out.open_object()?;
    out.number("copy_kind", extra.copy_kind)?;
    out.text("src_memory", from)?;
    out.text("dst_memory", to)?;
    out.number("context_id", extra.context)?;
    out.number("stream", stream_parts(copy.stream).1)?;
    graph(out, extra.graph, extra.graph_node)?;
    out.close_object()
}

pub(super) fn call<W: io::Write>(out: &mut Emit<W>, record: &Api) -> io::Result<()> {
    out.open_object()?;
    out.number("size", size::<Api>())?;
    out.number("kind", number_in_files(record.header.kind))?;
    out.number("operation", record.header.operation)?;
    correlation(out, record.correlation, Some(record.ancestor));
    times(out, record.start, record.end);
    out.number("thread_id", record.tid)?;
    out.key("retval")?;
    out.open_object()?;
    out.number("uint64_t_retval", record.retval)?;
    out.close_object()?;
    out.close_object()
}

pub(super) fn set<W: io::Write>(
    out: &mut Emit<W>,
    job: &Job<'_>,
    record: &MemorySet,
) -> io::Result<()> {
    out.open_object()?;
    out.number("size", size::<MemorySet>())?;
    out.number("kind", number_in_files(record.header.kind))?;
    out.number("operation", record.header.operation)?;
    out.number("thread_id", record.tid)?;
    correlation(out, record.correlation, None);
    times(out, record.start, record.end);
    out.handle("agent_id", job.handle(record.node))?;
    out.number("bytes", record.bytes)?;
    out.number("value", record.value)?;
    out.handle("stream_id", job.index.stream(record.stream))?;
    out.key("cuda")?;
    out.open_object()?;
    device(out, record.node)?;
    out.text("memory", memory(record.header.operation))?;
    out.number("context_id", record.context)?;
    out.number("stream", stream_parts(record.stream).1)?;
    graph(out, record.graph, record.graph_node)?;
    out.close_object()?;
    out.close_object()
}

pub(super) fn wait<W: io::Write>(
    out: &mut Emit<W>,
    job: &Job<'_>,
    record: &Synchronization,
) -> io::Result<()> {
    out.open_object()?;
    out.number("size", size::<Synchronization>())?;
    out.number("kind", number_in_files(record.header.kind))?;
    out.number("operation", record.header.operation)?;
    out.number("thread_id", record.tid)?;
    correlation(out, record.correlation, None);
    times(out, record.start, record.end);
    if names_stream(record.stream) {
        out.handle("stream_id", job.index.stream(record.stream))?;
    }
    if record.event != NONE {
        out.number("event_id", record.event)?;
    }
    out.key("cuda")?;
    out.open_object()?;
    stream(out, record.stream)?;
    out.close_object()?;
    out.close_object()
}

pub(super) fn unified<W: io::Write>(
    out: &mut Emit<W>,
    job: &Job<'_>,
    record: &UnifiedMemory,
) -> io::Result<()> {
    out.open_object()?;
    out.number("size", size::<UnifiedMemory>())?;
    out.number("kind", number_in_files(record.header.kind))?;
    out.number("operation", record.header.operation)?;
    times(out, record.start, record.end);
    // Where no device is named, the host is meant.
    out.handle("src_agent_id", job.handle(record.src_node))?;
    out.handle("dst_agent_id", job.handle(record.dst_node))?;
    out.text("address", &address(record.address))?;
    out.number("value", record.value)?;
    out.key("cuda")?;
    out.open_object()?;
    if names_stream(record.stream) {
        out.number("stream", stream_parts(record.stream).1)?;
    }
    out.close_object()?;
    out.close_object()
}
