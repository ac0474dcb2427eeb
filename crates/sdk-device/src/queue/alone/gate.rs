//! The gate of a queue: what its dispatches wait for, and which of them are on their way.

use super::prepared::Prepared;
use super::user::Dispatch;
use crate::layout::Signal;
use crate::queue::flight::Launch;
use midair_sdk_hot::wrappers::original;
use std::collections::VecDeque;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// `HSA_AMD_SIGNAL_AMD_GPU_ONLY`: no interrupt, no event.
const GPU_ONLY: u64 = 1;

/// Signals of a gate. The device only ever counts them down, so the difference to the first value
/// is how often that happened; no value is waited for twice.
#[derive(Debug, Clone, Copy)]
pub(super) struct Signals {
    /// Counted down when the queue has come to a dispatch. From 0.
    pub reached: Signal,
    /// Every second dispatch waits until this is 0, the others for the other one. The one that is
    /// not open has the value 1.
    pub open: [Signal; 2],
    /// Has the times of the packet that starts the counters. Counted down from 0.
    pub started: Signal,
    /// Counted down when a dispatch has ended and its counters were read. From 0. Has the times of
    /// the packet that reads.
    pub done: Signal,
}

impl Signals {
    /// Makes them; none when the runtime gives none.
    pub fn make() -> Option<Signals> {
        let made: Vec<Signal> = [0, 1, 1, 0, 0].into_iter().map_while(signal).collect();
        let &[reached, one, other, started, done] = &made[..] else {
            for signal in made {
                // SAFETY: made above, and used by nobody.
                unsafe { original::hsa_signal_destroy(signal.0) };
            }
            return None;
        };
        Some(Signals {
            reached,
            open: [one, other],
            started,
            done,
        })
    }

    /// Gives them back. Nothing in any ring refers to them any more.
    pub fn destroy(self) {
        let [one, other] = self.open;
        for signal in [self.reached, one, other, self.started, self.done] {
            // SAFETY: signals of ours, by the caller's promise used by nobody.
            unsafe { original::hsa_signal_destroy(signal.0) };
        }
    }
}

fn signal(value: i64) -> Option<Signal> {
    let mut handle = 0_u64;
    // SAFETY: the runtime's own function with a valid out pointer; no consumers are named.
    let status = unsafe {
        original::hsa_amd_signal_create(
            value,
            0,
            std::ptr::null_mut(),
            GPU_ONLY,
            (&raw mut handle).cast(),
        )
    };
    (status == 0).then_some(Signal(handle))
}

/// What a dispatch is counted with, and by whom.
#[derive(Debug)]
pub(crate) struct Chosen {
    /// Which user.
    pub user: usize,
    /// What.
    pub counters: Arc<Prepared>,
    /// The user's own.
    pub data: u64,
}

/// A dispatch between its barriers.
#[derive(Debug)]
pub(crate) struct Pending {
    /// It.
    pub dispatch: Dispatch,
    /// What it is counted with.
    pub chosen: Option<Chosen>,
}

/// A dispatch that has ended, or whose queue has.
#[derive(Debug)]
pub(crate) struct Ended {
    /// It.
    pub pending: Pending,
    /// The output; none where the device has not read.
    pub words: Option<Box<[u64]>>,
    /// Ticks of the packets that start and that read: beginning and end of each.
    pub ticks: [u64; 4],
}

/// What the scan knows of a packet.
#[derive(Debug, Default)]
struct Note {
    /// Index of the packet plus one.
    index: AtomicU64,
    dispatch_id: AtomicU64,
    correlation: AtomicU64,
    stream: AtomicU64,
    tid: AtomicU32,
    flags: AtomicU32,
}

/// A queue that is intercepted.
#[derive(Debug)]
pub(crate) struct Gate {
    /// From 1.
    pub number: u32,
    /// Its agent's handle.
    pub agent: u64,
    /// The queue's handle, once it is made; 0 again when it is gone.
    pub queue: AtomicU64,
    pub(super) signals: Signals,
    /// The application has destroyed the queue.
    pub is_gone: AtomicBool,
    /// Its signals are no more.
    pub is_lost: AtomicBool,
    /// They were given back between sessions, and the queue is still there.
    pub is_parked: AtomicBool,
    notes: Box<[Note]>,
    pending: Mutex<VecDeque<Pending>>,
    /// How many are pending.
    pub open: AtomicU64,
    /// Threads that may use the signals: inside the interceptor.
    pub inside: AtomicU64,
    /// The gate that the queue has instead: this one's signals were given back between sessions.
    pub next: AtomicPtr<Gate>,
    /// Packets in the queue.
    pub size: u32,
    /// How many have been let in, by the runtime's lock of the queue. Their parity says which signal
    /// a dispatch waits for.
    pub(super) taken: AtomicU64,
}

impl Gate {
    pub(super) fn new(number: u32, agent: u64, size: u32, signals: Signals) -> Gate {
        Gate {
            number,
            agent,
            queue: AtomicU64::new(0),
            signals,
            is_gone: AtomicBool::new(false),
            is_lost: AtomicBool::new(false),
            is_parked: AtomicBool::new(false),
            notes: (0..size.max(1)).map(|_| Note::default()).collect(),
            pending: Mutex::default(),
            open: AtomicU64::new(0),
            inside: AtomicU64::new(0),
            next: AtomicPtr::new(std::ptr::null_mut()),
            size,
            taken: AtomicU64::new(0),
        }
    }

    /// The gate that the queue has now.
    pub(super) fn current(&'static self) -> &'static Gate {
        let mut gate = self;
        // SAFETY: null, or a gate that was leaked.
        while let Some(next) = unsafe { gate.next.load(Acquire).as_ref() } {
            gate = next;
        }
        gate
    }

    /// Between sessions: gives the signals back, if nothing is on its way. The runtime may be shut
    /// down before the next, and at the end of a process it complains of those that were kept.
    pub(super) fn park(&self) {
        self.is_gone.store(true, SeqCst);
        // Who comes in from here on sees that it is gone.
        if self.inside.load(SeqCst) == 0
            && self.open.load(SeqCst) == 0
            && !self.is_lost.swap(true, SeqCst)
        {
            self.signals.destroy();
            self.is_parked.store(true, SeqCst);
        }
    }

    /// Notes what a packet is. One thread at a time: the queue's spin word is held.
    pub(super) fn note(&self, index: u64, dispatch_id: u64, launch: Launch) {
        if let Some(note) = self.notes.get(index as usize % self.notes.len()) {
            note.index.store(0, Relaxed);
            note.dispatch_id.store(dispatch_id, Relaxed);
            note.correlation.store(launch.correlation, Relaxed);
            note.stream.store(launch.stream, Relaxed);
            note.tid.store(launch.tid, Relaxed);
            note.flags.store(u32::from(launch.flags), Relaxed);
            note.index.store(index + 1, Release);
        }
    }

    /// What was noted of a packet: number of the dispatch (0: it is not recorded) and its launch.
    pub(super) fn noted(&self, index: u64) -> Option<(u64, Launch)> {
        let note = self.notes.get(index as usize % self.notes.len())?;
        (note.index.load(Acquire) == index + 1).then(|| {
            let launch = Launch {
                correlation: note.correlation.load(Relaxed),
                stream: note.stream.load(Relaxed),
                tid: note.tid.load(Relaxed),
                flags: note.flags.load(Relaxed) as u8,
                window: 0,
            };
            (note.dispatch_id.load(Relaxed), launch)
        })
    }

    /// The dispatches on their way. Held for moments, and never over a call of the runtime's.
    pub(super) fn pending(&self) -> MutexGuard<'_, VecDeque<Pending>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
