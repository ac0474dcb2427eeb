//! What a group recorded.

use super::{GroupRequest, Selection};
use crate::answer;
use crate::collected::Collected;
use crate::process::live;
use crate::rights;
use midair_failure::{Failure, Kind};
use midair_output::table;
use midair_procinfo::Pid;
use midair_results::{Finished, Identity, Together, Written};

/// The part that one process contributes.
#[derive(Debug)]
pub struct Part {
    /// Which process.
    pub pid: Pid,
    /// Its name.
    pub name: String,
    /// What its session recorded, or why there was none.
    pub collected: Result<Collected, Failure>,
}

/// The group's traces, complete and not yet written.
#[derive(Debug)]
pub struct GroupCollected {
    request: GroupRequest,
    parts: Vec<Part>,
    lead: Option<Identity>,
}

impl GroupCollected {
    pub(super) fn new(request: GroupRequest, mut parts: Vec<Part>) -> GroupCollected {
        // Sorted by process. The sort is stable, so the sessions of one process stay in the order
        // in which they ended.
        parts.sort_by_key(|part| part.pid);
        let lead = match request.selection {
            Selection::Tree(root) => {
                let tid = live(root).unwrap_or(root.leader());
                let look = move || crate::identity::read(root, tid);
                let read = answer::within(root, answer::LIMIT, look).ok();
                read.filter(|lead| lead.keys.pid != 0)
            }
            _ => None,
        };
        GroupCollected {
            request,
            parts,
            lead,
        }
    }

    /// Returns the part of each process.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Returns why a detach did not complete, for the first process for which it did not.
    pub fn failure(&self) -> Option<&Failure> {
        self.parts.iter().find_map(|part| match &part.collected {
            Ok(collected) => collected.failure(),
            Err(failure) => Some(failure).filter(|failure| failure.kind == Kind::DetachFailed),
        })
    }

    /// Writes what the settings ask for: files for each process, or one result of all. `style` is
    /// the style of the tables.
    ///
    /// # Errors
    /// When nothing was collected, the reason. For a group of one, as [`Collected::write`].
    pub fn write(mut self, style: table::Style) -> Result<Written, Failure> {
        if self.parts.len() == 1
            && !self.request.merge
            && let Some(Part { collected, .. }) = self.parts.pop()
        {
            return collected?.write(style);
        }
        if self.parts.is_empty() {
            return Err(Failure::new(
                Kind::NotGpu,
                "no process loaded a HIP, HSA or CUDA runtime while it was watched",
            ));
        }
        let mut failed = Vec::new();
        let mut finished: Vec<(Pid, String, Finished)> = Vec::new();
        for part in std::mem::take(&mut self.parts) {
            match part.collected {
                Ok(collected) => finished.push((part.pid, part.name, collected.finished)),
                Err(failure) => failed.push((part.pid, part.name, failure)),
            }
        }
        let together = Together {
            parts: finished,
            failed,
            lead: self.lead.take(),
            merge: self.request.merge,
        };
        let settings = &self.request.each.settings;
        // Processes that never had a runtime are not mentioned: they are helpers of those that had
        // one.
        rights::as_real_user(|| together.write(settings, style))
            .unwrap_or_else(|error| Err(rights::cannot_drop(&error)))
    }
}
