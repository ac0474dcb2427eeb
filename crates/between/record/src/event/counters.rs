//! Records of hardware counters.

use super::Header;
#[cfg(doc)]
use super::{Kernel, Queue};

/// A window of hardware counters: what they counted from the end of one midair packet to the
/// start of another. Between these is one reservation of the application: usually one packet,
/// or a batch of packets, as HIP reserves them for graphs.
///
/// It is followed by `words` u64 of the memory that the counters were read into. A window with much
/// memory has several records, which differ in `first` and `words`. The meaning of the words is in
/// the template of the group (`counters::Template::slots`), which the attacher has.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CounterWindow {
    /// Common header.
    pub header: Header,
    /// When the packet that starts the counters started, on the device (0: not known). It resets the
    /// counters, even if another profiler uses them.
    pub begin: u64,
    /// When that packet ended (0: not known).
    pub start: u64,
    /// When the packet that reads them started, on the device (0: not known).
    pub end: u64,
    /// When that packet ended: the time since `end` was taken by the reading.
    pub read_end: u64,
    /// Number of the window in this session, from 1.
    pub window: u64,
    /// [`Kernel::dispatch_id`] of the first dispatch in it; 0 = none.
    pub dispatch_id: u64,
    /// Index of the first packet of the application in the window. If the window contains a batch,
    /// it has this queue's dispatches whose [`Kernel::packet_index`] is among the window's packets.
    pub first_index: u64,
    /// Our number of the queue ([`Queue::queue_id`]).
    pub queue_id: u32,
    /// KFD node id of the agent.
    pub node: u32,
    /// The agent's counter group that was counted: its index in the plan, from 0.
    pub group: u32,
    /// See [`WindowResult`].
    pub result: u32,
    /// How many words the whole memory has.
    pub total: u32,
    /// Index of the first word that follows.
    pub first: u32,
    /// How many words follow.
    pub words: u32,
    /// How many packets of the application are in the window.
    pub packets: u32,
    /// How many dispatches are among them, including packets that were not seen and may be
    /// dispatches.
    pub dispatches: u32,
    /// Padding, 0.
    pub reserved: u32,
}

/// The result of a window ([`CounterWindow::result`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum WindowResult {
    /// It contains at least one dispatch, and the counters were read.
    Counted = 0,
    /// No packet in it was a dispatch.
    NoDispatch = 1,
    /// The device had not read the counters when collection stopped.
    Open = 2,
    /// The queue was destroyed first.
    QueueDestroyed = 3,
    /// The device wrote no plausible times, so it is not known what else ran at the same time.
    BadTimes = 4,
    /// It was not put into the ring: the application had reserved a batch of packets, whose kernels
    /// were to be counted one by one, and did not ring the doorbell for them in time.
    TooLate = 5,
    /// It is not a window around a dispatch: it has what the whole device counted since the
    /// previous reading, or since the counters were started ([`CounterWindow::start`]).
    Sampled = 8,
    /// Like `Sampled`, but a counter has a lower value than before: another profiler has restarted
    /// the counters.
    Disturbed = 9,
}

impl WindowResult {
    /// All results, by number.
    pub const ALL: [WindowResult; 8] = [
        WindowResult::Counted,
        WindowResult::NoDispatch,
        WindowResult::Open,
        WindowResult::QueueDestroyed,
        WindowResult::BadTimes,
        WindowResult::TooLate,
        WindowResult::Sampled,
        WindowResult::Disturbed,
    ];
}
