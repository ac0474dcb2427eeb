//! Writes into the spool which dispatch is at the head of each queue. The attacher reads that. It
//! is renewed after each round.

use super::flight::Stage;
use super::queue_state::QueueState;
use midair_record::spool::{Area, FLIGHTS};
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// A writer of [`midair_record::spool::Head::flights`], which starts at the first entry.
#[derive(Debug)]
pub(super) struct Heads {
    area: Area,
    next: usize,
}

impl Heads {
    pub(super) fn new(area: Area) -> Heads {
        Heads { area, next: 0 }
    }

    /// Writes an entry for the next queue, if a dispatch of it is under way.
    pub(super) fn tell(&mut self, queue: &QueueState) {
        let range = queue.flights.range();
        // Barriers are passed over, and so are dispatches that ended before a barrier in front of
        // them did.
        let Some(flight) = range
            .map(|position| queue.flights.at(position))
            .find(|flight| {
                !flight.facts().is_barrier && flight.stage.load(Acquire) != Stage::Written
            })
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
        let under_way = u32::try_from(queue.flights.dispatches()).unwrap_or(u32::MAX);
        entry.under_way.store(under_way, Relaxed);
        entry.queue.store(queue.id.load(Relaxed), Relaxed);
    }

    /// Clears the remaining entries.
    pub(super) fn end(self) {
        let flights = &self.area.head().flights;
        for entry in flights.iter().take(FLIGHTS).skip(self.next) {
            // All entries behind an empty one are empty as well.
            if entry.queue.swap(0, Relaxed) == 0 {
                break;
            }
        }
    }
}
