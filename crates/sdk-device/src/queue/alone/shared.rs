//! What the application's threads, the thread that gives turns and the worker thread share.

use super::gate::{Ended, Gate};
use super::user::{USERS, User};
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

/// Queues of a process that are intercepted, at most, counted over its life.
pub(crate) const GATES: usize = 4096;

/// What has ended. In a box of its own, since a vector of nothing is not all zero.
#[derive(Debug, Default)]
pub(crate) struct EndedList(Vec<Ended>);

/// All of it. Its bytes are all zero when it is fresh.
#[derive(Debug)]
pub(crate) struct Alone {
    /// There is a user.
    pub asked: AtomicBool,
    /// Who chooses.
    pub users: RwLock<[Option<&'static dyn User>; USERS]>,
    /// Gates by number, from 1. They are never freed: a queue's interceptor refers to its gate.
    gates: [AtomicPtr<Gate>; GATES],
    /// How many there are.
    count: AtomicU32,
    /// What has ended, for the worker thread.
    ended: Mutex<Option<Box<EndedList>>>,
    /// The thread that gives turns is there.
    pub turns: Mutex<bool>,
    /// Held while that thread looks at signals.
    pub looking: Mutex<()>,
    /// Changes with every dispatch that is to have its turn; the thread sleeps on it.
    pub wanted: AtomicU32,
    /// 1 while it sleeps, or is about to.
    pub sleeps: AtomicU32,
    /// No session counts, and the process may be at its end.
    pub is_over: AtomicBool,
    /// Dispatches that went to the device without a turn, since the session was not to be had.
    pub passed: AtomicU64,
    /// Queues that the runtime would not make so that they can be intercepted.
    pub refused: AtomicU64,
}

impl Alone {
    pub(crate) const fn new() -> Alone {
        Alone {
            asked: AtomicBool::new(false),
            users: RwLock::new([None; USERS]),
            gates: [const { AtomicPtr::new(std::ptr::null_mut()) }; GATES],
            count: AtomicU32::new(0),
            ended: Mutex::new(None),
            turns: Mutex::new(false),
            looking: Mutex::new(()),
            wanted: AtomicU32::new(0),
            sleeps: AtomicU32::new(0),
            is_over: AtomicBool::new(false),
            passed: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }

    /// The gate with this number.
    pub(crate) fn gate(&self, number: u32) -> Option<&'static Gate> {
        let index = (number as usize).checked_sub(1)?;
        let at = self.gates.get(index)?.load(Acquire);
        // SAFETY: null, or a gate that was leaked.
        unsafe { at.as_ref() }
    }

    /// All gates.
    pub(crate) fn gates(&self) -> impl Iterator<Item = &'static Gate> {
        let count = self.count.load(Acquire);
        (1..=count).filter_map(|number| self.gate(number))
    }

    /// A number for a new gate, if one is left.
    pub(crate) fn number(&self) -> Option<u32> {
        let next = |count: u32| (count < GATES as u32).then_some(count + 1);
        let before = self.count.fetch_update(Acquire, Relaxed, next).ok()?;
        Some(before + 1)
    }

    /// Makes a gate known, and keeps it for ever.
    pub(crate) fn keep(&self, gate: Box<Gate>) -> &'static Gate {
        let gate: &'static Gate = Box::leak(gate);
        if let Some(place) = self.gates.get((gate.number as usize).wrapping_sub(1)) {
            place.store(
                std::ptr::from_ref(gate).cast_mut(),
                std::sync::atomic::Ordering::Release,
            );
        }
        gate
    }

    fn ended(&self) -> MutexGuard<'_, Option<Box<EndedList>>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// These have ended.
    pub(crate) fn end(&self, ended: impl IntoIterator<Item = Ended>) {
        self.ended().get_or_insert_default().0.extend(ended);
    }

    /// Takes what has ended.
    pub(crate) fn take_ended(&self) -> Vec<Ended> {
        self.ended().take().map_or_else(Vec::new, |list| list.0)
    }
}
