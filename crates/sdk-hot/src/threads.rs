//! Per-thread state of the hot path, without `thread_local!`: a Rust thread-local in a library that was loaded late is
//! allocated lazily, under the loader's lock, on the first touch by each thread, and one with a destructor pins us in ways we
//! do not control. A pthread key costs one indexed load, and its destructor tells us when a thread ends.
//!
//! Slots come from one lazily touched mapping and are never returned to the system. A slot's owner alone writes it, but for
//! [`ThreadSlot::busy`] and the rest after the owner is seen outside ([`crate::probe`] explains the protocol).

use midair_record::spool::ChunkWriter;
use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize};

/// Threads that can be traced at one time. Calls of further threads pass through and are counted as dropped.
pub const MAX_THREADS: usize = 4096;
/// Traced calls that can be open in one thread at one time (calls inside calls).
pub const MAX_OPEN: usize = 16;

/// A call that has begun and not ended.
#[derive(Debug, Clone, Copy)]
pub struct OpenCall {
    /// Entry, CLOCK_BOOTTIME ns.
    pub start: u64,
    /// Its correlation id.
    pub correlation: u64,
    /// Raw stream handle that it names.
    pub stream: u64,
    /// Stack address of its wrapper: what lies below it on the stack is gone when a younger call has a higher one.
    pub frame: usize,
    /// Operation id.
    pub operation: u32,
    /// Record kind.
    pub kind: u8,
}

/// What belongs to the owning thread alone.
#[derive(Debug)]
pub struct Owned {
    /// Session (generation) that `writer` and `open` belong to.
    pub generation: u64,
    /// Open calls.
    pub depth: usize,
    /// See [`OpenCall`]; `depth` of them are valid.
    pub open: [OpenCall; MAX_OPEN],
    /// Its chunk.
    pub writer: ChunkWriter,
}

impl Owned {
    /// Correlation id of the call at `depth`, and of the one around it, 0 for none.
    pub fn ids(&self, depth: usize) -> Option<(u64, u64)> {
        let around = depth.checked_sub(1).and_then(|above| self.open.get(above));
        let call = self.open.get(depth)?;
        Some((call.correlation, around.map_or(0, |call| call.correlation)))
    }
}

/// A thread's state.
#[derive(Debug)]
pub struct ThreadSlot {
    /// 0 = free, else the thread id.
    pub tid: AtomicU32,
    /// 1 while the owner is between a look at the generation and the end of what it does with it.
    pub busy: AtomicU32,
    /// Not 0 while the owner runs a tool's function.
    pub telling: AtomicU32,
    owned: UnsafeCell<Owned>,
}

// SAFETY: `owned` is touched by the owner while `busy` is 1, and by our own thread only after it moved the generation on, made
// that visible to all threads (membarrier) and saw `busy` 0.
unsafe impl Sync for ThreadSlot {}

impl ThreadSlot {
    /// Its number, below [`MAX_THREADS`].
    #[inline]
    pub fn index(&self) -> usize {
        (std::ptr::from_ref(self).addr() - SLOTS.load(Relaxed).addr()) / size_of::<ThreadSlot>()
    }
    /// The owner's data.
    ///
    /// # Safety
    /// The caller is the owner with `busy` set, or our own thread after the protocol in [`crate::probe::quiesce`].
    #[expect(
        clippy::mut_from_ref,
        reason = "an UnsafeCell with the ownership protocol in the safety section"
    )]
    pub unsafe fn owned(&self) -> &mut Owned {
        // SAFETY: the caller's promise makes this the only reference.
        unsafe { &mut *self.owned.get() }
    }
}

static SLOTS: AtomicPtr<ThreadSlot> = AtomicPtr::new(std::ptr::null_mut());
static HIGH: AtomicUsize = AtomicUsize::new(0);
static KEY: AtomicU32 = AtomicU32::new(u32::MAX);

/// Makes the key and the mapping. On our own thread, before any wrapper is installed. Returns false when the system refuses.
pub fn prepare() -> bool {
    if KEY.load(Acquire) != u32::MAX {
        return true;
    }
    make()
}

/// See [`crate::forked`]: slots of threads that are gone stay theirs, and whoever goes on gets one of the child's, under its own number.
/// A call that was open at the fork knows its old slot, which stays mapped.
pub fn begin_anew() -> bool {
    let old = KEY.load(Acquire);
    if old == u32::MAX {
        return true;
    }
    HIGH.store(0, Release);
    if !make() {
        return false;
    }
    // Its destructor would be given slots of the parent's.
    // SAFETY: a key that was made; nobody asks for it any more.
    unsafe { libc::pthread_key_delete(old) };
    true
}

/// A mapping of free slots, and a key for them.
fn make() -> bool {
    let len = MAX_THREADS * size_of::<ThreadSlot>();
    // SAFETY: a fresh private mapping at an address of the kernel's choice. Zeroed memory is a valid free ThreadSlot: atomics
    // of 0, depth 0, integers, and a ChunkWriter with a null chunk.
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
    SLOTS.store(base.cast(), Release);
    KEY.store(key, Release);
    true
}

/// The calling thread's slot; claims one at a thread's first call. `None` when there is none left.
#[inline]
pub fn current() -> Option<&'static ThreadSlot> {
    let key = KEY.load(Relaxed);
    // SAFETY: the key was made before any wrapper was installed; it holds null or a pointer into SLOTS, which stays mapped.
    let slot = unsafe { libc::pthread_getspecific(key).cast::<ThreadSlot>().as_ref() };
    match slot {
        Some(slot) => Some(slot),
        None => claim(key),
    }
}

/// The calling thread's slot, if it has one.
pub fn existing() -> Option<&'static ThreadSlot> {
    let key = KEY.load(Relaxed);
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
    let base = SLOTS.load(Acquire);
    if base.is_null() {
        return None;
    }
    for index in 0..MAX_THREADS {
        // SAFETY: index is below the mapping's number of slots; see `prepare` for why zeroed memory is valid.
        let slot = unsafe { &*base.add(index) };
        if slot.tid.load(Relaxed) == 0 && slot.tid.compare_exchange(0, tid, AcqRel, Relaxed).is_ok()
        {
            HIGH.fetch_max(index + 1, AcqRel);
            // SAFETY: a valid key; the value is not freed by anyone. Keys below 32 need no allocation in glibc; a later one
            // allocates once per thread, here, outside any lock of ours.
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
    let base = SLOTS.load(Acquire);
    if base.is_null() {
        return &[];
    }
    // SAFETY: the mapping holds MAX_THREADS slots and HIGH never exceeds that.
    unsafe { std::slice::from_raw_parts(base, HIGH.load(Acquire)) }
}

unsafe extern "C" fn thread_ended(value: *mut c_void) {
    // SAFETY: the value is null or what `claim` stored.
    if let Some(slot) = unsafe { value.cast::<ThreadSlot>().as_ref() } {
        crate::probe::thread_ended(slot);
        // It may have been cancelled inside a tool's function.
        slot.telling.store(0, Relaxed);
        slot.tid.store(0, Release);
    }
}
