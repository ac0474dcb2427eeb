//! Converts CUPTI's records to midair's.

use crate::clock::Clock;
use crate::cupti::activity::{
    Activity, Api, Kernel, Marker, Memcpy, Memory, Memset, Synchronization, Text, UnifiedMemory,
};
use crate::kernels::{Kernels, Shape};
use crate::markers::{Event, EventKind, Markers, Range};
use crate::session::OWN_CALL;
use crate::sink::{Sink, header};
use midair_abi::cupti::{
    flag as cupti_flag, is_silent, memcpy_kind, memory_kind, memory_operation, unified_memory,
};
use midair_record::event::{
    self, CudaLaunch, CudaTransfer, KernelSymbol, MOST_NAME, MemorySet, NO_NODE, Queue, Untimed,
    cuda_node, cuda_stream, flag, kernel_name, kind,
};
use std::collections::HashMap;
use std::ffi::CStr;

/// Node of the host: the first CPU.
const HOST: u32 = 0;
/// Correlation ids of marks and ranges start here; CUPTI's own ids have 32 bits.
const MARKER_IDS: u64 = 1 << 32;
/// Ids of one burst and of the next are this far apart: CUPTI may restart its count after it was finalized.
const BURST_IDS: u64 = 1 << 33;

/// State of the conversion in a session.
#[derive(Debug)]
pub struct Drain {
    /// Destination of the records.
    pub sink: Sink,
    /// Conversion from CUPTI's clock.
    pub clock: Clock,
    /// Whether calls are recorded. If so, the correlation id in a record has its call in the
    /// records.
    calls: bool,
    /// Whether calls that only ask for state are recorded, too.
    all_calls: bool,
    /// Thread id of the worker thread. Its own calls, which query GPUs and wait for the device, are
    /// left out.
    own: u32,
    kernels: Kernels,
    markers: Markers,
    queues: HashMap<(u32, u32), u32>,
    last_queue: ((u32, u32), u32),
    dispatches: u64,
    marks: u64,
    /// How many bursts have ended before this one.
    bursts: u64,
    /// Kernels that CUPTI delivered without times.
    pub untimed: u64,
    /// Duration of the longest kernel since CUPTI was switched on, ns.
    pub longest: u64,
    /// Whether a graph has launched anything.
    pub graphs: bool,
    /// Where CUPTI identifies threads by the low half of `pthread_self`: thread ids by that half.
    /// `None` where CUPTI gives system thread ids.
    threads: Option<HashMap<u32, u32>>,
    /// Owner of the current buffer: the low half of its `pthread_self`, and its thread id.
    owner: (u32, u32),
    /// Records of kinds that were not enabled.
    pub others: u64,
    /// Kernel names that were truncated.
    pub cut: u64,
}

impl Drain {
    /// A conversion that has read nothing yet.
    pub fn new(sink: Sink, calls: bool, all_calls: bool) -> Drain {
        Drain {
            sink,
            clock: Clock::default(),
            calls,
            all_calls,
            // SAFETY: a system call without arguments.
            own: unsafe { libc::syscall(libc::SYS_gettid) } as u32,
            kernels: Kernels::default(),
            markers: Markers::default(),
            queues: HashMap::new(),
            last_queue: ((0, 0), 0),
            dispatches: 0,
            marks: 0,
            bursts: 0,
            untimed: 0,
            longest: 0,
            graphs: false,
            threads: None,
            owner: (0, 0),
            others: 0,
            cut: 0,
        }
    }

    /// Converts one record and stores the result.
    ///
    /// # Safety
    /// The texts that it points to are terminated and stay until its buffer is returned, as CUPTI
    /// documents.
    #[inline]
    pub unsafe fn convert(&mut self, activity: &Activity<'_>) {
        match activity {
            // SAFETY: the caller's promise, here and below.
            Activity::Kernel(kernel) => unsafe { self.kernel(kernel) },
            Activity::Api(api) => self.api(api),
            Activity::Memcpy(copy) => self.copy(copy),
            Activity::Memset(fill) => self.fill(fill),
            // SAFETY: as above.
            Activity::Marker(marker) => unsafe { self.marker(marker) },
            Activity::Synchronization(wait) => self.wait(wait),
            Activity::Memory(memory) => self.memory(memory),
            Activity::UnifiedMemory(moved) => self.unified(moved),
            Activity::Other(_) => self.others += 1,
        }
    }

    /// Selects identification by the low half of `pthread_self`. For system thread ids CUPTI makes
    /// one system call for each record.
    pub fn threads_by_half(&mut self) {
        self.threads = Some(HashMap::new());
    }

    /// Sets the owner of the buffer that is read next: the low half of its `pthread_self`, and its
    /// thread id.
    pub fn owner(&mut self, half: u32, tid: u32) {
        self.owner = (half, tid);
        if let Some(threads) = &mut self.threads {
            threads.insert(half, tid);
        }
    }

    /// The system's thread id for a thread as CUPTI identifies it.
    fn tid(&self, id: u32) -> u32 {
        match &self.threads {
            Some(_) if id == self.owner.0 => self.owner.1,
            Some(threads) => threads.get(&id).copied().unwrap_or(id),
            None => id,
        }
    }

    /// A burst is over, and CUPTI is finalized: what belongs to it alone is forgotten. Ranges that are
    /// open at `time` are recorded.
    pub fn end_burst(&mut self, time: u64) {
        self.close_ranges(time);
        self.kernels.forget_addresses();
        self.clock.restart();
        self.threads = None;
        self.longest = 0;
        self.bursts += 1;
    }

    /// The id of a call in the records; 0 where there is none.
    #[inline]
    fn correlation(&self, id: u32) -> u64 {
        match id {
            0 => 0,
            id => self.bursts * BURST_IDS + u64::from(id),
        }
    }

    fn caller(&self) -> u8 {
        if self.calls { 0 } else { flag::NO_CALLER }
    }

    /// # Safety
    /// As [`Drain::convert`].
    unsafe fn kernel(&mut self, kernel: &Kernel<'_>) {
        let shape = Shape {
            registers: kernel.registers,
            shared: kernel.static_shared,
        };
        let (sink, cut) = (&mut self.sink, &mut self.cut);
        let describe = |id, name: &CStr| {
            let name = name.to_bytes();
            *cut += u64::from(name.len() > MOST_NAME);
            let name = kernel_name(name);
            let symbol = KernelSymbol {
                header: header::<KernelSymbol>(kind::KERNEL_SYMBOL, 0, 0, 0),
                kernel_id: id,
                group_segment: shape.shared,
                arch_vgpr: shape.registers,
                name_len: name.len() as u32,
                ..KernelSymbol::default()
            };
            sink.put_with_text(&symbol, &name)
        };
        // SAFETY: the caller's promise.
        let kernel_id = unsafe { self.kernels.number(kernel.name.pointer(), shape, describe) };
        let queue_id = self.queue(kernel.context, kernel.stream, kernel.device);
        self.dispatches += 1;
        let (start, end, untimed) = self.times(kernel.start, kernel.end);
        let mut flags = self.caller();
        if untimed != Untimed::Timed {
            flags |= flag::UNTIMED;
            self.untimed += 1;
        }
        self.longest = self.longest.max(end - start);
        self.graphs |= kernel.graph != 0 || kernel.graph_node != 0;
        let threads = |at: usize| {
            let of = |three: [u32; 3]| three.get(at).copied().unwrap_or(1);
            of(kernel.grid).saturating_mul(of(kernel.block))
        };
        let launch = CudaLaunch {
            graph_node: kernel.graph_node,
            graph: kernel.graph,
            context: kernel.context,
            registers: kernel.registers,
            static_shared: kernel.static_shared,
            dynamic_shared: kernel.dynamic_shared,
            reserved: 0,
        };
        let record = event::Kernel {
            header: header::<event::Kernel>(
                kind::KERNEL_DISPATCH,
                0,
                flags,
                size_of::<CudaLaunch>(),
            ),
            start,
            end,
            correlation: self.correlation(kernel.correlation),
            rung: 0,
            dispatch_id: self.dispatches,
            kernel_id,
            kernel_object: 0,
            packet_index: 0,
            stream: cuda_stream(kernel.context, kernel.stream),
            queue_id,
            node: cuda_node(kernel.device),
            tid: 0,
            untimed: untimed as u32,
            private_segment: kernel.local_per_thread,
            group_segment: kernel.static_shared.saturating_add(kernel.dynamic_shared),
            workgroup: kernel.block,
            grid: [threads(0), threads(1), threads(2)],
        };
        self.sink.put(&record, launch.bytes());
    }

    /// Number of the queue that stands for a stream; a new one is recorded.
    #[inline]
    fn queue(&mut self, context: u32, stream: u32, device: u32) -> u32 {
        let key = (context, stream);
        if self.last_queue.0 == key && self.last_queue.1 != 0 {
            return self.last_queue.1;
        }
        let next = self.queues.len() as u32 + 1;
        let queue_id = match self.queues.get(&key) {
            Some(known) => *known,
            None => {
                let queue = Queue {
                    header: header::<Queue>(kind::QUEUE, 0, 0, 0),
                    handle: cuda_stream(context, stream),
                    queue_id: next,
                    node: cuda_node(device),
                    size: 0,
                    intercept: 0,
                };
                if !self.sink.put(&queue, &[]) {
                    return 0;
                }
                self.queues.insert(key, next);
                next
            }
        };
        self.last_queue = (key, queue_id);
        queue_id
    }

    fn api(&mut self, api: &Api) {
        let tid = self.tid(api.thread);
        let cupti_s = !api.runtime && api.cbid == OWN_CALL;
        if tid == self.own || cupti_s || !self.all_calls && is_silent(api.runtime, api.cbid) {
            return;
        }
        let which = if api.runtime {
            kind::CUDA_RUNTIME_API
        } else {
            kind::CUDA_DRIVER_API
        };
        let Some((start, end)) = self.moments(which, api.start, api.end) else {
            return;
        };
        let record = event::Api {
            header: header::<event::Api>(which, api.cbid, 0, 0),
            start,
            end,
            correlation: self.correlation(api.correlation),
            ancestor: 0,
            stream: 0,
            retval: api.result.into(),
            tid,
            nargs: 0,
        };
        self.sink.put(&record, &[]);
    }

    fn copy(&mut self, copy: &Memcpy) {
        let here = cuda_node(copy.device);
        // Operation numbers are AMD's: host to host, host to device, device to host, device to
        // device.
        let (operation, src, dst) = match copy.kind {
            memcpy_kind::HTOH => (1, HOST, HOST),
            memcpy_kind::HTOD | memcpy_kind::HTOA => (2, HOST, here),
            memcpy_kind::DTOH | memcpy_kind::ATOH => (3, here, HOST),
            memcpy_kind::PTOP
            | memcpy_kind::DTOD
            | memcpy_kind::DTOA
            | memcpy_kind::ATOD
            | memcpy_kind::ATOA => {
                let (from, to) = copy.peers.unwrap_or((copy.device, copy.device));
                (4, cuda_node(from), cuda_node(to))
            }
            // The driver chose the direction: the kinds of memory tell it.
            _ => {
                let node = |memory| if is_on_host(memory) { HOST } else { here };
                let (src, dst) = (node(copy.src_kind), node(copy.dst_kind));
                let operation = 1 + u32::from(dst != HOST) + 2 * u32::from(src != HOST);
                (operation, src, dst)
            }
        };
        self.queue(copy.context, copy.stream, copy.device);
        self.graphs |= copy.graph != 0 || copy.graph_node != 0;
        let (start, end, untimed) = self.times(copy.start, copy.end);
        let timed = untimed == Untimed::Timed;
        let flags = self.caller() | if timed { 0 } else { flag::UNTIMED };
        let transfer = CudaTransfer {
            graph_node: copy.graph_node,
            graph: copy.graph,
            context: copy.context,
            copy_kind: copy.kind,
            memory_kinds: copy.src_kind & 0xffff | copy.dst_kind << 16,
        };
        let record = event::Copy {
            header: header::<event::Copy>(
                kind::MEMORY_COPY,
                operation,
                flags,
                size_of::<CudaTransfer>(),
            ),
            start,
            end,
            correlation: self.correlation(copy.correlation),
            bytes: copy.bytes,
            dst: 0,
            src: 0,
            stream: cuda_stream(copy.context, copy.stream),
            dst_node: dst,
            src_node: src,
            tid: 0,
            untimed: untimed as u32,
        };
        self.sink.put(&record, transfer.bytes());
    }

    /// Start and end on our clock; or both 0, and the reason.
    fn times(&mut self, start: u64, end: u64) -> (u64, u64, Untimed) {
        if start == 0 || end == 0 {
            return (0, 0, Untimed::RunningAtDetach);
        }
        match (self.clock.convert(start), self.clock.convert(end)) {
            (Some(start), Some(end)) if start <= end => (start, end, Untimed::Timed),
            _ => (0, 0, Untimed::BadTimes),
        }
    }

    /// Start and end on our clock of a record of this kind, which is lost without them.
    #[inline]
    fn moments(&mut self, kind: u8, start: u64, end: u64) -> Option<(u64, u64)> {
        let moments = self.clock.convert(start).zip(self.clock.convert(end));
        if moments.is_none() {
            self.sink.lost(kind, 1);
        }
        moments
    }

    fn fill(&mut self, fill: &Memset) {
        self.queue(fill.context, fill.stream, fill.device);
        let (start, end, untimed) = self.times(fill.start, fill.end);
        let timed = untimed == Untimed::Timed;
        let flags = self.caller() | if timed { 0 } else { flag::UNTIMED };
        self.graphs |= fill.graph != 0 || fill.graph_node != 0;
        let record = MemorySet {
            header: header::<MemorySet>(kind::MEMORY_SET, fill.memory_kind, flags, 0),
            start,
            end,
            correlation: self.correlation(fill.correlation),
            bytes: fill.bytes,
            stream: cuda_stream(fill.context, fill.stream),
            graph_node: fill.graph_node,
            graph: fill.graph,
            context: fill.context,
            value: fill.value,
            node: cuda_node(fill.device),
            tid: 0,
            reserved: 0,
        };
        self.sink.put(&record, &[]);
    }

    fn wait(&mut self, wait: &Synchronization) {
        let Some((start, end)) = self.moments(kind::SYNCHRONIZATION, wait.start, wait.end) else {
            return;
        };
        let record = event::Synchronization {
            header: header::<event::Synchronization>(kind::SYNCHRONIZATION, wait.kind, 0, 0),
            start,
            end,
            correlation: self.correlation(wait.correlation),
            stream: cuda_stream(wait.context, wait.stream),
            event: wait.event,
            context: wait.context,
            tid: 0,
            reserved: 0,
        };
        self.sink.put(&record, &[]);
    }

    fn memory(&mut self, memory: &Memory<'_>) {
        let time = memory.timestamp;
        let Some((time, _)) = self.moments(kind::MEMORY_ALLOCATION, time, time) else {
            return;
        };
        let released = memory.operation == memory_operation::RELEASE;
        let node = if is_on_host(memory.kind) {
            HOST
        } else {
            cuda_node(memory.device)
        };
        let stream = if memory.stream == u32::MAX {
            0
        } else {
            cuda_stream(memory.context, memory.stream)
        };
        let record = event::Allocation {
            header: header::<event::Allocation>(
                kind::MEMORY_ALLOCATION,
                if released { 3 } else { 1 },
                self.caller(),
                0,
            ),
            start: time,
            end: time,
            correlation: self.correlation(memory.correlation),
            ancestor: 0,
            address: memory.address,
            bytes: if released { 0 } else { memory.bytes },
            stream,
            node: if released { NO_NODE } else { node },
            tid: 0,
        };
        self.sink.put(&record, &[]);
    }

    fn unified(&mut self, moved: &UnifiedMemory) {
        let (src, dst) = match moved.kind {
            unified_memory::BYTES_TRANSFER_HTOD => (NO_NODE, cuda_node(moved.dst)),
            unified_memory::BYTES_TRANSFER_DTOH => (cuda_node(moved.src), NO_NODE),

            unified_memory::BYTES_TRANSFER_DTOD => (cuda_node(moved.src), cuda_node(moved.dst)),
            unified_memory::GPU_PAGE_FAULT
            | unified_memory::THRASHING
            | unified_memory::THROTTLING
            | unified_memory::REMOTE_MAP => (cuda_node(moved.src), NO_NODE),
            // Page faults of a CPU.
            _ => (NO_NODE, NO_NODE),
        };
        let Some((start, end)) = self.moments(kind::UNIFIED_MEMORY, moved.start, moved.end) else {
            return;
        };
        let record = event::UnifiedMemory {
            header: header::<event::UnifiedMemory>(kind::UNIFIED_MEMORY, moved.kind, 0, 0),
            start,
            end: end.max(start),
            address: moved.address,
            value: moved.value,
            stream: moved.stream.into(),
            src_node: src,
            dst_node: dst,
        };
        self.sink.put(&record, &[]);
    }

    /// # Safety
    /// As [`Drain::convert`].
    unsafe fn marker(&mut self, marker: &Marker<'_>) {
        let event = if marker.flags & cupti_flag::MARKER_END != 0 {
            EventKind::End
        } else if marker.flags & cupti_flag::MARKER_START != 0 {
            EventKind::Begin
        } else {
            EventKind::Mark
        };
        let time = marker.timestamp;
        let Some((time, _)) = self.moments(kind::MARKER_CORE_RANGE_API, time, time) else {
            return;
        };
        let event = Event {
            kind: event,
            time,
            id: marker.id,
            tid: self.tid(marker.thread),
            // SAFETY: the caller's promise.
            name: unsafe { bytes(marker.name) },
            // SAFETY: as above.
            domain: unsafe { bytes(marker.domain) },
        };
        if let Some(range) = self.markers.add(&event) {
            self.range(&range, 0);
        }
    }

    fn range(&mut self, range: &Range, flags: u8) {
        self.marks += 1;
        let record = event::Marker {
            header: header::<event::Marker>(kind::MARKER_CORE_RANGE_API, range.operation, flags, 0),
            start: range.start,
            end: range.end,
            correlation: MARKER_IDS + self.marks,
            ancestor: 0,
            retval: range.id.into(),
            tid: range.tid,
            len: range.text.len() as u32,
        };
        self.sink.put_with_text(&record, &range.text);
    }

    fn close_ranges(&mut self, time: u64) {
        for range in self.markers.close(time) {
            self.range(&range, flag::OPEN_AT_DETACH);
        }
    }

    /// Ends the session at `time`: records the open ranges, and notes what the user must know.
    pub fn close(&mut self, time: u64) {
        self.close_ranges(time);
        let notes = [
            (
                self.markers.unmatched_ends,
                match self.bursts {
                    0 => "NVTX ranges ended that had started before the attach",
                    _ => "NVTX ranges ended in a burst that had started before it",
                },
            ),
            (
                self.markers.too_many,
                "NVTX ranges exceeded the limit of open ranges",
            ),
            (
                self.others,
                "CUPTI records have kinds that were not requested",
            ),
            (
                self.cut,
                "kernel names are too long for a record, and are truncated, with … and a distinguishing number",
            ),
            (
                self.clock.steps().into(),
                "times the wall clock was set, which CUPTI uses: times around that moment may be wrong",
            ),
            (
                self.clock.foreign,
                "times of CUPTI match no known clock: such kernels, copies and fills have no times, and other records are lost",
            ),
        ];
        for (count, text) in notes {
            if count > 0 {
                self.sink.note(&format!("{count} {text}"));
            }
        }
    }
}

/// The bytes of a text; empty for null.
///
/// # Safety
/// As [`Text::get`].
unsafe fn bytes(text: Text<'_>) -> &[u8] {
    // SAFETY: the caller's promise.
    unsafe { text.get() }.map_or(&[], CStr::to_bytes)
}

/// Whether a `CUpti_ActivityMemoryKind` is memory of the host.
fn is_on_host(memory: u32) -> bool {
    matches!(memory, memory_kind::PAGEABLE | memory_kind::PINNED)
}

#[cfg(test)]
mod tests;
