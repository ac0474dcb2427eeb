//! The gate of a queue: the signals that its dispatches wait on, and the list of dispatches on
//! their way.

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

/// The signals of a gate. The device only ever decrements `reached`, `started` and `done`, so the
/// difference from the first value is the number of decrements. The thread that gives turns never
/// waits for the same value twice.
#[derive(Debug, Clone, Copy)]
pub(super) struct Signals {
    /// Decremented, from 0, when the queue has reached a dispatch.
    pub reached: Signal,
    /// Dispatches alternate between these two signals: each waits until its signal is 0. A signal
    /// that is not open has the value 1.
    pub open: [Signal; 2],
    /// Decremented, from 0, by the packet that starts the counters, and holds the times of that
    /// packet.
    pub started: Signal,
    /// Decremented, from 0, when a dispatch has ended and its counters were read. Holds the times
    /// of the packet that reads them.
    pub done: Signal,
}

impl Signals {
    /// Creates the signals. Returns `None` if the runtime does not give all of them.
    pub fn make() -> Option<Signals> {
        let made: Vec<Signal> = [0, 1, 1, 0, 0].into_iter().map_while(signal).collect();
        let &[reached, one, other, started, done] = &made[..] else {
            for signal in made {
                // SAFETY: the signal was created above, and nothing uses it.
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

    /// Destroys the signals. No packet in any ring may refer to them any more.
    pub fn destroy(self) {
        let [one, other] = self.open;
        for signal in [self.reached, one, other, self.started, self.done] {
            // SAFETY: the signals are ours, and the caller promises that nothing uses them.
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

/// The counters that a dispatch is counted with, and the user that chose them.
#[derive(Debug)]
pub(crate) struct Selection {
    /// The index of the user.
    pub user: usize,
    /// The counters.
    pub counters: Arc<Prepared>,
    /// The user's own data.
    pub data: u64,
}

/// A dispatch between its barriers.
#[derive(Debug)]
pub(crate) struct Pending {
    /// The dispatch.
    pub dispatch: Dispatch,
    /// The counters that it is counted with, if a user chose any.
    pub chosen: Option<Selection>,
}

/// A dispatch that has ended, or whose queue is gone.
#[derive(Debug)]
pub(crate) struct Ended {
    /// The dispatch.
    pub pending: Pending,
    /// The output; `None` if the device has not read the counters.
    pub words: Option<Box<[u64]>>,
    /// The ticks at which the packet that starts the counters started and ended, then the same for
    /// the packet that reads them.
    pub ticks: [u64; 4],
}

/// What the scan of the ring has found out about a packet.
#[derive(Debug, Default)]
struct Note {
    /// The index of the packet plus one.
    index: AtomicU64,
    dispatch_id: AtomicU64,
    correlation: AtomicU64,
    stream: AtomicU64,
    tid: AtomicU32,
    flags: AtomicU32,
}

/// The gate of an intercepted queue.
#[derive(Debug)]
pub(crate) struct Gate {
    /// The number of the gate, from 1.
    pub number: u32,
    /// The handle of the queue's agent.
    pub agent: u64,
    /// The queue's handle; 0 before the queue is made.
    pub queue: AtomicU64,
    pub(super) signals: Signals,
    /// Whether the gate is out of use: the application has destroyed the queue, or the signals were
    /// given back.
    pub is_gone: AtomicBool,
    /// Whether its signals no longer exist.
    pub is_lost: AtomicBool,
    /// Whether its signals were given back between sessions while the queue still exists.
    pub is_parked: AtomicBool,
    notes: Box<[Note]>,
    pending: Mutex<VecDeque<Pending>>,
    /// The number of pending dispatches.
    pub open: AtomicU64,
    /// The number of threads that are inside the interceptor, and so may use the signals.
    pub inside: AtomicU64,
    /// The gate that replaces this one, after this one's signals were given back between sessions.
    pub next: AtomicPtr<Gate>,
    /// The size of the queue in packets.
    pub size: u32,
    /// The number of dispatches that were let in so far. Only changed under the runtime's lock of
    /// the queue. Its parity says which of the two `open` signals the next dispatch waits on.
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

    /// Returns the gate that the queue has now.
    pub(super) fn current(&'static self) -> &'static Gate {
        let mut gate = self;
        // SAFETY: the pointer is null, or a gate that was leaked and so is never freed.
        while let Some(next) = unsafe { gate.next.load(Acquire).as_ref() } {
            gate = next;
        }
        gate
    }

    /// Gives the signals back between sessions, if no dispatch is on its way. The runtime may be
    /// shut down before the next session, and at the end of a process it complains about signals
    /// that were kept.
    pub(super) fn park(&self) {
        self.is_gone.store(true, SeqCst);
        // A thread that enters the interceptor from here on sees that the gate is gone.
        if self.inside.load(SeqCst) == 0
            && self.open.load(SeqCst) == 0
            && !self.is_lost.swap(true, SeqCst)
        {
            self.signals.destroy();
            self.is_parked.store(true, SeqCst);
        }
    }

    /// Notes what a packet is. The caller holds the queue's spin word, so only one thread at a time
    /// does this.
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

    /// Returns what was noted about a packet: the number of the dispatch (0: it is not recorded)
    /// and its launch.
    pub(super) fn noted(&self, index: u64) -> Option<(u64, Launch)> {
        let note = self.notes.get(index as usize % self.notes.len())?;
        (note.index.load(Acquire) == index + 1).then(|| {
            let launch = Launch {
                correlation: note.correlation.load(Relaxed),
                stream: note.stream.load(Relaxed),
                tid: note.tid.load(Relaxed),
                flags: note.flags.load(Relaxed) as u8,
                of_event: false,
                window: 0,
            };
            (note.dispatch_id.load(Relaxed), launch)
        })
    }

    /// Locks the list of dispatches on their way. The lock is held only briefly, and never during a
    /// call of the runtime.
    pub(super) fn pending(&self) -> MutexGuard<'_, VecDeque<Pending>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
