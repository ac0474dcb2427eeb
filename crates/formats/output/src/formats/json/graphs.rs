//! Launches of HIP's graphs, as AMD's json has them.

use super::emit::Emit;
use super::parts::{correlation, times};
use super::size;
use crate::job::Job;
use midair_record::event::GraphCall;
use midair_trace::api::number_in_files;
use std::io;

pub(super) fn launch<W: io::Write>(
    out: &mut Emit<W>,
    job: &Job<'_>,
    record: &GraphCall,
) -> io::Result<()> {
    let Some(launch) = job.graphs.of(record) else {
        return Ok(());
    };
    out.open_object()?;
    out.number("size", size::HIP_GRAPH)?;
    out.number("kind", number_in_files(record.header.kind))?;
    out.number("operation", record.header.operation)?;
    out.number("thread_id", record.tid)?;
    correlation(out, record.correlation, Some(record.ancestor));
    times(out, launch.start, launch.end);
    out.handle("agent_id", launch.node.map_or(0, |node| job.handle(node)))?;
    out.handle("queue_id", launch.queue.map_or(0, u64::from))?;
    out.handle("graph_exec_id", launch.graph)?;
    out.number("kernel_dispatch_count", launch.kernels)?;
    out.close_object()
}
