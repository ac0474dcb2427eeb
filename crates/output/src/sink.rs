//! What every format is made of: a writer of one set of files, and in it a sink for each session's records.

use crate::counters::{Counts, Reading};
use crate::files::{FileSet, WriteError};
use crate::job::Job;
use midair_record::event::Record;

/// The files of one format: of one session, or of several together.
pub(crate) trait Writer {
    /// Begins a session. What comes before its records is written now or by the sink.
    fn begin<'s>(&'s mut self, job: &'s Job<'s>) -> Result<Box<dyn Sink + 's>, WriteError>;

    /// Adds the files to the set. All sessions were written.
    fn finish(self: Box<Self>, files: &mut FileSet) -> Result<(), WriteError>;
}

/// Takes the records of one session, in the order in which they were collected.
///
/// All sinks are fed in one walk. What a format needs to know beforehand (names, sums, which kinds
/// there are) is in the session's [`Index`](crate::Index).
pub(crate) trait Sink {
    /// Takes a record of something that happened. Descriptions are only in the index.
    fn record(&mut self, record: &Record<'_>) -> Result<(), WriteError>;

    /// Takes the counters of a dispatch. Dispatches without counters have none; the dispatch itself is
    /// a record only where the user asked for dispatches.
    fn counted(&mut self, counts: &Counts<'_>) -> Result<(), WriteError>;

    /// Takes what a whole device counted from one reading to the next.
    fn read(&mut self, reading: &Reading) -> Result<(), WriteError>;

    /// Writes what comes behind the records.
    fn finish(self: Box<Self>) -> Result<(), WriteError>;
}

/// A writer that was opened, with its files begun.
pub(crate) type Opened<'a> = Result<Box<dyn Writer + 'a>, WriteError>;
