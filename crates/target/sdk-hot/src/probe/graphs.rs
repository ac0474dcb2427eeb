//! Calls that launch or destroy HIP's executable graphs. They become records of their own, in addition to
//! the records of calls.

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

/// Returns the flags for the record of a call that returns while records that start get the flags
/// `now`: it is cut where recording has ended, or was paused or resumed, since it started.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_cut_where_recording_is_not_the_same_at_its_end() {
        let of = |flags| OpenCall {
            start: 1,
            correlation: 2,
            stream: 0,
            frame: 0,
            operation: GRAPH_LAUNCH,
            kind: kind::HIP_RUNTIME_API_EXT,
            flags,
            has_stack: false,
            dispatches: 3,
        };
        assert_eq!(flags(&of(0), true, 0), 0);
        assert_eq!(flags(&of(flag::PAUSED), true, flag::PAUSED), flag::PAUSED);
        for (open, is_recording, now) in [
            (flag::CUT, true, 0),
            (0, false, 0),
            (0, true, flag::PAUSED),
            (flag::PAUSED, true, 0),
        ] {
            let cut = flags(&of(open), is_recording, now);
            assert_eq!(cut, open | flag::CUT, "{open} {is_recording} {now}");
        }
    }

    #[test]
    fn only_calls_of_graphs_are_and_only_where_they_are_recorded() {
        let graphs = KindSet::of(&[kind::HIP_GRAPH]);
        let of = |recorded, kind, number| operation(recorded, kind, number);
        let hip = kind::HIP_RUNTIME_API_EXT;
        assert_eq!(of(graphs, hip, GRAPH_LAUNCH), Some(graph::EXEC_LAUNCH));
        assert_eq!(of(graphs, hip, GRAPH_LAUNCH_SPT), Some(graph::EXEC_LAUNCH));
        assert_eq!(
            of(graphs, hip, GRAPH_EXEC_DESTROY),
            Some(graph::EXEC_DESTROY)
        );
        assert_eq!(of(graphs, hip, GRAPH_LAUNCH + 1), None);
        assert_eq!(of(graphs, kind::HSA_CORE_API, GRAPH_LAUNCH), None);
        assert_eq!(of(KindSet::of(&[hip]), hip, GRAPH_LAUNCH), None);
    }
}
