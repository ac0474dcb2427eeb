//! The state that the application's threads, the thread that gives turns, and the worker thread
//! share.

use super::gate::{Ended, Gate};
use super::user::{USERS, User};
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

/// The most queues that can be intercepted during the life of a process.
pub(crate) const GATES: usize = 4096;

/// The dispatches that have ended. It is kept in a box, since an empty vector is not all zero
/// bytes.
#[derive(Debug, Default)]
pub(crate) struct EndedList(Vec<Ended>);

/// The shared state. In its initial state all of its bytes are zero.
#[derive(Debug)]
pub(crate) struct Serialized {
    /// Whether there is a user.
    pub asked: AtomicBool,
    /// The users, which choose dispatches.
    pub users: RwLock<[Option<&'static dyn User>; USERS]>,
    /// The gates by number, from 1. They are never freed, since a queue's interceptor refers to its
    /// gate.
    gates: [AtomicPtr<Gate>; GATES],
    /// The number of gates.
    count: AtomicU32,
    /// The dispatches that have ended, for the worker thread.
    ended: Mutex<Option<Box<EndedList>>>,
    /// Whether the thread that gives turns was started.
    pub turns: Mutex<bool>,
    /// Held while that thread looks at signals.
    pub looking: Mutex<()>,
    /// The futex on which the thread that gives turns sleeps. It changes when that thread is to
    /// wake.
    pub wanted: AtomicU32,
    /// 1 while that thread sleeps, or is about to.
    pub sleeps: AtomicU32,
    /// Whether no session counts, so that the process may be about to exit.
    pub is_over: AtomicBool,
    /// The number of dispatches that went to the device without a turn, since the session could not
    /// be entered.
    pub passed: AtomicU64,
    /// The number of queues that could not be made as intercept queues.
    pub refused: AtomicU64,
}

impl Serialized {
    pub(crate) const fn new() -> Serialized {
        Serialized {
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

    /// Returns the gate with this number.
    pub(crate) fn gate(&self, number: u32) -> Option<&'static Gate> {
        let index = (number as usize).checked_sub(1)?;
        let at = self.gates.get(index)?.load(Acquire);
        // SAFETY: null, or a gate that was leaked.
        unsafe { at.as_ref() }
    }

    /// Returns all gates.
    pub(crate) fn gates(&self) -> impl Iterator<Item = &'static Gate> {
        let count = self.count.load(Acquire);
        (1..=count).filter_map(|number| self.gate(number))
    }

    /// Returns a number for a new gate, if one is left.
    pub(crate) fn number(&self) -> Option<u32> {
        let next = |count: u32| (count < GATES as u32).then_some(count + 1);
        let before = self.count.fetch_update(Acquire, Relaxed, next).ok()?;
        Some(before + 1)
    }

    /// Makes a gate known, and keeps it forever.
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

    /// Adds dispatches that have ended.
    pub(crate) fn end(&self, ended: impl IntoIterator<Item = Ended>) {
        self.ended().get_or_insert_default().0.extend(ended);
    }

    /// Takes the dispatches that have ended.
    pub(crate) fn take_ended(&self) -> Vec<Ended> {
        self.ended().take().map_or_else(Vec::new, |list| list.0)
    }
}
