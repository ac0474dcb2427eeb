//! What a subscriber of the queue service learns about the dispatches on all queues, and what it
//! may ask for.

use super::flight::{Facts, Launch};
use super::queue_state::QueueState;
use crate::layout::Signal;
use crate::packet::{Dispatch, Packet};
use crate::sink::Sink;
use midair_record::event::Untimed;

/// A dispatch that was seen before its doorbell is rung.
#[derive(Debug, Clone, Copy)]
pub struct Enqueued {
    /// The index of its packet.
    pub index: u64,
    /// The number of the dispatch in the session.
    pub dispatch_id: u64,
    /// Who launched it.
    pub launch: Launch,
    /// What the packet says.
    pub dispatch: Dispatch,
    /// Whether the dispatch starts only when all packets before it have ended (the header's barrier
    /// bit).
    pub after_all: bool,
    /// Its packet and the completion signal that the application gave it (0 = none). `None` when
    /// the packet processor has consumed the packet already.
    pub packet: Option<(Packet, Signal)>,
}

/// The number of its own packets that a subscriber wants around a dispatch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Slots {
    /// The packets directly before the dispatch.
    pub before: u32,
    /// The packets directly behind the dispatch.
    pub after: u32,
}

/// A subscriber's answer to a dispatch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Answer {
    /// The packets that it asks for. The service does not grant any so far, so a subscriber must
    /// work without them.
    pub slots: Slots,
    /// Whether the subscriber has no capacity for this dispatch. Then the dispatch is not followed,
    /// and is counted as lost.
    pub is_full: bool,
}

/// A dispatch that has ended, or about which nothing more will be known.
#[derive(Debug, Clone, Copy)]
pub struct Completed<'a> {
    /// What was known when the dispatch was enqueued.
    pub facts: &'a Facts,
    /// The start and end on the records' clock, or why there are none.
    pub outcome: Result<(u64, u64), Untimed>,
}

/// Code that is notified of dispatches.
pub trait Subscriber {
    /// Is notified of a dispatch whose doorbell is about to be rung. Called under the queue's spin
    /// word, on the application's thread or on the worker thread, so it must not wait, allocate or
    /// call the application. It may change the packet if there is one.
    fn enqueue(queue: &'static QueueState, dispatch: &Enqueued) -> Answer;

    /// Is notified of a dispatch that has ended, timed or untimed. Called on the worker thread, once
    /// for each dispatch that was followed.
    fn complete(&mut self, queue: &QueueState, dispatch: &Completed<'_>, sink: &mut Sink);
}
