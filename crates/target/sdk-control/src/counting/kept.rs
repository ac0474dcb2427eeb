//! The state of what tools count.

use super::helper;
use super::packets::Packets;
use midair_sdk_api::counting::config::Config;
use midair_sdk_api::counting::dispatch::CountedDispatch;
use midair_sdk_device::queue::device::served::Served;
use midair_sdk_device::queue::serialized::Prepared;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A list of counters that is ready on an agent.
#[derive(Debug, Clone)]
pub(super) struct Ready {
    /// Handles of the list and the agent.
    pub(super) of: (u64, u64),
    pub(super) counters: Arc<Prepared>,
    pub(super) packets: Arc<Packets>,
}

/// Counters that are running on a device for a tool.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) served: Served,
    pub(super) packets: Arc<Packets>,
    pub(super) config: Arc<Config>,
}

/// The number of dispatches without values.
#[derive(Debug)]
pub(super) struct Void(pub(super) AtomicU64);

/// All of this state.
#[derive(Debug)]
pub(crate) struct Counting {
    pub(super) helper: Mutex<helper::State>,
    pub(super) ready: Mutex<Vec<Ready>>,
    /// Chosen dispatches, by the number that the device side uses for them.
    pub(super) waiting: Mutex<BTreeMap<u64, (CountedDispatch, Arc<Packets>)>>,
    /// Dispatches that tools have chosen and that are counted in windows, by number.
    pub(super) chosen: Mutex<BTreeMap<u64, CountedDispatch>>,
    /// How many of these had no window, and how many shared their window.
    pub(super) without: Void,
    pub(super) not_alone: Void,
    /// Counters of whole devices, by the numbers that contexts use for them.
    pub(super) running: Mutex<BTreeMap<u64, Running>>,
    /// Whether there is a runtime and a session.
    pub(super) is_open: AtomicBool,
    pub(super) next: AtomicU64,
    /// How many dispatches were chosen and not counted.
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
            chosen: Mutex::new(BTreeMap::new()),
            without: Void(AtomicU64::new(0)),
            not_alone: Void(AtomicU64::new(0)),
            running: Mutex::new(BTreeMap::new()),
            is_open: AtomicBool::new(false),
            next: AtomicU64::new(0),
            void: AtomicU64::new(0),
        }
    }
}
