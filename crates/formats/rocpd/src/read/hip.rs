//! Launches of HIP's graphs, and HIP's events, with the barrier packets that stand for them.

use super::facts::{Place, header};
use midair_record::event::{Barrier, EventCall, GraphCall, encode, graph, kind};
use serde_json::Value;

/// The category of barriers of HIP events.
pub(super) const BARRIERS: &str = "BARRIER";

/// Returns a number of a row's facts.
fn number(facts: &Value, key: &str) -> Option<u64> {
    facts.get(key).and_then(Value::as_u64)
}

/// Returns the times of the call that a row stands for. A file of another tool has none, where the row's
/// own times have to do.
fn times(place: &Place, facts: &Value) -> (u64, u64) {
    let time = |key: &str, otherwise| number(facts, key).unwrap_or(otherwise);
    (time("call_start", place.start), time("call_end", place.end))
}

/// Returns a launch as a record. The number of the graph stands for its handle.
pub(super) fn launch(
    place: &Place,
    facts: &Value,
    (of, kernels): (u64, u32),
    stream: u64,
) -> Vec<u8> {
    let (start, end) = times(place, facts);
    let call = GraphCall {
        header: header(kind::HIP_GRAPH, graph::EXEC_LAUNCH),
        start,
        end,
        correlation: place.correlation,
        ancestor: number(facts, "ancestor").unwrap_or(0),
        stream,
        graph: of,
        result: 0,
        dispatches: kernels,
        tid: place.tid,
        reserved: 0,
    };
    encode(&call, &[])
}

/// The place of a barrier: its queue and agent, and the stream of the call.
pub(super) struct Where {
    pub(super) queue: u32,
    pub(super) node: u32,
    pub(super) stream: u64,
}

/// Returns the call that recorded an event or waits for one, and its barrier, as records.
pub(super) fn event(place: &Place, facts: &Value, operation: u32, at: &Where) -> [Vec<u8>; 2] {
    let (start, end) = times(place, facts);
    let call = EventCall {
        header: header(kind::HIP_EVENT, operation),
        start,
        end,
        correlation: place.correlation,
        ancestor: 0,
        stream: at.stream,
        event: number(facts, "hip_event_handle").unwrap_or(0),
        result: 0,
        tid: place.tid,
    };
    let mut barrier = Barrier {
        header: header(kind::BARRIER, 0),
        correlation: place.correlation,
        queue_id: at.queue,
        node: at.node,
        tid: place.tid,
        ..Barrier::default()
    };
    // A remark says that the times are not the device's.
    if facts.get("remark").is_none() {
        (barrier.start, barrier.end) = (place.start, place.end);
    } else if (place.start, place.end) != (start, end) {
        (barrier.rung, barrier.seen) = (place.start, place.end);
    }
    [encode(&barrier, &[]), encode(&call, &[])]
}
