//! What stands at the head of each queue, told to the attaching side after each round.

use super::flight::Stage;
use super::queue_state::QueueState;
use midair_record::spool::{Area, FLIGHTS};
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// Writes [`midair_record::spool::Head::flights`], from the first entry on.
#[derive(Debug)]
pub(super) struct Heads {
    area: Area,
    next: usize,
}

impl Heads {
    pub(super) fn new(area: Area) -> Heads {
        Heads { area, next: 0 }
    }

    /// The next queue, where a dispatch of it is under way.
    pub(super) fn tell(&mut self, queue: &QueueState) {
        let range = queue.flights.range();
        let under_way = range.end.saturating_sub(range.start);
        // What was written is retired from the front: the first that is there has not ended.
        let Some(flight) = range
            .map(|position| queue.flights.at(position))
            .next()
            .filter(|flight| flight.stage.load(Acquire) != Stage::Written)
        else {
            return;
        };
        let Some(entry) = self.area.head().flights.get(self.next) else {
            return;
        };
        self.next += 1;
        let facts = flight.facts();
        entry.node.store(queue.node.load(Relaxed), Relaxed);
        entry.dispatch.store(facts.dispatch_id, Relaxed);
        let object = facts.dispatch.kernel_object;
        entry.kernel_object.store(object, Relaxed);
        entry.rung.store(facts.rung, Relaxed);
        let under_way = u32::try_from(under_way).unwrap_or(u32::MAX);
        entry.under_way.store(under_way, Relaxed);
        entry.queue.store(queue.id.load(Relaxed), Relaxed);
    }

    /// The entries behind tell of none.
    pub(super) fn end(self) {
        let flights = &self.area.head().flights;
        for entry in flights.iter().take(FLIGHTS).skip(self.next) {
            // Those behind an empty one are empty.
            if entry.queue.swap(0, Relaxed) == 0 {
                break;
            }
        }
    }
}
