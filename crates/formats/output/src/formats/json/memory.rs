//! Records of memory, markers and runtimes.

use super::emit::Emit;
use super::parts::{correlation, times};
use super::size;
use crate::job::{Job, address};
use midair_record::event::{Allocation, Marker, NO_NODE, Scratch};
use midair_trace::api::number_in_files;
use midair_trace::cuda::runtime_name;
use std::io;

/// The handle that means no agent in AMD's records of releases (source: the SDK's records; its
/// tools compare some other records with the highest number).
const NO_AGENT: u64 = 0;

pub(super) fn marker<W: io::Write>(out: &mut Emit<W>, record: &Marker) -> io::Result<()> {
    out.open_object()?;
    out.number("size", size::MARKER_API)?;
    out.number("kind", number_in_files(record.header.kind))?;
    out.number("operation", record.header.operation)?;
    correlation(out, record.correlation, Some(record.ancestor));
    times(out, record.start, record.end);
    out.number("thread_id", record.tid)?;
    out.close_object()
}

pub(super) fn allocation<W: io::Write>(
    out: &mut Emit<W>,
    job: &Job<'_>,
    record: &Allocation,
) -> io::Result<()> {
    out.open_object()?;
    out.number("size", size::MEMORY_ALLOCATION)?;
    out.number("kind", number_in_files(record.header.kind))?;
    out.number("operation", record.header.operation)?;
    out.number("thread_id", record.tid)?;
    correlation(out, record.correlation, Some(record.ancestor));
    times(out, record.start, record.end);
    let agent = match record.node {
        NO_NODE => NO_AGENT,
        node => job.handle(node),
    };
    out.handle("agent_id", agent)?;
    out.text("address", &address(record.address))?;
    out.number("allocation_size", record.bytes)?;
    out.handle("stream_id", job.index.stream(record.stream))?;
    out.close_object()
}

pub(super) fn scratch<W: io::Write>(
    out: &mut Emit<W>,
    job: &Job<'_>,
    record: &Scratch,
) -> io::Result<()> {
    out.open_object()?;
    out.number("size", size::SCRATCH_MEMORY)?;
    out.number("kind", number_in_files(record.header.kind))?;
    out.number("operation", record.header.operation)?;
    out.handle("agent_id", job.handle(record.node))?;
    out.handle("queue_id", u64::from(record.queue_id))?;
    out.number("thread_id", record.tid)?;
    times(out, record.start, record.end);
    correlation(out, record.correlation, Some(record.ancestor));
    out.number("flags", record.flags)?;
    out.number("allocation_size", record.bytes)?;
    out.close_object()
}

/// Writes the runtimes of the process. AMD's json has no key for them, so they are under ours.
pub(super) fn runtimes<W: io::Write>(out: &mut Emit<W>, job: &Job<'_>) -> io::Result<()> {
    out.key("runtimes")?;
    out.open_array()?;
    for runtime in &job.index.runtimes {
        out.open_object()?;
        let name = job
            .names
            .operation(runtime.header.kind, runtime.header.operation);
        let name = match runtime_name(runtime.header.operation) {
            Some(name) => name,
            None => name.trim_start_matches("RUNTIME_INITIALIZATION_"),
        };
        out.text("name", name)?;
        out.number("version", runtime.version)?;
        out.number("instance", runtime.instance)?;
        out.number("timestamp", runtime.time)?;
        out.number("correlation_id", runtime.correlation)?;
        out.number("thread_id", runtime.tid)?;
        out.close_object()?;
    }
    out.close_array()
}
