//! The format `results.pftrace`: a trace for Perfetto, written in one walk over the records.
//!
//! Tracks, categories and annotations are named as in AMD's traces (`docs/sources.md#pftrace`). The
//! differences are for the sake of correct data. Nothing is buffered, so nothing is lost. Times are
//! the records' own, so overlapping kernels are on tracks with the same name instead of being
//! cut. The main thread is the process's own. Counters count bytes and not kilobytes. Kernels are
//! named as in the other formats. Allocations, releases and changes of scratch memory are slices as
//! well.
//!
//! Decisions: FMT-013, FMT-014 (`docs/deviations/formats.md`).

mod annotations;
mod callstacks;
mod counters;
mod cuda;
mod gpu;
mod interner;
mod levels;
mod messages;
mod packets;
mod steps;
mod tracks;
mod wire;

use crate::counters::values::sum;
use crate::counters::{Counts, Reading};
use crate::files::{FileSet, OutputFile, WriteError};
use crate::job::{AgentName, Job, address};
use crate::notes;
use crate::options::Format;
use crate::sink::{Opened, Sink, Writer};
use annotations::{Annotations, Key, Value};
use levels::{Change, Levels};
use midair_agents::AgentType;
use midair_domain::sets;
use midair_record::event::{
    Allocation, Api, Copy, CudaLaunch, CudaTransfer, EventCall, GraphCall, Header, Kernel,
    KfdEvent, Marker, NO_NODE, Record, RuntimeInit, Scratch, Untimed, flag, kind,
};
use midair_trace::api::{has_message, number_in_files};
use midair_trace::cuda::{copy_direction, copy_operation};
use packets::{Event, Name, Packets};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use tracks::{TrackKey, Tracks, queue_index};

/// `roctxRangeStartA` and its stop (source: api/rocprofiler_sdk.json).
const PROCESS_RANGE: u32 = 2;

/// The number of releases among the operations of allocations
/// (`rocprofiler_memory_allocation_operation_t`).
const FREE: u32 = 3;
const VMEM_FREE: u32 = 4;

/// The most calls and ranges that are kept until the end. No program has as many threads inside
/// calls. Further ones, which a target invents, are written as they come.
const MOST_OPEN: usize = 1 << 14;

/// The writer.
struct Pftrace<'a> {
    jobs: &'a [Job<'a>],
    file: OutputFile,
    /// The number of sessions started.
    sequences: u32,
}

/// Starts the file.
pub(crate) fn open<'a>(jobs: &'a [Job<'a>], files: &FileSet) -> Opened<'a> {
    Ok(Box::new(Pftrace {
        jobs,
        file: files.create("results.pftrace")?,
        sequences: 0,
    }))
}

impl Writer for Pftrace<'_> {
    fn begin<'s>(&'s mut self, job: &'s Job<'s>) -> Result<Box<dyn Sink + 's>, WriteError> {
        // A trace is a series of packets. Each session's packets follow the packets of the session
        // before, as a sequence of their own.
        self.sequences += 1;
        let mut scene = Scene {
            job,
            out: Packets::begin(&mut self.file, job, self.sequences)?,
            tracks: Tracks::default(),
            levels: Levels::default(),
            open: Vec::new(),
            read: BTreeMap::new(),
            by_queue: job.plan.group_by_queue || job.index.is_without_hip(),
        };
        scene.tracks.begin(job, &mut scene.out)?;
        Ok(Box::new(scene))
    }

    fn finish(self: Box<Self>, files: &mut FileSet) -> Result<(), WriteError> {
        files.add(self.file)?;
        // The format cannot hold notes about a trace. Where csv is written as well, it already has
        // a file of notes.
        let mut plans = self.jobs.iter().map(|job| job.plan);
        if plans.any(|plan| plan.formats.contains(&Format::Csv)) {
            return Ok(());
        }
        notes::write(self.jobs, files)
    }
}

/// A trace under construction.
struct Scene<'a> {
    job: &'a Job<'a>,
    out: Packets<'a>,
    tracks: Tracks,
    levels: Levels,
    /// Calls and ranges that had not ended at the detach. They are written at the end, inner ones
    /// first.
    open: Vec<Open>,
    /// The time up to which each track of a whole device's counter has values.
    read: BTreeMap<u64, u64>,
    by_queue: bool,
}

/// A call, or a range with its message, that had not ended at the detach. The target writes outer
/// ones before inner ones here. Those that ended come the other way round.
enum Open {
    Call(Api),
    Range(Marker, Vec<u8>),
}

impl Open {
    /// Returns the key for sorting, which puts inner ones first.
    fn order(&self) -> (u32, Reverse<u64>) {
        match self {
            Open::Call(api) => (api.tid, Reverse(api.start)),
            Open::Range(marker, _) => (marker.tid, Reverse(marker.start)),
        }
    }
}

/// A slice before its track is chosen. Its annotations are in [`Packets`].
struct Slice<'a> {
    kind: u8,
    name: Name<'a>,
    key: TrackKey,
    start: u64,
    end: u64,
    correlation: u64,
    /// The number of a kernel's dispatch, or 0.
    dispatch: u64,
}

impl Sink for Scene<'_> {
    fn record(&mut self, record: &Record<'_>) -> Result<(), WriteError> {
        match record {
            Record::Api(api, _) if self.waits(&api.header) => {
                self.open.push(Open::Call(*api));
                Ok(())
            }
            Record::Marker(marker, message) if self.waits(&marker.header) => {
                self.open.push(Open::Range(*marker, message.to_vec()));
                Ok(())
            }
            Record::Api(api, _) => self.call(api),
            Record::Marker(marker, message) => self.marker(marker, message),
            // A dispatch with counters is given together with them.
            Record::Kernel(kernel, _)
                if self.job.counting.windows.has_values(kernel.dispatch_id) =>
            {
                Ok(())
            }
            Record::Kernel(kernel, extra) => {
                let job = self.job;
                let sampled = gpu::annotations(job.trace.gpu.as_ref(), kernel, job.index);
                self.kernel(kernel, extra.as_ref(), &sampled)
            }
            Record::Copy(copy, extra) => self.copy(copy, extra.as_ref()),
            Record::MemorySet(set) => self.memory_set(set),
            Record::Synchronization(wait) => self.wait(wait),
            Record::UnifiedMemory(moved) => self.unified(moved),
            Record::Allocation(allocation) => self.allocation(allocation),
            Record::Scratch(scratch) => self.scratch(scratch),
            Record::Graph(call) => self.graph(call),
            Record::Event(call) => self.hip_event(call),
            Record::Kfd(event) if event.is_in_files() => self.driver_event(event),
            Record::RuntimeInit(runtime) => self.runtime(runtime),
            _ => Ok(()),
        }
    }

    fn counted(&mut self, counts: &Counts<'_>) -> Result<(), WriteError> {
        // The dispatches of a batch are given as records, and its values belong to none of them.
        if !self.job.plan.hide_kernels && counts.batch.is_none() {
            let values = counts.counters.iter();
            let values: Vec<(&str, Value)> = values
                .map(|(_, name, values)| (*name, Value::Real(sum(values))))
                .collect();
            self.kernel(counts.kernel, None, &values)?;
        }
        self.counters(counts)
    }

    fn read(&mut self, reading: &Reading) -> Result<(), WriteError> {
        self.reading(reading)
    }

    fn finish(mut self: Box<Self>) -> Result<(), WriteError> {
        let mut open = std::mem::take(&mut self.open);
        open.sort_by_key(Open::order);
        for one in open {
            match one {
                Open::Call(api) => self.call(&api)?,
                Open::Range(marker, message) => self.marker(&marker, &message)?,
            }
        }
        self.end_readings()?;
        self.steps()?;
        if let Some(samples) = &self.job.trace.gpu {
            self.gpu_samples(samples)?;
        }
        self.levels.finish(self.job, &mut self.out)?;
        self.out.finish()
    }
}

impl Scene<'_> {
    /// Whether a call or range is written at the end.
    fn waits(&self, header: &Header) -> bool {
        header.flags & flag::OPEN_AT_DETACH != 0 && self.open.len() < MOST_OPEN
    }

    /// Returns the flow that connects a call with its work. There is none where the caller is not
    /// known, since CUDA counts calls from 1.
    fn flow(&self, correlation: u64) -> Option<u64> {
        let unknown = correlation == 0 && self.job.index.is_cuda();
        (!unknown).then(|| self.out.flow(correlation))
    }

    fn slice(&mut self, slice: &Slice<'_>) -> Result<(), WriteError> {
        let (start, end) = (slice.start, slice.end.max(slice.start));
        let track = self
            .tracks
            .lane(self.job, &mut self.out, slice.key, start, end)?;
        let event = Event {
            kind: slice.kind,
            name: slice.name,
            track,
            flow: self.flow(slice.correlation),
            correlation: slice.correlation,
            dispatch: slice.dispatch,
        };
        self.out.slice(&event, start, end)
    }

    /// Writes untimed work as an instant, at the time when its doorbell rang, or else at the end of
    /// the session.
    fn untimed(&mut self, slice: &Slice<'_>, rung: u64, reason: u32) -> Result<(), WriteError> {
        let known = Untimed::ALL.iter().find(|known| **known as u32 == reason);
        let text = known.map_or("no reason was recorded", |known| known.text());
        self.out.annotations().text(Key::Untimed, text);
        let track = self.tracks.first(self.job, &mut self.out, slice.key)?;
        let event = Event {
            kind: slice.kind,
            name: slice.name,
            track,
            flow: self.flow(slice.correlation),
            correlation: slice.correlation,
            dispatch: slice.dispatch,
        };
        let time = match rung {
            0 => self.job.trace.process.fini_time,
            rung => rung,
        };
        self.out.instant(&event, time)
    }

    fn call(&mut self, api: &Api) -> Result<(), WriteError> {
        let job = self.job;
        let kind = api.header.kind;
        let to = self.out.annotate();
        times(to, api.start, api.end);
        caller(to, &api.header, api.tid, api.correlation, api.ancestor);
        if sets::HIP_CALLS.contains(kind) {
            to.uint(Key::StreamId, job.index.stream(api.stream));
        }
        if sets::CUDA_CALLS.contains(kind) {
            to.uint(Key::Result, api.retval);
        }
        self.slice(&Slice {
            kind,
            name: Name::Operation(job.names, kind, api.header.operation),
            key: TrackKey::Thread(api.tid),
            start: api.start,
            end: api.end,
            correlation: api.correlation,
            dispatch: 0,
        })
    }

    fn driver_event(&mut self, event: &KfdEvent) -> Result<(), WriteError> {
        let Header {
            kind, operation, ..
        } = event.header;
        times(self.out.annotate(), event.start, event.end)
            .uint(Key::Operation, operation)
            .uint(Key::Pid, event.pid)
            .uint(Key::Address, event.address)
            .uint(Key::From, event.from)
            .uint(Key::To, event.to)
            .uint(Key::Count, event.count);
        self.slice(&Slice {
            kind,
            name: Name::Operation(self.job.names, kind, operation),
            key: TrackKey::Own(kind),
            start: event.start,
            end: event.end,
            correlation: 0,
            dispatch: 0,
        })
    }

    /// Writes a launch of a graph, from its first kernel to its last.
    fn graph(&mut self, call: &GraphCall) -> Result<(), WriteError> {
        let Some(launch) = self.job.graphs.of(call) else {
            return Ok(());
        };
        let to = self.out.annotate();
        times(to, launch.start, launch.end);
        caller(to, &call.header, call.tid, call.correlation, call.ancestor);
        to.uint(Key::StreamId, self.job.index.stream(call.stream))
            .uint(Key::Graph, launch.graph)
            .uint(Key::Kernels, launch.kernels);
        if let Some(remark) = launch.remark() {
            to.text(Key::Remark, remark);
        }
        self.slice(&Slice {
            kind: kind::HIP_GRAPH,
            name: Name::Text("Graph Execution"),
            key: TrackKey::Own(kind::HIP_GRAPH),
            start: launch.start,
            end: launch.end,
            correlation: call.correlation,
            dispatch: 0,
        })
    }

    /// Writes the barrier of a call that records an event or waits for one.
    fn hip_event(&mut self, call: &EventCall) -> Result<(), WriteError> {
        let Some(event) = self.job.events.of(call) else {
            return Ok(());
        };
        let to = self.out.annotate();
        times(to, event.start, event.end);
        caller(to, &call.header, call.tid, call.correlation, call.ancestor);
        to.uint(Key::StreamId, self.job.index.stream(call.stream))
            .uint(Key::HipEvent, call.event)
            .uint(Key::Queue, queue_index(event.queue));
        if let Some(source) = event.source {
            to.uint(Key::SourceQueue, queue_index(source));
        }
        if let Some(remark) = event.remark() {
            to.text(Key::Remark, remark);
        }
        let kind = kind::HIP_EVENT;
        self.slice(&Slice {
            kind,
            name: Name::Operation(self.job.names, kind, call.header.operation),
            key: TrackKey::Own(kind),
            start: event.start,
            end: event.end,
            correlation: call.correlation,
            dispatch: 0,
        })
    }

    fn marker(&mut self, marker: &Marker, message: &[u8]) -> Result<(), WriteError> {
        let Header {
            kind, operation, ..
        } = marker.header;
        let (tid, correlation) = (marker.tid, marker.correlation);
        let to = self.out.annotate();
        times(to, marker.start, marker.end);
        caller(to, &marker.header, tid, correlation, marker.ancestor);
        let of_process = has_message(kind, operation) && operation == PROCESS_RANGE;
        self.slice(&Slice {
            kind,
            name: Name::Text(&self.job.names.marker(marker, message)),
            key: if of_process {
                TrackKey::Ranges
            } else {
                TrackKey::Thread(tid)
            },
            start: marker.start,
            end: marker.end,
            correlation,
            dispatch: 0,
        })
    }

    /// Writes a dispatch, with what it counted.
    fn kernel(
        &mut self,
        kernel: &Kernel,
        extra: Option<&CudaLaunch>,
        counted: &[(&str, Value)],
    ) -> Result<(), WriteError> {
        let job = self.job;
        let symbol = job.index.symbols.get(&kernel.kernel_id);
        let symbol = symbol.map(|symbol| symbol.record).unwrap_or_default();
        let agent = job.agent_index(kernel.node);
        let agent_name = agent_text(&agent);
        let stream = job.index.stream(kernel.stream);
        let product = |extents: [u32; 3]| {
            let product = extents.into_iter().map(u64::from).reduce(u64::wrapping_mul);
            product.unwrap_or(0)
        };
        let registers = extra.map_or(symbol.arch_vgpr, |extra| extra.registers);
        let to = self.out.annotate();
        times(to, kernel.start, kernel.end)
            .uint(Key::Kind, number_in_files(kernel.header.kind))
            .text(Key::Agent, &agent_name)
            .text(Key::AgentType, agent.of_type)
            .uint(Key::CorrId, kernel.correlation)
            .uint(Key::Queue, queue_index(kernel.queue_id))
            .uint(Key::Tid, kernel.tid)
            .uint(Key::KernelId, kernel.kernel_id)
            .uint(Key::ScratchSize, kernel.private_segment)
            .uint(Key::LdsBlockSize, kernel.group_segment)
            .uint(Key::VgprCount, registers)
            .uint(Key::AccumVgprCount, symbol.accum_vgpr)
            .uint(Key::SgprCount, symbol.sgpr)
            .uint(Key::WorkgroupSize, product(kernel.workgroup))
            .uint(Key::GridSize, product(kernel.grid))
            .uint(Key::StreamId, stream);
        if let Some(extra) = extra {
            cuda::launch(to, kernel, extra);
        }
        for (name, value) in counted {
            to.other(name, *value);
        }
        let slice = Slice {
            kind: kind::KERNEL_DISPATCH,
            name: Name::Text(&job.dispatch_name(kernel)),
            key: if self.by_queue {
                TrackKey::Compute {
                    node: kernel.node,
                    queue: kernel.queue_id,
                }
            } else {
                TrackKey::Stream(stream, kernel.node)
            },
            start: kernel.start,
            end: kernel.end,
            correlation: kernel.correlation,
            dispatch: kernel.dispatch_id,
        };
        if is_untimed(&kernel.header, kernel.untimed) {
            return self.untimed(&slice, kernel.rung, kernel.untimed);
        }
        self.slice(&slice)?;
        if kernel.rung == 0 {
            return Ok(());
        }
        let (node, queue) = (kernel.node, kernel.queue_id);
        self.change(kernel.rung, Change::Queued { node, queue })?;
        let end = kernel.end.max(kernel.rung);
        self.change(end, Change::Done { node, queue })
    }

    /// Returns the GPU of a copy: the end that is one, or of two the one that is written to.
    fn device(&self, [to, from]: [u32; 2]) -> u32 {
        let is_gpu = |node: u32| {
            let agent = self.job.agent(node);
            agent.is_some_and(|agent| agent.agent_type == AgentType::Gpu)
        };
        if !is_gpu(to) && is_gpu(from) {
            from
        } else {
            to
        }
    }

    fn copy(&mut self, copy: &Copy, extra: Option<&CudaTransfer>) -> Result<(), WriteError> {
        let job = self.job;
        let name = |node| agent_text(&job.agent_index(node));
        let stream = job.index.stream(copy.stream);
        let to = self.out.annotate();
        times(to, copy.start, copy.end)
            .uint(Key::Kind, number_in_files(copy.header.kind))
            .int(Key::Operation, i64::from(copy_direction(copy, extra)))
            .text(Key::SrcAgent, &name(copy.src_node))
            .text(Key::DstAgent, &name(copy.dst_node))
            .uint(Key::CopyBytes, copy.bytes)
            .uint(Key::CorrId, copy.correlation)
            .uint(Key::Tid, copy.tid)
            .uint(Key::StreamId, stream);
        if let Some(extra) = extra {
            cuda::transfer(to, copy, extra);
        }
        let (node, bytes) = (copy.dst_node, copy.bytes);
        let slice = Slice {
            kind: kind::MEMORY_COPY,
            name: Name::Operation(job.names, kind::MEMORY_COPY, copy_operation(copy, extra)),
            key: if self.by_queue {
                TrackKey::CopyTo {
                    node,
                    tid: copy.tid,
                }
            } else {
                TrackKey::Stream(stream, self.device([copy.dst_node, copy.src_node]))
            },
            start: copy.start,
            end: copy.end,
            correlation: copy.correlation,
            dispatch: 0,
        };
        if is_untimed(&copy.header, copy.untimed) {
            return self.untimed(&slice, 0, copy.untimed);
        }
        self.slice(&slice)?;
        let end = copy.end.max(copy.start);
        self.change(copy.start, Change::Copying { node, bytes })?;
        self.change(end, Change::Copied { node, bytes })?;
        // Bytes per nanosecond are gigabytes per second. A copy that took no time has no speed.
        let Some(speed) = bytes
            .checked_mul(1000)
            .and_then(|bytes| bytes.checked_div(end - copy.start))
        else {
            return Ok(());
        };
        self.change(copy.start, Change::Faster { node, speed })?;
        self.change(end, Change::Slower { node, speed })
    }

    fn allocation(&mut self, allocation: &Allocation) -> Result<(), WriteError> {
        let job = self.job;
        let header = allocation.header;
        let agent = match allocation.node {
            NO_NODE => String::new(),
            node => agent_text(&job.agent_index(node)),
        };
        let at = address(allocation.address);
        let (tid, correlation) = (allocation.tid, allocation.correlation);
        let to = self.out.annotate();
        times(to, allocation.start, allocation.end);
        caller(to, &header, tid, correlation, allocation.ancestor);
        to.text(Key::Agent, &agent)
            .text(Key::Address, &at)
            .uint(Key::AllocationSize, allocation.bytes);
        self.slice(&Slice {
            kind: kind::MEMORY_ALLOCATION,
            name: Name::Operation(job.names, kind::MEMORY_ALLOCATION, header.operation),
            key: TrackKey::Own(kind::MEMORY_ALLOCATION),
            start: allocation.start,
            end: allocation.end,
            correlation,
            dispatch: 0,
        })?;
        // Memory exists from the return of the allocating call until the start of the releasing
        // one.
        let address = allocation.address;
        let released = matches!(header.operation, FREE | VMEM_FREE);
        match allocation.node {
            _ if released => self.change(allocation.start, Change::Released { address }),
            NO_NODE => self.change(allocation.start, Change::Released { address }),
            node => {
                let bytes = allocation.bytes;
                let change = Change::Allocated {
                    node,
                    address,
                    bytes,
                };
                self.change(allocation.end, change)
            }
        }
    }

    fn scratch(&mut self, scratch: &Scratch) -> Result<(), WriteError> {
        let job = self.job;
        let header = scratch.header;
        let agent = agent_text(&job.agent_index(scratch.node));
        let (tid, correlation) = (scratch.tid, scratch.correlation);
        let to = self.out.annotate();
        times(to, scratch.start, scratch.end);
        caller(to, &header, tid, correlation, scratch.ancestor);
        to.text(Key::Agent, &agent)
            .uint(Key::Queue, queue_index(scratch.queue_id))
            .uint(Key::Flags, scratch.flags)
            .uint(Key::AllocationSize, scratch.bytes);
        self.slice(&Slice {
            kind: kind::SCRATCH_MEMORY,
            name: Name::Operation(job.names, kind::SCRATCH_MEMORY, header.operation),
            key: TrackKey::Scratch(scratch.node),
            start: scratch.start,
            end: scratch.end,
            correlation,
            dispatch: 0,
        })?;
        let (node, queue) = (scratch.node, scratch.queue_id);
        let bytes = scratch.bytes;
        self.change(scratch.end, Change::Scratch { node, queue, bytes })
    }

    /// Writes the start of a runtime, which AMD's traces do not have.
    fn runtime(&mut self, runtime: &RuntimeInit) -> Result<(), WriteError> {
        let job = self.job;
        // The thread is our own worker, which found the runtime there. It is not a thread of the
        // program, so the process's track is used.
        let track = self.out.process();
        let header = runtime.header;
        let annotations = self.out.annotate();
        annotations
            .uint(Key::Version, runtime.version)
            .uint(Key::Instance, runtime.instance)
            .uint(Key::CorrId, runtime.correlation);
        let event = Event {
            kind: kind::RUNTIME_INITIALIZATION,
            name: Name::Operation(job.names, header.kind, header.operation),
            track,
            flow: None,
            correlation: 0,
            dispatch: 0,
        };
        self.out.instant(&event, runtime.time)
    }

    fn change(&mut self, time: u64, change: Change) -> Result<(), WriteError> {
        self.levels.change(self.job, &mut self.out, time, change)
    }
}

/// Returns an agent's name as AMD's traces have it.
fn agent_text(agent: &AgentName) -> String {
    format!("{}-{}", agent.label, agent.index)
}

fn is_untimed(header: &Header, reason: u32) -> bool {
    reason != Untimed::Timed as u32 || header.flags & flag::UNTIMED != 0
}

/// Adds the annotations that all records with two times have.
#[inline]
fn times(to: &mut Annotations, start: u64, end: u64) -> &mut Annotations {
    to.uint(Key::BeginNs, start)
        .uint(Key::EndNs, end)
        .uint(Key::DeltaNs, end.saturating_sub(start))
}

/// Adds the annotations that all records of calls have.
#[inline]
fn caller(to: &mut Annotations, header: &Header, tid: u32, correlation: u64, ancestor: u64) {
    to.uint(Key::Tid, tid)
        .uint(Key::Kind, number_in_files(header.kind))
        .int(Key::Operation, i64::from(header.operation))
        .uint(Key::CorrId, correlation)
        .uint(Key::AncestorId, ancestor);
    if header.flags & flag::OPEN_AT_DETACH != 0 {
        to.yes(Key::OpenAtDetach);
    }
}
