//! Counters of *every* dispatch, in a process that was started for it: each dispatch has its GPU for
//! itself.
//!
//! Queues are made while we are loaded, so each is an intercept queue of the runtime's, whose
//! packets come to [`queue::intercept`](queue) before the device has them. A dispatch is put between
//! barriers: the first tells that the queue has come to it, the second holds the queue until the
//! dispatch has its turn, and the last tells that it has ended. [`turns`] gives turns, one at a time
//! on each agent, in the order in which queues come to their dispatches: a dispatch that waits for
//! another queue's is behind that, so no chain of events of a program stands still. Programs whose
//! kernels must run at the same time do, under AMD's tool as under this one (AMD-130).
//!
//! Who counts is a [`User`]: it chooses before a dispatch goes to the device, and has its values
//! afterwards. A dispatch that nobody has chosen is counted by nobody and takes its turn all the same.
//!
//! Processes that are attached to have [`super::windows`] instead, where nobody waits.
//!
//! Decisions: AMD-130 (`docs/deviations/amd.md`).

mod afterwards;
pub mod collector;
mod gate;
pub mod planned;
mod prepared;
mod queue;
pub(crate) mod shared;
#[cfg(test)]
mod tests;
mod turns;

pub use prepared::Prepared;
pub(super) use queue::gate_of;
pub use queue::{Arguments, create_queue};
pub(crate) use queue::{destroys, is_made_otherwise};
pub use turns::while_shut_down;

use super::flight::Launch;
use super::queue_state::QueueState;
use super::service::Enqueued;
use crate::packet;
use crate::sink::Sink;
use crate::state::STATE;
use midair_record::event::{Untimed, WindowResult};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, PoisonError};

/// A dispatch that is about to go to the device.
#[derive(Debug, Clone, Copy, Default)]
pub struct Dispatch {
    /// Its number in the session, as in its record.
    pub dispatch_id: u64,
    /// Our number of its queue.
    pub queue_id: u32,
    /// Handle of its queue.
    pub queue: u64,
    /// Handle of its agent.
    pub agent: u64,
    /// Index of its packet in the queue, as the application sees it.
    pub index: u64,
    /// Who launched it.
    pub launch: Launch,
    /// What it is.
    pub packet: packet::Dispatch,
}

/// What a [`User`] says to a dispatch.
#[derive(Debug, Clone, Default)]
pub struct Choice {
    /// The counters that are counted around it; of the dispatch's agent.
    pub counters: Option<Arc<Prepared>>,
    /// The user's own, which comes back in [`Counted::data`].
    pub data: u64,
}

/// A dispatch that was chosen, and what became of it.
#[derive(Debug)]
pub struct Counted<'a> {
    /// The dispatch.
    pub dispatch: &'a Dispatch,
    /// What was counted.
    pub counters: &'a Arc<Prepared>,
    /// [`Choice::data`].
    pub data: u64,
    /// [`WindowResult::Counted`], or why there are no values.
    pub result: WindowResult,
    /// The output, as the commands have written it; empty where there are no values.
    pub words: &'a [u64],
    /// Start and end of the kernel on the records' clock, or why there are none.
    pub kernel: Result<(u64, u64), Untimed>,
    /// On the same clock (0 = not known): when the packet that starts the counters began and ended,
    /// and when the one that reads them did.
    pub window: [u64; 4],
}

/// Who chooses dispatches and receives values. Lives as long as the process.
pub trait User: std::fmt::Debug + Sync {
    /// A dispatch is about to go to the device, which waits for the answer. On the thread that rings
    /// the doorbell, the application's as a rule, outside of anything that a session's end waits for:
    /// it may call a tool. The runtime holds the queue's lock meanwhile. Called once for each
    /// dispatch that is recorded while counters are on.
    fn choose(&self, dispatch: &Dispatch) -> Choice;

    /// A dispatch that this user has chosen counters for has ended, or will not. On the worker
    /// thread, in no particular order.
    fn deliver(&self, counted: &Counted<'_>, sink: &mut Sink);
}

/// Users at most.
pub(crate) const USERS: usize = 4;

/// Adds a user. From then on queues are made so that dispatches can be counted: call it before the
/// application makes its first. A user is asked in the order in which it came, and the first that
/// chooses counters for a dispatch has it. False when there are too many.
pub fn add_user(user: &'static dyn User) -> bool {
    let mut users = STATE
        .alone
        .users
        .write()
        .unwrap_or_else(PoisonError::into_inner);
    let same = |known: &&'static dyn User| std::ptr::addr_eq(*known, user);
    let is_known = users.iter().flatten().any(same);
    let free = users.iter_mut().find(|place| place.is_none());
    let added = match free {
        _ if is_known => true,
        Some(place) => {
            *place = Some(user);
            true
        }
        None => false,
    };
    if added {
        STATE.alone.asked.store(true, Release);
    }
    added
}

/// Whether anybody wants to count every dispatch in this process.
pub fn is_asked() -> bool {
    STATE.alone.asked.load(Acquire)
}

/// Asks the users for a dispatch: which of them chose, and what.
fn choose(dispatch: &Dispatch) -> Option<(usize, Arc<Prepared>, u64)> {
    // Copied: a user's function may take its time.
    let users = *STATE
        .alone
        .users
        .read()
        .unwrap_or_else(PoisonError::into_inner);
    users.into_iter().enumerate().find_map(|(number, user)| {
        let choice = user?.choose(dispatch);
        let counters = choice
            .counters
            .filter(|counters| counters.agent() == dispatch.agent)?;
        Some((number, counters, choice.data))
    })
}

/// A dispatch was looked at, under its queue's spin word: its number and its launch are kept for
/// when the runtime hands its packet over.
#[inline]
pub(super) fn enqueued(queue: &QueueState, dispatch: &Enqueued) {
    let number = queue.alone.load(Relaxed);
    if number != 0
        && let Some(gate) = STATE.alone.gate(number)
    {
        gate.note(dispatch.index, dispatch.dispatch_id, dispatch.launch);
    }
}
