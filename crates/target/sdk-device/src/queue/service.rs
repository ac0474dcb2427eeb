//! The subscribers of the queue service, and what they receive.
//!
//! [`super::scan`] walks over the packets and counts them, whoever subscribes. [`super::harvest`]
//! follows the dispatches that were seen until they have ended. Neither changes a packet; only a
//! [`Subscriber`] does. Subscribers are fields of `Subscribers`, so that calls are direct.

use super::flight::Facts;
use super::queue_state::QueueState;
use super::serialized::{collector::Collector, gates};
use super::subscriber::{Answer, Completed, Enqueued, Subscriber};
use super::timing::{KernelTiming, to_clock};
use super::traces;
use super::windows::{self, keeper::Keeper};
use crate::sampling::dispatches::Dispatches;
use crate::sink::Sink;
use midair_record::event::Untimed;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// All subscribers. The worker thread owns them.
#[derive(Debug, Default)]
pub(super) struct Subscribers {
    /// The times of kernels.
    pub timing: KernelTiming,
    /// The windows of counters, if the session counts.
    pub counters: Option<Keeper>,
    /// The counters of every dispatch, if the process was started for that.
    pub serialized: Collector,
    /// The dispatches that samples may be of.
    pub sampled: Dispatches,
}

impl Subscribers {
    /// Tells the subscribers of a dispatch that has ended. `outcome` is in the device's ticks.
    pub(super) fn ended(
        &mut self,
        queue: &QueueState,
        facts: &Facts,
        outcome: Result<(u64, u64), Untimed>,
        sink: &mut Sink,
    ) {
        let agent = queue.agent.load(Acquire);
        let outcome = outcome.and_then(|(start, end)| {
            let (start, end) = (to_clock(agent, start), to_clock(agent, end));
            if start != 0 && end >= start {
                Ok((start, end))
            } else {
                Err(Untimed::BadTimes)
            }
        });
        self.complete(queue, &Completed { facts, outcome }, sink);
    }
}

impl Subscriber for Subscribers {
    #[inline]
    fn enqueue(queue: &'static QueueState, dispatch: &Enqueued) -> Answer {
        let nth = windows::note(queue, dispatch);
        // This comes before the window notes the dispatch, by which its pair may be ready again.
        traces::enqueued(queue, dispatch, nth);
        Keeper::enqueue(queue, dispatch);
        let answer = KernelTiming::enqueue(queue, dispatch);
        // This comes last: a thread that finds this note, possibly another one, hands the packet
        // over as it is then.
        let id = (dispatch.index, dispatch.dispatch_id);
        gates::enqueued(queue, id, dispatch.launch);
        answer
    }

    #[inline]
    fn complete(&mut self, queue: &QueueState, dispatch: &Completed<'_>, sink: &mut Sink) {
        self.timing.complete(queue, dispatch, sink);
        if dispatch.facts.is_barrier {
            return;
        }
        if self.sampled.is_on() {
            let facts = dispatch.facts;
            let size = u64::from(queue.ring_size.load(Relaxed)).max(1);
            let place = (queue.doorbell_number.load(Relaxed), facts.index % size);
            let ids = (facts.dispatch_id, facts.launch.correlation, facts.rung);
            self.sampled.add(place, ids, dispatch.outcome);
        }
        if let Some(counters) = &mut self.counters {
            counters.complete(queue, dispatch, sink);
        }
        let id = dispatch.facts.dispatch_id;
        self.serialized.complete(queue, id, dispatch.outcome);
    }
}
