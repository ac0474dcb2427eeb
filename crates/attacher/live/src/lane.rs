//! Spans of time in which something went on. Only the latest are kept.

use std::collections::VecDeque;

/// The most spans that one lane keeps, which are 512 KiB. For a device that runs more separate
/// kernels in a window, a shorter window is shown.
const MOST: usize = 1 << 15;

/// A span: start and end, ns.
pub(crate) type Span = (u64, u64);

/// Disjoint spans, sorted by time.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    spans: VecDeque<Span>,
    /// What was before this time is no longer known.
    since: u64,
}

impl Lane {
    /// Adds a span, which may overlap others and may be earlier than they are.
    pub(crate) fn add(&mut self, start: u64, end: u64) {
        if end <= start || end <= self.since {
            return;
        }
        match self.spans.back_mut() {
            Some(last) if start > last.1 => self.spans.push_back((start, end)),
            Some(last) if start >= last.0 => last.1 = last.1.max(end),
            None => self.spans.push_back((start, end)),
            Some(_) => self.insert(start, end),
        }
        if self.spans.len() > MOST
            && let Some((_, gone)) = self.spans.pop_front()
        {
            self.since = self.since.max(gone);
        }
    }

    fn insert(&mut self, start: u64, end: u64) {
        let first = self.spans.partition_point(|span| span.1 < start);
        let behind = self.spans.partition_point(|span| span.0 <= end);
        if first >= behind {
            self.spans.insert(first, (start, end));
            return;
        }
        let (mut start, mut end) = (start, end);
        for span in self.spans.range(first..behind) {
            start = start.min(span.0);
            end = end.max(span.1);
        }
        if let Some(span) = self.spans.get_mut(first) {
            *span = (start, end);
        }
        self.spans.drain(first + 1..behind);
    }

    /// Removes the spans that ended before this time.
    pub(crate) fn forget_before(&mut self, time: u64) {
        while self.spans.front().is_some_and(|span| span.1 < time) {
            self.spans.pop_front();
        }
    }

    /// Returns the time from which on every added span is known.
    pub(crate) fn known_since(&self) -> u64 {
        self.since
    }

    /// Returns how many spans there are.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.spans.len()
    }

    /// Returns the parts of the spans that lie in a window.
    pub(crate) fn within(&self, from: u64, to: u64) -> Vec<Span> {
        let first = self.spans.partition_point(|span| span.1 <= from);
        self.spans
            .range(first..)
            .take_while(|span| span.0 < to)
            .map(|span| (span.0.max(from), span.1.min(to)))
            .collect()
    }
}

/// Returns both lists merged into one.
pub(crate) fn united(mut spans: Vec<Span>, others: &[Span]) -> Vec<Span> {
    spans.extend_from_slice(others);
    spans.sort_unstable();
    let mut out: Vec<Span> = Vec::with_capacity(spans.len());
    for span in spans {
        match out.last_mut() {
            Some(last) if span.0 <= last.1 => last.1 = last.1.max(span.1),
            _ => out.push(span),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use midair_output::Shares;

    /// Computes the same spans from a list of moments.
    fn slow(spans: &[Span]) -> Vec<bool> {
        let mut on = vec![false; 64];
        for &(start, end) in spans {
            on[start as usize..end as usize].fill(true);
        }
        on
    }

    #[test]
    fn any_order_gives_the_union() {
        // The sequence is pseudo-random and fixed. It compares every order of adding and
        // subtracting with the slow way.
        let mut seed = 7_u64;
        let mut next = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        for _ in 0..2_000 {
            let mut spans = || -> Vec<Span> {
                (0..next(9))
                    .map(|_| {
                        let start = next(60);
                        (start, start + 1 + next(64 - start - 1).min(9))
                    })
                    .collect()
            };
            let (added, others) = (spans(), spans());
            let lane = |spans: &[Span]| {
                let mut lane = Lane::default();
                spans.iter().for_each(|span| lane.add(span.0, span.1));
                lane.within(0, 64)
            };
            let (a, b) = (lane(&added), lane(&others));
            assert_eq!(slow(&a), slow(&added), "{added:?}");
            assert!(a.windows(2).all(|pair| pair[0].1 < pair[1].0), "{a:?}");
            let count = |on: &[bool]| on.iter().filter(|on| **on).count() as u64;
            let beside: Vec<bool> = slow(&added)
                .iter()
                .zip(slow(&others))
                .map(|(a, b)| !*a && b)
                .collect();
            // These are spans of kernels, and of copies at the same time.
            let shares = Shares::of([&a, &b, &[], &[]], 0, 64);
            assert_eq!(shares.busy, count(&slow(&added)), "{a:?}");
            assert_eq!(shares.copies, count(&beside), "{b:?} beside {a:?}");
            let both = united(a.clone(), &b);
            assert_eq!(slow(&both), slow(&[added, others].concat()));
        }
    }

    #[test]
    fn a_lane_keeps_the_latest_and_says_so() {
        let mut lane = Lane::default();
        for at in 0..2 * MOST as u64 {
            lane.add(10 * at + 1, 10 * at + 5);
        }
        assert_eq!(lane.spans.len(), MOST);
        assert_eq!(lane.known_since(), 10 * (MOST as u64 - 1) + 5);
        lane.add(1, 2);
        assert_eq!(lane.spans.len(), MOST, "what is before is not taken");
        lane.forget_before(u64::MAX);
        assert!(lane.spans.is_empty());
    }
}
