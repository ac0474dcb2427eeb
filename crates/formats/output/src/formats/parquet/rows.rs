//! Records as rows. The values are the same as in the csv files' columns.

use super::table::Table;
use crate::counters::batch::Batch;
use crate::counters::{Counts, Reading};
use crate::events::Event;
use crate::files::WriteError;
use crate::gpu::GpuSample;
use crate::graphs::Launch;
use crate::job::Job;
use midair_agents::Agent;
use midair_record::event::{
    Allocation, Api, Copy, CudaLaunch, CudaTransfer, EventCall, GraphCall, Kernel, Marker, NO_NODE,
    Scratch, kind,
};
use midair_trace::cuda::devices::ordinal;
use midair_trace::cuda::{copy_operation, memories, stream_parts};

type Written = Result<(), WriteError>;

/// LDS is allocated in blocks of this many bytes.
const LDS_BLOCK: u64 = 512;

/// Keys by which texts are remembered, besides the kinds of records, which are used for the names
/// of operations.
mod of {
    pub(super) const AGENT: u8 = 255;
    pub(super) const KERNEL: u8 = 254;
    pub(super) const DOMAIN: u8 = 253;
}

impl Table {
    /// Adds the name of an agent.
    pub(super) fn agent(&mut self, job: &Job<'_>, node: u32) -> &mut Table {
        self.named((of::AGENT, node.into()), || job.agent_name(node))
    }

    /// Adds the name of a kind of records.
    pub(super) fn domain(&mut self, job: &Job<'_>, kind: u8) -> &mut Table {
        self.named((of::DOMAIN, kind.into()), || {
            job.names.kind(kind).into_owned()
        })
    }

    /// Adds the name of an operation.
    pub(super) fn operation(&mut self, job: &Job<'_>, kind: u8, operation: u32) -> &mut Table {
        self.named((kind, operation.into()), || {
            job.names.operation(kind, operation).into_owned()
        })
    }

    fn kernel_name(&mut self, job: &Job<'_>, kernel: &Kernel) -> &mut Table {
        if job.index.symbols.contains_key(&kernel.kernel_id) {
            let known = (of::KERNEL, kernel.kernel_id);
            return self.named(known, || job.kernel_name(kernel).into_owned());
        }
        // It is named by its address, which is not a kernel's number.
        self.text(&job.kernel_name(kernel))
    }

    /// Adds the number of a device as CUDA counts it.
    pub(super) fn device(&mut self, node: u32) -> &mut Table {
        match ordinal(node) {
            Some(ordinal) => self.number(ordinal),
            None => self.nothing(),
        }
    }
}

pub(super) fn kernel(
    table: &mut Table,
    job: &Job<'_>,
    kernel: &Kernel,
    extra: Option<&CudaLaunch>,
) -> Written {
    let symbol = job.index.symbols.get(&kernel.kernel_id);
    let symbol = symbol.map(|symbol| symbol.record).unwrap_or_default();
    let (lds, registers) = match extra {
        Some(extra) => (u64::from(kernel.group_segment), extra.registers),
        None => (
            u64::from(symbol.group_segment).next_multiple_of(LDS_BLOCK),
            symbol.arch_vgpr,
        ),
    };
    table
        .kernel_name(job, kernel)
        .agent(job, kernel.node)
        .number(kernel.queue_id)
        .number(job.index.stream(kernel.stream))
        .number(job.trace.process.pid)
        .number(kernel.tid)
        .number(kernel.dispatch_id)
        .number(kernel.kernel_id)
        .number(kernel.correlation)
        .time(kernel.start)
        .time(kernel.end)
        .number(lds)
        .number(kernel.private_segment)
        .number(registers)
        .number(symbol.accum_vgpr)
        .number(symbol.sgpr);
    for size in kernel.workgroup.into_iter().chain(kernel.grid) {
        table.number(size);
    }
    if let Some(extra) = extra {
        table
            .number(extra.context)
            .device(kernel.node)
            .number(extra.static_shared)
            .number(extra.dynamic_shared)
            .number(extra.graph)
            .number(extra.graph_node)
            .number(stream_parts(kernel.stream).1);
    } else if let graph @ 1.. = job.graphs.of_kernel(kernel) {
        // Which node of it the kernel was is not known.
        table.nothing().nothing().nothing().nothing().number(graph);
    }
    table.end()
}

pub(super) fn copy(
    table: &mut Table,
    job: &Job<'_>,
    copy: &Copy,
    extra: Option<&CudaTransfer>,
) -> Written {
    table
        .operation(job, kind::MEMORY_COPY, copy_operation(copy, extra))
        .number(job.index.stream(copy.stream))
        .agent(job, copy.src_node)
        .agent(job, copy.dst_node)
        .number(job.trace.process.pid)
        .number(copy.tid)
        .number(copy.correlation)
        .time(copy.start)
        .time(copy.end)
        .number(copy.bytes);
    if let Some(extra) = extra {
        let (from, to) = memories(extra);
        table
            .number(extra.context)
            .text(from)
            .text(to)
            .number(extra.graph)
            .number(extra.graph_node)
            .number(stream_parts(copy.stream).1);
    }
    table.end()
}

pub(super) fn call(table: &mut Table, job: &Job<'_>, api: &Api) -> Written {
    let kind = api.header.kind;
    table
        .domain(job, kind)
        .operation(job, kind, api.header.operation)
        .number(job.trace.process.pid)
        .number(api.tid)
        .number(api.correlation)
        .time(api.start)
        .time(api.end);
    // As in csv, the return values of AMD's runtimes are left out. They are in json.
    if matches!(kind, kind::CUDA_RUNTIME_API | kind::CUDA_DRIVER_API) {
        table.number(api.retval);
    }
    table.end()
}

pub(super) fn marker(table: &mut Table, job: &Job<'_>, marker: &Marker, message: &[u8]) -> Written {
    table
        .domain(job, marker.header.kind)
        .text(&job.names.marker(marker, message))
        .number(job.trace.process.pid)
        .number(marker.tid)
        .number(marker.correlation)
        .time(marker.start)
        .time(marker.end)
        .end()
}

pub(super) fn allocation(table: &mut Table, job: &Job<'_>, allocation: &Allocation) -> Written {
    table.operation(job, kind::MEMORY_ALLOCATION, allocation.header.operation);
    // The record of a release names no agent.
    match allocation.node {
        NO_NODE => table.nothing(),
        node => table.agent(job, node),
    };
    table
        .number(allocation.bytes)
        .number(allocation.address)
        .number(job.trace.process.pid)
        .number(allocation.tid)
        .number(allocation.correlation)
        .time(allocation.start)
        .time(allocation.end)
        .end()
}

pub(super) fn graph(
    table: &mut Table,
    job: &Job<'_>,
    call: &GraphCall,
    launch: &Launch,
) -> Written {
    table.number(launch.graph);
    match launch.node {
        Some(node) => table.agent(job, node),
        None => table.nothing(),
    };
    match launch.queue {
        Some(queue) => table.number(queue),
        None => table.nothing(),
    };
    table
        .number(job.index.stream(call.stream))
        .number(job.trace.process.pid)
        .number(call.tid)
        .number(call.correlation)
        .time(launch.start)
        .time(launch.end)
        .number(launch.kernels);
    if let Some(remark) = launch.remark() {
        table.text(remark);
    }
    table.end()
}

pub(super) fn hip_event(
    table: &mut Table,
    job: &Job<'_>,
    call: &EventCall,
    event: &Event,
) -> Written {
    table
        .operation(job, kind::HIP_EVENT, call.header.operation)
        .number(call.event)
        .agent(job, event.node)
        .number(event.queue);
    match event.source {
        Some(queue) => table.number(queue),
        None => table.nothing(),
    };
    table
        .number(job.index.stream(call.stream))
        .number(job.trace.process.pid)
        .number(call.tid)
        .number(call.correlation)
        .time(event.start)
        .time(event.end);
    if let Some(remark) = event.remark() {
        table.text(remark);
    }
    table.end()
}

pub(super) fn scratch(table: &mut Table, job: &Job<'_>, scratch: &Scratch) -> Written {
    table
        .operation(job, kind::SCRATCH_MEMORY, scratch.header.operation)
        .agent(job, scratch.node)
        .number(scratch.queue_id)
        .number(job.trace.process.pid)
        .number(scratch.tid)
        .number(scratch.flags)
        .time(scratch.start)
        .time(scratch.end)
        .number(scratch.bytes)
        .end()
}

/// Adds one counter of a dispatch: its sum over all places.
pub(super) fn counter(
    table: &mut Table,
    job: &Job<'_>,
    kernel: &Kernel,
    name: &str,
    value: f64,
) -> Written {
    table
        .number(kernel.correlation)
        .number(kernel.dispatch_id)
        .agent(job, kernel.node)
        .number(kernel.queue_id)
        .number(job.trace.process.pid)
        .number(kernel.tid)
        .number(kernel.kernel_id)
        .kernel_name(job, kernel)
        .text(name)
        .real(value)
        .time(kernel.start)
        .time(kernel.end)
        .end()
}

/// Adds one counter of several dispatches together, with their numbers and names.
pub(super) fn batch(
    table: &mut Table,
    job: &Job<'_>,
    counts: &Counts<'_>,
    batch: &Batch,
    (ids, kernels): (&str, &str),
    (name, value): (&str, f64),
) -> Written {
    let kernel = counts.kernel;
    table
        .number(counts.window)
        .number(kernel.correlation)
        .agent(job, kernel.node)
        .number(kernel.queue_id)
        .number(job.trace.process.pid)
        .number(kernel.tid)
        .number(batch.count)
        .text(ids)
        .text(kernels)
        .text(name)
        .real(value)
        .time(batch.start)
        .time(batch.end)
        .end()
}

pub(super) fn reading(
    table: &mut Table,
    job: &Job<'_>,
    reading: &Reading,
    name: &str,
    value: f64,
) -> Written {
    table
        .number(reading.number)
        .agent(job, reading.node)
        .number(job.trace.process.pid)
        .text(name)
        .real(value)
        .time(reading.start)
        .time(reading.end)
        .end()
}

pub(super) fn sample(
    table: &mut Table,
    gpu: u32,
    sample: &GpuSample<'_>,
    metric: &str,
    value: f32,
) -> Written {
    table
        .number(gpu)
        .number(sample.group as u64)
        .text(metric)
        .real(value.into())
        .time(sample.start)
        .time(sample.end)
        .end()
}

pub(super) fn agent(table: &mut Table, job: &Job<'_>, agent: &Agent) -> Written {
    table
        .text(&job.agent_name(agent.node_id))
        .number(job.trace.process.pid)
        .number(agent.node_id)
        .text(agent.agent_type.text())
        .text(&agent.name)
        .text(&agent.product_name)
        .text(&agent.vendor_name)
        .number(agent.cu_count)
        .number(agent.simd_count)
        .number(agent.wave_front_size)
        .number(agent.max_engine_clk_fcompute)
        .number(agent.local_mem_size)
        .number(agent.location_id)
        .number(agent.domain)
        .end()
}
