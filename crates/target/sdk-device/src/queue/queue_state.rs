//! The state of one queue, and the table of all queues.

use super::flight::{Flights, Launch};
use super::window::{GUARDED, Guard, OURS};
use crate::layout::QueuePointer;
use midair_lockfree::{AtomicEnum, AtomicKey, Slot, SlotTable, word_enum};
use std::cell::UnsafeCell;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};
use std::time::Duration;

/// The number of states in a block.
pub(crate) const BLOCK: usize = 32;
/// The largest number of blocks.
pub(crate) const BLOCKS: usize = 32;
const _: () = assert!(BLOCK == u32::BITS as usize);
/// The largest number of queues at one time. A queue that is gone gives its state to a later one.
pub const MOST: usize = BLOCK * BLOCKS;
/// The number of entries in the table of keys; a queue has two.
pub(crate) const KEY_COUNT: usize = 1 << 12;
/// How many reservations a queue remembers, that is, who took which packet index. A power of two.
pub const RESERVATIONS: usize = 1 << 14;
/// The unit in which memory is given back. Where pages are larger, it is not given back but cleared.
const PAGE: usize = 4096;
/// The bit of [`Reservation`]'s flags that marks a midair packet as valid.
const VALID: u32 = 1 << 8;
/// The bit of [`Reservation::flags`] for [`Launch::of_event`].
const OF_EVENT: u32 = 1 << 9;
/// How often a lock is tried before the thread yields, and how often it yields before it sleeps.
const SPINS: (u32, u32) = (200, 50);
/// How long the thread sleeps at a time, and how often before it gives up. The holder has only
/// microseconds of work left, but may have been preempted for some scheduling rounds. Going on
/// without the lock would cost the times of the packets.
const SLEEPS: (Duration, u32) = (Duration::from_micros(100), 500);
/// How often the worker thread repeats all of this at the end of a session.
const PATIENT: u32 = 20;

/// The record of who reserved a packet index.
#[derive(Debug)]
pub struct Reservation {
    /// The packet index plus one; 0 = not reserved.
    pub index: AtomicU64,
    correlation: AtomicU64,
    stream: AtomicU64,
    tid: AtomicU32,
    /// [`Launch::flags`], [`VALID`], [`OF_EVENT`], and [`Launch::window`] in the upper half.
    flags: AtomicU32,
}

word_enum! {
    /// Whether a queue may be touched.
    pub enum Life else Gone {
        /// In use.
        Alive = 0,
        /// The application is destroying it: its memory must not be touched, but what runs on it
        /// may still end.
        Dying = 1,
        /// Destroyed: nothing on it will end any more.
        Gone = 2,
    }
}

/// The part of a queue's state that is only touched under the spin word.
#[derive(Debug, Default)]
pub struct Inner {
    /// The address of the ring.
    pub ring: u64,
    /// The size of the ring in packets.
    pub size: u64,
    /// The first packet that was ours to see.
    pub first: u64,
    /// The next packet to look at.
    pub next: u64,
    /// Packets below this were reserved before we came.
    pub ours_from: u64,
    /// Packets below this came before the session did; no more than `ours_from`.
    pub counted_from: u64,
    /// The highest doorbell value that the application asked for, plus one.
    pub asked: u64,
    /// The highest doorbell value that was passed on, plus one.
    pub rung: u64,
    /// Since when a gap holds a doorbell back (0 = no gap does).
    pub held_since: u64,
    /// The value of [`Inner::rung_by_us`] when the device was seen to have taken more packets than
    /// that.
    pub owed_above: u64,
    /// Since when the device has taken more (0 = it has not).
    pub owed_since: u64,
    /// The number of dispatches that were seen, without those that found no free entry in the ring
    /// of flights and without [`Inner::paused`].
    pub dispatches: u64,
    /// The number of dispatches that were seen and were launched during a pause of the recording.
    pub paused: u64,
    /// The number of other packets that were seen.
    pub others: u64,
    /// The number of our own packets that were seen.
    pub ours: u64,
    /// The number of packets that were consumed unseen, and of dispatches that found no free entry.
    pub lost: u64,
    /// Among `others`: vendor packets that may launch kernels, as far as we know.
    pub unexplained: Unexplained,
}

/// Vendor packets whose formats we do not know.
#[derive(Debug, Default)]
pub struct Unexplained {
    /// The number of packets.
    packets: u64,
    /// A bit for each format seen.
    formats: [u64; 4],
}

impl Unexplained {
    /// Counts a packet.
    pub fn count(&mut self, format: u8) {
        self.packets += 1;
        if let Some(word) = self.formats.get_mut(usize::from(format / 64)) {
            *word |= 1 << (format % 64);
        }
    }

    /// Describes the packets in words, if there were any: "4 of format 77", "5 of formats 4, 77".
    pub fn words(&self) -> Option<String> {
        let seen = |format: &u8| {
            let word = self.formats.get(usize::from(format / 64));
            word.is_some_and(|word| word >> (format % 64) & 1 != 0)
        };
        let formats: Vec<String> = (0..=u8::MAX)
            .filter(seen)
            .map(|format| format.to_string())
            .collect();
        let noun = match formats.len() {
            0 => return None,
            1 => "format",
            _ => "formats",
        };
        Some(format!("{} of {noun} {}", self.packets, formats.join(", ")))
    }
}

impl Inner {
    /// Takes over the doorbells that were rung without a look. Returns whether that adds packets to
    /// look at.
    pub fn take_passed(&mut self, state: &QueueState) -> bool {
        let passed = state.passed.swap(0, AcqRel);
        self.asked = self.asked.max(passed);
        self.rung = self.rung.max(passed);
        passed > self.next
    }

    /// Returns the index below which packets were rung through our hooks, or before we came.
    pub fn rung_by_us(&self) -> u64 {
        self.asked.max(self.ours_from)
    }
}

/// A queue's state. All zero bytes are a free state.
#[derive(Debug)]
#[repr(C)]
pub struct QueueState {
    /// The address of the queue; 0 = the state is free.
    pub queue: AtomicU64,
    /// The handle of its doorbell.
    pub doorbell: AtomicU64,
    /// Our number for it in the session, from 1; 0 = the state is free.
    pub id: AtomicU32,
    /// 1 if its doorbell is a user signal (an intercept queue).
    pub intercept: AtomicU32,
    /// See [`Life`].
    pub life: AtomicEnum<Life>,
    /// 1 while the worker thread touches its memory.
    pub visiting: AtomicU32,
    /// The engine that processes it (`hsa_amd_queue_engine_t`); 0 is the one that runs kernels. The
    /// rings of all other engines hold no AQL packets, and their sizes and indices count bytes, so
    /// they are left alone.
    pub engine: AtomicU32,
    /// 1 if we switched profiling on.
    pub profiling_ours: AtomicU32,
    /// 1 if profiling was switched on after the queue's first packets, see [`super::remap`].
    pub late: AtomicU32,
    /// 1 if its doorbell is rung past the hooks, see [`super::direct`].
    pub direct: AtomicU32,
    /// 1 when the worker thread has written its record.
    pub announced: AtomicU32,
    /// The queue uses the windows of the agent with this number, from 1; 0 = none.
    pub windows_of: AtomicU32,
    /// 1 if its ring may contain midair's packets that switch its counting on or off.
    pub has_switches: AtomicU32,
    /// 1 if a call of a HIP event that is recorded reserved a packet.
    pub has_events: AtomicU32,
    /// 1 if the application checks for room in its ring.
    pub watches_room: AtomicU32,
    /// Where its ring is. 0: the worker thread has not asked yet. 1: the ring is known to be in
    /// host memory, in which stores arrive in order. 2: that is not known.
    pub host_ring: AtomicU32,
    /// Nanoseconds that it takes to read a packet of its ring.
    pub read_ns: AtomicU32,
    /// The number of its doorbell in the process, as samples of program counters have it, and the
    /// number of packets in its ring.
    pub doorbell_number: AtomicU32,
    /// See `doorbell_number`.
    pub ring_size: AtomicU32,
    /// The number of its gate, if its dispatches are serialized ([`super::serialized`]); 0 = it has none.
    pub serialized: AtomicU32,
    /// The agent's handle; 0 = not asked yet.
    pub agent: AtomicU64,
    /// The agent's KFD node.
    pub node: AtomicU32,
    lock: AtomicU32,
    /// The highest doorbell value plus one that was passed on without a look, since the spin word
    /// could not be taken.
    pub passed: AtomicU64,
    /// A copy of [`Inner::rung_by_us`] for threads that do not hold the spin word; it may lag
    /// behind.
    pub covered: AtomicU64,
    /// Packets below this index have ended, since a dispatch with the barrier bit was seen to have
    /// run.
    pub ended_below: AtomicU64,
    /// The number of dispatches whose record is written with times.
    pub timed: AtomicU64,
    /// The number of dispatches whose record is written without times, by reason.
    pub untimed: [AtomicU64; 8],
    /// The guard before a batch whose kernels are counted one by one.
    pub guard: Guard,
    inner: UnsafeCell<Inner>,
    reservations: [Reservation; RESERVATIONS],
    /// The dispatches under way.
    pub flights: Flights,
}

// SAFETY: `inner` is only accessed through `lock`, so by one thread at a time.
unsafe impl Sync for QueueState {}

/// Proof that the calling thread holds the spin word of a queue.
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
    /// Takes the spin word. Returns `None` if its holder does not release it (because it is
    /// preempted); the caller then goes on without a look at the packets.
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

    /// The same, but waits longer. It is for callers that have no other time to look, such as the
    /// worker thread at the end of a session.
    pub fn lock_patiently(&self) -> Option<Locked<'_>> {
        (0..PATIENT).find_map(|_| self.lock())
    }

    /// Returns whether all packets that were rung are in [`QueueState::flights`].
    pub fn is_looked_at(&self) -> bool {
        // A thread takes doorbells over from `passed` while it holds the spin word, and then looks. So the
        // word is read last.
        self.passed.load(Acquire) == 0 && self.lock.load(Acquire) == 0
    }

    /// Returns whether it was destroyed and no thread looks at its packets.
    pub fn is_left(&self) -> bool {
        self.life.load(Acquire) == Life::Gone && self.lock.load(Acquire) == 0
    }

    /// Returns whether its ring holds AQL packets.
    pub fn is_compute(&self) -> bool {
        self.engine.load(Relaxed) == 0
    }

    /// Returns the queue.
    pub fn pointer(&self) -> QueuePointer {
        QueuePointer(self.queue.load(Acquire))
    }

    /// Returns whether its ring may contain midair's packets.
    #[inline]
    pub fn has_windows(&self) -> bool {
        self.windows_of.load(Relaxed) != 0 || self.has_switches.load(Relaxed) != 0
    }

    /// Returns the index up to which to ring if the application has rung up to `asked`: packets of
    /// ours directly behind are included.
    pub fn with_ours(&self, asked: u64) -> u64 {
        if !self.has_windows() {
            return asked;
        }
        let window = |index| self.reserver(index).map_or(0, |launch| launch.window);
        let last = asked.checked_sub(1).map_or(0, window);
        // Behind the first packets of a batch come further packets of the batch.
        match last {
            0 | OURS => asked,
            _ if window(asked) != OURS => asked,
            // The guard was opened without moving anything: include all packets that were reserved
            // for it.
            GUARDED => {
                let ours = |index: &u64| window(*index) == OURS;
                let most = asked.saturating_add(RESERVATIONS as u64);
                asked + (asked..most).take_while(ours).count() as u64
            }
            _ => asked.saturating_add(1),
        }
    }

    /// Returns whether its doorbell is rung past the hooks, as far as is known.
    #[inline]
    pub fn is_direct(&self) -> bool {
        self.direct.load(Relaxed) != 0
    }

    /// Remembers who reserved `count` packets from `first` on.
    pub fn reserve(&self, first: u64, count: u64, launch: Launch) {
        if launch.of_event {
            self.has_events.store(1, Relaxed);
        }
        for index in first..first.saturating_add(count.min(RESERVATIONS as u64)) {
            if let Some(entry) = self.reservations.get(index as usize % RESERVATIONS) {
                entry.correlation.store(launch.correlation, Relaxed);
                entry.stream.store(launch.stream, Relaxed);
                entry.tid.store(launch.tid, Relaxed);
                let window = u32::from(launch.window) << 16;
                let of_event = if launch.of_event { OF_EVENT } else { 0 };
                let flags = window | of_event | u32::from(launch.flags);
                entry.flags.store(flags, Relaxed);
                entry.index.store(index + 1, Release);
            }
        }
    }

    /// Marks packet `index`, which was reserved as one of midair's, as valid from now on.
    #[inline]
    pub fn ours_is_valid(&self, index: u64) {
        if let Some(entry) = self.reservations.get(index as usize % RESERVATIONS)
            // In a ring with more packets than are remembered, another packet may have taken its
            // entry.
            && entry.index.load(Relaxed) == index + 1
        {
            entry.flags.store(u32::from(OURS) << 16 | VALID, Release);
        }
    }

    /// Returns whether packet `index` is known to be ours and valid. Such a packet need not be
    /// read, which would be slow if the ring is in device memory.
    #[inline]
    pub fn has_ours_at(&self, index: u64) -> bool {
        let entry = self.reservations.get(index as usize % RESERVATIONS);
        entry.is_some_and(|entry| {
            entry.index.load(Acquire) == index + 1
                && entry.flags.load(Acquire) == u32::from(OURS) << 16 | VALID
        })
    }

    /// Returns who reserved packet `index`.
    pub fn reserver(&self, index: u64) -> Option<Launch> {
        let entry = self.reservations.get(index as usize % RESERVATIONS)?;
        (entry.index.load(Acquire) == index + 1).then(|| {
            let flags = entry.flags.load(Relaxed);
            Launch {
                correlation: entry.correlation.load(Relaxed),
                stream: entry.stream.load(Relaxed),
                tid: entry.tid.load(Relaxed),
                flags: flags as u8,
                of_event: flags & OF_EVENT != 0,
                window: (flags >> 16) as u16,
            }
        })
    }

    /// Forgets a queue that is gone, when none of its dispatches is under way. The state is free then.
    ///
    /// The ring of flights goes on where it is: a thread that is about to read the times of a flight
    /// finds it written.
    pub(super) fn forget(&self, mut inner: Locked<'_>) {
        self.id.store(0, SeqCst);
        *inner = Inner::default();
        let words = [
            &self.intercept,
            &self.visiting,
            &self.engine,
            &self.profiling_ours,
            &self.late,
            &self.direct,
            &self.announced,
            &self.has_events,
            &self.watches_room,
            &self.host_ring,
            &self.read_ns,
            &self.doorbell_number,
            &self.ring_size,
            &self.node,
        ];
        for word in words {
            word.store(0, Relaxed);
        }
        let counts = [
            &self.queue,
            &self.doorbell,
            &self.agent,
            &self.passed,
            &self.covered,
            &self.ended_below,
            &self.timed,
        ];
        for count in counts.into_iter().chain(&self.untimed) {
            count.store(0, Relaxed);
        }
        self.forget_reservations();
        self.life.store(Life::Alive, Release);
    }

    /// Forgets who reserved packets. A state holds 512 KiB of this, most of it never touched: whole
    /// pages go back to the system and read as zero.
    fn forget_reservations(&self) {
        let (begin, all) = (
            self.reservations.as_ptr().addr(),
            size_of_val(&self.reservations),
        );
        let first = begin.next_multiple_of(PAGE);
        let bytes = (begin + all).saturating_sub(first) / PAGE * PAGE;
        let pages = self.reservations.as_ptr().wrapping_byte_add(first - begin);
        // SAFETY: the pages hold nothing but reservations, whose fields are atomic and of which all
        // zero bytes are none. Their memory is private and anonymous.
        let given_back =
            unsafe { libc::madvise(pages.cast_mut().cast(), bytes, libc::MADV_DONTNEED) } == 0;
        for entry in &self.reservations {
            let at = std::ptr::from_ref(entry).addr();
            if !given_back || at < first || at + size_of::<Reservation>() > first + bytes {
                entry.index.store(0, Relaxed);
            }
        }
    }

    /// Runs `look` on the queue's memory unless the application has destroyed the queue. Only for
    /// the worker thread.
    pub fn visit<T>(&self, look: impl FnOnce(QueuePointer) -> T) -> Option<T> {
        self.visiting.store(1, SeqCst);
        let seen = (self.life.load(SeqCst) == Life::Alive).then(|| look(self.pointer()));
        self.visiting.store(0, SeqCst);
        seen
    }

    /// Makes sure that the queue's memory is not touched from now on, since the application is
    /// about to destroy the queue. Waits briefly for a visit to end.
    pub fn end_visits(&self) {
        self.life.store(Life::Dying, SeqCst);
        while self.visiting.load(SeqCst) != 0 {
            std::thread::yield_now();
        }
    }
}

/// The queues of a session.
#[derive(Debug)]
pub(crate) struct Queues {
    /// Blocks of states, mapped by the worker thread before they are needed and never unmapped.
    pub blocks: [AtomicPtr<QueueState>; BLOCKS],
    /// The number of states that are or were in use in this session.
    pub used: AtomicUsize,
    /// A bit for each of these that is free again, in a word for each block.
    pub free: [AtomicU32; BLOCKS],
    /// The number of the last queue in this session.
    pub last_id: AtomicU32,
    /// How many dispatches were launched on queues whose states are free again.
    pub launches_before: AtomicU64,
    /// The number of states that are mapped.
    pub ready: AtomicUsize,
    /// The number of uses of queues that found no free state.
    pub unseen: AtomicU64,
    /// Whether the runtime was opened in this session: then packets of a queue that were consumed
    /// before it was learned went by unseen.
    pub born_here: AtomicBool,
    /// Whether the program was started so that it rings doorbells past the hooks.
    pub direct: AtomicBool,
    /// The number of known intercept queues. Doorbells of the user kind need a look-up only if
    /// there are any.
    pub intercepts: AtomicU32,
    /// The index of the state, by the address of a queue or the handle of its doorbell.
    pub keys: SlotTable<AtomicKey, KEY_COUNT, AtomicUsize>,
    /// 1 while a thread learns a queue.
    pub learning: AtomicU32,
    /// The number of the last dispatch in the session.
    pub last_dispatch: AtomicU64,
}

impl Queues {
    pub(crate) const fn new() -> Queues {
        Queues {
            blocks: [const { AtomicPtr::new(std::ptr::null_mut()) }; BLOCKS],
            used: AtomicUsize::new(0),
            free: [const { AtomicU32::new(0) }; BLOCKS],
            last_id: AtomicU32::new(0),
            launches_before: AtomicU64::new(0),
            ready: AtomicUsize::new(0),
            unseen: AtomicU64::new(0),
            born_here: AtomicBool::new(false),
            direct: AtomicBool::new(false),
            intercepts: AtomicU32::new(0),
            keys: SlotTable::new(
                [const { Slot::new(AtomicKey::new(), AtomicUsize::new(0), ()) }; KEY_COUNT],
            ),
            learning: AtomicU32::new(0),
            last_dispatch: AtomicU64::new(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_that_nobody_explained_are_counted_by_format() {
        let mut unexplained = Unexplained::default();
        assert_eq!(unexplained.words(), None);
        unexplained.count(255);
        unexplained.count(255);
        assert_eq!(unexplained.words().as_deref(), Some("2 of format 255"));
        unexplained.count(4);
        let words = unexplained.words();
        assert_eq!(words.as_deref(), Some("3 of formats 4, 255"));
    }

    #[test]
    fn what_was_rung_without_a_look_is_looked_at_later() {
        let layout = std::alloc::Layout::new::<QueueState>();
        // SAFETY: all zero bytes are a valid, free state, and the memory is kept for the rest of
        // the process.
        let state: &'static QueueState = unsafe { &*std::alloc::alloc_zeroed(layout).cast() };
        assert!(state.is_looked_at());
        let held = state.lock().unwrap();
        // The holder does not run, so another producer rings without a look.
        assert!(state.lock().is_none());
        state.passed.fetch_max(7, Relaxed);
        drop(held);
        assert!(!state.is_looked_at());
        let mut inner = state.lock_patiently().unwrap();
        inner.next = 4;
        assert!(inner.take_passed(state));
        assert!(!state.is_looked_at(), "the holder is about to look");
        assert_eq!((inner.asked, inner.rung), (7, 7));
        assert!(!inner.take_passed(state), "once");
        state.passed.store(4, Relaxed);
        assert!(!inner.take_passed(state), "looked at already");
        assert_eq!((inner.asked, inner.rung), (7, 7));
        drop(inner);
        assert!(state.is_looked_at());
    }
}
