//! Per-thread state of the hot path, without `thread_local!`. A Rust thread-local in a library that
//! was loaded late is allocated lazily, under the loader's lock, when each thread first touches it,
//! and one with a destructor pins the library in ways that we do not control. A pthread key costs
//! one indexed load, and its destructor is called when a thread ends.
//!
//! Slots are in one lazily touched mapping and are never returned to the system. Only a slot's owner
//! writes it, with two exceptions: [`ThreadSlot::busy`], and the worker thread once it has seen the
//! owner outside ([`crate::probe`] explains the protocol).

mod slot;

pub use slot::{MAX_OPEN, MAX_THREADS, OpenCall, Owned, ThreadSlot};

use crate::state::STATE;
use std::ffi::c_void;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// Makes the key and the mapping. Called on the worker thread, before any wrapper is installed.
/// Returns false when the system refuses.
pub fn prepare() -> bool {
    if STATE.slot_key.load(Acquire) != u32::MAX {
        return true;
    }
    make()
}

/// Number of a slot, below [`MAX_THREADS`].
#[inline]
pub fn index_of(slot: &ThreadSlot) -> usize {
    (std::ptr::from_ref(slot).addr() - STATE.slots.load(Relaxed).addr()) / size_of::<ThreadSlot>()
}

/// In a forked child, once the state is replaced. Slots of threads that the fork lost stay theirs; a
/// thread that continues gets one of the child's slots, under its own number. A call that was open
/// at the fork keeps its old slot, which stays mapped. `parent`: the parent's key. False when memory
/// cannot be mapped.
pub(crate) fn reset_after_fork(parent: libc::pthread_key_t) -> bool {
    if !make() {
        return false;
    }
    // Its destructor would be called with the parent's slots.
    // SAFETY: a key that was made; nothing uses it any more.
    unsafe { libc::pthread_key_delete(parent) };
    true
}

/// A mapping of free slots, and a key for them.
fn make() -> bool {
    let len = MAX_THREADS * size_of::<ThreadSlot>();
    // SAFETY: a fresh private mapping at an address of the kernel's choice. Zeroed memory is a valid
    // free ThreadSlot: atomics of 0, depth 0, integers, and a ChunkWriter with a null chunk.
    let base = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if base == libc::MAP_FAILED {
        return false;
    }
    let mut key: libc::pthread_key_t = 0;
    // SAFETY: `key` is a valid out pointer and the destructor is a function that stays mapped for ever (NODELETE).
    if unsafe { libc::pthread_key_create(&mut key, Some(thread_ended)) } != 0 {
        // SAFETY: the mapping made above, not published yet.
        unsafe { libc::munmap(base, len) };
        return false;
    }
    STATE.slots.store(base.cast(), Release);
    STATE.slot_key.store(key, Release);
    true
}

/// The calling thread's slot; claims one at a thread's first call. `None` when there is none left.
#[inline]
pub fn current() -> Option<&'static ThreadSlot> {
    let key = STATE.slot_key.load(Relaxed);
    // SAFETY: the key was made before any wrapper was installed. It holds null or a pointer into the
    // slots' mapping, which stays mapped.
    let slot = unsafe { libc::pthread_getspecific(key).cast::<ThreadSlot>().as_ref() };
    match slot {
        Some(slot) => Some(slot),
        None => claim(key),
    }
}

/// The calling thread's slot, if it has one.
pub fn existing() -> Option<&'static ThreadSlot> {
    let key = STATE.slot_key.load(Relaxed);
    if key == u32::MAX {
        return None;
    }
    // SAFETY: as in `current`.
    unsafe { libc::pthread_getspecific(key).cast::<ThreadSlot>().as_ref() }
}

#[cold]
fn claim(key: libc::pthread_key_t) -> Option<&'static ThreadSlot> {
    // SAFETY: a system call without arguments.
    let tid = unsafe { libc::syscall(libc::SYS_gettid) } as u32;
    let base = STATE.slots.load(Acquire);
    if base.is_null() {
        return None;
    }
    for index in 0..MAX_THREADS {
        // SAFETY: index is below the mapping's number of slots; see `prepare` for why zeroed memory is valid.
        let slot = unsafe { &*base.add(index) };
        if slot.tid.load(Relaxed) == 0 && slot.tid.compare_exchange(0, tid, AcqRel, Relaxed).is_ok()
        {
            STATE.slots_used.fetch_max(index + 1, AcqRel);
            // SAFETY: a valid key, and the value is never freed. Keys below 32 need no allocation in
            // glibc; a later one allocates once per thread, here, outside any lock of ours.
            if unsafe { libc::pthread_setspecific(key, std::ptr::from_ref(slot).cast()) } != 0 {
                slot.tid.store(0, Release);
                return None;
            }
            return Some(slot);
        }
    }
    None
}

/// All slots that were ever claimed.
pub fn all() -> &'static [ThreadSlot] {
    let base = STATE.slots.load(Acquire);
    if base.is_null() {
        return &[];
    }
    // SAFETY: the mapping holds MAX_THREADS slots, and `slots_used` never exceeds that.
    unsafe { std::slice::from_raw_parts(base, STATE.slots_used.load(Acquire)) }
}

unsafe extern "C" fn thread_ended(value: *mut c_void) {
    // SAFETY: the value is null or what `claim` stored.
    if let Some(slot) = unsafe { value.cast::<ThreadSlot>().as_ref() } {
        crate::probe::thread_ended(slot);
        // It may have been cancelled inside a tool's function.
        slot.in_tool.store(0, Relaxed);
        slot.tid.store(0, Release);
    }
}
