//! Finds and makes the state of a queue, by the address of the queue or of its doorbell.
//!
//! States are taken from blocks of zeroed, lazily touched memory that the worker thread maps before
//! they are needed. Calls for a queue that finds no free state are passed on and counted. Look-ups
//! are lock-free. Learning a queue, which happens once per queue and session, takes one spin word.

use super::queue_state::{BLOCK, BLOCKS, Inner, KEY_COUNT, Locked, QueueState};
use crate::layout::{QueuePointer, Signal};
use crate::state::STATE;
use midair_sdk_hot::wrappers::original;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

fn state_at(index: usize) -> Option<&'static QueueState> {
    let block = STATE.queues.blocks.get(index / BLOCK)?.load(Acquire);
    // SAFETY: a block holds BLOCK states in zeroed memory that is never unmapped, and all zero
    // bytes are a valid state.
    (!block.is_null()).then(|| unsafe { &*block.add(index % BLOCK) })
}

/// Makes sure that a few states are free. Only for the worker thread. Returns false if there is no
/// memory.
pub fn provide() -> bool {
    let used = STATE.queues.used.load(Acquire);
    while STATE.queues.ready.load(Relaxed) < (used + BLOCK / 2).min(BLOCK * BLOCKS) {
        let block = STATE.queues.ready.load(Relaxed) / BLOCK;
        let Some(entry) = STATE.queues.blocks.get(block) else {
            return true;
        };
        // SAFETY: this makes a new private mapping at an address that the kernel chooses, so it
        // replaces nothing. It is NORESERVE and untouched, so it costs only address space.
        let memory = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                BLOCK * size_of::<QueueState>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if memory == libc::MAP_FAILED {
            return false;
        }
        entry.store(memory.cast(), Release);
        STATE.queues.ready.fetch_add(BLOCK, Release);
    }
    true
}

/// Returns the queues of this session whose rings hold AQL packets.
pub fn all() -> impl Iterator<Item = &'static QueueState> {
    every().filter(|state| state.is_compute())
}

/// Returns how many queues of other engines the application has used in this session.
pub fn other_engines() -> usize {
    every().filter(|state| !state.is_compute()).count()
}

fn every() -> impl Iterator<Item = &'static QueueState> {
    (0..STATE
        .queues
        .used
        .load(Acquire)
        .min(STATE.queues.ready.load(Acquire)))
        .filter_map(state_at)
        .filter(|state| state.id.load(Acquire) != 0)
}

/// Returns how many dispatches were launched on all queues in this session, recorded or not. `None`
/// if a queue is in use for longer than one waits.
pub fn launches() -> Option<u64> {
    let before = STATE.queues.launches_before.load(Relaxed);
    let now: Option<u64> = all()
        .map(|queue| {
            let inner = queue.lock()?;
            Some(inner.dispatches + inner.paused)
        })
        .sum();
    Some(before + now?)
}

/// Frees the state of a queue that is gone, for which everything is written. Only for the worker
/// thread. A program whose threads come and go, each with a queue, would use up all states otherwise.
pub(super) fn bury(state: &'static QueueState, inner: Locked<'_>) {
    let at = std::ptr::from_ref(state).addr();
    let mut blocks = STATE.queues.blocks.iter().enumerate();
    let place = blocks.find_map(|(number, block)| {
        let first = block.load(Acquire).addr();
        let index = at.checked_sub(first)? / size_of::<QueueState>();
        (first != 0 && index < BLOCK).then_some((number, index))
    });
    let Some((block, index)) = place else {
        return;
    };
    let launches = inner.dispatches + inner.paused;
    if state.intercept.load(Relaxed) != 0 {
        STATE.queues.intercepts.fetch_sub(1, AcqRel);
    }
    state.forget(inner);
    STATE.queues.launches_before.fetch_add(launches, Relaxed);
    if let Some(word) = STATE.queues.free.get(block) {
        word.fetch_or(1 << index, Release);
    }
}

/// Takes a state that is free again. Only for the thread that learns a queue.
fn take_free() -> Option<usize> {
    STATE
        .queues
        .free
        .iter()
        .enumerate()
        .find_map(|(block, word)| {
            let bits = word.load(Acquire);
            let index = (bits != 0).then(|| bits.trailing_zeros())?;
            word.fetch_and(!(1 << index), AcqRel);
            Some(block * BLOCK + index as usize)
        })
}

/// Frees all states and forgets all queues and watched signals. Call it only while no session is
/// on. The memory is handed back to the system and reads as zero again. If the program has locked
/// its memory, the system does not take it back, and the used part is overwritten with zeros.
pub fn clear() {
    STATE.watchers.clear();
    let used = STATE.queues.used.load(Acquire);
    for (number, block) in STATE.queues.blocks.iter().enumerate() {
        let block = block.load(Acquire);
        if !block.is_null() {
            // SAFETY: this is our own private anonymous mapping. Nothing uses a state while no
            // session is on, and all zero bytes are a free state.
            unsafe {
                let bytes = BLOCK * size_of::<QueueState>();
                if libc::madvise(block.cast(), bytes, libc::MADV_DONTNEED) != 0 {
                    let used = used.saturating_sub(number * BLOCK).min(BLOCK);
                    block.write_bytes(0, used);
                }
            };
        }
    }
    STATE.queues.used.store(0, Release);
    for word in &STATE.queues.free {
        word.store(0, Relaxed);
    }
    STATE.queues.last_id.store(0, Relaxed);
    STATE.queues.launches_before.store(0, Relaxed);
    STATE.queues.unseen.store(0, Relaxed);
    STATE.queues.born_here.store(false, Relaxed);
    STATE.queues.direct.store(false, Relaxed);
    STATE.queues.intercepts.store(0, Relaxed);
    STATE.queues.keys.clear();
}

/// Returns the state of the queue with this address, or of the queue whose doorbell this is.
#[inline]
pub fn find(key: u64) -> Option<&'static QueueState> {
    state_at(
        STATE
            .queues
            .keys
            .find(key, KEY_COUNT)?
            .shared()
            .load(Relaxed),
    )
}

fn insert(key: u64, index: usize) {
    if let Some(entry) = STATE.queues.keys.claim_key(key, KEY_COUNT) {
        entry.shared().store(index, Relaxed);
        entry.publish(key);
    }
}

fn forget(key: u64) {
    STATE.queues.keys.remove(key, KEY_COUNT);
}

/// Forgets a queue that the application is about to destroy, and makes sure that its memory is not
/// touched from now on. Waits briefly for a visit to end.
pub fn begin_destroy(state: &QueueState) {
    state.end_visits();
    forget(state.queue.load(Relaxed));
    forget(state.doorbell.load(Relaxed));
}

/// Starts a session's numbering: its dispatches are numbered from 1.
pub fn number_from_one() {
    STATE.queues.last_dispatch.store(0, Relaxed);
}

/// Returns the number of a dispatch that was just seen.
pub(crate) fn next_dispatch() -> u64 {
    STATE.queues.last_dispatch.fetch_add(1, Relaxed) + 1
}

/// Sets whether the runtime was opened in this session: then packets of a queue that were consumed
/// before it was learned went by unseen.
pub fn set_born_here(born_here: bool) {
    STATE.queues.born_here.store(born_here, Relaxed);
}

/// Sets whether the program was started so that it rings doorbells past the hooks.
pub fn set_direct(direct: bool) {
    STATE.queues.direct.store(direct, Relaxed);
}

/// Returns the number of uses of queues that found no free state.
pub fn unseen() -> u64 {
    STATE.queues.unseen.load(Relaxed)
}

/// Returns whether there are intercept queues. Only then do doorbells of the user kind need a
/// look-up.
#[inline]
pub(crate) fn has_intercepts() -> bool {
    STATE.queues.intercepts.load(Relaxed) != 0
}

/// What is known about a queue when it is learned.
#[derive(Debug, Clone, Copy, Default)]
pub struct Hint {
    /// The queue's agent, if it is known already.
    pub agent: u64,
    /// The engine that processes it, if its creation said so; otherwise the runtime is asked.
    pub engine: Option<u32>,
    /// The first index that the caller itself reserved, if it did.
    pub reserved: Option<u64>,
}

/// Returns the state of a queue, which is learned now if need be. Returns `None` if no state is
/// free.
///
/// # Safety
/// `queue` must be a live `hsa_queue_t`.
pub unsafe fn learn(queue: QueuePointer, hint: Hint) -> Option<&'static QueueState> {
    if let Some(known) = find(queue.0) {
        return Some(known);
    }
    while STATE
        .queues
        .learning
        .compare_exchange(0, 1, Acquire, Relaxed)
        .is_err()
    {
        std::thread::yield_now();
    }
    let state = find(queue.0).or_else(|| {
        let used = STATE.queues.used.load(Acquire);
        let fresh = || (used < STATE.queues.ready.load(Acquire)).then_some(used);
        let found = take_free().or_else(fresh);
        let Some((index, state)) = found.and_then(|index| Some((index, state_at(index)?))) else {
            STATE.queues.unseen.fetch_add(1, Relaxed);
            return None;
        };
        // SAFETY: the caller promises that the queue is live, and the original functions were saved
        // before the hooks were installed.
        unsafe { set_up(state, queue, hint) };
        let id = STATE.queues.last_id.fetch_add(1, Relaxed) + 1;
        state.id.store(id, Release);
        STATE.queues.used.store(used.max(index + 1), Release);
        insert(queue.0, index);
        insert(state.doorbell.load(Relaxed), index);
        Some(state)
    });
    STATE.queues.learning.store(0, Release);
    state
}

/// # Safety
/// `queue` must be live, `state` must be free, and no other thread may use it.
unsafe fn set_up(state: &QueueState, queue: QueuePointer, hint: Hint) {
    // SAFETY: the caller promises a live queue, and the calls go to the runtime's own functions,
    // whose addresses were saved.
    unsafe {
        let engine = hint
            .engine
            .unwrap_or_else(|| crate::symbols::queue_engine(queue.0));
        if engine != 0 {
            state.engine.store(engine, Relaxed);
            state.queue.store(queue.0, Relaxed);
            state.doorbell.store(queue.doorbell().0, Relaxed);
            state.agent.store(hint.agent, Relaxed);
            return;
        }
        let doorbell: Signal = queue.doorbell();
        let kind = doorbell.kind();
        let intercept = kind == crate::layout::KIND_USER;
        let read = original::hsa_queue_load_read_index_scacquire(queue.0 as *mut _);
        let written = original::hsa_queue_load_write_index_relaxed(queue.0 as *mut _);
        state.queue.store(queue.0, Relaxed);
        state.doorbell.store(doorbell.0, Relaxed);
        state.agent.store(hint.agent, Relaxed);
        state
            .serialized
            .store(super::serialized::gates::gate_of(queue.0), Relaxed);
        state.intercept.store(u32::from(intercept), Relaxed);
        if intercept {
            STATE.queues.intercepts.fetch_add(1, AcqRel);
        }
        super::windows::learned(state, queue);
        if intercept || !queue.profiled() {
            // An intercept queue hides the queue behind it, so its profiling cannot be queried.
            // Switching it on twice does no harm. Profiling that was not seen to be off is not
            // switched off later.
            original::hsa_amd_profiling_set_profiler_enabled(queue.0 as *mut _, 1);
            state.profiling_ours.store(u32::from(!intercept), Relaxed);
            let used = hint.reserved.unwrap_or(written) != 0;
            state.late.store(u32::from(used), Relaxed);
        }
        let direct = STATE.queues.direct.load(Relaxed);
        state.direct.store(u32::from(direct), Relaxed);
        let born_here = STATE.queues.born_here.load(Relaxed);
        let ours_from = hint.reserved.unwrap_or(written);
        // If the queue was made in this session, its first packets may have come before the hooks.
        // Those that are consumed already are looked at like any packets that went by unseen.
        let (first, next) = match born_here {
            true => (0, read.min(written.saturating_sub(u64::from(queue.size())))),
            false => (read, read),
        };
        let (ring, size) = (queue.ring(), u64::from(queue.size()));
        state.ring_size.store(queue.size(), Relaxed);
        if !intercept {
            state
                .doorbell_number
                .store(doorbell.doorbell_number(), Relaxed);
        }
        let read_ns = super::bus::nanoseconds_of_a_read(ring, size);
        state.read_ns.store(read_ns, Relaxed);
        if let Some(mut inner) = state.lock() {
            *inner = Inner {
                ring,
                size,
                first,
                next,
                lost: next - first,
                ours_from,
                counted_from: if born_here { 0 } else { ours_from },
                asked: 0,
                rung: 0,
                ..Inner::default()
            };
            state.covered.store(inner.rung_by_us(), Relaxed);
        }
    }
}
