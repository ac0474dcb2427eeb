//! Records of what happened, in the form in which the target writes and the attacher reads them.
//!
//! Every record starts with a [`Header`]; `size` is a multiple of 8 and includes it. Times are
//! nanoseconds of CLOCK_BOOTTIME. A kind below 128 is the dense number of a domain
//! ([`midair_domain`]), and `kind` + `operation` name the record; AMD's numbers appear only in its
//! C interfaces and in files. Kinds from 128 describe things that records refer to.

mod burst;
mod counters;
mod cuda;
mod driver;
mod events;
mod graphs;
mod header;
mod name;
mod plain;
mod queue;
mod samples;
mod stacks;
mod traces;

pub use burst::{Burst, basis};
pub use counters::{CounterWindow, WindowResult};
pub use cuda::{
    CUDA_NODE, CudaDevice, CudaLaunch, CudaTransfer, MemorySet, Synchronization, UnifiedMemory,
    cuda_node, cuda_stream,
};
pub use driver::KfdEvent;
pub use events::{Barrier, EventCall, hip_event};
pub use graphs::{GraphBuild, GraphCall, graph, graph_build};
pub use header::Header;
pub use name::{MOST_NAME, kernel_name};
pub use plain::Plain;
pub use queue::{Queue, QueueCounts};
pub use samples::{Instruction, PcSample};
pub use stacks::{
    Code, IS_MODULE, LaunchStack, MOST_CODE_NAME, MOST_FRAMES, Module, NATIVE, NO_PYTHON,
    NO_STACKS, NativeCode, OF_OBJECT, Stack, StackCost, frames, stacks_of,
};
pub use traces::{TraceData, trace_status};

use plain::Words;

/// The end of the note about ranges for which there was no room while they were open. The attacher
/// tells by it what is the matter with markers that were lost.
pub const TOO_MANY_RANGES: &str =
    "ROCTx ranges exceeded the limit of open ranges: they are not in the trace";

/// Bytes of the largest record.
pub const MAX_RECORD: usize = 4096;

/// The kind of a record: the number of a domain ([`midair_domain`]), or of something that other
/// records refer to.
pub mod kind {
    pub use midair_domain::kind::*;

    /// Kinds of events are below this number; kinds of descriptions start with it.
    pub const FIRST_DESCRIPTION: u8 = 128;
    /// An agent as HSA knows it: node id and handle.
    pub const AGENT: u8 = FIRST_DESCRIPTION;
    /// A loaded code object.
    pub const CODE_OBJECT: u8 = 129;
    /// A kernel symbol of a code object.
    pub const KERNEL_SYMBOL: u8 = 130;
    /// A queue.
    pub const QUEUE: u8 = 131;
    /// A queue's counts at detach.
    pub const QUEUE_COUNTS: u8 = 132;
    /// A message about an error that did not stop the session.
    pub const NOTE: u8 = 133;
    /// A GPU as CUDA knows it.
    pub const CUDA_DEVICE: u8 = 134;
    /// A burst of a recording that is on for a part of the time only.
    pub const BURST: u8 = 135;
    /// A barrier packet that a call of a HIP event had the runtime write.
    pub const BARRIER: u8 = 136;
    /// A function that was on a stack.
    pub const CODE: u8 = 137;
    /// A stack at which work was launched.
    pub const STACK: u8 = 138;
    /// A call that launched work, and its stack.
    pub const LAUNCH_STACK: u8 = 139;
    /// A place in a program or a library that was on a stack.
    pub const NATIVE_CODE: u8 = 140;
    /// A program or a library that the process has mapped.
    pub const MODULE: u8 = 141;
    /// [`super::GraphBuild`].
    pub const GRAPH_BUILD: u8 = 142;
    /// An instruction that was sampled.
    pub const INSTRUCTION: u8 = 143;
}

/// Bits of [`Header::flags`].
pub mod flag {
    /// The call had not returned, or the kernel not finished, when collection stopped.
    pub const OPEN_AT_DETACH: u8 = 1;
    /// The dispatch was seen but is untimed; the reason is in `untimed`.
    pub const UNTIMED: u8 = 2;
    /// The work was launched before the attach.
    pub const ORPHAN: u8 = 4;
    /// The correlation id is the record's own: no traced call launched it.
    pub const NO_CALLER: u8 = 8;
    /// It started while the program had paused the recording. Such a record reaches no attacher.
    pub const PAUSED: u8 = 16;
    /// Recording started or ended while the call ran, so that not all of its dispatches may be there.
    pub const CUT: u8 = 32;
}

/// Why a dispatch is untimed ([`Kernel::untimed`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Untimed {
    /// The dispatch is timed.
    Timed = 0,
    /// The packet processor had read the packet before our signal was in it.
    PacketTakenFirst = 1,
    /// The pool of signals was exhausted.
    NoSignal = 2,
    /// Its own signal was reused or destroyed before its times could be read.
    SignalReused = 3,
    /// It still ran when collection stopped.
    RunningAtDetach = 4,
    /// The queue was destroyed first.
    QueueDestroyed = 5,
    /// The times read were not plausible (zero, or end before start).
    BadTimes = 6,
    /// The device did not write times for this queue: profiling was enabled after the first
    /// dispatch, and the queue has not been remapped since.
    NotProfiled = 7,
}

impl Untimed {
    /// All reasons, by number.
    pub const ALL: [Untimed; 8] = [
        Untimed::Timed,
        Untimed::PacketTakenFirst,
        Untimed::NoSignal,
        Untimed::SignalReused,
        Untimed::RunningAtDetach,
        Untimed::QueueDestroyed,
        Untimed::BadTimes,
        Untimed::NotProfiled,
    ];
    /// Returns the reason as text.
    pub fn text(self) -> &'static str {
        match self {
            Untimed::Timed => "timed",
            Untimed::PacketTakenFirst => {
                "the packet processor took it before midair set its signal"
            }
            Untimed::NoSignal => "no free signal",
            Untimed::SignalReused => "its own signal was reused before the times were read",
            Untimed::RunningAtDetach => "still running at detach",
            Untimed::QueueDestroyed => "its queue was destroyed",
            Untimed::BadTimes => "its times were implausible",
            Untimed::NotProfiled => {
                "its queue was in use without profiling before the attach, so the device wrote no times"
            }
        }
    }
}

/// An API call. Followed by `nargs` u64 (raw argument words).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Api {
    /// Common header.
    pub header: Header,
    /// Entry.
    pub start: u64,
    /// Return, or the time of the detach with [`flag::OPEN_AT_DETACH`].
    pub end: u64,
    /// Correlation id, unique in the session.
    pub correlation: u64,
    /// Correlation id of the traced call around it, or 0.
    pub ancestor: u64,
    /// Raw stream handle that the call names (0 = default stream).
    pub stream: u64,
    /// Raw return value.
    pub retval: u64,
    /// Thread id in the target's pid namespace.
    pub tid: u32,
    /// Argument words that follow.
    pub nargs: u32,
}

/// A kernel dispatch. In a CUDA process a [`CudaLaunch`] follows, and the fields have other
/// meanings:
///
/// `stream` is a [`cuda_stream`], `queue_id` is the number of that stream ([`Queue`]), and `node`
/// is the [`cuda_node`] of the device. `private_segment` is the local memory of a thread,
/// `group_segment` the sum of the static and the dynamic shared memory, and `workgroup` the block.
/// `grid` counts threads, as AMD's counts work items. `rung`, `kernel_object` and `packet_index`
/// are 0.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Kernel {
    /// Common header.
    pub header: Header,
    /// Start on the device (0 when untimed).
    pub start: u64,
    /// End on the device (0 when untimed).
    pub end: u64,
    /// Correlation id of the launching call.
    pub correlation: u64,
    /// When the doorbell rang for it.
    pub rung: u64,
    /// Number of the dispatch in this session, from 1.
    pub dispatch_id: u64,
    /// Index into the kernel symbols ([`KernelSymbol::kernel_id`]); 0 = unknown.
    pub kernel_id: u64,
    /// The packet's kernel object.
    pub kernel_object: u64,
    /// Index of the packet in its queue.
    pub packet_index: u64,
    /// Raw handle of the HIP stream, 0 = default or unknown.
    pub stream: u64,
    /// Our number of the queue ([`Queue::queue_id`]).
    pub queue_id: u32,
    /// KFD node id of the agent.
    pub node: u32,
    /// Launching thread.
    pub tid: u32,
    /// See [`Untimed`].
    pub untimed: u32,
    /// Private (scratch) bytes per work item.
    pub private_segment: u32,
    /// Group (LDS) bytes.
    pub group_segment: u32,
    /// Workgroup size.
    pub workgroup: [u32; 3],
    /// Grid size in work items.
    pub grid: [u32; 3],
}

/// An asynchronous copy. In a CUDA process a [`CudaTransfer`] follows, and `dst` and `src` are 0:
/// CUPTI does not report them.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Copy {
    /// Common header; `operation` is the direction (1 H2H, 2 H2D, 3 D2H, 4 D2D).
    pub header: Header,
    /// Start on the engine (0 when untimed).
    pub start: u64,
    /// End on the engine (0 when untimed).
    pub end: u64,
    /// Correlation id of the launching call.
    pub correlation: u64,
    /// Bytes copied.
    pub bytes: u64,
    /// Destination address.
    pub dst: u64,
    /// Source address.
    pub src: u64,
    /// Raw handle of the HIP stream.
    pub stream: u64,
    /// KFD node id of the destination agent.
    pub dst_node: u32,
    /// KFD node id of the source agent.
    pub src_node: u32,
    /// Calling thread.
    pub tid: u32,
    /// See [`Untimed`].
    pub untimed: u32,
}

/// A ROCTx mark, range or call. Followed by its message (`len` bytes, no NUL; cut if it would not
/// fit into a record).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Marker {
    /// Common header; `operation` is AMD's within the kind (`MARKER_CORE_RANGE_API`: 0 mark, 1
    /// thread range, 2 process range, 3 thread id).
    pub header: Header,
    /// Entry, or when the range was pushed or started.
    pub start: u64,
    /// Return, or when the range was popped or stopped; the time of the detach with
    /// [`flag::OPEN_AT_DETACH`].
    pub end: u64,
    /// Correlation id, unique in the session.
    pub correlation: u64,
    /// Correlation id of the traced call around it, or 0.
    pub ancestor: u64,
    /// Raw return value: a range's id or level, 0 for none.
    pub retval: u64,
    /// Thread that called, or that started the range.
    pub tid: u32,
    /// Bytes of message that follow.
    pub len: u32,
}

/// An allocation or release of memory that devices see.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Allocation {
    /// Common header; `operation` is 1 allocate, 2 vmem allocate, 3 free, 4 vmem free.
    pub header: Header,
    /// Entry of the call.
    pub start: u64,
    /// Its return.
    pub end: u64,
    /// Correlation id of the call.
    pub correlation: u64,
    /// Correlation id of the traced call around it, or 0.
    pub ancestor: u64,
    /// Address (for vmem: the handle).
    pub address: u64,
    /// Bytes; 0 for a release.
    pub bytes: u64,
    /// Raw handle of the HIP stream, 0 = default or unknown.
    pub stream: u64,
    /// KFD node id of the agent that owns the memory; [`NO_NODE`] for a release.
    pub node: u32,
    /// Calling thread.
    pub tid: u32,
}

/// [`Allocation::node`] where there is no agent.
pub const NO_NODE: u32 = u32::MAX;

/// A change of a queue's scratch memory.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Scratch {
    /// Common header; `operation` is 1 allocate, 2 free, 3 asynchronous reclaim.
    pub header: Header,
    /// When it started.
    pub start: u64,
    /// When it ended.
    pub end: u64,
    /// Correlation id.
    pub correlation: u64,
    /// Correlation id of the traced call around it, or 0.
    pub ancestor: u64,
    /// Bytes; 0 for a release.
    pub bytes: u64,
    /// Our number of the queue ([`Queue::queue_id`]).
    pub queue_id: u32,
    /// KFD node id of the queue's agent.
    pub node: u32,
    /// Thread that it happened on.
    pub tid: u32,
    /// AMD's `rocprofiler_scratch_alloc_flag_t`.
    pub flags: u32,
}

/// A runtime whose API tables were found.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RuntimeInit {
    /// Common header; `operation` is AMD's `rocprofiler_runtime_initialization_operation_t` (1 HSA,
    /// 2 HIP, 3 ROCTx, …).
    pub header: Header,
    /// When its tables were found.
    pub time: u64,
    /// Correlation id.
    pub correlation: u64,
    /// Its version, 10000 * major + 100 * minor + patch; 0 where it is not known.
    pub version: u64,
    /// Number of this instance of the library, from 0.
    pub instance: u64,
    /// Thread that passed the tables on.
    pub tid: u32,
    /// Padding, 0.
    pub reserved: u32,
}

/// An agent: links the runtime's handle to the KFD node.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Agent {
    /// Common header.
    pub header: Header,
    /// `hsa_agent_t` handle.
    pub handle: u64,
    /// KFD node id.
    pub node: u32,
    /// 1 CPU, 2 GPU.
    pub agent_type: u32,
}

/// A loaded code object. Followed by the URI (`uri_len` bytes).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CodeObject {
    /// Common header.
    pub header: Header,
    /// Our number of the code object, from 1.
    pub code_object_id: u64,
    /// Its address in the agent's address space.
    pub load_base: u64,
    /// Its size there.
    pub load_size: u64,
    /// load_base minus the lowest address in the file.
    pub load_delta: i64,
    /// Address of the image in host memory (0 if from a file).
    pub memory_base: u64,
    /// Bytes of the image in host memory.
    pub memory_size: u64,
    /// KFD node id of the agent.
    pub node: u32,
    /// Bytes of URI that follow.
    pub uri_len: u32,
}

/// A kernel of a loaded code object. Followed by its name (`name_len` bytes, mangled, with `.kd`; see
/// [`kernel_name`]).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KernelSymbol {
    /// Common header.
    pub header: Header,
    /// Our number of the kernel, from 1; an index into the list of symbols.
    pub kernel_id: u64,
    /// The code object it is in.
    pub code_object_id: u64,
    /// Address of its descriptor: what a dispatch packet names.
    pub kernel_object: u64,
    /// Offset of the code from the descriptor.
    pub entry_offset: i64,
    /// Bytes of kernel arguments.
    pub kernarg_size: u32,
    /// Their alignment.
    pub kernarg_align: u32,
    /// Static group segment bytes.
    pub group_segment: u32,
    /// Static private segment bytes.
    pub private_segment: u32,
    /// Scalar registers.
    pub sgpr: u32,
    /// Architectural vector registers.
    pub arch_vgpr: u32,
    /// Accumulation vector registers.
    pub accum_vgpr: u32,
    /// Bytes of name that follow.
    pub name_len: u32,
}

/// A message about something that went wrong without stopping the session. Followed by `len` bytes
/// of text.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Note {
    /// Common header.
    pub header: Header,
    /// Bytes of text that follow.
    pub len: u32,
    /// Padding, 0.
    pub reserved: u32,
}

/// A decoded record. Text and arguments borrow from the bytes it was read from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Record<'a> {
    /// An API call and its raw argument words (8 bytes each).
    Api(Api, &'a [u8]),
    /// A kernel dispatch, and what CUDA adds to it.
    Kernel(Kernel, Option<CudaLaunch>),
    /// A copy, and what CUDA adds to it.
    Copy(Copy, Option<CudaTransfer>),
    /// A ROCTx mark, range or call, and its message.
    Marker(Marker, &'a [u8]),
    /// An allocation or release.
    Allocation(Allocation),
    /// A change of scratch memory.
    Scratch(Scratch),
    /// A runtime whose tables were found.
    RuntimeInit(RuntimeInit),
    /// An event of the kernel driver.
    Kfd(KfdEvent),
    /// What happened to an executable graph of HIP.
    Graph(GraphCall),
    /// What happened to an event of HIP.
    Event(EventCall),
    /// A barrier packet of such a call.
    Barrier(Barrier),
    /// An agent.
    Agent(Agent),
    /// A code object and its URI.
    CodeObject(CodeObject, &'a [u8]),
    /// A kernel symbol and its mangled name.
    KernelSymbol(KernelSymbol, &'a [u8]),
    /// A queue.
    Queue(Queue),
    /// What happened to the packets of a queue.
    QueueCounts(QueueCounts),
    /// A message about an error that did not stop the session.
    Note(&'a [u8]),
    /// Device memory was filled.
    MemorySet(MemorySet),
    /// A wait.
    Synchronization(Synchronization),
    /// Unified memory moved, or was missed.
    UnifiedMemory(UnifiedMemory),
    /// A GPU of a CUDA process and its name.
    CudaDevice(CudaDevice, &'a [u8]),
    /// A window of counters, or a part of one, and the words of it (8 bytes each).
    CounterWindow(CounterWindow, &'a [u8]),
    /// A sample of a program counter.
    PcSample(PcSample),
    /// A part of a thread trace, and its bytes.
    TraceData(TraceData, &'a [u8]),
    /// A burst of a recording that is on for a part of the time only.
    Burst(Burst),
    /// A function that was on a stack, its file's name, and its own.
    Code(Code, &'a [u8], &'a [u8]),
    /// A stack and its frames (see [`frames`]).
    Stack(Stack, &'a [u8]),
    /// A call that launched work, and its stack.
    LaunchStack(LaunchStack),
    /// A place in a program or a library.
    NativeCode(NativeCode),
    /// A program or a library, and its path.
    Module(Module, &'a [u8]),
    /// A step on the way from code to the kernels of a graph.
    GraphBuild(GraphBuild),
    /// An instruction that was sampled, its text, and its line in the sources.
    Instruction(Instruction, &'a [u8], &'a [u8]),
}

impl Record<'_> {
    /// Returns the header; `None` for a note, of which only the text is kept.
    pub fn header(&self) -> Option<&Header> {
        Some(match self {
            Record::Api(api, _) => &api.header,
            Record::Kernel(kernel, _) => &kernel.header,
            Record::Copy(copy, _) => &copy.header,
            Record::Marker(marker, _) => &marker.header,
            Record::Allocation(allocation) => &allocation.header,
            Record::Scratch(scratch) => &scratch.header,
            Record::RuntimeInit(runtime) => &runtime.header,
            Record::Kfd(event) => &event.header,
            Record::Graph(call) => &call.header,
            Record::Event(call) => &call.header,
            Record::Barrier(barrier) => &barrier.header,
            Record::Agent(agent) => &agent.header,
            Record::CodeObject(object, _) => &object.header,
            Record::KernelSymbol(symbol, _) => &symbol.header,
            Record::Queue(queue) => &queue.header,
            Record::QueueCounts(counts) => &counts.header,
            Record::Note(_) => return None,
            Record::MemorySet(set) => &set.header,
            Record::Synchronization(wait) => &wait.header,
            Record::UnifiedMemory(moved) => &moved.header,
            Record::CudaDevice(device, _) => &device.header,
            Record::CounterWindow(window, _) => &window.header,
            Record::PcSample(sample) => &sample.header,
            Record::TraceData(data, _) => &data.header,
            Record::Burst(burst) => &burst.header,
            Record::Code(code, ..) => &code.header,
            Record::Stack(stack, _) => &stack.header,
            Record::LaunchStack(launch) => &launch.header,
            Record::NativeCode(code) => &code.header,
            Record::Module(module, _) => &module.header,
            Record::GraphBuild(step) => &step.header,
            Record::Instruction(instruction, ..) => &instruction.header,
        })
    }
}

/// Why bytes are not a valid record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// There are fewer bytes than the record's header says.
    #[error("a record is cut off")]
    Truncated,
    /// `size` is zero, odd, or does not fit the kind.
    #[error("a record of kind {kind} has an impossible size of {size} bytes")]
    Size {
        /// The kind.
        kind: u8,
        /// The size that its header gives.
        size: u16,
    },
    /// The kind does not exist.
    #[error("a record has the unknown kind {0}")]
    Kind(u8),
}

/// Returns the fixed part of a record and its tail.
fn with_tail<T: Plain>(body: &[u8], len: impl Fn(&T) -> usize) -> Option<(T, &[u8])> {
    let fixed = T::read(body)?;
    let tail = body.get(size_of::<T>()..)?.get(..len(&fixed))?;
    Some((fixed, tail))
}

/// Decodes the record at the front of `bytes`; returns it and its size.
///
/// # Errors
/// [`Malformed`] when the bytes are not a record. The caller must then give up on the rest of the
/// chunk.
pub fn decode(bytes: &[u8]) -> Result<(Record<'_>, usize), Malformed> {
    let header = Header::read(bytes).ok_or(Malformed::Truncated)?;
    let size = header.size as usize;
    let bad = Malformed::Size {
        kind: header.kind,
        size: header.size,
    };
    if size < size_of::<Header>() || !size.is_multiple_of(8) || size > MAX_RECORD {
        return Err(bad);
    }
    let body = bytes.get(..size).ok_or(Malformed::Truncated)?;
    /// Returns the struct that follows a `T`, if the record is long enough to have one.
    fn after<T: Plain, U: Words>(body: &[u8]) -> Option<U> {
        U::of_bytes(body.get(size_of::<T>()..)?)
    }
    let record = match header.kind {
        kind::HSA_CORE_API
        | kind::HSA_AMD_EXT_API
        | kind::HSA_IMAGE_EXT_API
        | kind::HSA_FINALIZE_EXT_API
        | kind::HIP_RUNTIME_API_EXT
        | kind::HIP_COMPILER_API_EXT
        | kind::RCCL_API
        | kind::ROCDECODE_API_EXT
        | kind::ROCJPEG_API
        | kind::OMPT
        | kind::CUDA_RUNTIME_API
        | kind::CUDA_DRIVER_API => with_tail(body, |a: &Api| (a.nargs as usize).saturating_mul(8))
            .map(|(a, t)| Record::Api(a, t)),
        kind::KERNEL_DISPATCH => {
            Kernel::read(body).map(|fixed| Record::Kernel(fixed, after::<Kernel, _>(body)))
        }
        kind::MEMORY_COPY => {
            Copy::read(body).map(|fixed| Record::Copy(fixed, after::<Copy, _>(body)))
        }
        kind::MARKER_CORE_API
        | kind::MARKER_CONTROL_API
        | kind::MARKER_NAME_API
        | kind::MARKER_CORE_RANGE_API => {
            with_tail(body, |m: &Marker| m.len as usize).map(|(m, t)| Record::Marker(m, t))
        }
        kind::MEMORY_ALLOCATION => Allocation::read(body).map(Record::Allocation),
        kind::SCRATCH_MEMORY => Scratch::read(body).map(Record::Scratch),
        kind::RUNTIME_INITIALIZATION => RuntimeInit::read(body).map(Record::RuntimeInit),
        kind::KFD_PAGE_MIGRATE
        | kind::KFD_PAGE_FAULT
        | kind::KFD_QUEUE
        | kind::KFD_EVENT_UNMAP_FROM_GPU
        | kind::KFD_EVENT_DROPPED_EVENTS => KfdEvent::read(body).map(Record::Kfd),
        kind::HIP_GRAPH => GraphCall::read(body).map(Record::Graph),
        kind::HIP_EVENT => EventCall::read(body).map(Record::Event),
        kind::BARRIER => Barrier::read(body).map(Record::Barrier),
        kind::AGENT => Agent::read(body).map(Record::Agent),
        kind::CODE_OBJECT => with_tail(body, |c: &CodeObject| c.uri_len as usize)
            .map(|(c, t)| Record::CodeObject(c, t)),
        kind::KERNEL_SYMBOL => with_tail(body, |k: &KernelSymbol| k.name_len as usize)
            .map(|(k, t)| Record::KernelSymbol(k, t)),
        kind::QUEUE => Queue::read(body).map(Record::Queue),
        kind::QUEUE_COUNTS => QueueCounts::read(body).map(Record::QueueCounts),
        kind::NOTE => with_tail(body, |n: &Note| n.len as usize).map(|(_, t)| Record::Note(t)),
        kind::MEMORY_SET => MemorySet::read(body).map(Record::MemorySet),
        kind::SYNCHRONIZATION => Synchronization::read(body).map(Record::Synchronization),
        kind::UNIFIED_MEMORY => UnifiedMemory::read(body).map(Record::UnifiedMemory),
        kind::CUDA_DEVICE => with_tail(body, |d: &CudaDevice| d.name_len as usize)
            .map(|(d, t)| Record::CudaDevice(d, t)),
        kind::COUNTER_COLLECTION => with_tail(body, |w: &CounterWindow| {
            (w.words as usize).saturating_mul(8)
        })
        .map(|(w, t)| Record::CounterWindow(w, t)),
        kind::PC_SAMPLING_HOST_TRAP | kind::PC_SAMPLING_STOCHASTIC => {
            PcSample::read(body).map(Record::PcSample)
        }
        kind::THREAD_TRACE => {
            with_tail(body, |d: &TraceData| d.bytes as usize).map(|(d, t)| Record::TraceData(d, t))
        }
        kind::BURST => Burst::read(body).map(Record::Burst),
        kind::CODE => stacks::code(body).map(|(code, file, name)| Record::Code(code, file, name)),
        kind::STACK => with_tail(body, |s: &Stack| (s.frames as usize).saturating_mul(8))
            .map(|(s, t)| Record::Stack(s, t)),
        kind::LAUNCH_STACK => LaunchStack::read(body).map(Record::LaunchStack),
        kind::NATIVE_CODE => NativeCode::read(body).map(Record::NativeCode),
        kind::MODULE => {
            with_tail(body, |m: &Module| m.path_len as usize).map(|(m, t)| Record::Module(m, t))
        }
        kind::GRAPH_BUILD => GraphBuild::read(body).map(Record::GraphBuild),
        kind::INSTRUCTION => {
            samples::instruction(body).map(|(it, text, line)| Record::Instruction(it, text, line))
        }
        other => return Err(Malformed::Kind(other)),
    };
    record.map(|r| (r, size)).ok_or(bad)
}

/// Encodes a fixed part and its tail as one record, padded to 8 bytes, with the resulting size. It
/// allocates, so it is for the worker thread and for tests, never for the hot path. A record that is
/// longer than [`MAX_RECORD`] cannot be read, so the caller cuts the tail.
pub fn encode<T: Plain>(fixed: &T, tail: &[u8]) -> Vec<u8> {
    debug_assert!(size_of::<T>() + tail.len() <= MAX_RECORD);
    let mut out = Vec::with_capacity(size_of::<T>() + tail.len() + 8);
    out.extend_from_slice(fixed.bytes());
    out.extend_from_slice(tail);
    out.resize(out.len().next_multiple_of(8), 0);
    let size = out.len() as u16;
    if let Some(front) = out.get_mut(..2) {
        front.copy_from_slice(&size.to_ne_bytes());
    }
    out
}

/// Returns a message as a record, cut if it is too long. It allocates, as [`encode`] does.
pub fn note(text: &str) -> Vec<u8> {
    let text = text.as_bytes();
    let text = text.get(..text.len().min(2000)).unwrap_or_default();
    let record = Note {
        header: Header {
            kind: kind::NOTE,
            ..Header::default()
        },
        len: text.len() as u32,
        reserved: 0,
    };
    encode(&record, text)
}

#[cfg(test)]
mod tests;
