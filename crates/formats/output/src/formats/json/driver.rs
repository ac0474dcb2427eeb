//! Events of the kernel driver, as AMD's json has them: each in an object of its own, by its kind.

use super::emit::Emit;
use super::parts::times;
use crate::job::Job;
use midair_domain::kind;
use midair_record::event::KfdEvent;
use midair_trace::api::number_in_files;
use std::io;

pub(super) fn event<W: io::Write>(
    out: &mut Emit<W>,
    job: &Job<'_>,
    record: &KfdEvent,
) -> io::Result<()> {
    let handle = |gpu| job.agent_of_driver(gpu).map_or(0, |agent| agent.handle);
    let event = record.header.kind;
    out.open_object()?;
    out.key("record")?;
    out.open_object()?;
    out.number("size", size(event))?;
    out.number("kind", number_in_files(event))?;
    out.number("operation", record.header.operation)?;
    match event {
        kind::KFD_EVENT_UNMAP_FROM_GPU | kind::KFD_EVENT_DROPPED_EVENTS => {
            out.number("timestamp", record.start)?;
        }
        _ => times(out, record.start, record.end),
    }
    out.number("pid", record.pid)?;
    match event {
        kind::KFD_PAGE_MIGRATE => {
            out.number("start_address", record.address)?;
            out.number("end_address", record.end_address)?;
            out.handle("src_agent", handle(record.from))?;
            out.handle("dst_agent", handle(record.to))?;
            out.handle("prefetch_agent", handle(record.prefetch))?;
            out.handle("preferred_agent", handle(record.preferred))?;
            out.number("error_code", record.error)?;
        }
        kind::KFD_PAGE_FAULT => {
            out.handle("agent_id", handle(record.from))?;
            out.number("address", record.address)?;
        }
        kind::KFD_EVENT_UNMAP_FROM_GPU => {
            out.handle("agent_id", handle(record.from))?;
            out.number("start_address", record.address)?;
            out.number("end_address", record.end_address)?;
        }
        kind::KFD_QUEUE => out.handle("agent_id", handle(record.from))?,
        _ => out.number("count", record.count)?,
    }
    out.close_object()?;
    out.close_object()
}

/// Bytes of AMD's record.
fn size(event: u8) -> u64 {
    match event {
        kind::KFD_PAGE_MIGRATE => 96,
        kind::KFD_PAGE_FAULT | kind::KFD_EVENT_UNMAP_FROM_GPU => 56,
        kind::KFD_QUEUE => 48,
        _ => 32,
    }
}
