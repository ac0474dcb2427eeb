//! Correlation ids that wait for their retirement.

use std::collections::BTreeMap;

/// What is known of an id that waits.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Id {
    /// Its call has returned, or it never had one.
    pub returned: bool,
    /// The work under way was looked at since its last record, and did not have it.
    pub ended: bool,
}

/// Ids that wait.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// By number.
    pub ids: BTreeMap<u64, Id>,
}

impl Waiting {
    /// A record has the id.
    pub fn saw(&mut self, id: u64, returned: bool) {
        let known = self.ids.entry(id).or_default();
        known.returned |= returned;
        known.ended = false;
    }
}
