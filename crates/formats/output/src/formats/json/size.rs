//! The sizes of AMD's structs, which each record names (source: api/rocprofiler_sdk.json; the
//! golden json for the tool's structs).

pub(super) const HIP_API: u64 = 176;
pub(super) const HSA_API: u64 = 64;
pub(super) const ROCDECODE_API: u64 = 112;
pub(super) const OPENMP: u64 = 104;
pub(super) const MEMORY_COPY: u64 = 96;
pub(super) const KERNEL_DISPATCH: u64 = 184;
pub(super) const DISPATCH_INFO: u64 = 72;
pub(super) const DISPATCH_COUNTING: u64 = 168;
pub(super) const MARKER_API: u64 = 64;
pub(super) const MEMORY_ALLOCATION: u64 = 88;
pub(super) const SCRATCH_MEMORY: u64 = 96;
pub(super) const HIP_GRAPH: u64 = 96;
pub(super) const HIP_EVENT: u64 = 88;
