//! Results as tables of text, for `midair show`: a database, a directory or a json file by its kernels,
//! other files by their rows.
//!
//! The first bytes of a file say what it is. Nothing in it is believed: rows, columns, names, sizes and
//! the time to read have limits, and a file that contradicts itself is refused.

mod columnar;
mod database;
mod delimited;
mod directory;
mod document;

use crate::files;
use crate::read::unusable;
use midair_failure::Failure;
use midair_output::table::Section;
use midair_output::{Stat, short_names};
use std::collections::HashMap;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The most characters of a value that are shown.
const LONGEST: usize = 4096;
/// The most columns that a table may have.
const MOST_COLUMNS: usize = 4096;
/// How many bytes say what a file is.
const HEAD: u64 = 4096;
/// What helps if a path leads to no result.
const RESULTS: &str = "midair show FILE: a .db, .csv, .parquet or .json file of midair's, or a directory of such files";

/// What is to be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The table of a database, or the kind of file in a directory. None for the summary of kernels.
    pub table: Option<String>,
    /// The most rows.
    pub limit: usize,
}

/// What there is to print.
#[derive(Debug, Default)]
pub struct Shown {
    /// Names by the time that they took.
    pub sections: Vec<Section>,
    /// The rows of a table.
    pub rows: Option<Rows>,
    /// What the reader should know, in sentences.
    pub notes: Vec<String>,
}

/// Rows of a table.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Rows {
    /// The names of the columns.
    pub headings: Vec<String>,
    /// The values.
    pub rows: Vec<Vec<String>>,
    /// How many rows follow that are not shown.
    pub left_out: u64,
}

impl Rows {
    fn of(headings: Vec<String>) -> Rows {
        Rows {
            headings,
            ..Rows::default()
        }
    }
}

/// Reads a result.
///
/// # Errors
/// When a file is missing or damaged, or is none of midair's: names it, and the reason. When there is
/// no table of the name that was asked for.
pub fn show(path: &Path, options: &Options) -> Result<Shown, Failure> {
    if files::is_directory(&files::named(path)) {
        return directory::show(path, options);
    }
    let sort = sort(path)?;
    let table = options.table.as_deref();
    if let (Some(table), Sort::Csv | Sort::Parquet | Sort::Json) = (table, &sort) {
        return Err(Failure::new(
            midair_failure::Kind::Usage,
            format!("{} has no table {table}", path.display()),
        )
        .hint("leave --table out: it chooses among the tables of a database or a directory"));
    }
    match (sort, table) {
        (Sort::Database, Some(table)) => database::table(path, table, options.limit),
        (Sort::Database, None) => database::show(path, options.limit),
        (Sort::Csv, _) => Ok(rows(delimited::rows(path, options.limit)?)),
        (Sort::Parquet, _) => Ok(rows(columnar::rows(path, options.limit)?)),
        (Sort::Json, _) => document::show(path),
    }
}

fn rows(rows: Rows) -> Shown {
    Shown {
        rows: Some(rows),
        ..Shown::default()
    }
}

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sort {
    Database,
    Csv,
    Parquet,
    Json,
}

/// Returns what a file is, by its first bytes.
fn sort(path: &Path) -> Result<Sort, Failure> {
    let cannot = |error: &dyn std::fmt::Display| {
        unusable(format!("cannot read {}: {error}", path.display())).hint(RESULTS)
    };
    let file = files::open(path).map_err(|error| cannot(&error))?;
    let mut head = Vec::new();
    let read = file.take(HEAD).read_to_end(&mut head);
    read.map_err(|error| cannot(&error))?;
    let first = head.iter().find(|byte| !byte.is_ascii_whitespace());
    let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let is_text = !head.contains(&0);
    let ends = |end: &str| path.extension().is_some_and(|found| found == end);
    if head.is_empty() {
        return Err(cannot(&"it is empty"));
    }
    for (end, how) in [
        ("pftrace", "open it at https://ui.perfetto.dev"),
        ("html", "open it in a browser"),
        ("otf2", "open it in Vampir, or with otf2-print"),
    ] {
        if ends(end) {
            return Err(cannot(&format!("{end} files have no tables")).hint(how));
        }
    }
    match first {
        _ if head.starts_with(b"SQLite format 3\0") => Ok(Sort::Database),
        _ if head.starts_with(b"PAR1") => Ok(Sort::Parquet),
        Some(b'{' | b'[') if is_text => Ok(Sort::Json),
        _ if is_text && (ends("csv") || line.contains(&b',')) => Ok(Sort::Csv),
        _ => Err(cannot(
            &"it is no database, csv, Parquet or json file of midair's",
        )),
    }
}

/// Returns a value as it is shown: the first [`LONGEST`] characters.
fn cell(text: &str) -> String {
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// Names by the time that they took.
#[derive(Debug, Default)]
struct Times {
    by_name: HashMap<String, Stat>,
    untimed: u64,
}

impl Times {
    /// Counts a start and an end at these nanoseconds. Zeros are no times.
    fn count(&mut self, name: &str, start: i64, end: i64) {
        if start <= 0 || end < start {
            self.untimed = self.untimed.saturating_add(1);
            return;
        }
        let stat = match self.by_name.get_mut(name) {
            Some(stat) => stat,
            None => self.by_name.entry(name.to_owned()).or_default(),
        };
        stat.count(end.abs_diff(start));
    }

    fn is_empty(&self) -> bool {
        self.by_name.is_empty() && self.untimed == 0
    }

    /// Adds the table to what is shown.
    fn put(self, title: &str, shown: &mut Shown) {
        let timed = self.by_name.values().map(|stat| stat.calls);
        let all = timed.fold(self.untimed, u64::saturating_add);
        if self.untimed > 0 {
            let untimed = self.untimed;
            let note = format!("{untimed} of {all} were recorded without times");
            shown.notes.push(note);
        }
        let (names, stats): (Vec<String>, Vec<Stat>) = self.by_name.into_iter().unzip();
        let by_name = short_names(&names).into_iter().zip(stats).collect();
        shown.sections.push(Section::new(title, by_name));
    }
}

/// Reads the kernels of a file that is no database.
fn kernels(path: &Path, sort: Sort, times: &mut Times) -> Result<(), Failure> {
    match sort {
        Sort::Database => database::kernels(path, times),
        Sort::Csv => delimited::kernels(path, times),
        Sort::Parquet => columnar::kernels(path, times),
        Sort::Json => document::kernels(path, times),
    }
}

/// Returns the name of a file for people.
fn name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// Returns the failure of a file that contradicts itself.
fn damaged(path: &Path, why: impl std::fmt::Display) -> Failure {
    unusable(format!("cannot read {}: {why}", path.display()))
        .hint("the file is damaged, only half written, or none of midair's")
}

/// Returns a list of names in a line.
fn listed(names: impl Iterator<Item = String>) -> String {
    const MOST: usize = 24;
    let names: Vec<String> = names.take(MOST + 1).collect();
    match names.get(..MOST) {
        Some(first) if names.len() > MOST => format!("{}, ...", first.join(", ")),
        _ => names.join(", "),
    }
}

/// Returns the failure of a table that does not exist.
fn no_table(path: &Path, table: &str, names: impl Iterator<Item = String>) -> Failure {
    Failure::new(
        midair_failure::Kind::Usage,
        format!("{} has no table {table}", path.display()),
    )
    .hint(format!("--table NAME: {}", listed(names)))
}

#[cfg(test)]
mod tests;

/// Files in the order in which they are shown.
type Files = Vec<PathBuf>;
