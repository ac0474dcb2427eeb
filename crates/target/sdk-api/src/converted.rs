//! A record of any kind in AMD's layout.

use midair_abi::records::{
    HipApi, HipApiExt, HipEvent, HipGraph, HsaApi, KernelDispatch, MarkerApi, MemoryAllocation,
    MemoryCopy, OpenMp, RocdecodeApiExt, RuntimeInitialization, ScratchMemory,
};

/// A record in AMD's layout.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Converted {
    /// HSA call.
    Hsa(HsaApi),
    /// HIP call.
    Hip(HipApi),
    /// HIP call with arguments.
    HipExt(HipApiExt),
    /// rocDecode call with arguments.
    RocdecodeExt(RocdecodeApiExt),
    /// Event of OpenMP.
    OpenMp(OpenMp),
    /// Dispatch.
    Kernel(KernelDispatch),
    /// Copy.
    Copy(MemoryCopy),
    /// Allocation.
    Allocation(MemoryAllocation),
    /// Scratch memory.
    Scratch(ScratchMemory),
    /// Runtime.
    Runtime(RuntimeInitialization),
    /// ROCTx.
    Marker(MarkerApi),
    /// Launch of a graph.
    Graph(HipGraph),
    /// Call of an event.
    Event(HipEvent),
}

impl Converted {
    /// Returns its kind, as in the record's header.
    pub fn kind(&self) -> u32 {
        let kind = match self {
            Converted::Hsa(record) => record.kind,
            Converted::Hip(record) => record.kind,
            Converted::HipExt(record) => record.kind,
            Converted::RocdecodeExt(record) => record.kind,
            Converted::OpenMp(record) => record.kind,
            Converted::Kernel(record) => record.kind,
            Converted::Copy(record) => record.kind,
            Converted::Allocation(record) => record.kind,
            Converted::Scratch(record) => record.kind,
            Converted::Runtime(record) => record.kind,
            Converted::Marker(record) => record.kind,
            Converted::Graph(record) => record.kind,
            Converted::Event(record) => record.kind,
        };
        kind as u32
    }
    /// Returns the record as words.
    pub fn words(&self) -> &[u64] {
        fn words<T>(record: &T) -> &[u64] {
            const { assert!(size_of::<T>().is_multiple_of(8) && align_of::<T>() == 8) };
            // SAFETY: the records of this enum consist of integers without padding (their fields'
            // offsets are checked against the JSON), and are aligned and sized to words.
            unsafe { std::slice::from_raw_parts((&raw const *record).cast(), size_of::<T>() / 8) }
        }
        match self {
            Converted::Hsa(record) => words(record),
            Converted::Hip(record) => words(record),
            Converted::HipExt(record) => words(record),
            Converted::RocdecodeExt(record) => words(record),
            Converted::OpenMp(record) => words(record),
            Converted::Kernel(record) => words(record),
            Converted::Copy(record) => words(record),
            Converted::Allocation(record) => words(record),
            Converted::Scratch(record) => words(record),
            Converted::Runtime(record) => words(record),
            Converted::Marker(record) => words(record),
            Converted::Graph(record) => words(record),
            Converted::Event(record) => words(record),
        }
    }
}
