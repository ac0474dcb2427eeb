//! What is kept about samples of program counters, in the crate's state.

use super::calls::Calls;
use super::request::Request;
use std::sync::Mutex;
use std::sync::atomic::AtomicU32;

/// What the session asked for, and what the runtime offers.
#[derive(Debug)]
pub(crate) struct Sampling {
    /// Boxed, so that a fresh state is all zero.
    pub asked: Mutex<Option<Box<Request>>>,
    pub calls: Mutex<Option<Calls>>,
    pub inbox: Inbox,
}

impl Sampling {
    pub(crate) const fn new() -> Sampling {
        Sampling {
            asked: Mutex::new(None),
            calls: Mutex::new(None),
            inbox: Inbox::new(),
        }
    }
}

/// Samples of an agent, as the runtime passed them.
#[derive(Debug)]
pub(crate) struct Passed {
    /// The agent's place in the session's list.
    pub agent: usize,
    pub bytes: Vec<u8>,
}

/// What was counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Counts {
    /// Samples for which the device had no room, as far as the runtime says.
    pub lost: u64,
    /// Samples that found no room here, or that the runtime could not copy.
    pub dropped: u64,
}

/// What waits for the worker thread.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub passed: Vec<Passed>,
    pub bytes: usize,
    pub counts: Counts,
}

/// Samples on their way to the worker thread.
#[derive(Debug)]
pub(crate) struct Inbox {
    /// The number of the session whose samples are accepted; a call of an earlier one that comes late
    /// changes nothing.
    pub session: AtomicU32,
    pub waiting: Mutex<Option<Box<Waiting>>>,
}

impl Inbox {
    const fn new() -> Inbox {
        Inbox {
            session: AtomicU32::new(0),
            waiting: Mutex::new(None),
        }
    }
}
