//! Rows that only the database of a CUDA process has, and what CUDA says about launches and copies.

use super::facts::{Place, graph, with_flags};
use midair_record::event::{
    Copy, CudaLaunch, CudaTransfer, Header, Kernel, MemorySet, Synchronization, UnifiedMemory,
    cuda_stream, encode, kind,
};
use midair_trace::cuda::{FURTHER_COPIES, NONE, memory_of};
use serde_json::Value;

/// Returns the handle of a stream from its name.
pub(super) fn stream_of(name: &str) -> Option<u64> {
    let (context, stream) = name.strip_prefix("Context ")?.split_once(" Stream ")?;
    Some(cuda_stream(context.parse().ok()?, stream.parse().ok()?))
}

/// Returns a number of a row's facts; 0 where it is missing.
fn number(facts: &Value, key: &str) -> u32 {
    facts.get(key).and_then(Value::as_u64).unwrap_or(0) as u32
}

/// Returns the stream that a row's facts name.
fn stream(facts: &Value) -> u64 {
    let named = facts.get("stream").and_then(Value::as_u64);
    let named = named.map_or(NONE, |named| named as u32);
    cuda_stream(number(facts, "context"), named)
}

/// Returns a launch as a record.
pub(super) fn launch(kernel: &Kernel, facts: &Value, of: (i64, i64)) -> Vec<u8> {
    let (graph, graph_node) = graph(of);
    let told = CudaLaunch {
        graph_node,
        graph,
        context: number(facts, "context"),
        registers: number(facts, "registers"),
        static_shared: number(facts, "static_shared_memory"),
        dynamic_shared: number(facts, "dynamic_shared_memory"),
        reserved: 0,
    };
    encode(kernel, told.bytes())
}

/// Returns a copy as a record.
pub(super) fn transfer(copy: &Copy, facts: &Value, of: (i64, i64)) -> Vec<u8> {
    let memory = |key: &str| memory_of(facts.get(key).and_then(Value::as_str).unwrap_or_default());
    let (graph, graph_node) = graph(of);
    let told = CudaTransfer {
        graph_node,
        graph,
        context: number(facts, "context"),
        copy_kind: number(facts, "copy_kind"),
        memory_kinds: memory("dst_memory") << 16 | memory("src_memory"),
    };
    encode(copy, told.bytes())
}

/// Whether a copy is of a kind that has a name of its own.
pub(super) fn is_further_copy(facts: &Value) -> bool {
    midair_trace::cuda::is_further_copy(number(facts, "copy_kind").saturating_add(FURTHER_COPIES))
}

/// Returns a fill as a record.
pub(super) fn set(copy: &Copy, operation: u32, facts: &Value, of: (i64, i64)) -> Vec<u8> {
    let (graph, graph_node) = graph(of);
    let set = MemorySet {
        header: Header {
            kind: kind::MEMORY_SET,
            operation,
            ..copy.header
        },
        start: copy.start,
        end: copy.end,
        correlation: copy.correlation,
        bytes: copy.bytes,
        stream: copy.stream,
        graph_node,
        graph,
        context: number(facts, "context"),
        value: number(facts, "value"),
        node: copy.dst_node,
        tid: copy.tid,
        reserved: 0,
    };
    encode(&set, &[])
}

/// Returns a wait as a record.
pub(super) fn wait(header: Header, place: &Place, facts: &Value) -> Vec<u8> {
    let event = facts.get("event").and_then(Value::as_u64);
    let wait = Synchronization {
        header: with_flags(header, facts),
        start: place.start,
        end: place.end,
        correlation: place.correlation,
        stream: stream(facts),
        event: event.map_or(NONE, |event| event as u32),
        context: number(facts, "context"),
        tid: place.tid,
        reserved: 0,
    };
    encode(&wait, &[])
}

/// Returns a movement of unified memory as a record. `None` for a row of an earlier midair, which names its
/// devices for people only.
pub(super) fn unified(
    header: Header,
    place: &Place,
    facts: &Value,
    node: impl Fn(i64) -> u32,
) -> Option<Vec<u8>> {
    let node = |key: &str| facts.get(key).and_then(Value::as_i64).map(&node);
    let address = facts.get("address").and_then(Value::as_str);
    let address = address.and_then(|text| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok());
    let moved = UnifiedMemory {
        header: with_flags(header, facts),
        start: place.start,
        end: place.end,
        address: address.unwrap_or(0),
        value: facts.get("value").and_then(Value::as_u64).unwrap_or(0),
        stream: stream(facts),
        src_node: node("src_agent_id")?,
        dst_node: node("dst_agent_id")?,
    };
    Some(encode(&moved, &[]))
}
