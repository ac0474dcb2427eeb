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

/// Operations of [`GraphBuild`].
pub mod graph_build {
    /// A capture starts on the stream `subject`. It adds to the graph `made` where that is not 0.
    pub const BEGIN: u32 = 1;
    /// A launch into the stream `subject` became a node of a graph.
    pub const LAUNCH: u32 = 2;
    /// The capture on the stream `subject` has made the graph `made`.
    pub const END: u32 = 3;
    /// The graph `subject` has become the executable graph `made`.
    pub const INSTANTIATE: u32 = 4;
    /// The graph `made` is a copy of the graph `subject`.
    pub const COPY: u32 = 5;
    /// Nodes of `subject` were added or changed otherwise than by a capture: of a graph, an executable
    /// graph, the graph that is captured on a stream, or of any graph (0).
    pub const CHANGE: u32 = 6;
    /// The graph or executable graph `subject` is no more.
    pub const DESTROY: u32 = 7;
    /// The call with this correlation id launches the executable graph `subject`.
    pub const REPLAY: u32 = 8;
    /// The node `subject` was captured at a stack. Kernels name their nodes
    /// ([`crate::event::CudaLaunch::graph_node`]).
    pub const NODE: u32 = 9;
    /// The node `made`, of an executable graph or of a copy of a graph, stands for the node `subject`.
    pub const NODE_COPY: u32 = 10;
    /// The graph `made` is new and has no nodes.
    pub const CREATE: u32 = 11;
    /// The program has added the node `made`, a kernel, to the graph `subject`. It depends on the node
    /// `after`, or on none (0), and perhaps on others.
    pub const ADD: u32 = 12;
    /// The program has added a node to the graph `subject` that is a copy of the graph `made`.
    pub const ADD_CHILD: u32 = 13;
    /// The program has changed the node `made`, a kernel, of the executable graph `subject`. The sizes are
    /// those that it has now.
    pub const SET: u32 = 14;
}

/// A step on the way from the code that describes a graph's kernels to their dispatches. It is there in
/// sessions that take stacks.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GraphBuild {
    /// Common header; `operation` is one of [`mod@graph_build`].
    pub header: Header,
    /// Entry.
    pub start: u64,
    /// Return.
    pub end: u64,
    /// Correlation id of a launch, into a capture or of a graph; otherwise 0.
    pub correlation: u64,
    /// Raw handle: see the operations.
    pub subject: u64,
    /// Raw handle: see the operations.
    pub made: u64,
    /// Raw handle: see the operations.
    pub after: u64,
    /// The number of the stack of a captured launch or of an added node ([`super::Stack`]), or 0.
    pub stack: u32,
    /// Thread id in the target's pid namespace.
    pub tid: u32,
    /// Workgroup size of a captured launch or of a node; 0 where it is not known.
    pub workgroup: [u32; 3],
    /// Its grid size in work items; 0 where it is not known.
    pub grid: [u32; 3],
}
