//! The times of one kernel, or of the work of one line of code.

use crate::histogram::Histogram;
use crate::lane::Span;
use crate::recent::Recent;
use midair_output::Stat;

/// The times.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ran {
    pub(crate) total: Stat,
    pub(crate) recent: Recent,
    pub(crate) histogram: Histogram,
}

impl Ran {
    pub(crate) fn add(&mut self, (start, end): Span) {
        self.total.count(end.saturating_sub(start));
        self.recent.add(start, end, 0);
        self.histogram.add(end.saturating_sub(start));
    }

    /// Adds what another one has.
    pub(crate) fn merge(&mut self, other: &Ran) {
        self.total.merge(&other.total);
        self.recent.merge(&other.recent);
        self.histogram.merge(&other.histogram);
    }
}
