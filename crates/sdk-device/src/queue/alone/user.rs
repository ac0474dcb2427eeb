//! What counts every dispatch, and what it is told.

use super::prepared::Prepared;
use crate::packet;
use crate::queue::flight::Launch;
use crate::sink::Sink;
use midair_record::event::{Untimed, WindowResult};
use std::sync::Arc;

/// Users at most.
pub(crate) const USERS: usize = 4;

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
