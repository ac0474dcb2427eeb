//! AMD's rocpd: one SQLite file per process, or one for several, readable by SQLite 3.40 and later.
//!
//! The file is written in one walk over the records. SQLite makes the schema and the small tables;
//! the pages of the large ones are written here ([`long`]), which takes a fraction of the time. Every
//! row that refers to another finds it there. The file grows under a temporary name without a
//! journal. If anything fails it is removed, so there is nothing to roll back, and no second file
//! with a name ever lies next to it. Memory is used by SQLite's page cache, by rows that are being
//! sorted, and by what is remembered for each kind of row, which all have limits.
//!
//! Work without times is a row with 0 for start and end, as in the other formats, with the reason
//! in `extdata`. Everything else that a reader must know is in `rocpd_metadata`, under tags that
//! start with `midair_`.
//!
//! Decisions: FMT-006, FMT-007, FMT-008, FMT-010 (`docs/deviations/formats.md`).

mod counted;
mod counters;
mod cuda;
mod database;
mod gpu;
mod guid;
mod info;
mod long;
mod pages;
mod record;
mod rows;
mod sampled;
mod schema;
mod stacks;
mod strings;

use crate::counters::{Counts, Reading};
use crate::files::{FileSet, ReservedFile, WriteError};
use crate::formats::json::pieces;
use crate::job::Job;
use crate::sink::{Opened, Sink, Writer};
use database::{Database, Step};
use guid::Guid;
use info::Info;
use long::Long;
use midair_record::event::Record;
use pages::{PAGE, Pages};
use rows::Rows;
use rusqlite::{Connection, OpenFlags};
use schema::{BESIDE, SCHEMA_VERSION};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use strings::Strings;

pub use schema::{SchemaPart, rocpd_schema};

/// The writer: the file under its temporary name, a connection to it with the schema written, and
/// the pages behind that.
struct Rocpd {
    file: ReservedFile,
    directory: PathBuf,
    connection: Connection,
    pages: Pages,
    guids: Vec<Guid>,
    /// The number of sessions started.
    sessions: usize,
    /// The statements that copy the samples into the file.
    samples: String,
}

/// Files of SQLite's own next to an earlier file of this name.
pub(crate) const LEFT: [&str; 3] = ["results.db-journal", "results.db-wal", "results.db-shm"];

/// Starts the file, with empty tables for each session.
pub(crate) fn open<'a>(jobs: &'a [Job<'a>], files: &FileSet) -> Opened<'a> {
    let file = files.reserve("results.db")?;
    let guids = guids(jobs);
    let sampled = sampled::having(jobs, &guids);
    let samples = sampled::take(&sampled);
    let begun = connect(&file.resolved(), &guids, &sampled).and_then(|connection| {
        let pages = Pages::after(file.open()?)?;
        Ok((connection, pages))
    });
    match begun {
        Ok((connection, pages)) => Ok(Box::new(Rocpd {
            file,
            directory: files.directory().to_owned(),
            connection,
            pages,
            guids,
            sessions: 0,
            samples,
        })),
        Err(error) => Err(file.failed(error.into())),
    }
}

impl Writer for Rocpd {
    fn begin<'s>(&'s mut self, job: &'s Job<'s>) -> Result<Box<dyn Sink + 's>, WriteError> {
        let number = self.sessions;
        self.sessions += 1;
        let Some(guid) = self.guids.get(number) else {
            let error = std::io::Error::other("more sessions than were announced");
            return Err(self.file.failed(error));
        };
        let database = Database::new(&self.connection, guid);
        match rows(&database, job, &mut self.pages, &self.directory) {
            Ok(rows) => Ok(Box::new(Session {
                rows,
                file: &self.file,
            })),
            Err(error) => Err(self.file.failed(error.into())),
        }
    }

    fn finish(self: Box<Self>, files: &mut FileSet) -> Result<(), WriteError> {
        let Rocpd {
            file,
            connection,
            mut pages,
            guids,
            samples,
            ..
        } = *self;
        if let Err(error) = commit(connection, &mut pages, &guids, &samples) {
            return Err(file.failed(error.into()));
        }
        // These may be left from a process that had an earlier file of this name open. SQLite would
        // apply them to this one.
        for suffix in LEFT {
            files.outdate(suffix);
        }
        files.add_reserved(file);
        Ok(())
    }
}

/// The rows of one session.
struct Session<'s> {
    rows: Rows<'s, 's>,
    file: &'s ReservedFile,
}

impl Sink for Session<'_> {
    fn record(&mut self, record: &Record<'_>) -> Result<(), WriteError> {
        self.rows
            .put(record)
            .map_err(|error| self.file.failed(error.into()))
    }

    fn counted(&mut self, counts: &Counts<'_>) -> Result<(), WriteError> {
        self.rows
            .counted(counts)
            .map_err(|error| self.file.failed(error.into()))
    }

    fn read(&mut self, reading: &Reading) -> Result<(), WriteError> {
        self.rows
            .read(reading)
            .map_err(|error| self.file.failed(error.into()))
    }

    fn finish(self: Box<Self>) -> Result<(), WriteError> {
        let Session { rows, file } = *self;
        let finished = rows.finish();
        finished.map_err(|error| file.failed(error.into()))
    }
}

fn connect(path: &Path, guids: &[Guid], sampled: &[&Guid]) -> Step<Connection> {
    // The connection uses no locks: no other process uses the file, and some network file systems
    // have none. The file was just created. In another user's directory it may have been replaced
    // by a link since, so no link is followed.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let connection = Connection::open_with_flags_and_vfs(path, flags, "unix-none")?;
    connection.execute_batch(&format!(
        "PRAGMA page_size = {PAGE}; PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA temp_store = FILE; PRAGMA cache_size = -8192;",
    ))?;
    // A row refers only to rows that were inserted before it. If SQLite looked each of them up,
    // that would take longer than writing them, so only builds for tests do it.
    connection.pragma_update(None, "foreign_keys", cfg!(debug_assertions))?;
    // Each session has tables of its own; the views unite them.
    let schema = schema::definition(guids) + &sampled::definition(sampled);
    connection.execute_batch(&format!("BEGIN; {schema} COMMIT;"))?;
    // A database without a name is a file that only this connection sees, and that no other process
    // can name. It stays in memory as long as it is small.
    connection.execute_batch(&format!("ATTACH '' AS {BESIDE}; BEGIN;"))?;
    connection.execute_batch(&schema::beside(guids))?;
    connection.execute_batch(&sampled::beside(sampled))?;
    Ok(connection)
}

fn commit(connection: Connection, pages: &mut Pages, guids: &[Guid], samples: &str) -> Step<()> {
    connection.execute_batch("COMMIT;")?;
    pages.finish()?;
    // SQLite sees by the head of the file that others have written to it.
    let take = schema::take(guids);
    connection.execute_batch(&format!(
        "BEGIN; {take} {samples} COMMIT; DETACH {BESIDE}; BEGIN;"
    ))?;
    if cfg!(debug_assertions) {
        refers_to_rows(&connection)?;
    }
    connection.execute_batch(&schema::complete(guids))?;
    connection.execute_batch("COMMIT;")?;
    Ok(connection.close().map_err(|(_, error)| error)?)
}

/// Checks that every row to which another refers is there.
fn refers_to_rows(connection: &Connection) -> Step<()> {
    let mut check = connection.prepare("PRAGMA foreign_key_check")?;
    let mut wrong = check.query([])?;
    match wrong.next()? {
        Some(row) => {
            let (table, id): (String, i64) = (row.get(0)?, row.get(1)?);
            let text = format!("row {id} of {table} refers to a row that is not there");
            Err(std::io::Error::other(text).into())
        }
        None => Ok(()),
    }
}

/// Returns one guid for each session, all different.
fn guids(jobs: &[Job<'_>]) -> Vec<Guid> {
    let mut guids: Vec<Guid> = Vec::new();
    for job in jobs {
        let mut process = job.trace.process.clone();
        let mut guid = Guid::of(&process);
        // Two sessions may have the same guid if the processes were never attached to, or if their
        // machines look the same.
        while guids.contains(&guid) {
            process.init_time += 1;
            guid = Guid::of(&process);
        }
        guids.push(guid);
    }
    guids
}

/// Describes a session and prepares the writer of its rows.
fn rows<'s>(
    database: &Database<'s>,
    job: &'s Job<'s>,
    pages: &'s mut Pages,
    directory: &'s Path,
) -> Step<Rows<'s, 's>> {
    let strings = Strings::new(database, known_strings(job))?;
    let mut info = Info::new(database, job)?;
    counters::describe(database, job, &mut info)?;
    gpu::describe(database, job, &mut info)?;
    let (connection, guid) = (database.connection(), database.guid());
    let long = Long::new(connection, pages, directory, guid, (info.nid, info.pid))?;
    let mut rows = Rows::new(database, job, info, strings, long)?;
    for (tag, value) in SCHEMA_VERSION {
        rows.put_metadata(tag, value)?;
    }
    rows.put_metadata("uuid", &database.guid().suffix())?;
    rows.put_metadata("guid", &database.guid().to_string())?;
    for (key, value) in pieces::midair(job)? {
        rows.put_metadata(&format!("midair_{key}"), &value)?;
    }
    if job.index.is_cuda() {
        rows.put_metadata("midair_cuda_devices", &cuda::devices(job))?;
        rows.put_metadata("midair_cuda_queues", &cuda::queues(job))?;
    }
    if let Some(samples) = &job.trace.gpu {
        rows.gpu_samples(samples)?;
    }
    Ok(rows)
}

/// Returns the names of all kinds, of the calls that occur, and of all other operations.
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
