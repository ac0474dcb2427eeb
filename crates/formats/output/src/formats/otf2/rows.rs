//! One event for each thing that happened.

use super::attributes::Name;
use super::definitions::{Paradigm, Role};
use super::sort::{Event, What};
use super::{MOST_NAMES, Row, Session};
use crate::counters::values::sum;
use crate::counters::{Counts, Reading};
use crate::files::WriteError;
use crate::sink::Sink;
use midair_agents::AgentType;
use midair_domain::sets;
use midair_record::event::{
    Allocation, Api, Copy, CudaLaunch, CudaTransfer, Kernel, KfdEvent, Marker, MemorySet, NO_NODE,
    Record, Scratch, Synchronization, UnifiedMemory, flag, kind,
};
use midair_trace::api::has_message;
use midair_trace::cuda::devices::ordinal;
use midair_trace::cuda::{copy_operation, names_stream, unfinished};
use midair_trace::index::untimed;
use midair_trace::limits;

/// `roctxRangeStartA` and its stop (source: api/rocprofiler_sdk.json).
const PROCESS_RANGE: u32 = 2;
/// Releases among the operations of allocations (`rocprofiler_memory_allocation_operation_t`).
const RELEASES: [u32; 2] = [3, 4];

impl Sink for Session<'_> {
    fn record(&mut self, record: &Record<'_>) -> Result<(), WriteError> {
        self.out.attributes.clear();
        match record {
            Record::Api(api, _) => self.call(api),
            Record::Marker(marker, message) => self.marker(marker, message),
            // A dispatch with counters is given together with them.
            Record::Kernel(kernel, _)
                if self.job.counting.windows.has_values(kernel.dispatch_id) =>
            {
                Ok(())
            }
            Record::Kernel(kernel, extra) => self.kernel(kernel, extra.as_ref(), &[]),
            Record::Copy(copy, extra) => self.copy(copy, extra.as_ref()),
            Record::MemorySet(set) => self.memory_set(set),
            Record::Synchronization(wait) => self.wait(wait),
            Record::UnifiedMemory(moved) => self.unified(moved),
            Record::Allocation(allocation) => self.allocation(allocation),
            Record::Scratch(scratch) => self.scratch(scratch),
            Record::Kfd(event) if event.is_in_files() => self.driver_event(event),
            _ => Ok(()),
        }
    }

    fn counted(&mut self, counts: &Counts<'_>) -> Result<(), WriteError> {
        // The dispatches of a batch are given as records, and its values belong to none of them.
        if self.job.plan.hide_kernels || counts.batch.is_some() {
            return Ok(());
        }
        self.out.attributes.clear();
        let counters = counts.counters.iter();
        let counters: Vec<(&str, f64)> = counters
            .map(|(_, name, values)| (*name, sum(values)))
            .collect();
        self.kernel(counts.kernel, None, &counters)
    }

    fn read(&mut self, reading: &Reading) -> Result<(), WriteError> {
        for (_, name, values, is_sum) in &reading.counters {
            let value = reading.shown(sum(values), *is_sum);
            let unit = if *is_sum { "1/s" } else { "" };
            let row = Row::Counters(reading.node);
            self.metric(row, (name, unit), reading.start, value)?;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<(), WriteError> {
        if let Some(samples) = &self.job.trace.gpu {
            let row = Row::Samples(samples.index);
            samples.changes(|(_, metric), time, value| {
                self.metric(row, (&metric.name, &metric.unit), time, value)
            })?;
        }
        self.write()
    }
}

/// What is done where and when.
struct Slice {
    row: Row,
    region: u32,
    start: u64,
    end: u64,
}

impl Session<'_> {
    fn slice(&mut self, slice: Slice) -> Result<(), WriteError> {
        let row = self.row(slice.row);
        let attributes = &mut self.out.attributes;
        let (number, extra) = (attributes.count, std::mem::take(&mut attributes.bytes));
        let pushed = self.push(Event {
            row,
            start: slice.start,
            end: slice.end,
            what: What::Region(slice.region),
            number,
            extra: &extra,
        });
        self.out.attributes.bytes = extra;
        pushed
    }

    fn metric(
        &mut self,
        row: Row,
        (name, unit): (&str, &str),
        time: u64,
        value: f64,
    ) -> Result<(), WriteError> {
        let Some(metric) = self.out.definitions.metric(name, unit)? else {
            return Ok(());
        };
        let row = self.row(row);
        self.push(Event {
            row,
            start: time,
            end: time,
            what: What::Metric(metric),
            number: value.to_bits(),
            extra: &[],
        })
    }

    fn number(&mut self, name: Name, value: impl Into<u64>) -> Result<(), WriteError> {
        let out = &mut *self.out;
        out.attributes.number(&mut out.definitions, name, value)
    }

    fn text(&mut self, name: Name, value: &str) -> Result<(), WriteError> {
        let out = &mut *self.out;
        out.attributes.text(&mut out.definitions, name, value)
    }

    fn category(&mut self, kind: u8) -> Result<(), WriteError> {
        let domain = midair_domain::domain(kind);
        let category = domain.and_then(|domain| domain.files.category);
        self.text(Name::Category, category.unwrap_or_default())
    }

    fn region(&mut self, name: &str, role: Role) -> Result<u32, WriteError> {
        let paradigm = self.paradigm();
        self.out.definitions.region(name, None, role, paradigm)
    }

    fn paradigm(&self) -> Paradigm {
        match self.job.index.is_cuda() {
            true => Paradigm::Cuda,
            false => Paradigm::Hip,
        }
    }

    /// Adds why work has no times, and returns the time at which it is shown instead: when it was
    /// launched, or at the end.
    fn untimed(&mut self, reason: &str, rung: u64) -> Result<(u64, u64), WriteError> {
        self.text(Name::Untimed, reason)?;
        let time = match rung {
            0 => self.job.trace.process.fini_time,
            rung => rung,
        };
        Ok((time, time))
    }

    fn times(
        &mut self,
        (start, end): (u64, u64),
        reason: Option<&'static str>,
        rung: u64,
    ) -> Result<(u64, u64), WriteError> {
        match reason {
            Some(reason) => self.untimed(reason, rung),
            None => Ok((start, end)),
        }
    }

    fn open(&mut self, flags: u8) -> Result<(), WriteError> {
        match flags & flag::OPEN_AT_DETACH {
            0 => Ok(()),
            _ => self.number(Name::Open, 1_u32),
        }
    }

    fn call(&mut self, api: &Api) -> Result<(), WriteError> {
        let (of, operation) = (api.header.kind, api.header.operation);
        let region = match self.calls.get(&(of, operation)) {
            Some(region) => *region,
            None => {
                let name = self.job.names.operation(of, operation);
                let region = self.region(&name, Role::Function)?;
                if self.calls.len() < MOST_NAMES {
                    self.calls.insert((of, operation), region);
                }
                region
            }
        };
        self.category(of)?;
        self.number(Name::Correlation, api.correlation)?;
        self.number(Name::Thread, api.tid)?;
        if sets::HIP_CALLS.contains(of) {
            self.number(Name::Stream, self.job.index.stream(api.stream))?;
        }
        if sets::CUDA_CALLS.contains(of) {
            self.number(Name::Result, api.retval)?;
        }
        self.open(api.header.flags)?;
        self.slice(Slice {
            row: Row::Thread(api.tid),
            region,
            start: api.start,
            end: api.end,
        })
    }

    fn marker(&mut self, marker: &Marker, message: &[u8]) -> Result<(), WriteError> {
        let header = &marker.header;
        let name = self.job.names.marker(marker, message);
        let definitions = &mut self.out.definitions;
        let region = definitions.region(&name, None, Role::Function, Paradigm::User)?;
        self.category(header.kind)?;
        self.number(Name::Correlation, marker.correlation)?;
        self.number(Name::Thread, marker.tid)?;
        self.open(header.flags)?;
        let of_process =
            has_message(header.kind, header.operation) && header.operation == PROCESS_RANGE;
        let row = match of_process {
            true => Row::Ranges,
            false => Row::Thread(marker.tid),
        };
        self.slice(Slice {
            row,
            region,
            start: marker.start,
            end: marker.end,
        })
    }

    fn kernel_region(&mut self, kernel: &Kernel) -> Result<u32, WriteError> {
        if let Some(region) = self.kernels.get(&kernel.kernel_id) {
            return Ok(*region);
        }
        let job = self.job;
        let symbol = job.index.symbols.get(&kernel.kernel_id);
        // A region that is named by a range may stand for several kernels.
        let symbol = symbol.filter(|_| job.renamed.is_none());
        let symbol = symbol.map(|symbol| limits::text(&symbol.name));
        let (name, paradigm) = (job.dispatch_name(kernel), self.paradigm());
        let definitions = &mut self.out.definitions;
        let region = definitions.region(&name, symbol.as_deref(), Role::Function, paradigm)?;
        // Kernels without a symbol are named by their addresses.
        if symbol.is_some() && self.kernels.len() < MOST_NAMES {
            self.kernels.insert(kernel.kernel_id, region);
        }
        Ok(region)
    }

    fn kernel(
        &mut self,
        kernel: &Kernel,
        extra: Option<&CudaLaunch>,
        counters: &[(&str, f64)],
    ) -> Result<(), WriteError> {
        let job = self.job;
        let region = self.kernel_region(kernel)?;
        let symbol = job.index.symbols.get(&kernel.kernel_id);
        let registers = symbol.map_or(0, |symbol| symbol.record.arch_vgpr);
        let registers = extra.map_or(registers, |extra| extra.registers);
        let stream = job.index.stream(kernel.stream);
        self.category(kind::KERNEL_DISPATCH)?;
        self.number(Name::Correlation, kernel.correlation)?;
        self.number(Name::Thread, kernel.tid)?;
        self.number(Name::Stream, stream)?;
        self.number(Name::Queue, kernel.queue_id)?;
        self.number(Name::Dispatch, kernel.dispatch_id)?;
        self.number(Name::Kernel, kernel.kernel_id)?;
        let axes = [
            (Name::GridX, Name::WorkgroupX),
            (Name::GridY, Name::WorkgroupY),
            (Name::GridZ, Name::WorkgroupZ),
        ];
        for ((grid, workgroup), (items, of_group)) in axes
            .into_iter()
            .zip(kernel.grid.into_iter().zip(kernel.workgroup))
        {
            self.number(grid, items)?;
            self.number(workgroup, of_group)?;
        }
        self.number(Name::Registers, registers)?;
        self.number(Name::Lds, kernel.group_segment)?;
        self.number(Name::Scratch, kernel.private_segment)?;
        if let Some(extra) = extra {
            self.number(Name::Context, extra.context)?;
            self.number(Name::Graph, extra.graph)?;
            self.number(Name::GraphNode, extra.graph_node)?;
        }
        for (name, value) in counters {
            let out = &mut *self.out;
            out.attributes.counter(&mut out.definitions, name, *value)?;
        }
        let reason = untimed(kernel.header.flags, kernel.untimed);
        let (start, end) = self.times((kernel.start, kernel.end), reason, kernel.rung)?;
        let row = match self.by_queue {
            true => Row::Queue {
                node: kernel.node,
                queue: kernel.queue_id,
            },
            false => Row::Stream(stream, kernel.node),
        };
        self.slice(Slice {
            row,
            region,
            start,
            end,
        })
    }

    /// Returns the GPU of a copy: the end that is one, or of two the one that is written to.
    fn device(&self, [to, from]: [u32; 2]) -> u32 {
        let is_gpu = |node: u32| match self.job.agent(node) {
            Some(agent) => agent.agent_type == AgentType::Gpu,
            None => ordinal(node).is_some(),
        };
        if !is_gpu(to) && is_gpu(from) {
            from
        } else {
            to
        }
    }

    fn copy(&mut self, copy: &Copy, extra: Option<&CudaTransfer>) -> Result<(), WriteError> {
        let job = self.job;
        let name = job
            .names
            .operation(kind::MEMORY_COPY, copy_operation(copy, extra));
        let region = self.region(&name, Role::DataTransfer)?;
        let stream = job.index.stream(copy.stream);
        self.category(kind::MEMORY_COPY)?;
        self.number(Name::Correlation, copy.correlation)?;
        self.number(Name::Thread, copy.tid)?;
        self.number(Name::Stream, stream)?;
        self.number(Name::Bytes, copy.bytes)?;
        self.text(Name::From, &job.agent_name(copy.src_node))?;
        self.text(Name::To, &job.agent_name(copy.dst_node))?;
        if let Some(extra) = extra {
            self.number(Name::Context, extra.context)?;
            self.number(Name::Graph, extra.graph)?;
            self.number(Name::GraphNode, extra.graph_node)?;
        }
        let reason = untimed(copy.header.flags, copy.untimed);
        let (start, end) = self.times((copy.start, copy.end), reason, 0)?;
        let row = match self.by_queue {
            true => Row::CopyTo {
                node: copy.dst_node,
                tid: copy.tid,
            },
            false => Row::Stream(stream, self.device([copy.dst_node, copy.src_node])),
        };
        self.slice(Slice {
            row,
            region,
            start,
            end,
        })
    }

    fn memory_set(&mut self, set: &MemorySet) -> Result<(), WriteError> {
        let job = self.job;
        let name = job.names.operation(kind::MEMORY_SET, set.header.operation);
        let region = self.region(&name, Role::Function)?;
        let stream = job.index.stream(set.stream);
        self.category(kind::MEMORY_SET)?;
        self.number(Name::Correlation, set.correlation)?;
        self.number(Name::Thread, set.tid)?;
        self.number(Name::Stream, stream)?;
        self.number(Name::Bytes, set.bytes)?;
        self.number(Name::Value, set.value)?;
        self.number(Name::Context, set.context)?;
        self.number(Name::Graph, set.graph)?;
        self.number(Name::GraphNode, set.graph_node)?;
        let reason = untimed(set.header.flags, unfinished(set.start, set.end));
        let (start, end) = self.times((set.start, set.end), reason, set.start)?;
        let row = match self.by_queue {
            true => Row::CopyTo {
                node: set.node,
                tid: set.tid,
            },
            false => Row::Stream(stream, set.node),
        };
        self.slice(Slice {
            row,
            region,
            start,
            end,
        })
    }

    /// Adds something that has a row for its whole domain.
    fn own(
        &mut self,
        of: (u8, u32),
        role: Role,
        row: Row,
        (start, end): (u64, u64),
    ) -> Result<(), WriteError> {
        let (kind, operation) = of;
        let name = self.job.names.operation(kind, operation);
        let region = self.region(&name, role)?;
        self.slice(Slice {
            row,
            region,
            start,
            end,
        })
    }

    fn wait(&mut self, wait: &Synchronization) -> Result<(), WriteError> {
        let header = wait.header;
        self.category(header.kind)?;
        self.number(Name::Correlation, wait.correlation)?;
        self.number(Name::Thread, wait.tid)?;
        self.number(Name::Context, wait.context)?;
        if names_stream(wait.stream) {
            self.number(Name::Stream, self.job.index.stream(wait.stream))?;
        }
        let reason = untimed(header.flags, unfinished(wait.start, wait.end));
        let times = self.times((wait.start, wait.end), reason, wait.start)?;
        let of = (kind::SYNCHRONIZATION, header.operation);
        self.own(of, Role::Function, Row::Own(of.0), times)
    }

    fn unified(&mut self, moved: &UnifiedMemory) -> Result<(), WriteError> {
        let (job, header) = (self.job, moved.header);
        self.category(header.kind)?;
        self.text(Name::From, &job.agent_name(moved.src_node))?;
        self.text(Name::To, &job.agent_name(moved.dst_node))?;
        self.number(Name::Address, moved.address)?;
        self.number(Name::Value, moved.value)?;
        let reason = untimed(header.flags, unfinished(moved.start, moved.end));
        let times = self.times((moved.start, moved.end), reason, moved.start)?;
        let of = (kind::UNIFIED_MEMORY, header.operation);
        self.own(of, Role::DataTransfer, Row::Own(of.0), times)
    }

    fn allocation(&mut self, allocation: &Allocation) -> Result<(), WriteError> {
        let (job, header) = (self.job, allocation.header);
        self.category(header.kind)?;
        self.number(Name::Correlation, allocation.correlation)?;
        self.number(Name::Thread, allocation.tid)?;
        self.number(Name::Address, allocation.address)?;
        self.number(Name::Bytes, allocation.bytes)?;
        if allocation.node != NO_NODE {
            self.text(Name::Agent, &job.agent_name(allocation.node))?;
        }
        let role = match RELEASES.contains(&header.operation) {
            true => Role::Deallocate,
            false => Role::Allocate,
        };
        let of = (kind::MEMORY_ALLOCATION, header.operation);
        let times = (allocation.start, allocation.end);
        self.own(of, role, Row::Own(of.0), times)
    }

    fn scratch(&mut self, scratch: &Scratch) -> Result<(), WriteError> {
        let (job, header) = (self.job, scratch.header);
        self.category(header.kind)?;
        self.number(Name::Correlation, scratch.correlation)?;
        self.number(Name::Thread, scratch.tid)?;
        self.number(Name::Queue, scratch.queue_id)?;
        self.number(Name::Bytes, scratch.bytes)?;
        self.text(Name::Agent, &job.agent_name(scratch.node))?;
        let of = (kind::SCRATCH_MEMORY, header.operation);
        let row = Row::Scratch(scratch.node);
        self.own(of, Role::Function, row, (scratch.start, scratch.end))
    }

    fn driver_event(&mut self, event: &KfdEvent) -> Result<(), WriteError> {
        let header = event.header;
        self.category(header.kind)?;
        self.number(Name::Address, event.address)?;
        self.number(Name::Value, event.count)?;
        let of = (header.kind, header.operation);
        let row = Row::Own(of.0);
        self.own(of, Role::Function, row, (event.start, event.end))
    }
}
