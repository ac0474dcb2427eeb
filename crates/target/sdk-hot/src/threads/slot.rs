//! The state of a thread.

use crate::openmp::regions::Regions;
use midair_record::spool::ChunkWriter;
use std::cell::UnsafeCell;
use std::sync::atomic::AtomicU32;

/// How many threads can be traced at one time. Calls of further threads pass through and are
/// counted as dropped.
pub const MAX_THREADS: usize = 4096;
/// How many traced calls can be open in one thread at one time (calls inside calls).
pub const MAX_OPEN: usize = 16;

/// A call that has started and not ended.
#[derive(Debug, Clone, Copy)]
pub struct OpenCall {
    /// Entry, CLOCK_BOOTTIME ns.
    pub start: u64,
    /// Its correlation id; 0 until something asks for one: see [`Owned::identify`].
    pub correlation: u64,
    /// Raw handle of the stream that it names.
    pub stream: u64,
    /// Stack address of its wrapper: if a later call has a higher address, this call was abandoned.
    pub frame: usize,
    /// Operation id.
    pub operation: u32,
    /// Record kind.
    pub kind: u8,
    /// Bits of [`midair_record::event::flag`] for its record.
    pub flags: u8,
    /// Whether its stack was taken (`--stacks`).
    pub has_stack: bool,
    /// How many dispatches this thread has seen that this call launched. Counted for launches of
    /// graphs that are recorded.
    pub dispatches: u32,
}

/// The data that only the owning thread uses.
#[derive(Debug)]
pub struct Owned {
    /// The session (generation) that `writer` and `open` belong to.
    pub generation: u64,
    /// The number of open calls.
    pub depth: usize,
    /// The open calls; the first `depth` of them are valid.
    pub open: [OpenCall; MAX_OPEN],
    /// The open regions of OpenMP.
    pub regions: Regions,
    /// The writer with its chunk.
    pub writer: ChunkWriter,
}

impl Owned {
    /// Returns the correlation id of the innermost call around the one at `depth` that has an id, or
    /// else the id of the thread's innermost region of OpenMP; 0 for none.
    pub fn around(&self, depth: usize) -> u64 {
        let outer = self.open.get(..depth).unwrap_or_default();
        let mut ids = outer.iter().rev().map(|call| call.correlation);
        ids.find(|id| *id != 0)
            .unwrap_or_else(|| self.regions.innermost())
    }

    /// Counts a dispatch for the open call that has launched it, if there is one.
    pub fn saw_dispatch_of(&mut self, correlation: u64) {
        let open = self.open.get_mut(..self.depth).unwrap_or_default();
        if let Some(call) = open.iter_mut().find(|call| call.correlation == correlation) {
            call.dispatches = call.dispatches.saturating_add(1);
        }
    }

    /// Returns the correlation id of the call at `depth`. A call that is neither recorded nor
    /// reported, but watched for what it starts, has no id until this is called; then `fresh` gives
    /// it one. This way the ids of a trace have no holes.
    pub fn identify(&mut self, depth: usize, fresh: impl FnOnce() -> u64) -> Option<u64> {
        let call = self.open.get_mut(depth)?;
        if call.correlation == 0 {
            call.correlation = fresh();
        }
        Some(call.correlation)
    }
}

/// A thread's state.
#[derive(Debug)]
pub struct ThreadSlot {
    /// 0 = free, else the thread id.
    pub tid: AtomicU32,
    /// 1 from before the owner reads the generation until it is done with what it read.
    pub busy: AtomicU32,
    /// Not 0 while the owner runs a tool's function.
    pub in_tool: AtomicU32,
    owned: UnsafeCell<Owned>,
}

// SAFETY: the owner uses `owned` while `busy` is 1. The worker thread uses it only after it has
// changed the generation, made that visible to all threads (membarrier) and seen `busy` 0.
unsafe impl Sync for ThreadSlot {}

impl ThreadSlot {
    /// Returns the owner's data.
    ///
    /// # Safety
    /// The caller must be the owner with `busy` set, or the worker thread after the protocol in
    /// [`crate::probe::quiesce`].
    #[expect(
        clippy::mut_from_ref,
        reason = "an UnsafeCell with the ownership protocol in the safety section"
    )]
    pub unsafe fn owned(&self) -> &mut Owned {
        // SAFETY: the caller's promise makes this the only reference.
        unsafe { &mut *self.owned.get() }
    }
}
