//! Records of queues, and of what happened to their packets.

use super::Header;
#[cfg(doc)]
use super::{CounterWindow, Untimed};

/// A queue, recorded when it is first seen.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Queue {
    /// Common header.
    pub header: Header,
    /// Address of the `hsa_queue_t`.
    pub handle: u64,
    /// Our number of the queue, from 1 in the order of first use.
    pub queue_id: u32,
    /// KFD node id of its agent.
    pub node: u32,
    /// How many packets it holds.
    pub size: u32,
    /// Non-zero: an intercept queue.
    pub intercept: u32,
}

/// What happened to the packets of a queue. The counts are complete when `last_index - first_index
/// == dispatches + paused + other_packets + ours + lost` and `dispatches == timed + sum(untimed)`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueueCounts {
    /// Common header.
    pub header: Header,
    /// The queue.
    pub queue_id: u32,
    /// Padding, 0.
    pub reserved: u32,
    /// Index of the first packet of the session.
    pub first_index: u64,
    /// One past the last packet for which the doorbell rang before the detach.
    pub last_index: u64,
    /// Kernel dispatches among them.
    pub dispatches: u64,
    /// Packets of other types.
    pub other_packets: u64,
    /// Dispatches with times.
    pub timed: u64,
    /// Dispatches without times, by [`Untimed`].
    pub untimed: [u64; 8],
    /// Packets that were never seen.
    pub lost: u64,
    /// midair's packets ([`CounterWindow`]).
    pub ours: u64,
    /// Dispatches that were launched while the program had paused the recording; they have no
    /// records.
    pub paused: u64,
}
