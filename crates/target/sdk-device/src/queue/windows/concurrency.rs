//! Finds out in the process itself what ran alongside a window, for tools that get values while the
//! session goes on.
//!
//! A window that was read waits until everything that may have run alongside it has ended. That is
//! everything that was on the agent's queues one round of the worker thread later: by then packets
//! that were rung past the hooks have been looked at, too.

use std::collections::VecDeque;

/// How many ended spans are remembered for an agent.
const MOST: usize = 1 << 14;

/// The time in which a dispatch or a window used the counters of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    /// The number of the queue.
    pub queue: u32,
    /// The number of the dispatch; 0 for a window.
    pub dispatch: u64,
    /// The start on the records' clock.
    pub start: u64,
    /// The end on the same clock. [`u64::MAX`] means that the end is not known.
    pub end: u64,
}

/// A window that was read. Its words belong to the dispatch if nothing ran alongside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Read {
    /// The dispatch, its queue, and the time from the start of the packet that starts the counters
    /// to the end of the packet that reads them.
    pub span: Span,
    /// The list that was counted.
    pub list: u64,
    /// The output.
    pub words: Vec<u64>,
}

/// What must have ended before a window can be judged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Before {
    /// For each queue: its number, and the end of its range of flights.
    pub queues: Vec<(u32, u64)>,
    /// For each window in a ring: its index, and the index of the packet inside.
    pub windows: Vec<(usize, u64)>,
}

/// What used an agent, and the windows that are not judged yet.
#[derive(Debug, Default)]
pub(super) struct Concurrency {
    ran: VecDeque<Span>,
    /// Spans that ended up to this time may be forgotten.
    forgotten: u64,
    /// The windows that were read since the last round.
    fresh: Vec<Read>,
    waiting: VecDeque<(Before, Vec<Read>)>,
}

impl Concurrency {
    /// Notes something that has ended.
    pub(super) fn ended(&mut self, span: Span) {
        if self.ran.len() >= MOST
            && let Some(oldest) = self.ran.pop_front()
        {
            self.forgotten = self.forgotten.max(oldest.end);
        }
        self.ran.push_back(span);
    }

    /// Notes a window that was read. Its own span is noted by `ended` as well.
    pub(super) fn read(&mut self, read: Read) {
        self.fresh.push(read);
    }

    /// Does a round. The windows `earlier` start to wait for what `before` returns. Windows for
    /// which all of that has ended are judged and returned, with the times of their dispatches if
    /// they were alone.
    pub(super) fn round(
        &mut self,
        before: impl FnOnce() -> Before,
        mut is_over: impl FnMut(&Before) -> bool,
        earlier: Vec<Read>,
    ) -> Vec<(Read, Option<(u64, u64)>)> {
        let mut judged = Vec::new();
        while let Some((before, _)) = self.waiting.front()
            && is_over(before)
        {
            let (_, windows) = self.waiting.pop_front().unwrap_or_default();
            judged.extend(windows);
        }
        if !earlier.is_empty() {
            self.waiting.push_back((before(), earlier));
        }
        self.judge(judged)
    }

    /// Takes the windows that were read since the last round.
    pub(super) fn fresh(&mut self) -> Vec<Read> {
        std::mem::take(&mut self.fresh)
    }

    /// Judges all windows that are left, when nothing more will end.
    pub(super) fn last(&mut self) -> Vec<(Read, Option<(u64, u64)>)> {
        let waiting = std::mem::take(&mut self.waiting);
        let mut left: Vec<Read> = waiting.into_iter().flat_map(|(_, reads)| reads).collect();
        left.append(&mut self.fresh);
        self.judge(left)
    }

    /// Forgets the past if no window waits. The caller knows that no window is in a ring.
    pub(super) fn forget(&mut self) {
        if self.waiting.is_empty() && self.fresh.is_empty() {
            // Keep spans whose end is not known: they may still run.
            let last = self.ran.iter().map(|span| span.end);
            self.forgotten = last
                .filter(|end| *end != u64::MAX)
                .fold(self.forgotten, u64::max);
            self.ran.retain(|span| span.end == u64::MAX);
        }
    }

    fn judge(&self, windows: Vec<Read>) -> Vec<(Read, Option<(u64, u64)>)> {
        let times = |window: &Read| {
            let of = window.span;
            let mut own = None;
            if of.start < self.forgotten {
                return None;
            }
            for span in &self.ran {
                if span.dispatch == of.dispatch {
                    own = Some((span.start, span.end));
                } else if span.queue == of.queue && (span.dispatch == 0 || span.end == u64::MAX) {
                    // Packets on the window's own queue run before its barriers or behind them,
                    // never alongside it.
                } else if span.start < of.end && span.end > of.start {
                    return None;
                }
            }
            own.filter(|(start, end)| of.start <= *end && *start <= of.end && *end != u64::MAX)
        };
        windows
            .into_iter()
            .map(|window| {
                let times = times(&window);
                (window, times)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(queue: u32, dispatch: u64, (start, end): (u64, u64)) -> Span {
        Span {
            queue,
            dispatch,
            start,
            end,
        }
    }

    fn window(queue: u32, dispatch: u64, times: (u64, u64)) -> Read {
        Read {
            span: ran(queue, dispatch, times),
            list: 1,
            words: vec![dispatch],
        }
    }

    /// The verdict on a window from 10 to 20 around dispatch 1 on queue 1.
    fn concurrency(others: &[Span]) -> Option<(u64, u64)> {
        let mut agent = Concurrency::default();
        agent.ended(ran(1, 1, (12, 18)));
        others.iter().for_each(|span| agent.ended(*span));
        agent.read(window(1, 1, (10, 20)));
        agent.last().first().and_then(|(_, times)| *times)
    }

    #[test]
    fn a_window_is_alone_if_nothing_on_another_queue_ran_from_its_first_to_its_last_packet() {
        assert_eq!(concurrency(&[]), Some((12, 18)));
        assert_eq!(
            concurrency(&[ran(2, 2, (1, 10)), ran(2, 3, (20, 30))]),
            Some((12, 18))
        );
        // While the counters start, and while they are read.
        assert_eq!(concurrency(&[ran(2, 2, (1, 11))]), None);
        assert_eq!(concurrency(&[ran(2, 2, (19, 30))]), None);
        assert_eq!(concurrency(&[ran(2, 2, (13, 14))]), None);
        // Another queue's window, whatever is in it; and its own.
        assert_eq!(concurrency(&[ran(2, 0, (15, 40))]), None);
        assert_eq!(concurrency(&[ran(1, 0, (10, 20))]), Some((12, 18)));
        // It is not known when this one ended.
        assert_eq!(concurrency(&[ran(2, 2, (5, u64::MAX))]), None);
        assert_eq!(concurrency(&[ran(2, 2, (20, u64::MAX))]), Some((12, 18)));
    }

    #[test]
    fn a_window_waits_for_what_was_under_way_one_round_later() {
        let mut agent = Concurrency::default();
        agent.ended(ran(1, 1, (12, 18)));
        agent.read(window(1, 1, (10, 20)));
        let before = || Before {
            queues: vec![(2, 7)],
            windows: Vec::new(),
        };
        let fresh = agent.fresh();
        assert!(agent.round(before, |_| true, fresh).is_empty());
        assert!(
            agent
                .round(Before::default, |_| false, Vec::new())
                .is_empty()
        );
        agent.forget();
        // A kernel of another queue ends at last, and was there all the time.
        agent.ended(ran(2, 2, (11, 50)));
        let judged = agent.round(
            Before::default,
            |before| before.queues == [(2, 7)],
            Vec::new(),
        );
        assert_eq!(judged, [(window(1, 1, (10, 20)), None)]);
        agent.forget();
        assert!(agent.ran.is_empty() && agent.forgotten == 50);
        // What was forgotten may have run alongside it.
        agent.ended(ran(1, 3, (41, 45)));
        agent.read(window(1, 3, (40, 60)));
        assert_eq!(agent.last()[0].1, None);
    }

    #[test]
    fn more_than_are_remembered_make_old_windows_unknown() {
        let mut agent = Concurrency::default();
        agent.ended(ran(1, 1, (12, 18)));
        for n in 0..MOST as u64 {
            agent.ended(ran(1, 2 + n, (100 + n, 101 + n)));
        }
        agent.read(window(1, 1, (10, 20)));
        let last = MOST as u64 + 1;
        let (start, end) = (100 + last - 2, 101 + last - 2);
        agent.read(window(1, last, (start, end)));
        let judged = agent.last();
        assert_eq!((judged[0].1, judged[1].1), (None, Some((start, end))));
    }
}
