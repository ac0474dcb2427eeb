//! The part of the keeper for a tool in the process that chooses dispatches ([`tool_requests`]): makes its
//! lists ready, and hands it the results.

use super::{Agent, Keeper};
use crate::queue::choosing::LISTS;
use crate::queue::queue_state::QueueState;
use crate::queue::state;
use crate::queue::subscriber::Completed;
use crate::queue::windows::concurrency::{Before, Span};
use crate::queue::windows::tool_requests::{self, Chooser, Fate};
use midair_record::event::Untimed;
use midair_sdk_hot::clock::now;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// The number of windows for a list that a tool has chosen.
const OF_A_LIST: usize = 16;

impl Keeper {
    /// Makes the lists ready that a tool has chosen for the first time.
    pub(super) fn make_ready(&mut self, chooser: &'static dyn Chooser) {
        for (list, handle) in tool_requests::wishes() {
            let found = self.agents.iter().position(|agent| agent.handle == handle);
            let Some(agent) = found else {
                continue;
            };
            let Some(group) = chooser.group(list, handle) else {
                continue;
            };
            let has_room = |agent: &Agent| agent.lists.len() < LISTS;
            let added = match self.agents.get(agent).is_some_and(has_room) {
                true => self.add_groups(agent, &[&group], OF_A_LIST),
                false => Err("there are too many lists of counters"),
            };
            match (added, self.agents.get_mut(agent)) {
                (Ok(()), Some(agent)) => agent.lists.push(list),
                (Ok(()), None) => {}
                (Err(why), _) => self
                    .complaints
                    .push(format!("cannot count a list of counters: {why}")),
            }
        }
    }

    /// Hands the tool what is known by now about the dispatches that it has chosen.
    pub(super) fn judge(&mut self, chooser: &'static dyn Chooser, all: bool) {
        let open: Vec<(usize, usize, u64)> = self
            .reserved()
            .map(|(index, window, kept)| (index, kept.agent, window.packets.0.load(Relaxed)))
            .collect();
        for (number, agent) in self.agents.iter_mut().enumerate() {
            let handle = agent.handle;
            let of_agent = || state::all().filter(|q| q.agent.load(Acquire) == handle);
            let judged = if all {
                agent.concurrency.last()
            } else {
                let before = || Before {
                    queues: of_agent()
                        .map(|queue| (queue.id.load(Relaxed), queue.flights.range().end))
                        .collect(),
                    windows: open
                        .iter()
                        .filter(|(_, of, _)| *of == number)
                        .map(|(index, _, packet)| (*index, *packet))
                        .collect(),
                };
                let is_over = |before: &Before| {
                    let mut windows = before.windows.iter();
                    let is_open =
                        |&(index, packet): &(usize, u64)| open.contains(&(index, number, packet));
                    let has_passed = |&(id, end): &(u32, u64)| {
                        let mut queues = of_agent().filter(|queue| queue.id.load(Relaxed) == id);
                        queues.all(|queue| queue.flights.range().start >= end)
                    };
                    before.queues.iter().all(has_passed) && !windows.any(is_open)
                };
                let earlier = agent.concurrency.fresh();
                agent.concurrency.round(before, is_over, earlier)
            };
            let is_unsure = !judged.is_empty() && of_agent().any(has_lost);
            for (read, times) in judged {
                let fate = match times {
                    Some(times) if !is_unsure => Fate::Counted(read.list, &read.words, times),
                    _ => Fate::NotAlone,
                };
                chooser.ended(read.span.dispatch, fate);
            }
            if !open.iter().any(|(_, of, _)| *of == number) {
                agent.concurrency.forget();
            }
        }
    }
}

/// Returns the span in which a dispatch used its agent.
pub(super) fn span_of(queue: &QueueState, dispatch: &Completed<'_>) -> Span {
    let rung = dispatch.facts.rung;
    let (start, end) = match dispatch.outcome {
        Ok(times) => times,
        // The dispatch has ended by now.
        Err(Untimed::BadTimes | Untimed::NotProfiled) => (rung, now()),
        Err(_) => (rung, u64::MAX),
    };
    Span {
        queue: queue.id.load(Relaxed),
        dispatch: dispatch.facts.dispatch_id,
        start,
        end,
    }
}

/// Returns whether there are or may be packets on a queue that we have not seen.
fn has_lost(queue: &QueueState) -> bool {
    queue.lock().is_none_or(|inner| inner.lost > 0)
}
