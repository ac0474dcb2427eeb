//! What a subscriber of the queue service learns of the dispatches on all queues, and what it may
//! ask for.

use super::flight::{Facts, Launch};
use super::queue_state::QueueState;
use crate::layout::Signal;
use crate::packet::{Dispatch, Packet};
use crate::sink::Sink;
use midair_record::event::Untimed;

/// A dispatch that was seen before its doorbell is rung.
#[derive(Debug, Clone, Copy)]
pub struct Enqueued {
    /// Index of its packet.
    pub index: u64,
    /// Its number in the session.
    pub dispatch_id: u64,
    /// Who launched it.
    pub launch: Launch,
    /// What it is.
    pub dispatch: Dispatch,
    /// Whether it begins only when all packets before it have ended (the header's barrier bit).
    pub after_all: bool,
    /// Its packet and the completion signal that the application gave it (0 = none). `None` when
    /// the packet processor has consumed the packet already.
    pub packet: Option<(Packet, Signal)>,
}

/// Packets of its own that a subscriber wants around a dispatch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Slots {
    /// Directly before it.
    pub before: u32,
    /// Directly behind it.
    pub after: u32,
}

/// What a subscriber says to a dispatch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Answer {
    /// What it asks for. The service grants no slots so far: who asks must do without.
    pub slots: Slots,
    /// It has no capacity for this dispatch: it will not be followed, and is counted as lost.
    pub is_full: bool,
}

/// A dispatch that has ended, or of which nothing more will be known.
#[derive(Debug, Clone, Copy)]
pub struct Completed<'a> {
    /// What was known when it was enqueued.
    pub facts: &'a Facts,
    /// Start and end on the records' clock, or why there are none.
    pub outcome: Result<(u64, u64), Untimed>,
}

/// Code that is told of dispatches.
pub trait Subscriber {
    /// A dispatch is about to be rung. Called under the queue's spin word, on the application's
    /// thread or on the worker thread: it must not wait, allocate or call the application. It may
    /// change the packet if there is one.
    fn enqueue(queue: &'static QueueState, dispatch: &Enqueued) -> Answer;

    /// A dispatch has ended, timed or untimed. Called once for each that was followed, on the worker thread.
    fn complete(&mut self, queue: &QueueState, dispatch: &Completed<'_>, sink: &mut Sink);
}
