//! What is known of each queue, and how a queue or a doorbell finds it.
//!
//! States are taken from blocks of zeroed, lazily touched memory that our own thread maps before they are needed; a queue that
//! finds no free state is passed through and counted. Look-ups are lock-free; learning a queue (once per queue and session) takes
//! one spin word.

use super::flight::{Flights, Launch};
use crate::layout::{QueuePointer, Signal};
use midair_lockfree::{AtomicEnum, AtomicKey, Slot, SlotTable, word_enum};
use midair_sdk_hot::wrappers::original;
use std::cell::UnsafeCell;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};
use std::time::Duration;

/// Queues per block of states.
const BLOCK: usize = 32;
/// Blocks at most.
const BLOCKS: usize = 32;
/// Queues of a session at most: they are numbered from 1.
pub const MOST: usize = BLOCK * BLOCKS;
/// Reservations that a queue remembers: who took which packet index. A power of two.
pub const RESERVATIONS: usize = 1 << 14;
/// How often a lock is tried before the thread yields, and how often it yields before it sleeps.
const SPINS: (u32, u32) = (200, 50);
/// How long it sleeps at a time, and how often before it gives up. The holder has microseconds of work left, but may have lost its
/// processor for some scheduling rounds; going by would cost the times of the packets.
const SLEEPS: (Duration, u32) = (Duration::from_micros(100), 500);
/// How often our own thread tries all that again at the end of a session.
const PATIENT: u32 = 20;

/// Who reserved a packet index.
#[derive(Debug)]
pub struct Reservation {
    /// Packet index plus one; 0 = nobody.
    pub index: AtomicU64,
    correlation: AtomicU64,
    stream: AtomicU64,
    tid: AtomicU32,
    flags: AtomicU32,
}

word_enum! {
    /// Whether a queue may be touched.
    pub enum Life else Gone {
        /// In use.
        Alive = 0,
        /// The application destroys it: its memory must not be touched, and what runs on it may still end.
        Dying = 1,
        /// Destroyed: nothing on it will end any more.
        Gone = 2,
    }
}

/// What is only touched under the spin word.
#[derive(Debug, Default)]
pub struct Inner {
    /// Address of the ring.
    pub ring: u64,
    /// Packets in the ring.
    pub size: u64,
    /// First packet that was ours to see.
    pub first: u64,
    /// Next packet to look at.
    pub next: u64,
    /// Packets below this were reserved before we came.
    pub ours_from: u64,
    /// Highest doorbell value that the application asked for, plus one.
    pub asked: u64,
    /// Highest doorbell value that was passed on, plus one.
    pub rung: u64,
    /// Since when a gap holds back a doorbell (0 = none).
    pub held_since: u64,
    /// Dispatches seen.
    pub dispatches: u64,
    /// Dispatches that found no place in the ring of flights.
    pub overflown: u64,
    /// Other packets seen.
    pub others: u64,
    /// Packets that went by unseen.
    pub lost: u64,
}

impl Inner {
    /// Takes over what was rung without a look. Whether there was anything.
    pub fn take_passed(&mut self, state: &QueueState) -> bool {
        let passed = state.passed.swap(0, Relaxed);
        self.asked = self.asked.max(passed);
        self.rung = self.rung.max(passed);
        passed > self.next
    }
}

/// A queue's state. All-zero is a free state.
#[derive(Debug)]
#[repr(C)]
pub struct QueueState {
    /// The queue, 0 = free.
    pub queue: AtomicU64,
    /// Its doorbell's handle.
    pub doorbell: AtomicU64,
    /// Our number for it, from 1.
    pub id: AtomicU32,
    /// 1: its doorbell is a user signal (an intercept queue).
    pub intercept: AtomicU32,
    /// See [`Life`].
    pub life: AtomicEnum<Life>,
    /// 1 while our own thread touches its memory.
    pub visiting: AtomicU32,
    /// 1: we switched profiling on.
    pub profiling_ours: AtomicU32,
    /// 1: our thread wrote its record.
    pub announced: AtomicU32,
    /// Agent handle, 0 = not asked yet.
    pub agent: AtomicU64,
    /// KFD node.
    pub node: AtomicU32,
    lock: AtomicU32,
    /// Highest doorbell value plus one that was passed on without a look, since the spin word was not to be had.
    pub passed: AtomicU64,
    /// Packets below this have ended: a dispatch with the barrier bit was seen to have run.
    pub ended_below: AtomicU64,
    /// Dispatches whose record is written with times.
    pub timed: AtomicU64,
    /// Dispatches whose record is written without, by reason.
    pub untimed: [AtomicU64; 8],
    inner: UnsafeCell<Inner>,
    reservations: [Reservation; RESERVATIONS],
    /// Dispatches under way.
    pub flights: Flights,
}

// SAFETY: `inner` is only reached through `lock`.
unsafe impl Sync for QueueState {}

/// The spin word of a queue, held.
#[derive(Debug)]
pub struct Locked<'a> {
    state: &'a QueueState,
}

impl std::ops::Deref for Locked<'_> {
    type Target = Inner;
    fn deref(&self) -> &Inner {
        // SAFETY: the spin word is held.
        unsafe { &*self.state.inner.get() }
    }
}
impl std::ops::DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Inner {
        // SAFETY: the spin word is held.
        unsafe { &mut *self.state.inner.get() }
    }
}
impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.state.lock.store(0, Release);
    }
}

impl QueueState {
    /// Takes the spin word; `None` when its holder does not let go (descheduled): the caller then passes through.
    pub fn lock(&self) -> Option<Locked<'_>> {
        for round in 0..SPINS.1 + SLEEPS.1 {
            for _ in 0..SPINS.0 {
                if self.lock.load(Relaxed) == 0
                    && self
                        .lock
                        .compare_exchange_weak(0, 1, Acquire, Relaxed)
                        .is_ok()
                {
                    return Some(Locked { state: self });
                }
                std::hint::spin_loop();
            }
            if round < SPINS.1 {
                std::thread::yield_now();
            } else {
                std::thread::sleep(SLEEPS.0);
            }
        }
        None
    }

    /// The same for our own thread at the end of a session, when there is no other time to look: its holder has some more turns.
    pub fn lock_patiently(&self) -> Option<Locked<'_>> {
        (0..PATIENT).find_map(|_| self.lock())
    }

    /// The queue.
    pub fn pointer(&self) -> QueuePointer {
        QueuePointer(self.queue.load(Acquire))
    }

    /// Remembers who reserved `count` packets from `first`.
    pub fn reserve(&self, first: u64, count: u64, launch: Launch) {
        for index in first..first.saturating_add(count.min(RESERVATIONS as u64)) {
            if let Some(entry) = self.reservations.get(index as usize % RESERVATIONS) {
                entry.correlation.store(launch.correlation, Relaxed);
                entry.stream.store(launch.stream, Relaxed);
                entry.tid.store(launch.tid, Relaxed);
                entry.flags.store(u32::from(launch.flags), Relaxed);
                entry.index.store(index + 1, Release);
            }
        }
    }

    /// Who reserved packet `index`.
    pub fn reserver(&self, index: u64) -> Option<Launch> {
        let entry = self.reservations.get(index as usize % RESERVATIONS)?;
        (entry.index.load(Acquire) == index + 1).then(|| Launch {
            correlation: entry.correlation.load(Relaxed),
            stream: entry.stream.load(Relaxed),
            tid: entry.tid.load(Relaxed),
            flags: entry.flags.load(Relaxed) as u8,
        })
    }

    /// Runs `look` on the queue's memory unless the application destroyed it. Only our own thread.
    pub fn visit<T>(&self, look: impl FnOnce(QueuePointer) -> T) -> Option<T> {
        self.visiting.store(1, SeqCst);
        let seen = (self.life.load(SeqCst) == Life::Alive).then(|| look(self.pointer()));
        self.visiting.store(0, SeqCst);
        seen
    }

    /// The application is about to destroy the queue: from now on nobody touches its memory. Waits (briefly) for a visit to end.
    pub fn bury(&self) {
        self.life.store(Life::Dying, SeqCst);
        while self.visiting.load(SeqCst) != 0 {
            std::thread::yield_now();
        }
        forget(self.queue.load(Relaxed));
        forget(self.doorbell.load(Relaxed));
    }
}

static BLOCK_TABLE: [AtomicPtr<QueueState>; BLOCKS] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; BLOCKS];
static USED: AtomicUsize = AtomicUsize::new(0);
static READY: AtomicUsize = AtomicUsize::new(0);
/// Queues that found no free state.
pub static UNSEEN: AtomicU64 = AtomicU64::new(0);
/// The runtime was opened in this session: packets of a queue that were consumed before it was learned went by unseen.
pub static BORN_HERE: AtomicBool = AtomicBool::new(false);
/// Intercept queues known: only then do doorbells of the user kind need a look-up.
pub static INTERCEPTS: AtomicU32 = AtomicU32::new(0);

fn state_at(index: usize) -> Option<&'static QueueState> {
    let block = BLOCK_TABLE.get(index / BLOCK)?.load(Acquire);
    // SAFETY: a block holds BLOCK states in zeroed memory that is never unmapped; all-zero is valid.
    (!block.is_null()).then(|| unsafe { &*block.add(index % BLOCK) })
}

/// Makes sure that a few states are free. Only our own thread. False when memory ran out.
pub fn provide() -> bool {
    let used = USED.load(Acquire);
    while READY.load(Relaxed) < (used + BLOCK / 2).min(BLOCK * BLOCKS) {
        let block = READY.load(Relaxed) / BLOCK;
        let Some(place) = BLOCK_TABLE.get(block) else {
            return true;
        };
        // SAFETY: a fresh private mapping; NORESERVE and untouched, so it costs address space only.
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
        place.store(memory.cast(), Release);
        READY.fetch_add(BLOCK, Release);
    }
    true
}

/// States in use in this session.
pub fn all() -> impl Iterator<Item = &'static QueueState> {
    (0..USED.load(Acquire).min(READY.load(Acquire)))
        .filter_map(state_at)
        .filter(|state| state.id.load(Acquire) != 0)
}

/// Gives all states back and forgets all queues. Only while no session is on. The memory is handed back to the system and reads
/// as zero again; where the program has locked it the system does not take it, and what was used is overwritten.
pub fn clear() {
    let used = USED.load(Acquire);
    for (number, block) in BLOCK_TABLE.iter().enumerate() {
        let block = block.load(Acquire);
        if !block.is_null() {
            // SAFETY: our own private anonymous mapping; nobody uses a state while no session is on, and all-zero is a free one.
            unsafe {
                let bytes = BLOCK * size_of::<QueueState>();
                if libc::madvise(block.cast(), bytes, libc::MADV_DONTNEED) != 0 {
                    let used = used.saturating_sub(number * BLOCK).min(BLOCK);
                    block.write_bytes(0, used);
                }
            };
        }
    }
    USED.store(0, Release);
    UNSEEN.store(0, Relaxed);
    BORN_HERE.store(false, Relaxed);
    INTERCEPTS.store(0, Relaxed);
    KEYS.clear();
}

const KEY_COUNT: usize = 1 << 12;

/// By the address of a queue or the handle of its doorbell: the state's index.
static KEYS: SlotTable<AtomicKey, KEY_COUNT, AtomicUsize> =
    SlotTable::new([const { Slot::new(AtomicKey::new(), AtomicUsize::new(0), ()) }; KEY_COUNT]);
static LEARNING: AtomicU32 = AtomicU32::new(0);

/// The state of the queue, or of the doorbell, with this address.
#[inline]
pub fn find(key: u64) -> Option<&'static QueueState> {
    state_at(KEYS.find(key, KEY_COUNT)?.shared().load(Relaxed))
}

fn insert(key: u64, index: usize) {
    if let Some(entry) = KEYS.claim_key(key, KEY_COUNT) {
        entry.shared().store(index, Relaxed);
        entry.publish(key);
    }
}

fn forget(key: u64) {
    KEYS.remove(key, KEY_COUNT);
}

/// The state of a queue, learned now if need be. `reserved` is the first index that the caller itself reserved, if it did. `None`
/// when no state is free.
///
/// # Safety
/// `queue` must be a live `hsa_queue_t`.
pub unsafe fn learn(
    queue: QueuePointer,
    agent: u64,
    reserved: Option<u64>,
) -> Option<&'static QueueState> {
    if let Some(known) = find(queue.0) {
        return Some(known);
    }
    while LEARNING.compare_exchange(0, 1, Acquire, Relaxed).is_err() {
        std::thread::yield_now();
    }
    let state = find(queue.0).or_else(|| {
        let index = USED.load(Acquire);
        let state = if index < READY.load(Acquire) {
            state_at(index)
        } else {
            None
        };
        let Some(state) = state else {
            UNSEEN.fetch_add(1, Relaxed);
            return None;
        };
        // SAFETY: the caller's promise that the queue is live; originals were saved before hooks were installed.
        unsafe { set_up(state, queue, agent, reserved) };
        state.id.store(index as u32 + 1, Release);
        USED.store(index + 1, Release);
        insert(queue.0, index);
        insert(state.doorbell.load(Relaxed), index);
        Some(state)
    });
    LEARNING.store(0, Release);
    state
}

/// # Safety
/// `queue` must be live, `state` free and the caller alone with it.
unsafe fn set_up(state: &QueueState, queue: QueuePointer, agent: u64, reserved: Option<u64>) {
    // SAFETY: the caller's promise; the calls are the runtime's own, by way of the saved originals.
    unsafe {
        let doorbell: Signal = queue.doorbell();
        let kind = doorbell.kind();
        let intercept = kind == crate::layout::KIND_USER;
        let read = original::hsa_queue_load_read_index_scacquire(queue.0 as *mut _);
        let written = original::hsa_queue_load_write_index_relaxed(queue.0 as *mut _);
        state.queue.store(queue.0, Relaxed);
        state.doorbell.store(doorbell.0, Relaxed);
        state.agent.store(agent, Relaxed);
        state.intercept.store(u32::from(intercept), Relaxed);
        if intercept {
            INTERCEPTS.fetch_add(1, AcqRel);
        }
        if intercept || !queue.profiled() {
            // An intercept queue hides the queue behind it, so it cannot be asked; switching on twice does no harm, and what was
            // not seen to be off is not put back.
            original::hsa_amd_profiling_set_profiler_enabled(queue.0 as *mut _, 1);
            state.profiling_ours.store(u32::from(!intercept), Relaxed);
        }
        let first = if BORN_HERE.load(Relaxed) { 0 } else { read };
        if let Some(mut inner) = state.lock() {
            *inner = Inner {
                ring: queue.ring(),
                size: u64::from(queue.size()),
                first,
                next: read,
                lost: read.saturating_sub(first),
                ours_from: reserved.unwrap_or(written),
                asked: 0,
                rung: 0,
                ..Inner::default()
            };
        }
    }
}

/// See `forked` in `midair-sdk-control`. The rest is cleared when a session begins.
pub fn begin_anew() {
    LEARNING.store(0, Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_rung_without_a_look_is_looked_at_later() {
        let layout = std::alloc::Layout::new::<QueueState>();
        // SAFETY: a state is a free one when all of it is zero; it stays for the rest of the process.
        let state: &'static QueueState = unsafe { &*std::alloc::alloc_zeroed(layout).cast() };
        let held = state.lock().unwrap();
        // Its holder has no turn: another producer passes by.
        assert!(state.lock().is_none());
        state.passed.fetch_max(7, Relaxed);
        drop(held);
        let mut inner = state.lock_patiently().unwrap();
        inner.next = 4;
        assert!(inner.take_passed(state));
        assert_eq!((inner.asked, inner.rung), (7, 7));
        assert!(!inner.take_passed(state), "once");
        state.passed.store(4, Relaxed);
        assert!(!inner.take_passed(state), "looked at already");
        assert_eq!((inner.asked, inner.rung), (7, 7));
    }
}
