//! One or many databases behind one connection.
//!
//! The connection's own database is in memory. Each file is attached to it for reading only, so a
//! name of a view or a table that only one file has means that file's. SQLite attaches few files:
//! of more, one temporary file is made first ([`merge`](crate::merge())).

use crate::unite;
use crate::{index, merge, modern, sql, unreadable};
use midair_failure::Failure;
use rusqlite::functions::FunctionFlags;
use rusqlite::limits::Limit;
use rusqlite::{Connection, OpenFlags};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The most files that are attached. SQLite's own limit is 10.
const MOST_ATTACHED: usize = 8;
/// The longest text of a column, in bytes.
const LONGEST: i32 = 64 << 20;
/// The most memory that SQLite may take. A view of a file may ask for any amount.
const MEMORY: &str = "PRAGMA hard_heap_limit = 2147483648";
/// The table by which a session in a database is known.
const SESSION: &str = "rocpd_kernel_dispatch";

/// A session in a database: the tables with one guid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The name under which the file is attached.
    pub(crate) database: String,
    /// What follows the names of its tables.
    pub(crate) suffix: String,
    /// The file.
    pub(crate) path: PathBuf,
    /// Whether views stand for some of its tables ([`modern`]).
    pub(crate) is_modern: bool,
}

impl Part {
    /// Returns the quoted name of one of its tables.
    pub(crate) fn table(&self, name: &str) -> String {
        if let Some(view) = self.view(name) {
            return format!("temp.\"{}\"", view.replace('"', "\"\""));
        }
        let suffix = self.suffix.replace('"', "\"\"");
        format!("{}.\"rocpd_{name}{suffix}\"", self.database)
    }

    /// Returns the names of a table's columns, or none if it does not exist.
    pub(crate) fn columns(&self, of: &Connection, name: &str) -> rusqlite::Result<Vec<String>> {
        let mut statement = of.prepare("SELECT name FROM pragma_table_info(?1, ?2)")?;
        let (table, database) = match self.view(name) {
            Some(view) => (view, "temp"),
            None => (format!("rocpd_{name}{}", self.suffix), &*self.database),
        };
        let rows = statement.query_map([&*table, database], |row| row.get(0))?;
        rows.collect()
    }

    /// Returns the view that stands for a table.
    fn view(&self, name: &str) -> Option<String> {
        modern::view(&self.database, &self.suffix, name).filter(|_| self.is_modern)
    }

    /// Returns the file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Databases that are open.
#[derive(Debug)]
pub struct Input {
    pub(crate) connection: Connection,
    pub(crate) parts: Vec<Part>,
    /// The number of files.
    pub(crate) files: usize,
    /// Where many files were merged into one. It is removed at the end.
    _merged: Option<tempfile::TempDir>,
}

impl Input {
    /// Opens these files. A directory, or an index of AMD's `rocpd package`, stands for its databases.
    ///
    /// # Errors
    /// When a file is missing or damaged, or has no tables of rocpd.
    pub fn open(paths: &[PathBuf]) -> Result<Input, Failure> {
        let files = files(paths)?;
        if files.len() <= MOST_ATTACHED {
            return Input::attach(&files, None);
        }
        let directory =
            tempfile::tempdir().map_err(|error| crate::unwritable(&std::env::temp_dir(), error))?;
        let merged = directory.path().join("merged.db");
        merge::into(&files, &merged)?;
        Input::attach(&[merged], Some(directory))
    }

    fn attach(files: &[PathBuf], merged: Option<tempfile::TempDir>) -> Result<Input, Failure> {
        let connection = connect().map_err(|error| sql("start SQLite", &error))?;
        let tables = unite::tables().map_err(|error| sql("make the schema", &error))?;
        let mut parts: Vec<Part> = Vec::new();
        for (number, path) in files.iter().enumerate() {
            let database = format!("d{number}");
            attach(&connection, path, &database)?;
            let suffixes =
                suffixes(&connection, &database).map_err(|error| unreadable(path, error))?;
            if suffixes.is_empty() {
                return Err(unreadable(path, "it has no tables of rocpd"));
            }
            for suffix in suffixes {
                if let Some(other) = parts.iter().find(|part| part.suffix == suffix) {
                    let other = other.path.display();
                    return Err(
                        unreadable(path, format!("it has the same session as {other}"))
                            .hint("name each session once"),
                    );
                }
                let mut part = Part {
                    database: database.clone(),
                    suffix,
                    path: path.clone(),
                    is_modern: false,
                };
                let names = tables.iter().map(|table| table.name.as_str());
                let further = [modern::CATEGORIES, unite::HIP_EVENTS];
                only_tables(&connection, &part, names.chain(further))?;
                let failed = |error: rusqlite::Error| unreadable(path, error);
                let columns = part.columns(&connection, "kernel_dispatch");
                if modern::is_modern(&columns.map_err(failed)?) {
                    modern::adapt(&connection, &part.database, &part.suffix).map_err(failed)?;
                    part.is_modern = true;
                }
                parts.push(part);
            }
        }
        Ok(Input {
            connection,
            parts,
            files: files.len(),
            _merged: merged,
        })
    }

    /// Returns the sessions.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }
}

/// Refuses a database in which the name of a table belongs to a view, to a virtual table, or to a table
/// with computed columns: reading it may have no end.
fn only_tables<'t>(
    connection: &Connection,
    part: &Part,
    tables: impl Iterator<Item = &'t str>,
) -> Result<(), Failure> {
    let others = format!(
        "SELECT COUNT(*) FROM {}.sqlite_master WHERE name = ?1 COLLATE NOCASE AND type <> 'index' \
         AND (type <> 'table' OR rootpage = 0)",
        part.database
    );
    let computed = format!(
        "SELECT COUNT(*) FROM pragma_table_xinfo(?1, '{}') WHERE hidden <> 0",
        part.database
    );
    for table in tables {
        let name = format!("rocpd_{table}{}", part.suffix);
        for question in [&others, &computed] {
            let found = connection.query_row(question, [&name], |row| row.get::<_, i64>(0));
            if found.map_err(|error| unreadable(&part.path, error))? != 0 {
                let why = format!("{name} is not a table with stored columns");
                return Err(unreadable(&part.path, why));
            }
        }
    }
    Ok(())
}

/// Returns the files that the user means.
pub(crate) fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    for path in paths {
        let found = std::fs::metadata(path).map_err(|error| unreadable(path, error))?;
        let inside = path.join(index::INDEX);
        if found.is_dir() && std::fs::metadata(&inside).is_ok_and(|found| found.is_file()) {
            files.extend(index::listed(&inside)?);
            continue;
        }
        if found.is_file() && index::is_index(path) {
            files.extend(index::listed(path)?);
            continue;
        }
        if !found.is_dir() {
            // Opening a pipe waits for a writer.
            if !found.is_file() {
                return Err(unreadable(path, "it is not a regular file"));
            }
            files.push(path.clone());
            continue;
        }
        let mut inside = Vec::new();
        let entries = std::fs::read_dir(path).map_err(|error| unreadable(path, error))?;
        for entry in entries {
            let file = entry.map_err(|error| unreadable(path, error))?.path();
            if file.extension().is_some_and(|end| end == "db") && file.is_file() {
                inside.push(file);
            }
        }
        if inside.is_empty() {
            return Err(unreadable(path, "the directory has no .db files"));
        }
        inside.sort();
        files.extend(inside);
    }
    Ok(files)
}

/// Returns a connection without files.
pub(crate) fn connect() -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_MEMORY
        | OpenFlags::SQLITE_OPEN_URI
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(":memory:", flags)?;
    prepare(&connection)?;
    Ok(connection)
}

/// Puts limits into force: whoever wrote a file wrote its views, too.
pub(crate) fn prepare(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, LONGEST)?;
    connection.query_row(MEMORY, [], |_| Ok(()))?;
    connection.execute_batch(
        "PRAGMA trusted_schema = OFF; PRAGMA temp_store = FILE; PRAGMA cache_size = -16384;",
    )?;
    let flags = FunctionFlags::SQLITE_UTF8
        | FunctionFlags::SQLITE_DETERMINISTIC
        | FunctionFlags::SQLITE_INNOCUOUS;
    connection.create_scalar_function("sqrt", 1, flags, |words| {
        let number: Option<f64> = words.get(0)?;
        Ok(number.filter(|number| *number >= 0.0).map(f64::sqrt))
    })
}

/// Attaches a file under a name, for reading only.
pub(crate) fn attach(connection: &Connection, path: &Path, name: &str) -> Result<(), Failure> {
    let attached = connection.execute(&format!("ATTACH ?1 AS {name}"), [address(path)]);
    attached.map_err(|error| unreadable(path, error))?;
    // SQLite reads the file at the first question.
    let question = format!("SELECT count(*) FROM {name}.sqlite_master");
    connection
        .query_row(&question, [], |_| Ok(()))
        .map_err(|error| unreadable(path, error))
}

/// Returns a file's address for SQLite, with which the file is only read.
fn address(path: &Path) -> String {
    let mut address = String::from("file:");
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'_' | b'-' => {
                address.push(char::from(*byte));
            }
            byte => address.push_str(&format!("%{byte:02X}")),
        }
    }
    address + "?mode=ro"
}

/// Returns what follows the names of the tables of each session in a file, in the file's order.
pub(crate) fn suffixes(connection: &Connection, database: &str) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare(&format!(
        "SELECT name FROM {database}.sqlite_master WHERE type = 'table' AND rootpage <> 0 AND name LIKE '{SESSION}%' ORDER BY rowid"
    ))?;
    let mut rows = statement.query([])?;
    let mut suffixes = Vec::new();
    while let Some(row) = rows.next()? {
        let name: String = row.get(0)?;
        suffixes.extend(name.strip_prefix(SESSION).map(str::to_owned));
    }
    Ok(suffixes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_any_bytes_is_an_address() {
        let path = Path::new("/a b/%?#c.db");
        assert_eq!(address(path), "file:/a%20b/%25%3F%23c.db?mode=ro");
    }
}
