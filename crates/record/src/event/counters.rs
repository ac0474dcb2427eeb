//! Records of hardware counters.

use super::Header;
#[cfg(doc)]
use super::{Kernel, Queue};

/// A window of hardware counters: what they counted from the end of one packet of ours to the
/// beginning of another, with one reservation of the application between them: usually one packet, or
/// a batch of them, as HIP reserves for graphs. Followed by `words` u64 of the memory that the counters were read into; a window with much memory has
/// several records, which differ in `first` and `words`. What the words mean is in the template of
/// the group (`counters::Template::slots`), which the attacher has.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CounterWindow {
    /// Common header.
    pub header: Header,
    /// When the packet that starts the counters began, on the device (0: not known). It resets them,
    /// whoever they count for.
    pub begin: u64,
    /// When it ended (0: not known).
    pub start: u64,
    /// When the packet that reads them began, on the device (0: not known).
    pub end: u64,
    /// When it ended: reading took so long.
    pub read_end: u64,
    /// Number of the window in this session, from 1.
    pub window: u64,
    /// [`Kernel::dispatch_id`] of the first dispatch in it; 0 = none.
    pub dispatch_id: u64,
    /// Index of the first packet of the application's in it. Where it holds a batch, its dispatches
    /// are those of this queue whose [`Kernel::packet_index`] is among its packets.
    pub first_index: u64,
    /// Queue number of ours ([`Queue::queue_id`]).
    pub queue_id: u32,
    /// KFD node id of the agent.
    pub node: u32,
    /// Which of the agent's groups of counters, from 0, in the plan's order.
    pub group: u32,
    /// See [`WindowResult`].
    pub result: u32,
    /// Words of the whole memory.
    pub total: u32,
    /// Index of the first word that follows.
    pub first: u32,
    /// Words that follow.
    pub words: u32,
    /// Packets of the application's in it.
    pub packets: u32,
    /// Dispatches among them, and packets that were not seen and may have been some.
    pub dispatches: u32,
    /// Padding, 0.
    pub reserved: u32,
}

/// What became of a window ([`CounterWindow::result`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum WindowResult {
    /// It holds at least one dispatch, and the counters were read.
    Counted = 0,
    /// No packet in it was a dispatch.
    NoDispatch = 1,
    /// The device had not read the counters when collection stopped.
    Open = 2,
    /// The queue was destroyed first.
    QueueDestroyed = 3,
    /// The device wrote no plausible times, so nobody knows what else ran meanwhile.
    BadTimes = 4,
    /// It was not put into the ring: the application had reserved a batch of packets whose kernels
    /// were to be counted one by one, and did not ring for them in time.
    TooLate = 5,
    /// It is no window around a dispatch: it holds what the whole device counted since the reading
    /// before it, or since the counters were started ([`CounterWindow::start`]).
    Sampled = 8,
    /// The same, but a counter shows less than before: somebody else has started the counters anew.
    Disturbed = 9,
}

impl WindowResult {
    /// All, by number.
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
