//! ROCTx ranges whose start was reported to tools.

use super::frame::Frame;
use midair_lockfree::{AtomicKey, SlotTable};
use std::cell::UnsafeCell;

/// The most ranges of one thread that are reported at one time.
pub const LEVELS: usize = 32;
/// The most ranges across threads that are reported at one time; a power of two.
pub const PROCESS: usize = 1024;
/// Bytes of a message, with its terminating zero.
pub const TEXT: usize = 512;

/// A range, and the copy of its message that tools get.
#[repr(C)]
pub(crate) struct ReportedRange {
    pub frame: Frame,
    /// The thread that reports a start uses this while the frame is free.
    pub text: UnsafeCell<[u8; TEXT]>,
}

/// A thread's ranges. Zeroed memory is a thread without ranges.
#[repr(C)]
pub(crate) struct Thread {
    /// Only the thread itself uses this.
    pub open: UnsafeCell<Open>,
    /// For marks, which start and end in the same call.
    pub mark: ReportedRange,
    pub levels: [ReportedRange; LEVELS],
}

pub(crate) struct Open {
    pub generation: u64,
    pub tid: u32,
    pub depth: usize,
    /// How many ranges nested in these exceeded the capacity.
    pub overflow: usize,
}

/// Ranges that may end on another thread, by id. The holder of an entry reports its start or
/// end. Zeroed memory is an empty table.
pub(crate) type Anywhere = SlotTable<AtomicKey, PROCESS, ReportedRange>;

// SAFETY: the descriptions of the fields say which thread uses each cell.
unsafe impl Sync for Thread {}
// SAFETY: only the holder of the frame's state, or of its entry in [`Anywhere`], uses the text.
unsafe impl Sync for ReportedRange {}
