//! `counter_collection.csv` from values that were computed before: of a database that is read back.

use super::row::{Row, begin};
use super::{COUNTERS, LDS_BLOCK};
use crate::files::{FileSet, OutputFile, WriteError};
use midair_record::event::kind;
use std::path::{Path, PathBuf};

/// One counter of a dispatch.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CounterRow {
    /// Correlation id.
    pub correlation: u64,
    /// Number of the dispatch.
    pub dispatch: u64,
    /// The agent's name.
    pub agent: String,
    /// Number of the queue.
    pub queue: u64,
    /// The process.
    pub process: u64,
    /// The thread that launched it.
    pub thread: u64,
    /// Work items.
    pub grid: u64,
    /// Number and name of the kernel.
    pub kernel: (u64, String),
    /// Work items of a work-group.
    pub workgroup: u64,
    /// The bytes of LDS that the code object asks for.
    pub group_segment: u64,
    /// Bytes of scratch memory of a work item.
    pub scratch: u64,
    /// Vector, accumulation and scalar registers.
    pub registers: [u64; 3],
    /// The counter's name.
    pub counter: String,
    /// Its sum over all places.
    pub value: f64,
    /// Start and end, ns.
    pub times: (u64, u64),
}

/// The file under construction.
#[derive(Debug)]
pub struct CounterCsv {
    set: FileSet,
    file: OutputFile,
    row: Row,
}

impl CounterCsv {
    /// Starts the file.
    ///
    /// # Errors
    /// As [`write()`](crate::write()).
    pub fn start(directory: &Path, prefix: &str) -> Result<CounterCsv, WriteError> {
        let name = midair_domain::domain(kind::COUNTER_COLLECTION).and_then(|it| it.files.csv);
        let set = FileSet::new(directory, prefix)?;
        let file = begin(&set, name.unwrap_or_default(), COUNTERS)?;
        Ok(CounterCsv {
            set,
            file,
            row: Row::default(),
        })
    }

    /// Writes a row.
    ///
    /// # Errors
    /// As [`write()`](crate::write()).
    pub fn put(&mut self, of: &CounterRow) -> Result<(), WriteError> {
        let row = &mut self.row;
        row.number(of.correlation)
            .number(of.dispatch)
            .text(&of.agent)
            .number(of.queue)
            .number(of.process)
            .number(of.thread)
            .number(of.grid)
            .number(of.kernel.0)
            .text(&of.kernel.1)
            .number(of.workgroup)
            .number(of.group_segment.next_multiple_of(u64::from(LDS_BLOCK)))
            .number(of.scratch);
        for count in of.registers {
            row.number(count);
        }
        row.text(&of.counter)
            .real(of.value)
            .number(of.times.0)
            .number(of.times.1);
        let written = self.file.put(self.row.end());
        self.row.clear();
        written
    }

    /// Gives the file its name, and returns it.
    ///
    /// # Errors
    /// As [`write()`](crate::write()).
    pub fn finish(mut self) -> Result<Vec<PathBuf>, WriteError> {
        self.set.add(self.file)?;
        self.set.commit()
    }
}
