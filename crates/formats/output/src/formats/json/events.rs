//! Records of HIP's events and waits for them, as AMD's json has them.

use super::emit::Emit;
use super::parts::{correlation, times};
use super::size;
use crate::job::Job;
use midair_record::event::EventCall;
use midair_trace::api::number_in_files;
use std::io;

pub(super) fn event<W: io::Write>(
    out: &mut Emit<W>,
    job: &Job<'_>,
    record: &EventCall,
) -> io::Result<()> {
    let Some(event) = job.events.of(record) else {
        return Ok(());
    };
    out.open_object()?;
    out.number("size", size::HIP_EVENT)?;
    out.number("kind", number_in_files(record.header.kind))?;
    out.number("operation", record.header.operation)?;
    out.number("thread_id", record.tid)?;
    correlation(out, record.correlation, None);
    times(out, event.start, event.end);
    out.handle("agent_id", job.handle(event.node))?;
    out.handle("queue_id", event.queue.into())?;
    out.number("hip_event_handle", record.event)?;
    out.handle("source_queue_id", event.source.map_or(0, u64::from))?;
    out.handle("stream_id", job.index.stream(record.stream))?;
    out.close_object()
}
