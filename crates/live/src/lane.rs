//! Spans of time that something lasted, of which only the latest are kept.

use std::collections::VecDeque;

/// Spans that one lane keeps: 512 KiB. A device that runs more separate kernels in a window than
/// this shows a shorter window.
const MOST: usize = 1 << 15;

/// A span: begin and end, ns.
pub(crate) type Span = (u64, u64);

/// Disjoint spans in the order of time.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    spans: VecDeque<Span>,
    /// What was before is not known any more.
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

    /// Forgets what ended before this time.
    pub(crate) fn forget_before(&mut self, time: u64) {
        while self.spans.front().is_some_and(|span| span.1 < time) {
            self.spans.pop_front();
        }
    }

    /// Everything that was added from this time on is known.
    pub(crate) fn known_since(&self) -> u64 {
        self.since
    }

    /// How many spans there are.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.spans.len()
    }

    /// What lies in a window.
    pub(crate) fn within(&self, from: u64, to: u64) -> Vec<Span> {
        let first = self.spans.partition_point(|span| span.1 <= from);
        self.spans
            .range(first..)
            .take_while(|span| span.0 < to)
            .map(|span| (span.0.max(from), span.1.min(to)))
            .collect()
    }
}

/// How long spans last together.
pub(crate) fn total(spans: &[Span]) -> u64 {
    spans.iter().map(|span| span.1 - span.0).sum()
}

/// What of `spans` is not in `others`; both are disjoint and in order.
pub(crate) fn without(spans: &[Span], others: &[Span]) -> Vec<Span> {
    let mut left = Vec::with_capacity(spans.len());
    let mut others = others.iter().peekable();
    for &(mut start, end) in spans {
        while others.next_if(|other| other.1 <= start).is_some() {}
        let mut ahead = others.clone();
        while let Some(other) = ahead.next_if(|other| other.0 < end) {
            if other.0 > start {
                left.push((start, other.0));
            }
            start = start.max(other.1);
        }
        if start < end {
            left.push((start, end));
        }
    }
    left
}

/// Both lists as one.
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

    /// What a list of moments says of the same spans.
    fn slow(spans: &[Span]) -> Vec<bool> {
        let mut on = vec![false; 64];
        for &(start, end) in spans {
            on[start as usize..end as usize].fill(true);
        }
        on
    }

    #[test]
    fn any_order_gives_the_union() {
        // A fixed pseudo-random sequence: every order of adding and subtracting against the slow way.
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
            let wanted: Vec<bool> = slow(&added)
                .iter()
                .zip(slow(&others))
                .map(|(a, b)| *a && !b)
                .collect();
            assert_eq!(slow(&without(&a, &b)), wanted, "{a:?} without {b:?}");
            let both = united(a.clone(), &b);
            assert_eq!(
                total(&both),
                slow(&[added, others].concat())
                    .iter()
                    .filter(|on| **on)
                    .count() as u64
            );
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
