//! Parts that records of several kinds have: ids, times, and what was dispatched.

use super::emit::{Emit, follows};
use super::size;
use crate::job::Job;
use midair_record::event::Kernel;
use std::io;

/// Writes the ids of a dispatch. The external one is the id of the range after which it is named.
pub(super) fn dispatch_correlation<W: io::Write>(
    out: &mut Emit<W>,
    job: &Job<'_>,
    kernel: &Kernel,
) {
    let range = job.renamed.as_ref().and_then(|all| all.of(kernel));
    ids(
        out,
        kernel.correlation,
        range.map_or(0, |(number, _)| number),
        None,
    );
}

/// Writes `internal` and `external`, which work on a device has. The external id belongs to tools
/// that push one.
pub(super) fn correlation<W: io::Write>(out: &mut Emit<W>, internal: u64, ancestor: Option<u64>) {
    ids(out, internal, 0, ancestor);
}

fn ids<W: io::Write>(out: &mut Emit<W>, internal: u64, external: u64, ancestor: Option<u64>) {
    out.next_open(follows!("correlation_id", "{"));
    out.next(follows!("internal"), internal);
    out.next(follows!("external"), external);
    if let Some(ancestor) = ancestor {
        out.next(follows!("ancestor"), ancestor);
    }
    out.next_close(b'}');
}

pub(super) fn times<W: io::Write>(out: &mut Emit<W>, start: u64, end: u64) {
    out.next(follows!("start_timestamp"), start);
    out.next(follows!("end_timestamp"), end);
}

pub(super) fn dispatch_info<W: io::Write>(out: &mut Emit<W>, job: &Job<'_>, record: &Kernel) {
    let extents = |out: &mut Emit<W>, [x, y, z]: [u32; 3]| {
        out.next(follows!("x"), x.into());
        out.next(follows!("y"), y.into());
        out.next(follows!("z"), z.into());
        out.next_close(b'}');
    };
    out.next_open(follows!("dispatch_info", "{"));
    out.next(follows!("size"), size::DISPATCH_INFO);
    let agent = job.handle(record.node);
    out.next_handle(follows!("agent_id", "{\"handle\":"), agent);
    let queue = u64::from(record.queue_id);
    out.next_handle(follows!("queue_id", "{\"handle\":"), queue);
    out.next(follows!("kernel_id"), record.kernel_id);
    out.next(follows!("dispatch_id"), record.dispatch_id);
    out.next(
        follows!("private_segment_size"),
        record.private_segment.into(),
    );
    out.next(follows!("group_segment_size"), record.group_segment.into());
    out.next_open(follows!("workgroup_size", "{"));
    extents(out, record.workgroup);
    out.next_open(follows!("grid_size", "{"));
    extents(out, record.grid);
    out.next_close(b'}');
}
