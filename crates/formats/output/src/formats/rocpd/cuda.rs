//! Rows for data that only CUDA processes have.
//!
//! The schema is AMD's and has no tables for these. A fill is a row of a copy from a device to
//! itself, so that views of what kept a device busy contain it. Its category distinguishes it from
//! copies. Waits and the work of unified memory are regions. Everything else that is known is in
//! `extdata`.

use super::database::{Step, whole};
use super::long::Copied;
use super::rows::{Call, Rows};
use crate::job::{Job, address};
use midair_record::event::{
    Copy, CudaLaunch, CudaTransfer, Header, Kernel, MemorySet, Synchronization, UnifiedMemory,
    cuda_node, flag, kind,
};
use midair_trace::cuda::devices::ordinal;
use midair_trace::cuda::{NONE, memories, memory, names_stream, stream_parts, unfinished};
use midair_trace::index::untimed;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::{Display, Write};

/// A JSON object under construction. Keys and texts are the program's own, and need no escapes.
struct Object(String);

impl Object {
    fn new() -> Object {
        // The capacity is the length of the longest of these objects.
        Object(String::with_capacity(256))
    }

    fn key(&mut self, key: &str) {
        self.0.push(if self.0.is_empty() { '{' } else { ',' });
        self.0.push('"');
        self.0.push_str(key);
        self.0.push_str("\":");
    }

    /// Adds a number. Writing to a String cannot fail, hence the ignored results.
    fn number(&mut self, key: &str, value: impl Display) {
        self.key(key);
        let _ = write!(self.0, "{value}");
    }

    fn text(&mut self, key: &str, value: &str) {
        self.key(key);
        let _ = write!(self.0, "\"{value}\"");
    }

    /// Adds device, context and stream as CUDA and CUPTI count them.
    fn location(&mut self, device: Option<u32>, context: u32, stream: u64) {
        if let Some(ordinal) = device {
            self.number("device", ordinal);
        }
        self.number("context", context);
        if names_stream(stream) {
            self.number("stream", stream_parts(stream).1);
        }
    }

    fn finish(mut self, header: &Header, reason: u32) -> String {
        if let Some(reason) = untimed(header.flags, reason) {
            self.text("untimed", reason);
        }
        if header.flags & flag::OPEN_AT_DETACH != 0 {
            self.number("open_at_detach", true);
        }
        if self.0.is_empty() {
            self.0.push('{');
        }
        self.0.push('}');
        self.0
    }
}

/// Returns further facts about a kernel.
pub(super) fn launch(kernel: &Kernel, extra: &CudaLaunch) -> String {
    let mut object = Object::new();
    object.location(ordinal(kernel.node), extra.context, kernel.stream);
    object.number("registers", extra.registers);
    object.number("static_shared_memory", extra.static_shared);
    object.number("dynamic_shared_memory", extra.dynamic_shared);
    object.finish(&kernel.header, kernel.untimed)
}

/// Returns further facts about a copy.
pub(super) fn transfer(copy: &Copy, extra: &CudaTransfer) -> String {
    let (from, to) = memories(extra);
    let mut object = Object::new();
    object.location(None, extra.context, copy.stream);
    object.number("copy_kind", extra.copy_kind);
    object.text("src_memory", from);
    object.text("dst_memory", to);
    object.finish(&copy.header, copy.untimed)
}

/// Returns the ids of agents that are CUDA's devices, with the devices' numbers.
pub(super) fn devices(job: &Job<'_>) -> String {
    let devices = job.index.cuda.devices.keys();
    let devices = devices.map(|device| (job.node(cuda_node(*device)).to_string(), *device));
    serde_json::json!(devices.collect::<BTreeMap<_, _>>()).to_string()
}

/// Returns the devices and the streams that queues stand for, by the queues' ids.
pub(super) fn queues(job: &Job<'_>) -> String {
    let queues = job.index.queues.values();
    let queues = queues.map(|queue| (queue.queue_id.to_string(), (queue.node, queue.handle)));
    serde_json::json!(queues.collect::<BTreeMap<_, _>>()).to_string()
}

impl Rows<'_, '_> {
    pub(super) fn memory_set(&mut self, set: &MemorySet) -> Step<()> {
        let event = self.event(kind::MEMORY_SET, set.correlation, set.correlation, "{}")?;
        let tid = self.info.thread(set.tid)?;
        let name = self.operation(&set.header)?;
        let agent = self.info.agent(set.node)?;
        let stream = self.info.stream(set.stream)?;
        let mut object = Object::new();
        object.location(ordinal(set.node), set.context, set.stream);
        object.text("memory", memory(set.header.operation));
        object.number("value", set.value);
        // CUPTI does not tell where the memory is.
        let address = None::<i64>;
        self.long.copy(&Copied {
            tid,
            start: whole(set.start),
            end: whole(set.end),
            name,
            to: (agent, address),
            from: (agent, address),
            bytes: set.bytes,
            stream,
            graph: set.graph,
            graph_node: whole(set.graph_node),
            event,
            extdata: &object.finish(&set.header, unfinished(set.start, set.end)),
        })
    }

    pub(super) fn wait(&mut self, wait: &Synchronization) -> Step<()> {
        if names_stream(wait.stream) {
            self.info.stream(wait.stream)?;
        }
        let mut object = Object::new();
        object.location(None, wait.context, wait.stream);
        if wait.event != NONE {
            object.number("event", wait.event);
        }
        self.call(&Call {
            header: wait.header,
            start: wait.start,
            end: wait.end,
            correlation: wait.correlation,
            ancestor: wait.correlation,
            tid: wait.tid,
            extdata: Cow::Owned(object.finish(&wait.header, unfinished(wait.start, wait.end))),
            name: None,
        })?;
        Ok(())
    }

    /// Writes a region on thread 0, since no thread is known.
    pub(super) fn unified(&mut self, moved: &UnifiedMemory) -> Step<()> {
        let mut object = Object::new();
        object.text("src_agent", &self.job.agent_name(moved.src_node));
        object.text("dst_agent", &self.job.agent_name(moved.dst_node));
        object.number("src_agent_id", self.info.agent(moved.src_node)?);
        object.number("dst_agent_id", self.info.agent(moved.dst_node)?);
        object.text("address", &address(moved.address));
        object.number("value", moved.value);
        if names_stream(moved.stream) {
            object.number("stream", stream_parts(moved.stream).1);
        }
        self.call(&Call {
            header: moved.header,
            start: moved.start,
            end: moved.end,
            correlation: 0,
            ancestor: 0,
            tid: 0,
            extdata: Cow::Owned(object.finish(&moved.header, unfinished(moved.start, moved.end))),
            name: None,
        })?;
        Ok(())
    }
}
