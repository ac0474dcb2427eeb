//! Data that only CUDA processes have: fills, waits, unified memory, and annotations of kernels and
//! copies.

use super::annotations::{Annotations, Key};
use super::packets::Name;
use super::tracks::TrackKey;
use super::{Scene, Slice, agent_text, times};
use crate::files::WriteError;
use crate::job::address;
use midair_record::event::{
    Copy, CudaLaunch, CudaTransfer, Header, Kernel, MemorySet, Synchronization, UnifiedMemory,
    Untimed, flag, kind,
};
use midair_trace::api::number_in_files;
use midair_trace::cuda::devices::ordinal;
use midair_trace::cuda::{NONE, memories, memory, names_stream, stream_parts, unfinished};

/// Adds the device as CUDA counts it, where one is named.
fn device(to: &mut Annotations, node: u32) {
    if let Some(ordinal) = ordinal(node) {
        to.uint(Key::Device, ordinal);
    }
}

/// Adds the graph that launched it, where one did.
fn graph(to: &mut Annotations, graph: u32, node: u64) {
    if graph != 0 || node != 0 {
        to.uint(Key::Graph, graph).uint(Key::GraphNode, node);
    }
}

/// Adds context and stream as CUPTI counts them.
fn stream(to: &mut Annotations, context: u32, handle: u64) {
    to.uint(Key::Context, context);
    if names_stream(handle) {
        to.uint(Key::CudaStream, stream_parts(handle).1);
    }
}

pub(super) fn launch(to: &mut Annotations, kernel: &Kernel, extra: &CudaLaunch) {
    device(to, kernel.node);
    stream(to, extra.context, kernel.stream);
    to.uint(Key::StaticSharedMemory, extra.static_shared)
        .uint(Key::DynamicSharedMemory, extra.dynamic_shared);
    graph(to, extra.graph, extra.graph_node);
}

pub(super) fn transfer(to: &mut Annotations, copy: &Copy, extra: &CudaTransfer) {
    let (from, into) = memories(extra);
    stream(to, extra.context, copy.stream);
    to.text(Key::SrcMemory, from).text(Key::DstMemory, into);
    graph(to, extra.graph, extra.graph_node);
}

/// Adds the annotations that all of these records have.
fn begin(to: &mut Annotations, header: &Header, start: u64, end: u64) {
    times(to, start, end)
        .uint(Key::Kind, number_in_files(header.kind))
        .int(Key::Operation, i64::from(header.operation));
    if header.flags & flag::OPEN_AT_DETACH != 0 {
        to.yes(Key::OpenAtDetach);
    }
}

impl Scene<'_> {
    pub(super) fn memory_set(&mut self, set: &MemorySet) -> Result<(), WriteError> {
        let job = self.job;
        let agent = agent_text(&job.agent_index(set.node));
        let number_of_stream = job.index.stream(set.stream);
        let to = self.out.annotate();
        begin(to, &set.header, set.start, set.end);
        to.text(Key::Agent, &agent)
            .text(Key::Memory, memory(set.header.operation))
            .uint(Key::Bytes, set.bytes)
            .uint(Key::Value, set.value)
            .uint(Key::CorrId, set.correlation)
            .uint(Key::Tid, set.tid)
            .uint(Key::StreamId, number_of_stream);
        device(to, set.node);
        stream(to, set.context, set.stream);
        graph(to, set.graph, set.graph_node);
        let slice = Slice {
            kind: kind::MEMORY_SET,
            name: Name::Operation(job.names, kind::MEMORY_SET, set.header.operation),
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
            dispatch: 0,
        };
        self.work(slice, set.header.flags)
    }

    /// Writes a slice, or an instant where the work is untimed.
    fn work(&mut self, slice: Slice<'_>, flags: u8) -> Result<(), WriteError> {
        let reason = unfinished(slice.start, slice.end);
        if reason == Untimed::Timed as u32 && flags & flag::UNTIMED == 0 {
            return self.slice(&slice);
        }
        // The start is used, if at least that is known.
        let begin = slice.start;
        self.untimed(&slice, begin, reason)
    }

    /// Writes a wait. It covers the same time as the call that waits and would hide it, so waits
    /// have a track of their own.
    pub(super) fn wait(&mut self, wait: &Synchronization) -> Result<(), WriteError> {
        let job = self.job;
        let to = self.out.annotate();
        begin(to, &wait.header, wait.start, wait.end);
        to.uint(Key::CorrId, wait.correlation)
            .uint(Key::Tid, wait.tid);
        if names_stream(wait.stream) {
            to.uint(Key::StreamId, job.index.stream(wait.stream));
        }
        stream(to, wait.context, wait.stream);
        if wait.event != NONE {
            to.uint(Key::Event, wait.event);
        }
        let operation = wait.header.operation;
        let slice = Slice {
            kind: kind::SYNCHRONIZATION,
            name: Name::Operation(job.names, kind::SYNCHRONIZATION, operation),
            key: TrackKey::Own(kind::SYNCHRONIZATION),
            start: wait.start,
            end: wait.end,
            correlation: wait.correlation,
            dispatch: 0,
        };
        self.work(slice, wait.header.flags)
    }

    pub(super) fn unified(&mut self, moved: &UnifiedMemory) -> Result<(), WriteError> {
        let job = self.job;
        let name = |node| agent_text(&job.agent_index(node));
        let at = address(moved.address);
        let to = self.out.annotate();
        begin(to, &moved.header, moved.start, moved.end);
        to.text(Key::SrcAgent, &name(moved.src_node))
            .text(Key::DstAgent, &name(moved.dst_node))
            .text(Key::Address, &at)
            .uint(Key::Value, moved.value);
        if names_stream(moved.stream) {
            to.uint(Key::CudaStream, stream_parts(moved.stream).1);
        }
        let operation = moved.header.operation;
        let slice = Slice {
            kind: kind::UNIFIED_MEMORY,
            name: Name::Operation(job.names, kind::UNIFIED_MEMORY, operation),
            key: TrackKey::Own(kind::UNIFIED_MEMORY),
            start: moved.start,
            end: moved.end,
            // No call is known that caused it.
            correlation: 0,
            dispatch: 0,
        };
        self.work(slice, moved.header.flags)
    }
}
