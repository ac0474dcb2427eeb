//! Large tables that are mapped once and touched lazily: a page takes memory only from its first
//! use.

use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{Acquire, Release};

/// What a forked child finds in such a table.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum InChild {
    /// The parent's contents.
    Copied,
    /// Zeroes.
    Zeroed,
}

/// Maps zeroed memory for `count` values of `T` and stores its address, unless that was done
/// before. The memory is never unmapped. Returns false when the system refuses.
///
/// Only called on the worker thread. `T` must be valid when zeroed.
pub(crate) fn map<T>(to: &AtomicPtr<T>, count: usize, in_child: InChild) -> bool {
    if !to.load(Acquire).is_null() {
        return true;
    }
    let bytes = count * size_of::<T>();
    // SAFETY: this creates a fresh private mapping at an address that the kernel chooses.
    let base = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if base == libc::MAP_FAILED {
        return false;
    }
    if in_child == InChild::Zeroed {
        // SAFETY: the mapping is ours and fresh.
        unsafe { libc::madvise(base, bytes, libc::MADV_WIPEONFORK) };
    }
    to.store(base.cast(), Release);
    true
}
