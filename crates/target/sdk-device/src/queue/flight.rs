//! Dispatches under way, and barriers of HIP events. There is one ring per queue, which is filled
//! under the queue's spin word and emptied by the worker thread.

use crate::layout::Signal;
use crate::packet::Dispatch;
use midair_lockfree::{AtomicEnum, word_enum};
use midair_record::event::Untimed;
use std::cell::UnsafeCell;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

/// How many dispatches one queue can have under way: as many as HIP's largest ring has packets.
pub const FLIGHTS: usize = 1 << 14;

word_enum! {
    /// States of a [`Flight`].
    pub enum Stage else Written {
        /// It waits for the device.
        UnderWay = 0,
        /// A thread is reading its times.
        Reading = 1,
        /// Its ticks were read from the application's signal before that was used again.
        Seen = 2,
        /// It will never have times; `reason` says why.
        Untimed = 3,
        /// Its record is written.
        Written = 4,
    }
}

/// Who launched a packet.
#[derive(Debug, Clone, Copy, Default)]
pub struct Launch {
    /// The correlation id of the launching call.
    pub correlation: u64,
    /// The raw HIP stream handle.
    pub stream: u64,
    /// The thread.
    pub tid: u32,
    /// Bits of [`midair_record::event::flag`].
    pub flags: u8,
    /// Whether the call records an event of HIP or waits for one, so that its barriers are followed.
    pub of_event: bool,
    /// The window of counters around the packet, from 1; 0 = none. [`super::window::OURS`]: the
    /// packet is ours.
    pub window: u16,
}

/// The facts about a dispatch, which do not change after the entry is published.
#[derive(Debug, Clone, Copy, Default)]
pub struct Facts {
    /// The packet index.
    pub index: u64,
    /// The number of the dispatch in the session.
    pub dispatch_id: u64,
    /// When the doorbell was rung.
    pub rung: u64,
    /// Who launched it.
    pub launch: Launch,
    /// What the packet says.
    pub dispatch: Dispatch,
    /// The completion signal: ours or the application's (0 = none).
    pub signal: u64,
    /// The value of the application's signal when the doorbell was rung: the dispatch has ended
    /// when the value is lower.
    pub value: i64,
    /// The end ticks in the application's signal when the doorbell was rung: another value means
    /// that the dispatch has ended.
    pub stale_end: u64,
    /// Whether the signal is ours.
    pub ours: bool,
    /// Whether the dispatch starts only when all packets before it have ended (the header's barrier
    /// bit).
    pub after_all: bool,
    /// Whether the packet is not a dispatch but a barrier of an event of HIP.
    pub is_barrier: bool,
    /// Whether the queue's profiling was switched on too late, see [`super::remap`]. If so, missing
    /// times mean that the device did not yet profile.
    pub late: bool,
}

/// One dispatch under way.
#[derive(Debug)]
pub struct Flight {
    facts: UnsafeCell<Facts>,
    /// See [`Stage`].
    pub stage: AtomicEnum<Stage>,
    /// See [`midair_record::event::Untimed`].
    pub reason: AtomicU32,
    /// Start ticks, with [`Stage::Seen`].
    pub start: AtomicU64,
    /// End ticks, with [`Stage::Seen`].
    pub end: AtomicU64,
}

// SAFETY: `facts` is written before the entry is published (by a release store of the ring's tail),
// and is only read while the entry is published.
unsafe impl Sync for Flight {}

impl Flight {
    /// Returns the facts about the dispatch.
    pub fn facts(&self) -> &Facts {
        // SAFETY: a published entry is not written.
        unsafe { &*self.facts.get() }
    }

    /// Returns the ticks in the application's signal if they are of this dispatch, or the reason if
    /// it has ended without ticks. Returns `None` while it runs.
    ///
    /// # Safety
    /// The application's signal must be alive.
    pub(super) unsafe fn own_ticks(facts: &Facts) -> Option<Result<(u64, u64), Untimed>> {
        let signal = Signal(facts.signal);
        // The device writes the start, the end and the value in this order, so they are read the
        // other way round: a new end never comes with an old start.
        // SAFETY: the caller's promise.
        let (value, end, start) =
            unsafe { (signal.value(), signal.end_ticks(), signal.start_ticks()) };
        if end != 0 && end != facts.stale_end {
            return Some(Ok((start, end)));
        }
        // A barrier has ended in any case: without the device's times it has the time at which that
        // is seen.
        let is_seen = facts.late || facts.is_barrier;
        (is_seen && value < facts.value).then_some(Err(Untimed::NotProfiled))
    }

    /// Reads the times now, if they are there, since the application is about to use its signal for
    /// something else.
    pub fn read_own_signal(&self) {
        if self
            .stage
            .compare_exchange(Stage::UnderWay, Stage::Reading, AcqRel, Relaxed)
            .is_err()
        {
            // The worker thread is reading the signal, which takes it a few loads. Without the wait
            // the application could destroy the signal meanwhile.
            for _ in 0..100_000 {
                if self.stage.load(Acquire) != Stage::Reading {
                    break;
                }
                std::hint::spin_loop();
            }
            return;
        }
        // SAFETY: the application is about to store to this signal or to destroy it, so it is alive
        // now.
        match unsafe { Flight::own_ticks(self.facts()) } {
            Some(Ok((start, end))) => {
                self.start.store(start, Relaxed);
                self.end.store(end, Relaxed);
                self.stage.store(Stage::Seen, Release);
            }
            Some(Err(why)) => self.give_up(why),
            None => self.give_up(Untimed::SignalReused),
        }
    }

    /// Marks that the dispatch will have no times.
    pub fn give_up(&self, why: Untimed) {
        self.reason.store(why as u32, Relaxed);
        self.stage.store(Stage::Untimed, Release);
    }
}

/// The most barriers in a ring, so that these never leave a dispatch without a place.
const BARRIERS: u64 = FLIGHTS as u64 / 2;

/// The ring of a queue's dispatches under way.
#[derive(Debug)]
#[repr(C)]
pub struct Flights {
    head: AtomicU64,
    tail: AtomicU64,
    /// How many of them are barriers.
    barriers: AtomicU64,
    entries: [Flight; FLIGHTS],
}

impl Flights {
    /// Returns the entry at a position.
    pub fn at(&self, position: u64) -> &Flight {
        let index = position as usize % FLIGHTS;
        #[expect(
            clippy::indexing_slicing,
            reason = "the index is reduced modulo the length"
        )]
        &self.entries[index]
    }

    /// Returns the positions that are in the ring.
    pub fn range(&self) -> std::ops::Range<u64> {
        self.head.load(Relaxed)..self.tail.load(Acquire)
    }

    /// Returns how many of those in the ring are barriers.
    pub fn barriers(&self) -> u64 {
        self.barriers.load(Relaxed)
    }

    /// Returns how many dispatches are in the ring. Where barriers are among them, those that have
    /// ended behind one that waits do not count.
    pub fn dispatches(&self) -> u64 {
        let range = self.range();
        if self.barriers() == 0 {
            return range.end.saturating_sub(range.start);
        }
        let flights = range.map(|position| self.at(position));
        let run = flights.filter(|flight| {
            flight.stage.load(Acquire) != Stage::Written && !flight.facts().is_barrier
        });
        run.count() as u64
    }

    /// Returns the facts of the dispatch at a published position, or `None` if the ring may have
    /// wrapped around to it.
    pub fn still(&self, position: u64) -> Option<Facts> {
        let facts = *self.at(position).facts();
        let tail = self.tail.load(Acquire);
        (position < tail && tail - position < FLIGHTS as u64 / 2).then_some(facts)
    }

    /// Returns the entry that the next [`Flights::push`] of a dispatch or of a barrier fills, or `None`
    /// if there is no room for it. Only under the queue's spin word.
    pub fn room(&self, is_barrier: bool) -> Option<&Flight> {
        let tail = self.tail.load(Relaxed);
        let is_full = tail - self.head.load(Acquire) >= FLIGHTS as u64
            || is_barrier && self.barriers() >= BARRIERS;
        (!is_full).then(|| self.at(tail))
    }

    /// Adds a dispatch or a barrier. Only under the queue's spin word. Returns `None` if there is no
    /// room for it.
    pub fn push(&self, facts: Facts, stage: Stage, reason: u32) -> Option<&Flight> {
        let entry = self.room(facts.is_barrier)?;
        if facts.is_barrier {
            self.barriers.fetch_add(1, Relaxed);
        }
        let tail = self.tail.load(Relaxed);
        // SAFETY: the entry is outside of head..tail, so no thread reads it, and the spin word
        // makes us the only writer.
        unsafe { *entry.facts.get() = facts };
        entry.reason.store(reason, Relaxed);
        // This is a release store: a thread that still has this entry's address from an earlier lap
        // sees the facts together with the stage.
        entry.stage.store(stage, Release);
        self.tail.store(tail + 1, Release);
        Some(entry)
    }

    /// Frees the written entries at the front. Only on the worker thread.
    pub fn retire(&self) {
        let mut range = self.range();
        while range.start < range.end && self.at(range.start).stage.load(Acquire) == Stage::Written
        {
            if self.at(range.start).facts().is_barrier {
                self.barriers.fetch_sub(1, Relaxed);
            }
            range.start += 1;
        }
        self.head.store(range.start, Release);
    }
}
