//! Parquet files.

use super::{MOST_COLUMNS, Rows, Times, cell, damaged};
use crate::files;
use midair_columns::read::{Table, Value};
use midair_failure::Failure;
use std::path::Path;

fn open(path: &Path) -> Result<Table, Failure> {
    let table = files::open(path).and_then(Table::open);
    let table = table.map_err(|error| damaged(path, error))?;
    match table.names().len() <= MOST_COLUMNS {
        true => Ok(table),
        false => Err(damaged(path, "it has too many columns")),
    }
}

fn text(value: Value) -> String {
    match value {
        Value::None => String::new(),
        Value::Number(number) => number.to_string(),
        Value::Text(text) => cell(&text),
    }
}

/// Returns the first rows of a file.
pub(super) fn rows(path: &Path, limit: usize) -> Result<Rows, Failure> {
    let table = open(path)?;
    let names = table.names().iter().map(|name| cell(name));
    let mut found = Rows::of(names.collect());
    let read = table.each(&mut |row| {
        if found.rows.len() < limit {
            found.rows.push(row.into_iter().map(text).collect());
        }
        found.rows.len() < limit
    });
    read.map_err(|error| damaged(path, error))?;
    found.left_out = table.rows().saturating_sub(found.rows.len() as u64);
    Ok(found)
}

/// Sums up the kernels of a file.
pub(super) fn kernels(path: &Path, times: &mut Times) -> Result<(), Failure> {
    let table = open(path)?;
    let place = |wanted: &str| table.names().iter().position(|name| name == wanted);
    let [Some(name), Some(start), Some(end)] = ["name", "start_ns", "end_ns"].map(place) else {
        return Err(damaged(
            path,
            "it has no columns of kernels and their times",
        ));
    };
    let read = table.each(&mut |row| {
        let time = |at: usize| match row.get(at) {
            Some(Value::Number(time)) => *time,
            _ => 0,
        };
        if let Some(Value::Text(name)) = row.get(name) {
            times.count(name, time(start), time(end));
        }
        true
    });
    read.map_err(|error| damaged(path, error))
}
