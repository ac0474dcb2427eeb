//! CUPTI's activity records as plain fields. [`super::decode`] reads them.

use std::ffi::{CStr, c_char};
use std::marker::PhantomData;

/// A text that CUPTI points to. It lives at least as long as the buffer that contains the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Text<'a> {
    pointer: *const c_char,
    of: PhantomData<&'a CStr>,
}

impl<'a> Text<'a> {
    /// A text at an address. Nothing is read yet.
    pub fn at(pointer: *const c_char) -> Text<'a> {
        Text {
            pointer,
            of: PhantomData,
        }
    }
    /// The address. Two records of one kernel have the same.
    pub fn pointer(self) -> *const c_char {
        self.pointer
    }
    /// The text, or `None` where CUPTI gave none. Its length is computed first: compare
    /// [`Text::pointer`] where that is enough.
    ///
    /// # Safety
    /// The record came from CUPTI, and the buffer that contains it has not been returned to CUPTI
    /// since.
    pub unsafe fn get(self) -> Option<&'a CStr> {
        if self.pointer.is_null() {
            return None;
        }
        // SAFETY: CUPTI's pointers lead to terminated texts that outlive the record; the caller
        // vouches that this is one.
        Some(unsafe { CStr::from_ptr(self.pointer) })
    }
}

/// A kernel execution. Times are ns of CUPTI's clock, here and below.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kernel<'a> {
    /// Start on the device; 0 where it is unknown.
    pub start: u64,
    /// End on the device; 0 where it is unknown.
    pub end: u64,
    /// When the kernels that this kernel launched had ended, too; 0 where it is unknown.
    pub completed: u64,
    /// Correlation id of the launching call.
    pub correlation: u32,
    /// Device ordinal of CUDA.
    pub device: u32,
    /// Context id of CUPTI.
    pub context: u32,
    /// Stream id of CUPTI.
    pub stream: u32,
    /// Blocks per grid.
    pub grid: [u32; 3],
    /// Threads per block.
    pub block: [u32; 3],
    /// Static shared memory, bytes.
    pub static_shared: u32,
    /// Dynamic shared memory, bytes.
    pub dynamic_shared: u32,
    /// Local memory, bytes per thread.
    pub local_per_thread: u32,
    /// Registers per thread.
    pub registers: u32,
    /// Mangled name.
    pub name: Text<'a>,
    /// The graph that launched it, or 0.
    pub graph: u32,
    /// The node in it, or 0.
    pub graph_node: u64,
}

/// A copy of memory.
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
    /// Bytes copied.
    pub bytes: u64,
    /// Start on the device.
    pub start: u64,
    /// End on the device.
    pub end: u64,
    /// Device that performed it.
    pub device: u32,
    /// Context id of CUPTI.
    pub context: u32,
    /// Stream id of CUPTI.
    pub stream: u32,
    /// Source and destination device, for a copy between devices.
    pub peers: Option<(u32, u32)>,
    /// Correlation id of the launching call.
    pub correlation: u32,
    /// The graph that launched it, or 0.
    pub graph: u32,
    /// The node in it, or 0.
    pub graph_node: u64,
}

/// A fill of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memset {
    /// Value that is written.
    pub value: u32,
    /// Bytes filled.
    pub bytes: u64,
    /// Start on the device.
    pub start: u64,
    /// End on the device.
    pub end: u64,
    /// Device that performed it.
    pub device: u32,
    /// Context id of CUPTI.
    pub context: u32,
    /// Stream id of CUPTI.
    pub stream: u32,
    /// Correlation id of the launching call.
    pub correlation: u32,
    /// `CUpti_ActivityMemoryKind`.
    pub memory_kind: u32,
    /// The graph that launched it, or 0.
    pub graph: u32,
    /// The node in it, or 0.
    pub graph_node: u64,
}

/// A call of the runtime or the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Api {
    /// Whether it is a call of the runtime; otherwise of the driver.
    pub runtime: bool,
    /// Callback id, which tells the function.
    pub cbid: u32,
    /// Time of entry.
    pub start: u64,
    /// Time of return.
    pub end: u64,
    /// Calling thread, in the numbering that was selected.
    pub thread: u32,
    /// Correlation id.
    pub correlation: u32,
    /// Result: a `cudaError_t` or `CUresult`.
    pub result: u32,
}

/// A mark, or one end of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marker<'a> {
    /// `MARKER_INSTANTANEOUS`, `MARKER_START` or `MARKER_END`.
    pub flags: u32,
    /// Time.
    pub timestamp: u64,
    /// Id that both ends of a range have in common.
    pub id: u32,
    /// `CUpti_ActivityObjectKind`; `process` and `thread` are valid where it is `PROCESS` or
    /// `THREAD`.
    pub object_kind: u32,
    /// Process.
    pub process: u32,
    /// Thread.
    pub thread: u32,
    /// Message; null at the end of a range.
    pub name: Text<'a>,
    /// Name of the domain; null for the default domain.
    pub domain: Text<'a>,
}

/// A synchronization call that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Synchronization {
    /// `CUpti_ActivitySynchronizationType`.
    pub kind: u32,
    /// Start.
    pub start: u64,
    /// End.
    pub end: u64,
    /// Correlation id of the call.
    pub correlation: u32,
    /// Context id of CUPTI.
    pub context: u32,
    /// Stream id of CUPTI, or `u32::MAX`.
    pub stream: u32,
    /// Event id of CUPTI, or `u32::MAX`.
    pub event: u32,
}

/// Memory that was allocated or freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory<'a> {
    /// `CUpti_ActivityMemoryOperationType`.
    pub operation: u32,
    /// `CUpti_ActivityMemoryKind`.
    pub kind: u32,
    /// Correlation id of the call.
    pub correlation: u32,
    /// Address.
    pub address: u64,
    /// Bytes.
    pub bytes: u64,
    /// Time.
    pub timestamp: u64,
    /// Device.
    pub device: u32,
    /// Context id of CUPTI.
    pub context: u32,
    /// Stream id of CUPTI, or `u32::MAX`.
    pub stream: u32,
    /// Name of a variable, or null.
    pub name: Text<'a>,
}

/// A migration of unified memory, or a page fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnifiedMemory {
    /// `CUpti_ActivityUnifiedMemoryCounterKind`.
    pub kind: u32,
    /// Bytes, or a count, depending on `kind`.
    pub value: u64,
    /// Start.
    pub start: u64,
    /// End.
    pub end: u64,
    /// Address.
    pub address: u64,
    /// Source device. In a transfer from the host it has no meaning: `kind` tells the direction.
    pub src: u32,
    /// Destination device, likewise.
    pub dst: u32,
    /// Stream id of CUPTI of the stream that caused it, where one did.
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
    /// A kind that is not decoded.
    Other(u32),
}
