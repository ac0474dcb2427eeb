//! Ranges of ROCTx whose beginning tools were told of.

use super::frame::Frame;
use midair_lockfree::{AtomicKey, SlotTable};
use std::cell::UnsafeCell;

/// Ranges of one thread that tools are told of at one time.
pub const LEVELS: usize = 32;
/// Ranges over threads that tools are told of at one time; a power of two.
pub const PROCESS: usize = 1024;
/// Bytes of a message, with its end.
pub const TEXT: usize = 512;

/// A range and the copy of its message that tools are shown.
#[repr(C)]
pub(crate) struct Told {
    pub frame: Frame,
    /// Touched by whoever puts a beginning into a free frame.
    pub text: UnsafeCell<[u8; TEXT]>,
}

/// A thread's ranges. Zeroed memory is one without.
#[repr(C)]
pub(crate) struct Thread {
    /// Touched by the thread alone.
    pub open: UnsafeCell<Open>,
    /// For marks, which begin and end in one call.
    pub moment: Told,
    pub levels: [Told; LEVELS],
}

pub(crate) struct Open {
    pub generation: u64,
    pub tid: u32,
    pub depth: usize,
    /// Ranges on top of these that found no room.
    pub beyond: usize,
}

/// Ranges that may end on another thread, by their ids. Whoever holds an entry tells of its beginning or end. Zeroed memory is an
/// empty table.
pub(crate) type Anywhere = SlotTable<AtomicKey, PROCESS, Told>;

// SAFETY: the fields in cells belong to whoever their descriptions name.
unsafe impl Sync for Thread {}
// SAFETY: the text belongs to whoever the frame's state names, or to the holder of its entry in [`Anywhere`].
unsafe impl Sync for Told {}
