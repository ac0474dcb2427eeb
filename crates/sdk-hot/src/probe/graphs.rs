//! Calls that launch or destroy HIP's executable graphs. They become records of their own, beside
//! those of calls.

use crate::threads::OpenCall;
use crate::wrappers::hip_runtime::{GRAPH_EXEC_DESTROY, GRAPH_LAUNCH, GRAPH_LAUNCH_SPT};
use midair_domain::KindSet;
use midair_record::event::{GraphCall, Header, flag, graph, kind};

/// Returns which operation on a graph a call is; `None` where it is none, or none are recorded.
#[inline]
pub(super) fn operation(recorded: KindSet, of: u8, operation: u32) -> Option<u32> {
    if !recorded.contains(kind::HIP_GRAPH) || of != kind::HIP_RUNTIME_API_EXT {
        return None;
    }
    match operation {
        GRAPH_LAUNCH | GRAPH_LAUNCH_SPT => Some(graph::EXEC_LAUNCH),
        GRAPH_EXEC_DESTROY => Some(graph::EXEC_DESTROY),
        _ => None,
    }
}

/// Returns the flags for the record of a call that returns when those of what begins are `now`: it is
/// cut where recording has ended, or was paused or resumed, since it began.
pub(super) fn flags(open: &OpenCall, is_recording: bool, now: u8) -> u8 {
    if is_recording && now == open.flags & !flag::CUT {
        open.flags
    } else {
        open.flags | flag::CUT
    }
}

pub(super) fn record(
    open: &OpenCall,
    operation: u32,
    ancestor: u64,
    [start, end]: [u64; 2],
    (graph, result): (u64, u64),
    tid: u32,
    flags: u8,
) -> GraphCall {
    GraphCall {
        header: Header {
            size: size_of::<GraphCall>() as u16,
            kind: kind::HIP_GRAPH,
            flags,
            operation,
        },
        start,
        end,
        correlation: open.correlation,
        ancestor,
        stream: open.stream,
        graph,
        result: result as u32,
        dispatches: open.dispatches,
        tid,
        reserved: 0,
    }
}
