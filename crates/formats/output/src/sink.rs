//! The parts of every format: a writer of one set of files, and within it a sink for each session's
//! records.

use crate::counters::{Counts, Reading};
use crate::files::{FileSet, WriteError};
use crate::job::Job;
use midair_domain::KindSet;
use midair_record::event::Record;

/// The writer of one format's files, for one session or for several together.
pub(crate) trait Writer {
    /// Starts a session. What comes before its records is written now or by the sink.
    fn begin<'s>(&'s mut self, job: &'s Job<'s>) -> Result<Box<dyn Sink + 's>, WriteError>;

    /// Adds the files to the set. By now all sessions have been written.
    fn finish(self: Box<Self>, files: &mut FileSet) -> Result<(), WriteError>;
}

/// Takes the records of one session, in the order in which they were collected.
///
/// All sinks of a thread are fed in one walk. What a format needs to know beforehand (names, sums, which kinds
/// there are) is in the session's [`Index`](crate::Index).
pub(crate) trait Sink {
    /// Returns the kinds of records that it has a use for, or none where it may have one for all.
    /// It is given others as well, where other sinks of its walk want them.
    fn wants(&self) -> Option<KindSet> {
        None
    }

    /// Takes a record of something that happened. Descriptions are only in the index.
    fn record(&mut self, record: &Record<'_>) -> Result<(), WriteError>;

    /// Takes the counters of a dispatch. It is not called for dispatches without counters. The
    /// dispatch itself is given as a record only where the user asked for dispatches.
    fn counted(&mut self, counts: &Counts<'_>) -> Result<(), WriteError>;

    /// Takes what a whole device counted from one reading to the next.
    fn read(&mut self, reading: &Reading) -> Result<(), WriteError>;

    /// Writes what comes after the records.
    fn finish(self: Box<Self>) -> Result<(), WriteError>;
}

/// A writer that was opened, with its files started.
pub(crate) type Opened<'a> = Result<Box<dyn Writer + 'a>, WriteError>;

/// Takes no records, for formats whose sums are in the index.
pub(crate) struct Nothing;

impl Sink for Nothing {
    fn wants(&self) -> Option<KindSet> {
        Some(KindSet::EMPTY)
    }

    fn record(&mut self, _: &Record<'_>) -> Result<(), WriteError> {
        Ok(())
    }

    fn counted(&mut self, _: &Counts<'_>) -> Result<(), WriteError> {
        Ok(())
    }

    fn read(&mut self, _: &Reading) -> Result<(), WriteError> {
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), WriteError> {
        Ok(())
    }
}
