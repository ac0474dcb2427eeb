//! A trace that is complete and has not been written yet.

use crate::request::Entry;
use crate::rights;
use midair_failure::Failure;
use midair_output::table;
use midair_ptrace::fault;
use midair_results::{End, Finished, Opened, Written};

/// What a session recorded.
#[derive(Debug)]
pub struct Collected {
    pub(crate) finished: Finished,
    pub(crate) entry: Entry,
}

impl Collected {
    /// Returns how the target was entered.
    pub fn entry(&self) -> &Entry {
        &self.entry
    }

    /// Returns the number of records that were collected.
    pub fn records(&self) -> u64 {
        self.finished.records.records()
    }

    /// Returns why the detach did not complete, if it did not. The trace exists all the same.
    pub fn failure(&self) -> Option<&Failure> {
        self.finished.failure.as_ref()
    }

    /// Returns how the target ended, if it did.
    pub fn ended(&self) -> Option<End> {
        self.finished.ended
    }

    /// Returns the results for a caller who reads them here.
    ///
    /// # Errors
    /// For settings without meaning, which [`crate::Session::attach`] has refused.
    pub fn open(self) -> Result<Opened, Failure> {
        self.finished.open()
    }

    /// Writes the outputs where the settings say, with the table in this `style`.
    ///
    /// # Errors
    /// [`midair_failure::Kind::Output`]; then no file of this trace is left.
    pub fn write(self, style: table::Style) -> Result<Written, Failure> {
        let written = rights::as_real_user(|| self.finished.write(style))
            .unwrap_or_else(|error| Err(rights::cannot_drop(&error)));
        fault::step("files written");
        written
    }
}
