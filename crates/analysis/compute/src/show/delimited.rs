//! Comma-separated files.

use super::{MOST_COLUMNS, Rows, Times, cell, damaged};
use crate::frame::field;
use crate::read::csv::{Lines, canonical, take_field, time};
use midair_failure::Failure;
use std::path::Path;

/// Returns the first rows of a file.
pub(super) fn rows(path: &Path, limit: usize) -> Result<Rows, Failure> {
    let mut lines = Lines::open(path)?;
    let headings = lines.next()?.and_then(fields);
    let Some(headings) = headings.filter(|found| found.iter().any(|it| !it.is_empty())) else {
        return Err(damaged(path, "its first line names no columns"));
    };
    let mut found = Rows::of(headings);
    while let Some(line) = lines.next()? {
        if line.is_empty() {
            continue;
        }
        if found.rows.len() == limit {
            found.left_out += 1;
            continue;
        }
        let row = fields(line).filter(|row| row.len() == found.headings.len());
        let Some(row) = row else {
            let (line, columns) = (lines.line, found.headings.len());
            let why =
                format!("line {line} has another number of values than the {columns} columns");
            return Err(damaged(path, why));
        };
        found.rows.push(row);
    }
    Ok(found)
}

/// Sums up the kernels of a trace.
pub(super) fn kernels(path: &Path, times: &mut Times) -> Result<(), Failure> {
    let mut lines = Lines::open(path)?;
    let headings = lines.next()?.and_then(fields).unwrap_or_default();
    let place = |wanted: &str| headings.iter().position(|it| canonical(it) == wanted);
    let wanted = [field::KERNEL, field::START, field::END].map(place);
    let [Some(kernel), Some(start), Some(end)] = wanted else {
        return Err(damaged(
            path,
            "it has no columns of kernels and their times",
        ));
    };
    let mut unquoted = Vec::new();
    while let Some(line) = lines.next()? {
        if line.is_empty() {
            continue;
        }
        let (mut rest, mut at) = (Some(line), 0);
        let (mut name, mut began, mut ended) = (String::new(), None, None);
        while let Some(word) = take_field(&mut rest, &mut unquoted) {
            let bytes = word.bytes(&unquoted);
            match at {
                _ if at == kernel => name = String::from_utf8_lossy(bytes).into_owned(),
                _ if at == start => began = time(bytes),
                _ if at == end => ended = time(bytes),
                _ => {}
            }
            at += 1;
        }
        if at != headings.len() {
            let why = format!("line {} is not complete", lines.line);
            return Err(damaged(path, why));
        }
        times.count(&name, began.unwrap_or(0), ended.unwrap_or(0));
    }
    Ok(())
}

/// Returns the values of a line; None if there are too many.
fn fields(line: &[u8]) -> Option<Vec<String>> {
    let (mut rest, mut unquoted, mut all) = (Some(line), Vec::new(), Vec::new());
    while let Some(word) = take_field(&mut rest, &mut unquoted) {
        if all.len() == MOST_COLUMNS {
            return None;
        }
        let text = String::from_utf8_lossy(word.bytes(&unquoted));
        all.push(cell(text.trim()));
    }
    Some(all)
}
