//! The interface of users, which count every dispatch, and what they receive.

use super::prepared::Prepared;
use crate::packet;
use crate::queue::flight::Launch;
use crate::sink::Sink;
use midair_record::event::{Untimed, WindowResult};
use std::sync::Arc;

/// The largest number of users.
pub(crate) const USERS: usize = 4;

/// A dispatch that is about to go to the device.
#[derive(Debug, Clone, Copy, Default)]
pub struct Dispatch {
    /// The number of the dispatch in the session, as in its record.
    pub dispatch_id: u64,
    /// Our number for its queue.
    pub queue_id: u32,
    /// The handle of its queue.
    pub queue: u64,
    /// The handle of its agent.
    pub agent: u64,
    /// The index of its packet in the queue, as the application sees it.
    pub index: u64,
    /// Who launched it.
    pub launch: Launch,
    /// What the packet says.
    pub packet: packet::Dispatch,
}

/// What a [`User`] chooses for a dispatch.
#[derive(Debug, Clone, Default)]
pub struct Choice {
    /// The counters that are counted during the dispatch. They must be of the dispatch's agent.
    pub counters: Option<Arc<Prepared>>,
    /// The user's own data, which comes back in [`Counted::data`].
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
    /// The output, as the commands have written it; empty if there are no values.
    pub words: &'a [u64],
    /// The start and end of the kernel on the records' clock, or why there are none.
    pub kernel: Result<(u64, u64), Untimed>,
    /// On the same clock (0 = not known): when the packet that starts the counters started and ended,
    /// and when the one that reads them did.
    pub window: [u64; 4],
}

/// Code that chooses dispatches and receives their values. It lives as long as the process.
pub trait User: std::fmt::Debug + Sync {
    /// Chooses counters for a dispatch that is about to go to the device, and that waits for the
    /// answer. It is called on the thread that rings the doorbell, usually a thread of the
    /// application, and outside of anything that the end of a session waits for, so it may call a
    /// tool. The runtime holds the queue's lock during the call. It is called once for each
    /// dispatch that is recorded while counters are on.
    fn choose(&self, dispatch: &Dispatch) -> Choice;

    /// Receives the result of a dispatch that this user has chosen counters for, and that has ended
    /// or will not end. It is called on the worker thread, in no particular order.
    fn deliver(&self, counted: &Counted<'_>, sink: &mut Sink);
}
