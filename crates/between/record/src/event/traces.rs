//! Records of thread traces.

#[cfg(doc)]
use super::Kernel;
use super::header::Header;

/// A part of what a shader engine wrote during a thread trace. `bytes` bytes of it follow, a multiple of
/// eight.
///
/// The data starts with the eight bytes that AMD's library writes before it
/// (`docs/sources.md#att`).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TraceData {
    /// Common header.
    pub header: Header,
    /// Number of the trace in this session, from 1.
    pub trace: u64,
    /// [`Kernel::dispatch_id`] of the first dispatch in it.
    pub dispatch_id: u64,
    /// When it started on the device.
    pub start: u64,
    /// When it ended.
    pub end: u64,
    /// Bytes of the engine's whole data.
    pub total: u64,
    /// Index of the first byte that follows.
    pub first: u64,
    /// KFD node id of the agent.
    pub node: u32,
    /// Number of the engine among all of the agent's.
    pub engine: u32,
    /// Bits of [`trace_status`].
    pub status: u32,
    /// How many bytes follow.
    pub bytes: u32,
}

/// Bits of [`TraceData::status`].
pub mod trace_status {
    /// The engine's buffer was full: the end is missing.
    pub const FULL: u32 = 1;
    /// The engine met an error of memory.
    pub const MEMORY_ERROR: u32 = 2;
}
