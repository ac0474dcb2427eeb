//! Ranges of ROCTx whose beginning was reported to tools.

use super::frame::Frame;
use midair_lockfree::{AtomicKey, SlotTable};
use std::cell::UnsafeCell;

/// Ranges of one thread that are reported at one time, at most.
pub const LEVELS: usize = 32;
/// Ranges across threads that are reported at one time, at most; a power of two.
pub const PROCESS: usize = 1024;
/// Bytes of a message, with its terminating zero.
pub const TEXT: usize = 512;

/// A range, and the copy of its message that tools are given.
#[repr(C)]
pub(crate) struct ReportedRange {
    pub frame: Frame,
    /// Used by the thread that reports a beginning in a free frame.
    pub text: UnsafeCell<[u8; TEXT]>,
}

/// A thread's ranges. Zeroed memory is a thread without any.
#[repr(C)]
pub(crate) struct Thread {
    /// Used only by the thread itself.
    pub open: UnsafeCell<Open>,
    /// For marks, which begin and end in one call.
    pub mark: ReportedRange,
    pub levels: [ReportedRange; LEVELS],
}

pub(crate) struct Open {
    pub generation: u64,
    pub tid: u32,
    pub depth: usize,
    /// Ranges nested in these that exceeded the capacity.
    pub overflow: usize,
}

/// Ranges that may end on another thread, by their ids. The holder of an entry reports its beginning
/// or end. Zeroed memory is an empty table.
pub(crate) type Anywhere = SlotTable<AtomicKey, PROCESS, ReportedRange>;

// SAFETY: the fields' descriptions say which thread uses each cell.
unsafe impl Sync for Thread {}
// SAFETY: the text is used by the holder of the frame's state, or of its entry in [`Anywhere`].
unsafe impl Sync for ReportedRange {}
