//! CUPTI's activity records, as plain fields. [`super::decode`] reads them.

use std::ffi::{CStr, c_char};
use std::marker::PhantomData;

/// A text that CUPTI points to. It lives as long as the buffer with the record, at least.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Text<'a> {
    pointer: *const c_char,
    of: PhantomData<&'a CStr>,
}

impl<'a> Text<'a> {
    /// The text at an address, which nobody looks at yet.
    pub fn at(pointer: *const c_char) -> Text<'a> {
        Text {
            pointer,
            of: PhantomData,
        }
    }
    /// Where it is: two records of one kernel have the same.
    pub fn pointer(self) -> *const c_char {
        self.pointer
    }
    /// The text, or `None` where CUPTI gave none. Its length is counted first: look at the pointer before, where that does.
    ///
    /// # Safety
    /// The record came from CUPTI, and the buffer that it lies in has not been given back since.
    pub unsafe fn get(self) -> Option<&'a CStr> {
        if self.pointer.is_null() {
            return None;
        }
        // SAFETY: CUPTI's pointers lead to terminated texts that outlive the record; the caller vouches that this is one.
        Some(unsafe { CStr::from_ptr(self.pointer) })
    }
}

/// A kernel that ran. Times are ns of CUPTI's clock, here and below.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kernel<'a> {
    /// Start on the device; 0 where it is not known.
    pub start: u64,
    /// End on the device; likewise.
    pub end: u64,
    /// When the kernels that it launched itself were done, too; 0 where that is not known.
    pub completed: u64,
    /// Of the launching call.
    pub correlation: u32,
    /// Device, by CUDA's number.
    pub device: u32,
    /// CUPTI's id.
    pub context: u32,
    /// CUPTI's id.
    pub stream: u32,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Bytes.
    pub static_shared: u32,
    /// Bytes.
    pub dynamic_shared: u32,
    /// Bytes for each thread.
    pub local_per_thread: u32,
    /// For each thread.
    pub registers: u32,
    /// Mangled name.
    pub name: Text<'a>,
    /// The graph that launched it, or 0.
    pub graph: u32,
    /// The node in it, or 0.
    pub graph_node: u64,
}

/// A copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memcpy {
    /// `CUpti_ActivityMemcpyKind`.
    pub kind: u32,
    /// `CUpti_ActivityMemoryKind` of the source.
    pub src_kind: u32,
    /// `CUpti_ActivityMemoryKind` of the destination.
    pub dst_kind: u32,
    /// `MEMCPY_ASYNC`, or 0.
    pub flags: u32,
    /// How many.
    pub bytes: u64,
    /// Start on the device.
    pub start: u64,
    /// End on the device.
    pub end: u64,
    /// Device that did it.
    pub device: u32,
    /// CUPTI's id.
    pub context: u32,
    /// CUPTI's id.
    pub stream: u32,
    /// Devices of source and destination, of a copy between devices.
    pub peers: Option<(u32, u32)>,
    /// Of the launching call.
    pub correlation: u32,
    /// The graph that launched it, or 0.
    pub graph: u32,
    /// The node in it, or 0.
    pub graph_node: u64,
}

/// Memory that was filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memset {
    /// With what.
    pub value: u32,
    /// How many.
    pub bytes: u64,
    /// Start on the device.
    pub start: u64,
    /// End on the device.
    pub end: u64,
    /// Device that did it.
    pub device: u32,
    /// CUPTI's id.
    pub context: u32,
    /// CUPTI's id.
    pub stream: u32,
    /// Of the launching call.
    pub correlation: u32,
    /// `CUpti_ActivityMemoryKind`.
    pub memory_kind: u32,
    /// The graph that launched it, or 0.
    pub graph: u32,
    /// The node in it, or 0.
    pub graph_node: u64,
}

/// A call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Api {
    /// Of the runtime, else of the driver.
    pub runtime: bool,
    /// Callback id: which function.
    pub cbid: u32,
    /// Entry.
    pub start: u64,
    /// Return.
    pub end: u64,
    /// Thread that called, by the kind of number that was asked for.
    pub thread: u32,
    /// The call's own.
    pub correlation: u32,
    /// What it returned: a `cudaError_t` or `CUresult`.
    pub result: u32,
}

/// A mark, or one end of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marker<'a> {
    /// `MARKER_INSTANTANEOUS`, `MARKER_START` or `MARKER_END`.
    pub flags: u32,
    /// When.
    pub timestamp: u64,
    /// Joins both ends of a range.
    pub id: u32,
    /// `CUpti_ActivityObjectKind`; `process` and `thread` mean something where it is `PROCESS` or `THREAD`.
    pub object_kind: u32,
    /// Process.
    pub process: u32,
    /// Thread.
    pub thread: u32,
    /// What it says; nothing at a range's end.
    pub name: Text<'a>,
    /// Name of its domain, or nothing.
    pub domain: Text<'a>,
}

/// A wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Synchronization {
    /// `CUpti_ActivitySynchronizationType`.
    pub kind: u32,
    /// When it began.
    pub start: u64,
    /// When it ended.
    pub end: u64,
    /// Of the call.
    pub correlation: u32,
    /// CUPTI's id.
    pub context: u32,
    /// CUPTI's id, or `u32::MAX`.
    pub stream: u32,
    /// CUPTI's id of the event, or `u32::MAX`.
    pub event: u32,
}

/// Memory that was allocated or given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory<'a> {
    /// `CUpti_ActivityMemoryOperationType`.
    pub operation: u32,
    /// `CUpti_ActivityMemoryKind`.
    pub kind: u32,
    /// Of the call.
    pub correlation: u32,
    /// Where.
    pub address: u64,
    /// How many.
    pub bytes: u64,
    /// When.
    pub timestamp: u64,
    /// Device.
    pub device: u32,
    /// CUPTI's id.
    pub context: u32,
    /// CUPTI's id, or `u32::MAX`.
    pub stream: u32,
    /// Name of a variable, or nothing.
    pub name: Text<'a>,
}

/// Unified memory that moved or was missed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnifiedMemory {
    /// `CUpti_ActivityUnifiedMemoryCounterKind`.
    pub kind: u32,
    /// Bytes, or how often.
    pub value: u64,
    /// When it began.
    pub start: u64,
    /// When it ended.
    pub end: u64,
    /// Where.
    pub address: u64,
    /// Device that it came from. For transfers to a device this is the host's number, which means nothing: `kind` tells.
    pub src: u32,
    /// Device that it went to, likewise.
    pub dst: u32,
    /// CUPTI's id of the stream that caused it, where one did.
    pub stream: u32,
}

/// A record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity<'a> {
    /// `CONCURRENT_KERNEL`, or `KERNEL` where kernels run one by one.
    Kernel(Kernel<'a>),
    /// `MEMCPY` or `MEMCPY2`.
    Memcpy(Memcpy),
    /// `MEMSET`.
    Memset(Memset),
    /// `RUNTIME` or `DRIVER`.
    Api(Api),
    /// `MARKER`.
    Marker(Marker<'a>),
    /// `SYNCHRONIZATION`.
    Synchronization(Synchronization),
    /// `MEMORY2`.
    Memory(Memory<'a>),
    /// `UNIFIED_MEMORY_COUNTER`.
    UnifiedMemory(UnifiedMemory),
    /// A kind that we do not read.
    Other(u32),
}
