//! One event for each thing that happened.

use super::lines::{Args, Place};
use super::{MOST_NAMES, Session, row};
use crate::files::WriteError;
use midair_domain::sets;
use midair_record::event::{
    Allocation, Api, Copy, CudaLaunch, CudaTransfer, Kernel, Marker, MemorySet, NO_NODE, Scratch,
    Synchronization, UnifiedMemory, flag, kind,
};
use midair_trace::api::{has_message, number_in_files};
use midair_trace::cuda::{
    copy_direction, copy_operation, memories, memory, names_stream, unfinished,
};
use midair_trace::index::untimed;
use midair_trace::limits;
use std::io;
use std::rc::Rc;

/// `roctxRangeStartA` and its stop (source: api/rocprofiler_sdk.json).
const PROCESS_RANGE: u32 = 2;

/// The most driver calls inside one call of the runtime that are kept together.
const MOST_INNER: usize = 256;

/// The arguments that come before each record's own.
struct Work {
    device: u64,
    stream: u64,
    correlation: u64,
    /// The number of a kernel's dispatch, or 0.
    dispatch: u64,
    /// Why it has no times, if it has none.
    untimed: Option<&'static str>,
}

impl Work {
    fn put(&self, args: &mut Args<'_>) -> io::Result<()> {
        args.number("device", self.device);
        args.number("stream", self.stream);
        args.number("correlation", self.correlation);
        match self.untimed {
            Some(reason) => args.text("untimed", reason),
            None => Ok(()),
        }
    }
}

fn open_at_detach(args: &mut Args<'_>, flags: u8) {
    if flags & flag::OPEN_AT_DETACH != 0 {
        args.number("open at detach", 1);
    }
}

impl Session<'_> {
    /// Adds a call, together with the driver calls that it may enclose.
    pub(super) fn nested(&mut self, api: &Api) -> Result<(), WriteError> {
        let is_driver = api.header.kind == kind::CUDA_DRIVER_API;
        if let Some(calls) = self.inner.get_mut(&api.tid) {
            let same = calls
                .last()
                .is_some_and(|inner| inner.correlation == api.correlation);
            if is_driver && same && calls.len() < MOST_INNER {
                calls.push(*api);
                return Ok(());
            }
            let calls = self.inner.remove(&api.tid).unwrap_or_default();
            self.inner_calls(&calls, same)?;
        }
        if is_driver && self.inner.len() < MOST_NAMES {
            self.inner.insert(api.tid, vec![*api]);
            return Ok(());
        }
        self.call(api, true)
    }

    /// Adds driver calls with one correlation id. If no call of the runtime encloses them all, the
    /// last one encloses the others and gets the id.
    pub(super) fn inner_calls(
        &mut self,
        calls: &[Api],
        in_runtime: bool,
    ) -> Result<(), WriteError> {
        for (at, call) in (1..).zip(calls) {
            self.call(call, at == calls.len() && !in_runtime)?;
        }
        Ok(())
    }

    /// Adds a call. If it `launches`, it has its correlation id and an arrow.
    fn call(&mut self, api: &Api, launches: bool) -> Result<(), WriteError> {
        let (of, operation) = (api.header.kind, api.header.operation);
        let call = self.function(of, operation)?;
        let place = self.thread(api.tid)?;
        let what = (call.category, call.name.as_slice());
        let hip = sets::HIP_CALLS
            .contains(of)
            .then(|| self.job.index.stream(api.stream));
        let is_cuda = sets::CUDA_CALLS.contains(of);
        let times = (api.start, api.end);
        self.lines.complete(what, place, times, |args| {
            args.number("cbid", u64::from(operation));
            let key = if launches {
                "correlation"
            } else {
                "runtime correlation"
            };
            args.number(key, api.correlation);
            if let Some(stream) = hip {
                args.number("stream_ID", stream);
            }
            if is_cuda {
                args.number("result", api.retval);
            }
            open_at_detach(args, api.header.flags);
            Ok(())
        })?;
        if call.launches && launches && api.correlation != 0 {
            self.lines.arrow(true, api.correlation, place, api.start)?;
        }
        Ok(())
    }

    pub(super) fn marker(&mut self, marker: &Marker, message: &[u8]) -> Result<(), WriteError> {
        let header = &marker.header;
        let has_message = has_message(header.kind, header.operation);
        let name = self.json(&self.job.names.marker(marker, message))?;
        self.has_steps |= has_message && name.starts_with(b"\"ProfilerStep#");
        let times = (marker.start, marker.end);
        let place = if has_message && header.operation == PROCESS_RANGE {
            let pid = u64::from(self.job.trace.process.pid);
            self.lane(
                (pid, row::RANGES, "ranges of the process"),
                times.0,
                times.1,
            )?
        } else {
            self.thread(marker.tid)?
        };
        let category = if has_message {
            "user_annotation"
        } else {
            "cpu_op"
        };
        self.lines
            .complete((category, &name), place, times, |args| {
                args.number("thread", u64::from(marker.tid));
                open_at_detach(args, header.flags);
                Ok(())
            })
    }

    /// Returns the name of a dispatch's kernel, with its quotes.
    fn kernel_name(&mut self, kernel: &Kernel) -> Result<Rc<[u8]>, WriteError> {
        let id = kernel.kernel_id;
        if let Some(name) = self.kernels.get(&id) {
            return Ok(Rc::clone(name));
        }
        let name: Rc<[u8]> = self.json(&self.job.kernel_name(kernel))?.into();
        // Kernels without a symbol are named by their addresses.
        let is_known = self.job.index.symbols.contains_key(&id);
        if is_known && self.kernels.len() < MOST_NAMES {
            self.kernels.insert(id, Rc::clone(&name));
        }
        Ok(name)
    }

    /// Adds a slice on a stream's row, and the head of the arrow to it. Work without times is an
    /// instant at `rung`, or at the end.
    fn work(
        &mut self,
        what: (&str, &[u8]),
        (pid, work): (u64, &Work),
        (start, end): (u64, u64),
        rung: u64,
        put: impl FnOnce(&mut Args<'_>) -> io::Result<()>,
    ) -> Result<(), WriteError> {
        let stack = self.call_stack(work.correlation, work.dispatch);
        let all = |args: &mut Args<'_>| {
            work.put(args)?;
            put(args)?;
            match stack {
                Some(stack) => args.text("Call stack", &stack),
                None => Ok(()),
            }
        };
        if work.untimed.is_some() {
            let time = match rung {
                0 => self.job.trace.process.fini_time,
                rung => rung,
            };
            let place = Place {
                pid,
                tid: work.stream,
            };
            return self.lines.instant(what, place, time, all);
        }
        // Where the program has no stream, the rows stand for queues.
        let name = format!("stream {}", work.stream);
        let place = self.lane((pid, work.stream, &name), start, end)?;
        self.lines.complete(what, place, (start, end), all)?;
        if work.correlation != 0 {
            self.lines.arrow(false, work.correlation, place, start)?;
        }
        Ok(())
    }

    pub(super) fn kernel(
        &mut self,
        kernel: &Kernel,
        extra: Option<&CudaLaunch>,
        counters: &[(&str, f64)],
    ) -> Result<(), WriteError> {
        let job = self.job;
        let name = self.kernel_name(kernel)?;
        let pid = self.device(kernel.node)?;
        let symbol = job.index.symbols.get(&kernel.kernel_id);
        let symbol = symbol.map(|symbol| symbol.record).unwrap_or_default();
        let work = Work {
            device: self.number(kernel.node),
            stream: self.stream(kernel.stream),
            correlation: kernel.correlation,
            dispatch: kernel.dispatch_id,
            untimed: untimed(kernel.header.flags, kernel.untimed),
        };
        let blocks = |axis: usize| {
            let of = |extents: &[u32; 3]| extents.get(axis).copied().unwrap_or(0);
            of(&kernel.grid).div_ceil(of(&kernel.workgroup).max(1))
        };
        let grid = [blocks(0), blocks(1), blocks(2)];
        let times = (kernel.start, kernel.end);
        self.work(
            ("kernel", &name),
            (pid, &work),
            times,
            kernel.rung,
            |args| {
                args.extents("grid", grid);
                args.extents("block", kernel.workgroup);
                let registers = extra.map_or(symbol.arch_vgpr, |extra| extra.registers);
                args.number("registers per thread", u64::from(registers));
                args.number("shared memory", u64::from(kernel.group_segment));
                args.number("scratch", u64::from(kernel.private_segment));
                args.number("dispatch", kernel.dispatch_id);
                args.number("queue", u64::from(kernel.queue_id));
                args.number("thread", u64::from(kernel.tid));
                if let Some(extra) = extra {
                    args.number("context", u64::from(extra.context));
                    args.number("graph id", u64::from(extra.graph));
                    args.number("graph node id", extra.graph_node);
                }
                counters
                    .iter()
                    .try_for_each(|(name, value)| args.real(name, *value))
            },
        )
    }

    pub(super) fn copy(
        &mut self,
        copy: &Copy,
        extra: Option<&CudaTransfer>,
    ) -> Result<(), WriteError> {
        let job = self.job;
        // The GPU among the two ends. If both are GPUs, it is the one that is written to.
        let node = [copy.dst_node, copy.src_node]
            .into_iter()
            .find(|node| self.is_gpu(*node))
            .unwrap_or(copy.dst_node);
        let pid = self.device(node)?;
        let direction = match copy_direction(copy, extra) {
            1 => "Memcpy HtoH",
            2 => "Memcpy HtoD",
            3 => "Memcpy DtoH",
            4 if copy.src_node != copy.dst_node => "Memcpy PtoP",
            4 => "Memcpy DtoD",
            _ => "Memcpy",
        };
        let name = match extra.map(memories) {
            Some((from, to)) => format!("{direction} ({} -> {})", title(from), title(to)),
            None => direction.to_owned(),
        };
        let name = self.json(&name)?;
        let work = Work {
            device: self.number(node),
            stream: self.stream(copy.stream),
            correlation: copy.correlation,
            dispatch: 0,
            untimed: untimed(copy.header.flags, copy.untimed),
        };
        let times = (copy.start, copy.end);
        let what = ("gpu_memcpy", name.as_slice());
        self.work(what, (pid, &work), times, 0, |args| {
            args.number("bytes", copy.bytes);
            let nanoseconds = copy.end.saturating_sub(copy.start);
            if nanoseconds > 0 {
                // Bytes per nanosecond are gigabytes per second.
                let speed = copy.bytes as f64 / nanoseconds as f64;
                args.real("memory bandwidth (GB/s)", speed)?;
            }
            let operation = copy_operation(copy, extra);
            args.text(
                "operation",
                &job.names.operation(kind::MEMORY_COPY, operation),
            )?;
            args.text("from", &job.agent_name(copy.src_node))?;
            args.text("to", &job.agent_name(copy.dst_node))?;
            args.number("thread", u64::from(copy.tid));
            Ok(())
        })
    }

    pub(super) fn memory_set(&mut self, set: &MemorySet) -> Result<(), WriteError> {
        let pid = self.device(set.node)?;
        let name = format!("Memset ({})", title(memory(set.header.operation)));
        let name = self.json(&name)?;
        let reason = unfinished(set.start, set.end);
        let work = Work {
            device: self.number(set.node),
            stream: self.stream(set.stream),
            correlation: set.correlation,
            dispatch: 0,
            untimed: untimed(set.header.flags, reason),
        };
        let times = (set.start, set.end);
        let what = ("gpu_memset", name.as_slice());
        self.work(what, (pid, &work), times, set.start, |args| {
            args.number("bytes", set.bytes);
            args.number("value", u64::from(set.value));
            args.number("context", u64::from(set.context));
            Ok(())
        })
    }

    /// Adds a wait. It does not belong to the work of a stream, where it would count as busy time.
    pub(super) fn wait(&mut self, wait: &Synchronization) -> Result<(), WriteError> {
        let operation = wait.header.operation;
        let name = match operation {
            1 => "Event Sync",
            2 => "Stream Wait Event",
            3 => "Stream Sync",
            4 => "Context Sync",
            _ => "Sync",
        };
        let name = self.json(name)?;
        let waits_on = names_stream(wait.stream).then(|| self.stream(wait.stream));
        let put = |args: &mut Args<'_>| {
            args.number("correlation", wait.correlation);
            if let Some(stream) = waits_on {
                args.number("wait_on_stream", stream);
            }
            args.number("context", u64::from(wait.context));
            args.number("thread", u64::from(wait.tid));
            Ok(())
        };
        self.own(
            ("cuda_sync", &name),
            (row::WAITS, "waits"),
            (wait.start, wait.end),
            put,
        )
    }

    /// Adds work that has a row of its own below the process.
    fn own(
        &mut self,
        what: (&str, &[u8]),
        (row, name): (u64, &str),
        (start, end): (u64, u64),
        put: impl FnOnce(&mut Args<'_>) -> io::Result<()>,
    ) -> Result<(), WriteError> {
        let pid = u64::from(self.job.trace.process.pid);
        if start == 0 || end == 0 {
            let time = self.job.trace.process.fini_time;
            return self.lines.instant(what, Place { pid, tid: row }, time, put);
        }
        let place = self.lane((pid, row, name), start, end)?;
        self.lines.complete(what, place, (start, end), put)
    }

    pub(super) fn unified(&mut self, moved: &UnifiedMemory) -> Result<(), WriteError> {
        let job = self.job;
        let name = job
            .names
            .operation(kind::UNIFIED_MEMORY, moved.header.operation);
        let name = self.json(&name)?;
        let times = (moved.start, moved.end);
        let what = ("unified_memory", name.as_slice());
        self.own(what, (row::UNIFIED, "unified memory"), times, |args| {
            args.text("from", &job.agent_name(moved.src_node))?;
            args.text("to", &job.agent_name(moved.dst_node))?;
            args.number("Addr", moved.address);
            args.number("value", moved.value);
            Ok(())
        })
    }

    pub(super) fn allocation(&mut self, allocation: &Allocation) -> Result<(), WriteError> {
        let job = self.job;
        let kind = kind::MEMORY_ALLOCATION;
        let name = job.names.operation(kind, allocation.header.operation);
        let name = self.json(&name)?;
        let row = row::OWN + u64::from(number_in_files(kind));
        let times = (allocation.start, allocation.end);
        self.own(
            ("memory_allocation", &name),
            (row, "memory"),
            times,
            |args| {
                args.number("Addr", allocation.address);
                args.number("Bytes", allocation.bytes);
                if allocation.node != NO_NODE {
                    args.text("agent", &job.agent_name(allocation.node))?;
                }
                args.number("thread", u64::from(allocation.tid));
                Ok(())
            },
        )
    }

    pub(super) fn scratch(&mut self, scratch: &Scratch) -> Result<(), WriteError> {
        let job = self.job;
        let kind = kind::SCRATCH_MEMORY;
        let name = job.names.operation(kind, scratch.header.operation);
        let name = self.json(&name)?;
        let row = row::OWN + u64::from(number_in_files(kind));
        let times = (scratch.start, scratch.end);
        self.own(
            ("scratch_memory", &name),
            (row, "scratch memory"),
            times,
            |args| {
                args.number("Bytes", scratch.bytes);
                args.text("agent", &job.agent_name(scratch.node))?;
                args.number("queue", u64::from(scratch.queue_id));
                Ok(())
            },
        )
    }
}

/// Returns "Pinned" for "PINNED".
fn title(word: &str) -> String {
    let word = limits::text(word.as_bytes());
    let mut letters = word.chars();
    let first = letters.next().into_iter();
    first
        .chain(letters.map(|letter| letter.to_ascii_lowercase()))
        .map(|letter| if letter == '_' { ' ' } else { letter })
        .collect()
}
