//! What is kept of what tools count.

use super::helper;
use super::packets::Packets;
use midair_sdk_api::counting::dispatch::Chosen;
use midair_sdk_device::queue::alone::Prepared;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A list of counters that is ready on an agent.
#[derive(Debug, Clone)]
pub(super) struct Ready {
    /// Handles of the list and the agent.
    pub(super) of: (u64, u64),
    pub(super) counters: Arc<Prepared>,
    pub(super) packets: Arc<Packets>,
}

/// What is kept.
#[derive(Debug)]
pub(crate) struct Counting {
    pub(super) helper: Mutex<helper::State>,
    pub(super) ready: Mutex<Vec<Ready>>,
    /// Dispatches that were chosen, by the number that the device's side knows them by.
    pub(super) waiting: Mutex<BTreeMap<u64, (Chosen, Arc<Packets>)>>,
    pub(super) next: AtomicU64,
    /// Dispatches that were chosen and not counted.
    pub(super) void: AtomicU64,
}

pub(super) fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Counting {
    pub const fn new() -> Counting {
        Counting {
            helper: Mutex::new(helper::State::new()),
            ready: Mutex::new(Vec::new()),
            waiting: Mutex::new(BTreeMap::new()),
            next: AtomicU64::new(0),
            void: AtomicU64::new(0),
        }
    }
}
