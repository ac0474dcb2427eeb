//! The dispatches with counters that have their rows already.

use crate::job::Job;
use midair_record::event::Kernel;
use std::collections::HashMap;

/// The dispatches with counters that are already in the file.
#[derive(Default)]
pub(super) struct Counted {
    /// Event ids by dispatch.
    pub(super) written: HashMap<u64, i64>,
}

impl Counted {
    /// Whether the dispatch has its row already.
    pub(super) fn has_dispatch(&self, kernel: &Kernel) -> bool {
        self.written.contains_key(&kernel.dispatch_id)
    }

    /// Remembers a dispatch's event, if counters may come for it.
    pub(super) fn wrote(&mut self, job: &Job<'_>, kernel: &Kernel, event: i64) {
        if job.counting.windows.has_values(kernel.dispatch_id) {
            self.written.insert(kernel.dispatch_id, event);
        }
    }
}
