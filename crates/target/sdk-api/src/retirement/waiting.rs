//! Correlation ids that wait to be retired.

use std::collections::BTreeMap;

/// What is known about a waiting id.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Id {
    /// Its call has returned, or there was no call.
    pub returned: bool,
    /// Since its last record, a look at the work under way did not find it.
    pub ended: bool,
}

/// The waiting ids.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// The ids by number.
    pub ids: BTreeMap<u64, Id>,
}

impl Waiting {
    /// Notes that a record has the id.
    pub fn saw(&mut self, id: u64, returned: bool) {
        let known = self.ids.entry(id).or_default();
        known.returned |= returned;
        known.ended = false;
    }
}
