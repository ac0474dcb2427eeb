//! Temporary views over the tables of all databases, with the names that one database has them
//! under. They may be limited to a window of the time.
//!
//! Databases of several versions are united by the names of columns. A column that a database
//! lacks is NULL there, or 0 where later columns of numbers have that default.

mod events;
pub(crate) use events::TABLE as HIP_EVENTS;

use crate::input::{Input, Part};
use crate::modern::PREFIX;
use crate::sql;
use crate::window::Window;
use midair_failure::{Failure, Kind};
use midair_output::{SchemaPart, rocpd_schema};
use rusqlite::Connection;
use std::collections::BTreeSet;

/// The most sessions in one view, because SQLite unites at most 500 tables.
const MOST_PARTS: usize = 400;

/// Makes the views. Of one file without a window its own views serve.
pub(crate) fn unite(input: &Input, window: Option<Window>) -> Result<(), Failure> {
    if input.files == 1 && window.is_none() {
        let alone = || {
            forget(&input.connection)?;
            match events::is_there(&input.connection)? {
                true => Ok(()),
                false => hip_events(input, None),
            }
        };
        return alone().map_err(|error| sql("unite the databases", &error));
    }
    own_views(input, window)
}

/// Makes the views, also of one file. No view of a file is asked, since it may have no end.
pub(crate) fn own_views(input: &Input, window: Option<Window>) -> Result<(), Failure> {
    forget(&input.connection).map_err(|error| sql("unite the databases", &error))?;
    if input.parts.len() > MOST_PARTS {
        let count = input.parts.len();
        return Err(Failure::new(
            Kind::Input,
            format!("cannot unite {count} sessions: at most {MOST_PARTS} are read together"),
        ));
    }
    make(input, window).map_err(|error| sql("unite the databases", &error))
}

/// Removes the views of an earlier query, which may have had another window.
fn forget(connection: &Connection) -> rusqlite::Result<()> {
    let mut statement = connection
        .prepare("SELECT name FROM sqlite_temp_master WHERE type = 'view' AND name NOT LIKE ?1")?;
    let others = format!("{PREFIX}%");
    let names = statement.query_map([others], |row| row.get::<_, String>(0))?;
    let names: rusqlite::Result<Vec<String>> = names.collect();
    for name in names? {
        connection.execute_batch(&format!("DROP VIEW temp.{}", quoted(&name)))?;
    }
    Ok(())
}

fn make(input: &Input, window: Option<Window>) -> rusqlite::Result<()> {
    let connection = &input.connection;
    for table in tables()? {
        connection.execute_batch(&view(connection, &input.parts, &table, window)?)?;
    }
    let views = rocpd_schema(SchemaPart::DataViews);
    connection.execute_batch(&views.replace("CREATE VIEW ", "CREATE TEMP VIEW "))?;
    hip_events(input, window)
}

/// Makes the view of HIP events. The views of the other tables exist, in the file or as temporary ones.
fn hip_events(input: &Input, window: Option<Window>) -> rusqlite::Result<()> {
    let table = Table::of(events::TABLE, &events::COLUMNS);
    let connection = &input.connection;
    connection.execute_batch(&view(connection, &input.parts, &table, window)?)?;
    connection.execute_batch(events::VIEW)
}

/// A table of a schema: its name, and its columns with their defaults.
pub(crate) struct Table {
    pub(crate) name: String,
    columns: Vec<(String, String)>,
}

impl Table {
    /// Returns a table whose columns have no defaults.
    fn of(name: &str, columns: &[&str]) -> Table {
        let columns = columns
            .iter()
            .map(|it| ((*it).to_owned(), "NULL".to_owned()));
        Table {
            name: name.to_owned(),
            columns: columns.collect(),
        }
    }
}

/// Returns the tables of midair's schema.
pub(crate) fn tables() -> rusqlite::Result<Vec<Table>> {
    let connection = Connection::open_in_memory()?;
    let schema = rocpd_schema(SchemaPart::Tables);
    connection.execute_batch(&schema.replace("{{uuid}}", "").replace("{{guid}}", ""))?;
    let mut statement = connection.prepare(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'rocpd_%' ORDER BY rowid",
    )?;
    let names = statement.query_map([], |row| row.get::<_, String>(0))?;
    let mut tables = Vec::new();
    for name in names {
        let name = name?;
        let mut columns = connection.prepare("SELECT name, type FROM pragma_table_info(?1)")?;
        let columns = columns.query_map([&name], |row| {
            let (name, kind): (String, String) = (row.get(0)?, row.get(1)?);
            // The two columns of graphs, which are 0 for work outside of graphs.
            let is_graph = name.starts_with("graph_");
            let default = if is_graph && kind.starts_with("INTEGER") {
                "0"
            } else {
                "NULL"
            };
            Ok((name, default.to_owned()))
        })?;
        let columns: rusqlite::Result<Vec<_>> = columns.collect();
        let Some(short) = name.strip_prefix("rocpd_") else {
            continue;
        };
        tables.push(Table {
            name: short.to_owned(),
            columns: columns?,
        });
    }
    Ok(tables)
}

/// Returns the statement that makes the view over one table of all parts.
fn view(
    connection: &Connection,
    parts: &[Part],
    table: &Table,
    window: Option<Window>,
) -> rusqlite::Result<String> {
    let mut all: Vec<(&Part, Vec<String>)> = Vec::new();
    for part in parts {
        all.push((part, part.columns(connection, &table.name)?));
    }
    // midair's columns, and then those that only other versions have.
    let mut names: Vec<(&str, &str)> = table
        .columns
        .iter()
        .map(|(name, default)| (name.as_str(), default.as_str()))
        .collect();
    let known: BTreeSet<&str> = names.iter().map(|(name, _)| *name).collect();
    let further = all.iter().flat_map(|(_, columns)| columns);
    let further: BTreeSet<&str> = further.map(String::as_str).collect();
    names.extend(further.difference(&known).map(|name| (*name, "NULL")));
    let limit = window.map_or(String::new(), |window| window.of_table(&table.name));
    let select = |(part, columns): &(&Part, Vec<String>)| {
        let value = |(name, default): &(&str, &str)| {
            let name = quoted(name);
            match columns.iter().any(|column| quoted(column) == name) {
                true => name,
                false => format!("{default} AS {name}"),
            }
        };
        let values: Vec<String> = names.iter().map(value).collect();
        match columns.is_empty() {
            true => format!("SELECT {} WHERE 0", values.join(", ")),
            false => format!(
                "SELECT {} FROM {}{limit}",
                values.join(", "),
                part.table(&table.name)
            ),
        }
    };
    let selects: Vec<String> = all.iter().map(select).collect();
    Ok(format!(
        "CREATE TEMP VIEW rocpd_{} AS {}",
        table.name,
        selects.join(" UNION ALL ")
    ))
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
