//! Records of HIP's events: the calls that record them or wait for them, and the barrier packets
//! that these calls had the runtime write.

use super::Header;

/// Operations of [`EventCall`]: AMD's `rocprofiler_hip_event_operation_t`.
pub mod hip_event {
    /// `hipEventRecord`, or one of its other forms.
    pub const RECORD: u32 = 1;
    /// `hipStreamWaitEvent`, or the same for the thread's own stream.
    pub const WAIT: u32 = 2;
}

/// A call that records an event of HIP, or has a stream wait for one.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EventCall {
    /// Common header; `operation` is one of [`mod@hip_event`].
    pub header: Header,
    /// Entry.
    pub start: u64,
    /// Return, or the time of the detach with [`super::flag::OPEN_AT_DETACH`].
    pub end: u64,
    /// Correlation id, which its barriers have, too.
    pub correlation: u64,
    /// Correlation id of the traced call around it, or 0.
    pub ancestor: u64,
    /// Raw stream handle that the call names (0 = default stream).
    pub stream: u64,
    /// Raw handle of the event (`hipEvent_t`); 0 where the call had not returned.
    pub event: u64,
    /// Raw return value (`hipError_t`).
    pub result: u32,
    /// Thread id in the target's pid namespace.
    pub tid: u32,
}

/// A barrier packet of an [`EventCall`].
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Barrier {
    /// Common header; `operation` is 0.
    pub header: Header,
    /// Start on the device (0 when untimed).
    pub start: u64,
    /// End on the device (0 when untimed).
    pub end: u64,
    /// When the doorbell rang for it.
    pub rung: u64,
    /// When the worker thread saw that it had ended; 0 where it did not see that.
    pub seen: u64,
    /// Correlation id of the call.
    pub correlation: u64,
    /// Index of the packet in its queue.
    pub packet_index: u64,
    /// Our number of the queue ([`super::Queue::queue_id`]).
    pub queue_id: u32,
    /// KFD node id of the agent.
    pub node: u32,
    /// Thread that reserved the packet.
    pub tid: u32,
    /// See [`super::Untimed`].
    pub untimed: u32,
}
