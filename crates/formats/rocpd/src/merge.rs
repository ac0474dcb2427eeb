//! `rocpd merge`: many databases in one file, each session with its own tables, and views over all.

use crate::input::{attach, prepare, suffixes};
use crate::{sql, unreadable, unwritable};
use midair_failure::{Failure, Kind};
use midair_output::files::{Directory, OneFile};
use rusqlite::{Connection, OpenFlags};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The most sessions in one file, because SQLite unites at most 500 tables in a view.
const MOST_SESSIONS: usize = 400;

/// Merges these databases into one file, whose directory is made.
///
/// # Errors
/// When a database cannot be read, two have the same session or different schemas, or the file
/// cannot be written.
pub fn merge(paths: &[PathBuf], to: &Path) -> Result<(), Failure> {
    if let Some(directory) = to.parent().filter(|path| !path.as_os_str().is_empty()) {
        Directory::make(directory).map_err(|error| unwritable(directory, error))?;
    }
    let lost = |error: midair_output::WriteError| Failure::new(Kind::Output, error.to_string());
    let (mut set, file) = OneFile::reserve(to).map_err(lost)?;
    into(&crate::input::files(paths)?, &file.resolved())?;
    set.add_reserved(file);
    set.commit().map_err(lost).map(drop)
}

/// Merges these files into a new one, under the name that it has while it is written.
pub(crate) fn into(files: &[PathBuf], to: &Path) -> Result<(), Failure> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_URI
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let failed = |error: rusqlite::Error| unwritable(to, error);
    let connection = Connection::open_with_flags(to, flags).map_err(failed)?;
    prepare(&connection).map_err(failed)?;
    // The file gets its name when it is whole, so there is nothing to roll back.
    connection
        .execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA foreign_keys = OFF; PRAGMA writable_schema = OFF;")
        .map_err(failed)?;
    let mut sessions: BTreeMap<String, &Path> = BTreeMap::new();
    let mut versions: BTreeMap<String, &Path> = BTreeMap::new();
    let mut further: Vec<(String, String)> = Vec::new();
    for path in files {
        attach(&connection, path, "source")?;
        let unreadable = |error: rusqlite::Error| unreadable(path, error);
        let all = suffixes(&connection, "source").map_err(unreadable)?;
        if all.is_empty() {
            return Err(crate::unreadable(path, "it has no tables of rocpd"));
        }
        for suffix in all {
            let version = version(&connection, &suffix).map_err(unreadable)?;
            versions.entry(version).or_insert(path);
            if let Some(other) = sessions.insert(suffix, path) {
                let other = other.display();
                return Err(
                    crate::unreadable(path, format!("it has the same session as {other}"))
                        .hint("name each session once"),
                );
            }
        }
        check(sessions.len(), &versions)?;
        copy(&connection).map_err(unreadable)?;
        for view in views_of_source(&connection).map_err(unreadable)? {
            if !further.iter().any(|(name, _)| *name == view.0) {
                further.push(view);
            }
        }
        connection
            .execute_batch("DETACH source")
            .map_err(|error| sql("close the database", &error))?;
    }
    let suffixes: Vec<&str> = sessions.keys().map(String::as_str).collect();
    views(&connection, &suffixes, &further).map_err(failed)?;
    connection.close().map_err(|(_, error)| failed(error))
}

fn check(sessions: usize, versions: &BTreeMap<String, &Path>) -> Result<(), Failure> {
    if sessions > MOST_SESSIONS {
        return Err(Failure::new(
            Kind::Input,
            format!("cannot merge more than {MOST_SESSIONS} sessions"),
        ));
    }
    let mut all = versions.iter();
    if let (Some((first, one)), Some((second, other))) = (all.next(), all.next()) {
        return Err(Failure::new(
            Kind::Input,
            format!(
                "cannot merge databases of different schemas: {} has {first}, {} has {second}",
                one.display(),
                other.display()
            ),
        )
        .hint("rocpd convert reads databases of several schemas together"));
    }
    Ok(())
}

/// Returns the schema's version of a session, as the file names it.
fn version(connection: &Connection, suffix: &str) -> rusqlite::Result<String> {
    let suffix = suffix.replace('"', "\"\"");
    connection.query_row(
        &format!(
            "SELECT COALESCE(MAX(value), 'none') FROM source.\"rocpd_metadata{suffix}\" WHERE tag = 'schema_version'"
        ),
        [],
        |row| row.get(0),
    )
}

/// Copies all tables of rocpd and their indexes.
fn copy(connection: &Connection) -> rusqlite::Result<()> {
    let mut statement = connection.prepare(
        "SELECT type, name, sql FROM source.sqlite_master WHERE type IN ('table', 'index') \
         AND tbl_name LIKE 'rocpd_%' AND sql IS NOT NULL AND rootpage <> 0 ORDER BY type = 'index', rowid",
    )?;
    let all = statement.query_map([], |row| {
        Ok((
            row.get::<_, String>(0)?,
            row.get::<_, String>(1)?,
            row.get::<_, String>(2)?,
        ))
    })?;
    let all: rusqlite::Result<Vec<_>> = all.collect();
    drop(statement);
    connection.execute_batch("BEGIN")?;
    for (kind, name, declared) in all? {
        create(connection, &declared)?;
        if kind == "table" {
            let name = name.replace('"', "\"\"");
            connection.execute_batch(&format!(
                "INSERT INTO main.\"{name}\" SELECT * FROM source.\"{name}\""
            ))?;
        }
    }
    connection.execute_batch("COMMIT")
}

/// Makes a view over each table of all sessions, and the views for people that the databases have.
fn views(
    connection: &Connection,
    suffixes: &[&str],
    further: &[(String, String)],
) -> rusqlite::Result<()> {
    let mut statement = connection
        .prepare("SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'rocpd_%'")?;
    let names = statement.query_map([], |row| row.get::<_, String>(0))?;
    let names: rusqlite::Result<BTreeSet<String>> = names.collect();
    let names = names?;
    let short: BTreeSet<&str> = names
        .iter()
        .filter_map(|name| suffixes.iter().find_map(|suffix| name.strip_suffix(suffix)))
        .collect();
    connection.execute_batch("BEGIN")?;
    for name in short {
        connection.execute_batch(&view(name, suffixes, &names))?;
    }
    for (_, declared) in further {
        create(connection, declared)?;
    }
    connection.execute_batch("COMMIT; PRAGMA analysis_limit = 400; ANALYZE;")
}

/// Runs a statement of a file's schema. Whoever wrote the file may have written anything there, so
/// only the first statement of the text runs, and only if it makes something.
fn create(connection: &Connection, declared: &str) -> rusqlite::Result<()> {
    let is_one = declared
        .get(..7)
        .is_some_and(|word| word.eq_ignore_ascii_case("CREATE "));
    if is_one {
        connection.prepare(declared)?.execute([])?;
    }
    Ok(())
}

/// Returns the names and declarations of the views for people.
fn views_of_source(connection: &Connection) -> rusqlite::Result<Vec<(String, String)>> {
    let mut statement = connection.prepare(
        "SELECT name, sql FROM source.sqlite_master WHERE type = 'view' AND name NOT LIKE 'rocpd_%' \
         AND sql IS NOT NULL ORDER BY rowid",
    )?;
    let all = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    all.collect()
}

fn view(name: &str, suffixes: &[&str], tables: &BTreeSet<String>) -> String {
    let of_each = suffixes.iter().filter_map(|suffix| {
        let table = format!("{name}{suffix}");
        let is_there = tables.contains(&table);
        is_there.then(|| format!("SELECT * FROM \"{}\"", table.replace('"', "\"\"")))
    });
    let all: Vec<String> = of_each.collect();
    format!(
        "CREATE VIEW \"{}\" AS {};\n",
        name.replace('"', "\"\""),
        all.join(" UNION ALL ")
    )
}
