//! Per-thread state of the hot path, without `thread_local!`. A Rust thread-local in a library that
//! was loaded late is allocated lazily, under the loader's lock, when each thread first accesses
//! it. One with a destructor also pins the library in ways that we do not control. A pthread key
//! costs one indexed load, and its destructor is called when a thread ends.
//!
//! Slots are in one lazily touched mapping and are never returned to the system. Only a slot's
//! owner writes to it, with two exceptions: [`ThreadSlot::busy`], and the worker thread after it
//! has seen the owner outside ([`crate::probe`] explains the protocol).

mod slot;

pub use slot::{MAX_OPEN, MAX_THREADS, OpenCall, Owned, ThreadSlot};

use crate::state::STATE;
use std::ffi::c_void;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// Creates the key and the mapping. Called on the worker thread, before any wrapper is installed.
/// Returns false when the system refuses.
pub fn prepare() -> bool {
    if STATE.slot_key.load(Acquire) != u32::MAX {
        return true;
    }
    make()
}

/// Returns the number of a slot, below [`MAX_THREADS`].
#[inline]
pub fn index_of(slot: &ThreadSlot) -> usize {
    (std::ptr::from_ref(slot).addr() - STATE.slots.load(Relaxed).addr()) / size_of::<ThreadSlot>()
}

/// Creates new slots and a new key in a forked child, after the state was replaced. Slots of
/// threads that do not exist in the child stay theirs. A thread that continues gets one of the
/// child's slots, under its own number. A call that was open at the fork keeps its old slot, which
/// stays mapped. `parent` is the parent's key. Returns false when memory cannot be mapped.
pub(crate) fn reset_after_fork(parent: libc::pthread_key_t) -> bool {
    if !make() {
        return false;
    }
    // The destructor of the old key would be called with the parent's slots.
    // SAFETY: the key was created, and nothing uses it any more.
    unsafe { libc::pthread_key_delete(parent) };
    true
}

/// Creates a mapping of free slots, and a key for them.
fn make() -> bool {
    let len = MAX_THREADS * size_of::<ThreadSlot>();
    // SAFETY: this creates a fresh private mapping at an address that the kernel chooses. Zeroed
    // memory is a valid free ThreadSlot: atomics of 0, depth 0, integers, and a ChunkWriter with a
    // null chunk.
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
    // SAFETY: `key` is a valid out pointer. The destructor is a function that stays mapped forever
    // (NODELETE).
    if unsafe { libc::pthread_key_create(&mut key, Some(thread_ended)) } != 0 {
        // SAFETY: the mapping was made above, and is not published yet.
        unsafe { libc::munmap(base, len) };
        return false;
    }
    STATE.slots.store(base.cast(), Release);
    STATE.slot_key.store(key, Release);
    true
}

/// Returns the calling thread's slot, which is claimed at the thread's first call. `None` when
/// there is no slot left.
#[inline]
pub fn current() -> Option<&'static ThreadSlot> {
    let key = STATE.slot_key.load(Relaxed);
    // SAFETY: the key was created before any wrapper was installed. Its value is null or a pointer
    // into the slots' mapping, which stays mapped.
    let slot = unsafe { libc::pthread_getspecific(key).cast::<ThreadSlot>().as_ref() };
    match slot {
        Some(slot) => Some(slot),
        None => claim(key),
    }
}

/// Returns the calling thread's slot, if it has one.
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
    // SAFETY: the system call takes no arguments.
    let tid = unsafe { libc::syscall(libc::SYS_gettid) } as u32;
    let base = STATE.slots.load(Acquire);
    if base.is_null() {
        return None;
    }
    for index in 0..MAX_THREADS {
        // SAFETY: the index is below the mapping's number of slots; see `make` for why zeroed
        // memory is valid.
        let slot = unsafe { &*base.add(index) };
        if slot.tid.load(Relaxed) == 0 && slot.tid.compare_exchange(0, tid, AcqRel, Relaxed).is_ok()
        {
            STATE.slots_used.fetch_max(index + 1, AcqRel);
            // SAFETY: the key is valid, and the value is never freed. Keys below 32 need no
            // allocation in glibc. A later one allocates once per thread, here, outside any lock of
            // ours.
            if unsafe { libc::pthread_setspecific(key, std::ptr::from_ref(slot).cast()) } != 0 {
                slot.tid.store(0, Release);
                return None;
            }
            return Some(slot);
        }
    }
    None
}

/// Returns all slots that were ever claimed.
pub fn all() -> &'static [ThreadSlot] {
    let base = STATE.slots.load(Acquire);
    if base.is_null() {
        return &[];
    }
    // SAFETY: the mapping has MAX_THREADS slots, and `slots_used` never exceeds that.
    unsafe { std::slice::from_raw_parts(base, STATE.slots_used.load(Acquire)) }
}

unsafe extern "C" fn thread_ended(value: *mut c_void) {
    // SAFETY: the value is null or what `claim` stored.
    if let Some(slot) = unsafe { value.cast::<ThreadSlot>().as_ref() } {
        crate::probe::thread_ended(slot);
        // The thread may have been cancelled inside a tool's function.
        slot.in_tool.store(0, Relaxed);
        slot.tid.store(0, Release);
    }
}
