//! The frames of OpenMP's open regions and events, for every thread.

use super::frame::{Frame, RegionFrames};
use crate::lazy_memory::{InChild, map};
use crate::state::STATE;
use crate::threads::MAX_THREADS;
use std::sync::atomic::Ordering::Acquire;

/// Maps the memory. Called on the worker thread. Returns false when the system refuses.
pub(super) fn prepare() -> bool {
    map(&STATE.region_frames, MAX_THREADS, InChild::Zeroed)
}

/// Returns the frames of a thread, if they are mapped.
pub(super) fn of(thread: usize) -> Option<&'static RegionFrames> {
    let base = STATE.region_frames.load(Acquire);
    // SAFETY: the index is inside the mapping made by `prepare`, which is never unmapped; zeroed
    // memory is free frames.
    (!base.is_null() && thread < MAX_THREADS).then(|| unsafe { &*base.add(thread) })
}

/// Returns every frame of the first `threads` threads.
pub(super) fn frames(threads: usize) -> impl Iterator<Item = &'static Frame> {
    (0..threads)
        .filter_map(of)
        .flat_map(|frames| frames.regions.iter().chain([&frames.event]))
}
