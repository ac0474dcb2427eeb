//! How many threads may write results.
//!
//! A process that is there to write results uses all of its processors. In any other process one
//! thread has to do.

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

static MOST: AtomicUsize = AtomicUsize::new(1);

/// Lets as many threads write in this process as it has processors. Where its address space is
/// limited (`RLIMIT_AS`) it stays at one, since the memory of each further thread counts there.
pub fn use_all_processors() {
    let is_limited =
        getrlimit(Resource::RLIMIT_AS).map_or(true, |(limit, _)| limit != RLIM_INFINITY);
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    MOST.store(if is_limited { 1 } else { processors }, Relaxed);
}

/// Returns how many threads may write in this process.
pub fn most() -> usize {
    MOST.load(Relaxed)
}
