//! AMD's rocpd: one SQLite file per process, or one of several, readable by SQLite 3.40 and later.
//!
//! One walk over the records, in one transaction; every row that refers to another finds it there, since foreign keys are on.
//! The file grows under a temporary name without a journal: when anything fails it is removed, so there is nothing to roll
//! back, and no second file ever lies beside it. Memory is SQLite's page cache and what each kind of row remembers, which has
//! limits.
//!
//! Work without times is a row with 0 for start and end, as in the other formats, and the reason in `extdata`; what else a
//! reader must know is in `rocpd_metadata` under tags that begin with `midair_`.
//!
//! Decisions: FMT-006, FMT-007, FMT-008, FMT-010 (`docs/deviations/formats.md`).

mod cuda;
mod guid;
mod info;
mod rows;
mod schema;
mod strings;

use crate::files::{FileSet, WriteError};
use crate::job::{Job, Writer};
use crate::json::pieces;
use crate::record_file::WalkError;
use guid::Guid;
use info::Info;
use rows::Rows;
use rusqlite::{Connection, ErrorCode, OpenFlags, Statement};
use std::borrow::Cow;
use std::collections::{BTreeSet, HashSet};
use std::hash::Hash;
use std::io;
use std::path::Path;
use strings::Strings;

/// Version of the schema. AMD's tools up to ROCm 7.2, which write "3", do not look at it; its newest ones want it whole and in
/// parts, and take no other form.
const SCHEMA_VERSION: [(&str, &str); 4] = [
    ("schema_version", "3.0.3"),
    ("schema_version_major", "3"),
    ("schema_version_minor", "0"),
    ("schema_version_patch", "3"),
];
/// Things of one sort remembered as being in the file; after so many all are forgotten and asked of the file again.
const MOST_SEEN: usize = 1 << 16;
/// What Linux says where a disk is full.
const ENOSPC: i32 = 28;

/// Why the writing ended.
#[derive(Debug)]
enum Stop {
    /// This file.
    Write(io::Error),
    /// The store of records.
    Read(io::Error),
}

type Step<T> = Result<T, Stop>;

impl From<rusqlite::Error> for Stop {
    fn from(error: rusqlite::Error) -> Self {
        Stop::Write(match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => io::Error::from_raw_os_error(ENOSPC),
            _ => io::Error::other(error),
        })
    }
}

impl From<WalkError<Stop>> for Stop {
    fn from(error: WalkError<Stop>) -> Self {
        match error {
            WalkError::Read(source) => Stop::Read(source),
            WalkError::Visit(stop) => stop,
        }
    }
}

/// The writer.
pub(crate) struct Rocpd;

impl Writer for Rocpd {
    fn write(&self, jobs: &[Job<'_>], files: &mut FileSet) -> Result<(), WriteError> {
        let file = files.reserve("results.db")?;
        match write(jobs, file.temporary()) {
            Ok(()) => {
                // Left by somebody who had an earlier file of this name open, they would be applied to this one.
                for suffix in ["results.db-journal", "results.db-wal", "results.db-shm"] {
                    files.outdate(suffix);
                }
                files.add_reserved(file);
                Ok(())
            }
            Err(Stop::Read(source)) => Err(WriteError::Records(source)),
            Err(Stop::Write(source)) => Err(file.failed(source)),
        }
    }
}

fn write(jobs: &[Job<'_>], path: &Path) -> Step<()> {
    // Nobody else has the file, so it needs no locks, which some network file systems do not have.
    // The file was made by us a moment ago; where the directory is somebody else's, he may have put a link in its place since. No link
    // is followed then, in the directory's own path neither: so that is resolved here.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let resolved = match (path.parent().map(Path::canonicalize), path.file_name()) {
        (Some(Ok(directory)), Some(name)) => directory.join(name),
        _ => path.to_path_buf(),
    };
    let connection = Connection::open_with_flags_and_vfs(resolved, flags, "unix-none")?;
    connection.execute_batch(
        "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA temp_store = MEMORY; PRAGMA cache_size = -8192;
         PRAGMA foreign_keys = ON; BEGIN;",
    )?;
    // Each session has tables of its own; the views unite them.
    let guids = guids(jobs);
    connection.execute_batch(&schema::definition(&guids))?;
    for (job, guid) in jobs.iter().zip(&guids) {
        let database = Database {
            connection: &connection,
            guid,
        };
        fill(&database, job)?;
    }
    connection.execute_batch("COMMIT;")?;
    connection.close().map_err(|(_, error)| Stop::from(error))
}

/// One for each session, and no two the same.
fn guids(jobs: &[Job<'_>]) -> Vec<Guid> {
    let mut guids: Vec<Guid> = Vec::new();
    for job in jobs {
        let mut process = job.trace.process.clone();
        let mut guid = Guid::of(&process);
        // Of two that were never attached to, or in machines that look the same.
        while guids.contains(&guid) {
            process.init_time += 1;
            guid = Guid::of(&process);
        }
        guids.push(guid);
    }
    guids
}

fn fill(database: &Database<'_>, job: &Job<'_>) -> Step<()> {
    let strings = Strings::new(database, known_strings(job))?;
    let info = Info::new(database, job)?;
    let mut rows = Rows::new(database, job, info, strings)?;
    for (tag, value) in SCHEMA_VERSION {
        rows.say(tag, value)?;
    }
    rows.say("uuid", &database.guid.suffix())?;
    rows.say("guid", &database.guid.to_string())?;
    for (key, value) in pieces::midair(job).map_err(Stop::Write)? {
        rows.say(&format!("midair_{key}"), &value)?;
    }
    job.trace
        .records
        .walk(Rows::wants, |record| rows.put(record))?;
    Ok(())
}

/// Names of all kinds, of the calls that occur and of all other operations.
fn known_strings(job: &Job<'_>) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for kind in &job.names.buffer {
        all.insert(kind.name.clone().into_owned());
    }
    for (kind, operation) in job.index.calls.keys() {
        all.insert(job.names.operation(*kind, *operation).into_owned());
    }
    all
}

/// A connection and the guid in the names of its tables.
struct Database<'c> {
    connection: &'c Connection,
    guid: &'c Guid,
}

impl<'c> Database<'c> {
    /// Inserts rows.
    fn insert(&self, table: &str, columns: &str) -> Step<Statement<'c>> {
        let sql = schema::insert("INSERT", table, columns, self.guid);
        Ok(self.connection.prepare(&sql)?)
    }

    /// Inserts rows whose id is not taken, and does nothing for others.
    fn ensure(&self, table: &str, columns: &str) -> Step<Statement<'c>> {
        let sql = schema::insert("INSERT OR IGNORE", table, columns, self.guid);
        Ok(self.connection.prepare(&sql)?)
    }

    fn find_string(&self) -> Step<Statement<'c>> {
        Ok(self.connection.prepare(&schema::find_string(self.guid))?)
    }
}

/// What is in the file already. Its size has a limit: to put a row in again does nothing.
struct Seen<K>(HashSet<K>);

impl<K> Default for Seen<K> {
    fn default() -> Self {
        Seen(HashSet::new())
    }
}

impl<K: Hash + Eq> Seen<K> {
    /// Whether this has to be put in.
    fn first(&mut self, key: K) -> bool {
        if self.0.len() >= MOST_SEEN {
            self.0.clear();
        }
        self.0.insert(key)
    }
}

/// SQLite's integers have a sign; addresses keep their bits.
fn whole(number: u64) -> i64 {
    number.cast_signed()
}

/// A text that every reader sees whole: many end at a NUL.
fn text(text: &str) -> Cow<'_, str> {
    if text.contains('\0') {
        Cow::Owned(text.replace('\0', "\u{fffd}"))
    } else {
        Cow::Borrowed(text)
    }
}

/// JSON whose texts every reader sees whole: `json_extract` ends them at a NUL.
fn json(text: String) -> String {
    if !text.contains("\\u0000") {
        return text;
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        out.push_str(before);
        // A backslash has another character behind it, which may be a backslash.
        let (taken, put) = match escape.strip_prefix("\\u0000") {
            Some(_) => (6, "\\ufffd"),
            None => (2, escape.get(..2).unwrap_or(escape)),
        };
        out.push_str(put);
        rest = escape.get(taken..).unwrap_or_default();
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_nul_stays_in_json() {
        let value = serde_json::json!({ "a": "x\0\0y", "b\0": "\\u0000 \\\0 \"\0" });
        let clean: serde_json::Value = serde_json::from_str(&json(value.to_string())).unwrap();
        let wanted = serde_json::json!({
            "a": "x\u{fffd}\u{fffd}y", "b\u{fffd}": "\\u0000 \\\u{fffd} \"\u{fffd}"
        });
        assert_eq!(clean, wanted);
    }
}
