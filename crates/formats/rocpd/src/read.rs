//! Records made of a session's rows, in the order in which midair wrote them.
//!
//! An event has a number, and numbers grow in that order, so the tables are read side by side by the
//! numbers of their events. What records refer to comes first. A database lacks some of what an
//! attach records; one of AMD's tool also lacks when the doorbell rang for a dispatch and what a call
//! returned. These are 0.

mod cuda;
mod describe;
mod driver;
mod facts;
mod hip;
pub(crate) mod notes;
mod rows;
mod sampled;

use crate::input::{Input, Part};
use crate::unreadable;
use crate::window::Window;
use describe::Described;
use midair_failure::{Failure, Kind, plain};
use midair_output::{GivenRanges, Names, RecordWriter, Trace};
use rusqlite::Connection;
use std::collections::BTreeMap;

/// Why reading stopped: the database, or the place for the records.
#[derive(Debug)]
pub(crate) enum Stopped {
    /// The database could not be read.
    Read(rusqlite::Error),
    /// The records could not be kept.
    Keep(std::io::Error),
}

impl From<rusqlite::Error> for Stopped {
    fn from(error: rusqlite::Error) -> Self {
        Stopped::Read(error)
    }
}

impl From<std::io::Error> for Stopped {
    fn from(error: std::io::Error) -> Self {
        Stopped::Keep(error)
    }
}

/// A session that is read.
pub(crate) struct Session<'s> {
    pub(crate) connection: &'s Connection,
    pub(crate) part: &'s Part,
    pub(crate) names: &'s mut Names,
    /// What becomes no record: how many rows of each kind.
    pub(crate) left: BTreeMap<String, u64>,
    /// How many calls have arguments of which only a text is known.
    pub(crate) with_texts: u64,
}

impl Session<'_> {
    /// Counts a row that becomes no record.
    pub(crate) fn leave(&mut self, what: &str) {
        *self.left.entry(what.to_owned()).or_default() += 1;
    }

    /// Whether the session has a table with rows.
    pub(crate) fn has(&self, table: &str) -> rusqlite::Result<bool> {
        if self.part.columns(self.connection, table)?.is_empty() {
            return Ok(false);
        }
        let question = format!("SELECT 1 FROM {} LIMIT 1", self.part.table(table));
        self.connection.prepare(&question)?.exists([])
    }
}

/// Reads a session. Returns also what it has that is not in the trace, in sentences.
///
/// # Errors
/// When the database cannot be read.
pub(crate) fn trace(
    input: &Input,
    part: &Part,
    names: &mut Names,
    window: Option<Window>,
) -> Result<(Trace, Vec<String>), Failure> {
    let mut session = Session {
        connection: &input.connection,
        part,
        names,
        left: BTreeMap::new(),
        with_texts: 0,
    };
    let read = |session: &mut Session<'_>| -> Result<Trace, Stopped> {
        let described = Described::read(session)?;
        let writer = RecordWriter::create_in(&std::env::temp_dir())?;
        let mut writer = writer.with_streams(described.handles());
        for record in &described.records {
            writer.append(record)?;
        }
        rows::read(session, &described, window, &mut writer)?;
        sampled::read(session, &described, window, &mut writer)?;
        Ok(described.into_trace(writer.finish()?))
    };
    let trace = read(&mut session).map_err(|stopped| match stopped {
        Stopped::Read(error) => unreadable(&part.path, error),
        Stopped::Keep(error) => Failure::new(
            Kind::Output,
            format!(
                "cannot keep records in {}: {error}",
                std::env::temp_dir().display()
            ),
        )
        .hint("set TMPDIR to a directory with more space"),
    })?;
    let path = part.path.display();
    let left = session.left.iter().map(|(what, count)| {
        let rows = plain::counted(*count, "row of", "rows of");
        let are = if *count == 1 { "is" } else { "are" };
        format!("{rows} {what} in {path} {are} not converted")
    });
    let mut left: Vec<String> = left.collect();
    if session.with_texts > 0 {
        let calls = plain::counted(session.with_texts, "call", "calls");
        left.push(format!(
            "arguments of {calls} in {path} are texts, which json and pftrace show as (null)"
        ));
    }
    Ok((trace, left))
}

/// Returns the ROCTx ranges in which dispatches were launched, where the session says so.
///
/// # Errors
/// When the database cannot be read.
pub(crate) fn ranges(input: &Input, part: &Part) -> Result<GivenRanges, Failure> {
    let read = || {
        let mut ranges = GivenRanges::default();
        let question = format!(
            "SELECT d.dispatch_id, s.string FROM {} AS d JOIN {} AS s ON s.id = d.region_name_id WHERE s.string <> ''",
            part.table("kernel_dispatch"),
            part.table("string")
        );
        let mut statement = input.connection.prepare(&question)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let id: Option<i64> = row.get(0)?;
            ranges.add(
                id.unwrap_or_default() as u64,
                row.get_ref(1)?.as_str().unwrap_or_default(),
            );
        }
        Ok(ranges)
    };
    read().map_err(|error: rusqlite::Error| unreadable(&part.path, error))
}
