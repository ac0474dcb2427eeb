//! Limits for reading a database of another user: which tables, and how long.

use crate::files;
use crate::files::{unreadable, unusable};
use midair_failure::Failure;
use rusqlite::limits::Limit;
use rusqlite::{Connection, OpenFlags};
use std::fs::File;
use std::ops::Deref;
use std::path::Path;
use std::time::{Duration, Instant};

/// The longest text of a column, in bytes.
const LONGEST: i32 = 64 << 20;
/// Steps of SQLite's machine between two looks at the limits.
const LOOK: i32 = 100_000;
/// The steps and the time that a database may take, besides what its bytes may.
const STEPS: u64 = 200_000_000;
const TIME: Duration = Duration::from_secs(30);
/// The steps that a byte may take, and the bytes that may take a second. A row of twenty bytes takes
/// some forty steps.
const STEPS_OF_A_BYTE: u64 = 16;
const BYTES_OF_A_SECOND: u64 = 1 << 20;

/// What reading a database may take.
#[derive(Debug, Clone, Copy)]
struct Bound {
    steps: u64,
    time: Duration,
}

impl Bound {
    fn of(bytes: u64) -> Bound {
        Bound {
            steps: STEPS.saturating_add(bytes.saturating_mul(STEPS_OF_A_BYTE)),
            time: TIME.saturating_add(Duration::from_secs(bytes / BYTES_OF_A_SECOND)),
        }
    }

    /// Puts the limits into force: whoever wrote a database wrote its schema, too, and a query on it
    /// may have no end.
    fn begin(self, database: &mut Connection) -> rusqlite::Result<()> {
        let mut looks = self.steps / u64::from(LOOK.unsigned_abs());
        let began = Instant::now();
        database.progress_handler(
            LOOK,
            Some(move || {
                looks = looks.saturating_sub(1);
                looks == 0 || began.elapsed() > self.time
            }),
        )?;
        database.set_limit(Limit::SQLITE_LIMIT_LENGTH, LONGEST)?;
        database.execute_batch("PRAGMA trusted_schema = OFF;")
    }
}

/// A database that is open for reading, and its file.
#[derive(Debug)]
pub(crate) struct Database {
    connection: Connection,
    /// The file that was checked. SQLite has it open, too.
    pub(crate) file: File,
}

impl Deref for Database {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

/// Returns the failure for what SQLite says about a file.
pub(crate) fn wrong(path: &Path, error: &rusqlite::Error) -> Failure {
    let failure = unreadable(path, error);
    match error {
        rusqlite::Error::SqliteFailure(code, _) => match code.code {
            rusqlite::ErrorCode::NotADatabase | rusqlite::ErrorCode::DatabaseCorrupt => {
                unusable(format!("{} is damaged or incomplete", path.display()))
                    .hint("profile again")
            }
            rusqlite::ErrorCode::OperationInterrupted => unusable(format!(
                "reading {} takes longer than its size explains",
                path.display()
            )),
            // A table or a column is missing.
            rusqlite::ErrorCode::Unknown => unusable(format!(
                "{} has an unknown version: {error}",
                path.display()
            )),
            _ => failure,
        },
        _ => failure,
    }
}

/// Opens a database for reading, under limits.
pub(crate) fn open(path: &Path) -> Result<Database, Failure> {
    open_after(path, || ())
}

/// Does the same, and calls a function between the check of the file and SQLite's opening.
///
/// SQLite opens by path alone, also for a path in `/proc/self/fd`, whose link it reads. Whoever can write
/// to the directory may have put another file there, so the file that SQLite has is compared with the
/// checked file.
fn open_after(path: &Path, between: impl FnOnce()) -> Result<Database, Failure> {
    let wrong = |error: rusqlite::Error| wrong(path, &error);
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let file = files::open(path).map_err(|error| unreadable(path, &error))?;
    let bytes = file.metadata().map_or(0, |found| found.len());
    let times = || files::times_open(&file).map_err(|error| unreadable(path, &error));
    let before = times()?;
    between();
    let mut connection = Connection::open_with_flags(path, flags).map_err(wrong)?;
    if times()? <= before {
        return Err(unusable(format!(
            "{} was replaced while it was opened",
            path.display()
        )));
    }
    Bound::of(bytes).begin(&mut connection).map_err(wrong)?;
    Ok(Database { connection, file })
}

/// Returns what follows `rocpd_kernel_dispatch` in the names of a database's tables. The other tables
/// of the same process end alike.
pub(crate) fn suffixes(database: &Connection, path: &Path) -> Result<Vec<String>, Failure> {
    let wrong = |error: rusqlite::Error| wrong(path, &error);
    let mut suffixes = Vec::new();
    let mut statement = database
        .prepare("SELECT name FROM sqlite_master WHERE name LIKE 'rocpd_kernel_dispatch%' AND type = 'table'")
        .map_err(wrong)?;
    let mut rows = statement.query([]).map_err(wrong)?;
    while let Some(row) = rows.next().map_err(wrong)? {
        let name: String = row.get(0).map_err(wrong)?;
        suffixes.extend(
            name.strip_prefix("rocpd_kernel_dispatch")
                .map(str::to_owned),
        );
    }
    Ok(suffixes)
}

/// Refuses a database in which one of these names belongs to a view, to a virtual table, or to a table
/// with computed columns.
pub(crate) fn only_tables(
    database: &Connection,
    tables: &[&str],
    suffix: &str,
    path: &Path,
) -> Result<(), Failure> {
    let wrong = |error: rusqlite::Error| wrong(path, &error);
    let count = |question: &str, name: &str| -> Result<i64, Failure> {
        let found = database.query_row(question, [name], |row| row.get(0));
        found.map_err(wrong)
    };
    for name in tables {
        let name = format!("rocpd_{name}{suffix}");
        let others = "SELECT count(*) FROM sqlite_master \
                      WHERE name = ?1 COLLATE NOCASE AND (type <> 'table' OR rootpage = 0)";
        let computed = "SELECT count(*) FROM pragma_table_xinfo(?1) WHERE hidden <> 0";
        // A view's columns are not looked at.
        if count(others, &name)? != 0 || count(computed, &name)? != 0 {
            return Err(unusable(format!(
                "{}: {name} is not a table with stored columns",
                path.display()
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDLESS: &str =
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x FROM n) SELECT count(*) FROM n";

    #[test]
    fn a_query_without_an_end_ends() {
        let day = Duration::from_secs(24 * 60 * 60);
        for bound in [
            Bound {
                steps: 1_000_000,
                time: day,
            },
            Bound {
                steps: u64::MAX,
                time: Duration::from_millis(20),
            },
        ] {
            let mut database = Connection::open_in_memory().unwrap();
            bound.begin(&mut database).unwrap();
            let count = database.query_row(ENDLESS, [], |row| row.get::<_, i64>(0));
            let said = wrong(Path::new("a.db"), &count.unwrap_err());
            assert!(said.what.contains("takes longer than"), "{}", said.what);
            // Another query has its own steps, and the limit on all is the database's.
            let again = database.query_row(ENDLESS, [], |row| row.get::<_, i64>(0));
            assert!(again.is_err());
        }
        // Rows take far fewer steps than their bytes allow.
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("rows.db");
        let database = Connection::open(&path).unwrap();
        let fill = "CREATE TABLE t (a, b, c); WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 200000) \
                    INSERT INTO t SELECT NULL, NULL, NULL FROM n";
        database.execute_batch(fill).unwrap();
        drop(database);
        let bytes = std::fs::metadata(&path).unwrap().len();
        let mut database = Connection::open(&path).unwrap();
        let bound = Bound {
            steps: STEPS_OF_A_BYTE * bytes,
            ..Bound::of(bytes)
        };
        bound.begin(&mut database).unwrap();
        let mut statement = database.prepare("SELECT a, b, c FROM t").unwrap();
        let mut rows = statement.query([]).unwrap();
        let mut count = 0;
        while rows.next().unwrap().is_some() {
            count += 1;
        }
        assert_eq!(count, 200_000);
    }

    #[test]
    fn a_file_that_is_replaced_after_the_check_is_not_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.db");
        let other = directory.path().join("other.db");
        for (file, text) in [(&path, "checked"), (&other, "other")] {
            let database = Connection::open(file).unwrap();
            let fill = format!("CREATE TABLE t AS SELECT '{text}' AS a");
            database.execute_batch(&fill).unwrap();
        }
        let database = open(&path).unwrap();
        let text: String = database
            .query_row("SELECT a FROM t", [], |row| row.get(0))
            .unwrap();
        assert_eq!(text, "checked");
        drop(database);
        let refused = open_after(&path, || std::fs::rename(&other, &path).unwrap());
        let what = refused.unwrap_err().what;
        assert!(what.contains("was replaced"), "{what}");
        assert!(open(&path).is_ok());
    }

    #[test]
    fn only_tables_with_stored_columns_are_read() {
        for (make, refused) in [
            (
                "CREATE TABLE rocpd_event_x (id INTEGER PRIMARY KEY, a TEXT)",
                false,
            ),
            (
                "CREATE TABLE rocpd_event_y AS SELECT 1; CREATE VIEW rocpd_pmc_event AS SELECT 1",
                false,
            ),
            ("CREATE VIEW Rocpd_Event_X AS SELECT 1 AS id", true),
            ("CREATE TABLE rocpd_event_x (id, a AS (id + 1))", true),
            (
                "CREATE TABLE rocpd_event_x (id, a AS (id + 1) STORED)",
                true,
            ),
        ] {
            let database = Connection::open_in_memory().unwrap();
            database.execute_batch(make).unwrap();
            let tables = ["pmc_event", "event"];
            let found = only_tables(&database, &tables, "_x", Path::new("a.db"));
            assert_eq!(found.is_err(), refused, "{make}");
        }
    }
}
