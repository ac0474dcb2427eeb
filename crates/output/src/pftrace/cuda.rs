//! Data that only CUDA processes have: fills, waits, unified memory, and annotations of kernels and
//! copies.

use super::packets::Value;
use super::tracks::TrackKey;
use super::{Annotations, Scene, Slice, category, times};
use crate::api::number_in_files;
use crate::cuda::devices::ordinal;
use crate::cuda::{NONE, memories, memory, names_stream, stream_parts, unfinished};
use crate::files::WriteError;
use crate::job::address;
use midair_record::event::{
    Copy, CudaLaunch, CudaTransfer, Header, Kernel, MemorySet, Synchronization, UnifiedMemory,
    Untimed, flag, kind,
};

fn number<'a>(value: u32) -> Value<'a> {
    Value::Uint(u64::from(value))
}

/// Adds the device as CUDA counts it, where one is named.
fn device(annotations: &mut Annotations<'_>, node: u32) {
    annotations.extend(ordinal(node).map(|ordinal| ("device", number(ordinal))));
}

/// Adds the graph that launched it, where one did.
fn graph(annotations: &mut Annotations<'_>, graph: u32, node: u64) {
    if graph != 0 || node != 0 {
        annotations.push(("graph", number(graph)));
        annotations.push(("graph_node", Value::Uint(node)));
    }
}

/// Adds context and stream as CUPTI counts them.
fn stream(annotations: &mut Annotations<'_>, context: u32, handle: u64) {
    annotations.push(("context", number(context)));
    if names_stream(handle) {
        annotations.push(("cuda_stream", number(stream_parts(handle).1)));
    }
}

pub(super) fn launch(annotations: &mut Annotations<'_>, kernel: &Kernel, extra: &CudaLaunch) {
    device(annotations, kernel.node);
    stream(annotations, extra.context, kernel.stream);
    annotations.push(("static_shared_memory", number(extra.static_shared)));
    annotations.push(("dynamic_shared_memory", number(extra.dynamic_shared)));
    graph(annotations, extra.graph, extra.graph_node);
}

pub(super) fn transfer(annotations: &mut Annotations<'_>, copy: &Copy, extra: &CudaTransfer) {
    let (from, to) = memories(extra);
    stream(annotations, extra.context, copy.stream);
    annotations.push(("src_memory", Value::Text(from)));
    annotations.push(("dst_memory", Value::Text(to)));
    graph(annotations, extra.graph, extra.graph_node);
}

/// Makes the annotations that all of these records have.
fn begin<'a>(header: &Header, start: u64, end: u64) -> Annotations<'a> {
    let mut annotations = times(start, end);
    annotations.push(("kind", number(number_in_files(header.kind))));
    annotations.push(("operation", Value::Int(i64::from(header.operation))));
    if header.flags & flag::OPEN_AT_DETACH != 0 {
        annotations.push(("open_at_detach", Value::Bool(true)));
    }
    annotations
}

impl Scene<'_> {
    pub(super) fn memory_set(&mut self, set: &MemorySet) -> Result<(), WriteError> {
        let job = self.job;
        let agent = job.agent_index(set.node);
        let agent = format!("{}-{}", agent.label, agent.index);
        let number_of_stream = job.index.stream(set.stream);
        let mut annotations = begin(&set.header, set.start, set.end);
        annotations.extend([
            ("agent", Value::Text(&agent)),
            ("memory", Value::Text(memory(set.header.operation))),
            ("bytes", Value::Uint(set.bytes)),
            ("value", number(set.value)),
            ("corr_id", Value::Uint(set.correlation)),
            ("tid", number(set.tid)),
            ("stream_ID", Value::Uint(number_of_stream)),
        ]);
        device(&mut annotations, set.node);
        stream(&mut annotations, set.context, set.stream);
        graph(&mut annotations, set.graph, set.graph_node);
        let slice = Slice {
            category: category(kind::MEMORY_SET),
            name: &job.names.operation(kind::MEMORY_SET, set.header.operation),
            key: if self.by_queue {
                TrackKey::CopyTo {
                    node: set.node,
                    tid: set.tid,
                }
            } else {
                TrackKey::Stream(number_of_stream, set.node)
            },
            start: set.start,
            end: set.end,
            correlation: set.correlation,
            annotations,
        };
        self.work(slice, set.header.flags)
    }

    /// Writes a slice, or an instant where the work is untimed.
    fn work(&mut self, slice: Slice<'_>, flags: u8) -> Result<(), WriteError> {
        let reason = unfinished(slice.start, slice.end);
        if reason == Untimed::Timed as u32 && flags & flag::UNTIMED == 0 {
            return self.slice(&slice);
        }
        // The begin is used, if at least that is known.
        let begin = slice.start;
        self.untimed(slice, begin, reason)
    }

    /// Writes a wait. It covers the same time as the call that waits and would hide it, so waits
    /// have a track of their own.
    pub(super) fn wait(&mut self, wait: &Synchronization) -> Result<(), WriteError> {
        let job = self.job;
        let mut annotations = begin(&wait.header, wait.start, wait.end);
        annotations.push(("corr_id", Value::Uint(wait.correlation)));
        annotations.push(("tid", number(wait.tid)));
        if names_stream(wait.stream) {
            let number = job.index.stream(wait.stream);
            annotations.push(("stream_ID", Value::Uint(number)));
        }
        stream(&mut annotations, wait.context, wait.stream);
        if wait.event != NONE {
            annotations.push(("event", number(wait.event)));
        }
        let operation = wait.header.operation;
        let slice = Slice {
            category: category(kind::SYNCHRONIZATION),
            name: &job.names.operation(kind::SYNCHRONIZATION, operation),
            key: TrackKey::Own(kind::SYNCHRONIZATION),
            start: wait.start,
            end: wait.end,
            correlation: wait.correlation,
            annotations,
        };
        self.work(slice, wait.header.flags)
    }

    pub(super) fn unified(&mut self, moved: &UnifiedMemory) -> Result<(), WriteError> {
        let job = self.job;
        let name = |node| {
            let agent = job.agent_index(node);
            format!("{}-{}", agent.label, agent.index)
        };
        let (from, to) = (name(moved.src_node), name(moved.dst_node));
        let at = address(moved.address);
        let mut annotations = begin(&moved.header, moved.start, moved.end);
        annotations.extend([
            ("src_agent", Value::Text(&from)),
            ("dst_agent", Value::Text(&to)),
            ("address", Value::Text(&at)),
            ("value", Value::Uint(moved.value)),
        ]);
        if names_stream(moved.stream) {
            annotations.push(("cuda_stream", number(stream_parts(moved.stream).1)));
        }
        let operation = moved.header.operation;
        let slice = Slice {
            category: category(kind::UNIFIED_MEMORY),
            name: &job.names.operation(kind::UNIFIED_MEMORY, operation),
            key: TrackKey::Own(kind::UNIFIED_MEMORY),
            start: moved.start,
            end: moved.end,
            // No call is known that caused it.
            correlation: 0,
            annotations,
        };
        self.work(slice, moved.header.flags)
    }
}
