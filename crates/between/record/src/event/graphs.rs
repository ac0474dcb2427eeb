//! Records of what happens to HIP's executable graphs.

use super::Header;

/// Operations of [`GraphCall`]: AMD's `rocprofiler_hip_graph_operation_t`.
pub mod graph {
    /// `hipGraphExecDestroy`: its handle may stand for another graph from now on.
    pub const EXEC_DESTROY: u32 = 2;
    /// `hipGraphLaunch`, or the same for the thread's own stream.
    pub const EXEC_LAUNCH: u32 = 3;
}

/// A call that launches or destroys an executable graph of HIP.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GraphCall {
    /// Common header; `operation` is one of [`mod@graph`].
    pub header: Header,
    /// Entry.
    pub start: u64,
    /// Return, or the time of the detach with [`super::flag::OPEN_AT_DETACH`].
    pub end: u64,
    /// Correlation id, which what it launches has, too.
    pub correlation: u64,
    /// Correlation id of the traced call around it, or 0.
    pub ancestor: u64,
    /// Raw stream handle that the call names (0 = default stream).
    pub stream: u64,
    /// Raw handle of the graph (`hipGraphExec_t`); 0 where the call had not returned.
    pub graph: u64,
    /// Raw return value (`hipError_t`).
    pub result: u32,
    /// How many dispatches its thread has seen in it. There may be more, which other threads saw.
    pub dispatches: u32,
    /// Thread id in the target's pid namespace.
    pub tid: u32,
    /// Padding, 0.
    pub reserved: u32,
}
