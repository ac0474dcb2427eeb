//! Databases: rocpd files, and what other SQLite files have.

use super::{LONGEST, MOST_COLUMNS, Rows, Shown, Times, cell, damaged, no_table};
use crate::read::bound::wrong;
use crate::read::bound::{self, Database};
use midair_failure::Failure;
use midair_output::Stat;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension};
use std::path::Path;

/// The most memory that SQLite may take. A view may ask for any amount.
const MEMORY: &str = "PRAGMA hard_heap_limit = 1073741824";
/// The names of tables and views, those for people first.
const NAMES: &str = "SELECT name FROM sqlite_master WHERE name NOT LIKE 'sqlite%' AND \
                     (type = 'view' OR (type = 'table' AND rootpage <> 0)) ORDER BY name LIKE 'rocpd%', name LIMIT 1000";

/// What is summed up: the rows, the column that refers to their names, the names, and the name.
struct Sum {
    rows: &'static str,
    key: &'static str,
    names: &'static str,
    name: &'static str,
}

const KERNELS: Sum = Sum {
    rows: "kernel_dispatch",
    key: "kernel_id",
    names: "info_kernel_symbol",
    name: "COALESCE(s.display_name, s.kernel_name)",
};
const CALLS: Sum = Sum {
    rows: "region",
    key: "name_id",
    names: "string",
    name: "s.string",
};

fn open(path: &Path) -> Result<Database, Failure> {
    let database = bound::open(path)?;
    let limit = database.query_row(MEMORY, [], |_| Ok(()));
    limit.map_err(|error| wrong(path, &error))?;
    Ok(database)
}

/// Returns the kernels of a database by time, or else its calls. Of a database of another kind, the
/// names of its tables.
pub(super) fn show(path: &Path, limit: usize) -> Result<Shown, Failure> {
    let database = open(path)?;
    let mut shown = Shown::default();
    if bound::suffixes(&database, path)?.is_empty() {
        let mut rows = Rows::of(vec!["table".to_owned()]);
        let names = names(&database, path)?;
        rows.left_out = names.len().saturating_sub(limit) as u64;
        rows.rows = names
            .into_iter()
            .take(limit)
            .map(|name| vec![name])
            .collect();
        shown.rows = Some(rows);
        shown.notes.push("--table NAME prints a table".to_owned());
        return Ok(shown);
    }
    for (sum, title) in [(KERNELS, "KERNEL"), (CALLS, "CALL")] {
        let mut times = Times::default();
        add(&database, path, &sum, &mut times)?;
        if !times.is_empty() {
            times.put(title, &mut shown);
            break;
        }
    }
    if shown.sections.is_empty() {
        let note = "neither kernels nor calls were recorded".to_owned();
        shown.notes.push(note);
    }
    let views = names(&database, path)?.into_iter();
    let views: Vec<String> = views.filter(|name| !name.starts_with("rocpd")).collect();
    if !views.is_empty() {
        let views = super::listed(views.into_iter());
        shown
            .notes
            .push(format!("--table NAME prints a table: {views}"));
    }
    Ok(shown)
}

/// Sums up the kernels of a database.
pub(super) fn kernels(path: &Path, times: &mut Times) -> Result<(), Failure> {
    let database = open(path)?;
    add(&database, path, &KERNELS, times)
}

fn add(database: &Connection, path: &Path, sum: &Sum, times: &mut Times) -> Result<(), Failure> {
    let Sum {
        rows,
        key,
        names,
        name,
    } = sum;
    for suffix in bound::suffixes(database, path)? {
        bound::only_tables(database, &[rows, names], &suffix, path)?;
        let quoted = suffix.replace('"', "\"\"");
        // A dispatch without times has zeros. `total` does not overflow.
        let question = format!(
            "SELECT {name}, d.timed, d.total, d.low, d.high, d.untimed FROM \
             (SELECT {key}, guid, total(timed) AS timed, total(timed * took) AS total, \
              min(CASE WHEN timed THEN took END) AS low, max(CASE WHEN timed THEN took END) AS high, \
              total(NOT timed) AS untimed FROM \
              (SELECT {key}, guid, start > 0 AND \"end\" >= start AS timed, CAST(\"end\" - start AS REAL) AS took \
               FROM \"rocpd_{rows}{quoted}\") GROUP BY {key}, guid) AS d \
             LEFT JOIN \"rocpd_{names}{quoted}\" AS s ON s.id = d.{key} AND s.guid = d.guid"
        );
        let mut add = || {
            let mut statement = database.prepare(&question)?;
            let mut found = statement.query([])?;
            while let Some(row) = found.next()? {
                let number = |at: usize| -> rusqlite::Result<u64> {
                    // A number that a file invents saturates.
                    Ok(row.get::<_, Option<f64>>(at)?.unwrap_or(0.0) as u64)
                };
                let name = match row.get_ref(0)? {
                    ValueRef::Text(name) => String::from_utf8_lossy(name).into_owned(),
                    _ => "(a name that is not described)".to_owned(),
                };
                times.untimed = times.untimed.saturating_add(number(5)?);
                let stat = Stat {
                    calls: number(1)?,
                    total: number(2)?,
                    min: number(3)?,
                    max: number(4)?,
                    ..Stat::default()
                };
                if stat.calls > 0 {
                    times.by_name.entry(name).or_default().merge(&stat);
                }
            }
            Ok(())
        };
        add().map_err(|error: rusqlite::Error| wrong(path, &error))?;
    }
    Ok(())
}

fn names(database: &Connection, path: &Path) -> Result<Vec<String>, Failure> {
    let names = || {
        let mut statement = database.prepare(NAMES)?;
        let names = statement.query_map([], |row| row.get::<_, String>(0))?;
        names.map(|name| Ok(cell(&name?))).collect::<Result<_, _>>()
    };
    names().map_err(|error: rusqlite::Error| wrong(path, &error))
}

/// Returns the first rows of a table.
pub(super) fn table(path: &Path, table: &str, limit: usize) -> Result<Shown, Failure> {
    let database = open(path)?;
    let failed = |error: rusqlite::Error| wrong(path, &error);
    // A virtual table, which has no root, may be anything.
    let known = database.query_row(
        "SELECT name FROM sqlite_master WHERE name = ?1 COLLATE NOCASE AND (type = 'view' OR (type = 'table' AND rootpage <> 0))",
        [table],
        |row| row.get::<_, String>(0),
    );
    let Some(known) = known.optional().map_err(failed)? else {
        return Err(no_table(path, table, names(&database, path)?.into_iter()));
    };
    let quoted = known.replace('"', "\"\"");
    let mut statement = database
        .prepare(&format!("SELECT * FROM \"{quoted}\""))
        .map_err(failed)?;
    let headings: Vec<String> = statement.column_names().map(cell).collect();
    let width = headings.len();
    if width > MOST_COLUMNS {
        return Err(damaged(path, "it has too many columns"));
    }
    let mut found = Rows::of(headings);
    let mut rows = statement.query([]).map_err(failed)?;
    while let Some(row) = rows.next().map_err(failed)? {
        if found.rows.len() == limit {
            found.left_out = 1;
            break;
        }
        let values = (0..width).map(|at| row.get_ref(at).map(text));
        let values: rusqlite::Result<Vec<String>> = values.collect();
        found.rows.push(values.map_err(failed)?);
    }
    drop(rows);
    if found.left_out > 0 {
        let count = format!("SELECT count(*) FROM \"{quoted}\"");
        let count = database.query_row(&count, [], |row| row.get::<_, i64>(0));
        let count = count.map_err(failed)?;
        found.left_out = u64::try_from(count)
            .unwrap_or(0)
            .saturating_sub(found.rows.len() as u64);
    }
    Ok(super::rows(found))
}

fn text(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::Null => String::new(),
        ValueRef::Integer(number) => number.to_string(),
        ValueRef::Real(number) => number.to_string(),
        ValueRef::Text(text) => {
            // A character has at most four bytes.
            let first = text.get(..4 * LONGEST + 4).unwrap_or(text);
            cell(&String::from_utf8_lossy(first))
        }
        ValueRef::Blob(bytes) => format!("({} bytes)", bytes.len()),
    }
}
