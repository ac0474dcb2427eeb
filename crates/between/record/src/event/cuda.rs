//! Records and parts of records that only a CUDA process has. The layouts of CUPTI's own records
//! are not here: they differ from version to version and are read in the target.

use super::Header;
#[cfg(doc)]
use super::{Copy, Kernel, NO_NODE, Queue};

/// What CUDA adds to a [`Kernel`]. Source of each field: `CUpti_ActivityKernel*` in
/// api/cupti_1x.json.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CudaLaunch {
    /// Id of the node in the graph that launched it, or 0.
    pub graph_node: u64,
    /// Id of that graph, or 0.
    pub graph: u32,
    /// CUPTI's id of the context.
    pub context: u32,
    /// Registers per thread.
    pub registers: u32,
    /// Static shared memory, bytes.
    pub static_shared: u32,
    /// Dynamic shared memory, bytes.
    pub dynamic_shared: u32,
    /// Padding, 0.
    pub reserved: u32,
}

/// What CUDA adds to a [`struct@Copy`]. Source: `CUpti_ActivityMemcpy*`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CudaTransfer {
    /// Id of the node in the graph that launched it, or 0.
    pub graph_node: u64,
    /// Id of that graph, or 0.
    pub graph: u32,
    /// CUPTI's id of the context.
    pub context: u32,
    /// `CUpti_ActivityMemcpyKind`.
    pub copy_kind: u32,
    /// `CUpti_ActivityMemoryKind` of the source in the low 16 bits, and of the destination in the
    /// high 16 bits.
    pub memory_kinds: u32,
}

/// Device memory that was filled with a value. Source: `CUpti_ActivityMemset*`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemorySet {
    /// Common header; `operation` is the `CUpti_ActivityMemoryKind`.
    pub header: Header,
    /// Start on the device.
    pub start: u64,
    /// End on the device.
    pub end: u64,
    /// Correlation id of the launching call.
    pub correlation: u64,
    /// Bytes filled.
    pub bytes: u64,
    /// See [`cuda_stream`].
    pub stream: u64,
    /// Id of the node in the graph that launched it, or 0.
    pub graph_node: u64,
    /// Id of that graph, or 0.
    pub graph: u32,
    /// CUPTI's id of the context.
    pub context: u32,
    /// The value.
    pub value: u32,
    /// See [`cuda_node`].
    pub node: u32,
    /// Thread that launched it, 0 where it is not known.
    pub tid: u32,
    /// Padding, 0.
    pub reserved: u32,
}

/// A wait of a thread or a stream. Source: `CUpti_ActivitySynchronization*`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Synchronization {
    /// Common header; `operation` is the `CUpti_ActivitySynchronizationType`: 1 event, 2 a stream
    /// waits for an event, 3 stream, 4 context.
    pub header: Header,
    /// When the wait started.
    pub start: u64,
    /// When it ended.
    pub end: u64,
    /// Correlation id of the call.
    pub correlation: u64,
    /// See [`cuda_stream`]; the stream part is `u32::MAX` where none is named.
    pub stream: u64,
    /// CUPTI's id of the event, or `u32::MAX`.
    pub event: u32,
    /// CUPTI's id of the context.
    pub context: u32,
    /// Thread that called, 0 where it is not known.
    pub tid: u32,
    /// Padding, 0.
    pub reserved: u32,
}

/// A migration or a fault of unified memory. Source: `CUpti_ActivityUnifiedMemoryCounter*`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UnifiedMemory {
    /// Common header; `operation` is the `CUpti_ActivityUnifiedMemoryCounterKind`.
    pub header: Header,
    /// When it started.
    pub start: u64,
    /// When it ended.
    pub end: u64,
    /// Virtual address.
    pub address: u64,
    /// Bytes moved, or the number of faults.
    pub value: u64,
    /// See [`cuda_stream`].
    pub stream: u64,
    /// [`cuda_node`] of the source, [`NO_NODE`] for the host or none.
    pub src_node: u32,
    /// [`cuda_node`] of the destination, likewise.
    pub dst_node: u32,
}

/// A GPU of a CUDA process. Followed by its name (`name_len` bytes). A field that CUDA did not
/// report is 0. Source: `cuDeviceGetAttribute` and similar functions.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CudaDevice {
    /// Common header.
    pub header: Header,
    /// Bytes of memory.
    pub memory: u64,
    /// Its UUID.
    pub uuid: [u8; 16],
    /// Its number among the devices that the process sees; records refer to it as [`cuda_node`] of
    /// this.
    pub ordinal: u32,
    /// PCI domain.
    pub pci_domain: u32,
    /// PCI bus.
    pub pci_bus: u32,
    /// PCI device.
    pub pci_device: u32,
    /// Compute capability, major.
    pub major: u32,
    /// Compute capability, minor.
    pub minor: u32,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Threads of a warp.
    pub warp: u32,
    /// Threads that one multiprocessor holds.
    pub threads_per_multiprocessor: u32,
    /// The most threads of a block.
    pub threads_per_block: u32,
    /// Shared memory of a multiprocessor, bytes.
    pub shared_per_multiprocessor: u32,
    /// Registers of a multiprocessor.
    pub registers_per_multiprocessor: u32,
    /// Highest clock, kHz.
    pub clock_khz: u32,
    /// Highest memory clock, kHz.
    pub memory_clock_khz: u32,
    /// Bits of the memory bus.
    pub memory_bus_bits: u32,
    /// Bytes of second-level cache.
    pub l2_bytes: u32,
    /// Largest block, in each direction.
    pub block_limits: [u32; 3],
    /// Largest grid in blocks, in each direction.
    pub grid_limits: [u32; 3],
    /// Bytes of name that follow.
    pub name_len: u32,
    /// Padding, 0.
    pub reserved: u32,
}

/// The first node id that stands for a CUDA device. KFD's node ids never get this large.
pub const CUDA_NODE: u32 = 1 << 16;

/// Returns the number that records have in place of a KFD node id for the CUDA device `ordinal`.
pub const fn cuda_node(ordinal: u32) -> u32 {
    CUDA_NODE.saturating_add(ordinal)
}

/// Returns the number that records have in place of a stream's handle. It is made of CUPTI's ids of
/// the context and of the stream, which together identify the stream. It is never 0, not even for
/// the default stream of the first context, since CUPTI counts contexts from 1.
pub const fn cuda_stream(context: u32, stream: u32) -> u64 {
    (context as u64) << 32 | stream as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_streams_and_devices() {
        assert_eq!(cuda_stream(1, 7), 0x1_0000_0007);
        assert_eq!(cuda_stream(0x8000_0001, u32::MAX), 0x8000_0001_ffff_ffff);
        assert_eq!((cuda_node(0), cuda_node(3)), (65_536, 65_539));
        assert_eq!(cuda_node(u32::MAX), u32::MAX);
    }
}
