//! The answer of a query on the terminal or in a file.
//!
//! An answer is read row by row, however long it is. Columns on the terminal are aligned, so there
//! the query runs twice: once for the widths.

use crate::text::{blob, real, shown, title};
use crate::{sql, unwritable};
use midair_failure::{Failure, Kind, plain};
use midair_output::files::{Directory, OneFile};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row, Statement};
use std::path::PathBuf;

/// Bytes that are gathered before they are written.
const BLOCK: usize = 64 << 10;

/// A form of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Aligned columns, for people.
    Console,
    /// Comma-separated values: texts are quoted, numbers are not, headings are in title case.
    Csv,
    /// A list of objects.
    Json,
    /// A table.
    Html,
    /// A table in Markdown.
    Markdown,
}

impl Format {
    /// Returns the format with AMD's name of it.
    ///
    /// # Errors
    /// [`Kind::NotBuilt`] for a format that only AMD's command writes, [`Kind::Usage`] otherwise.
    pub fn of(name: &str) -> Result<Format, Failure> {
        Ok(match name.to_ascii_lowercase().as_str() {
            "console" => Format::Console,
            "csv" => Format::Csv,
            "json" => Format::Json,
            "html" => Format::Html,
            "md" => Format::Markdown,
            other @ ("pdf" | "dashboard" | "clipboard") => {
                return Err(Failure::new(
                    Kind::NotBuilt,
                    format!("the format {other} is not built"),
                )
                .hint("use console, csv, json, html or md"));
            }
            other => {
                return Err(
                    Failure::new(Kind::Usage, format!("there is no format {other}"))
                        .hint("use console, csv, json, html or md"),
                );
            }
        })
    }

    fn extension(self) -> &'static str {
        match self {
            Format::Console => "",
            Format::Csv => "csv",
            Format::Json => "json",
            Format::Html => "html",
            Format::Markdown => "md",
        }
    }
}

/// Where answers go.
#[derive(Debug, Clone)]
pub struct Target {
    /// The form.
    pub format: Format,
    /// The directory of files, which is made.
    pub directory: PathBuf,
    /// The name of the file, without its extension.
    pub name: String,
}

/// What has become of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exported {
    /// There are no rows, so nothing was written.
    Empty,
    /// It was printed.
    Printed,
    /// It is in this file.
    File(PathBuf),
}

/// Runs a query and writes its answer. Lines for the terminal go to `print`.
///
/// # Errors
/// When the query cannot be run, or the file cannot be written.
pub fn export(
    connection: &Connection,
    query: &str,
    target: &Target,
    print: &mut dyn FnMut(&str),
) -> Result<Exported, Failure> {
    let failed = |error: rusqlite::Error| sql("run the query", &error).hint(SCHEMA);
    let prepared = connection.prepare(query);
    let mut statement = prepared.map_err(|error| {
        Failure::new(Kind::Usage, format!("cannot run the query: {error}")).hint(SCHEMA)
    })?;
    let headings: Vec<String> = statement.column_names().map(str::to_owned).collect();
    if headings.is_empty() {
        statement.execute([]).map_err(failed)?;
        return Ok(Exported::Empty);
    }
    if target.format == Format::Console {
        return console(&mut statement, &headings, print).map_err(failed);
    }
    let mut rows = statement.query([]).map_err(failed)?;
    let Some(mut row) = rows.next().map_err(failed)? else {
        return Ok(Exported::Empty);
    };
    Directory::make(&target.directory).map_err(|error| unwritable(&target.directory, error))?;
    let end = format!(".{}", target.format.extension());
    let name = match target.name.ends_with(&end) {
        true => target.name.clone(),
        false => target.name.clone() + &end,
    };
    let path = target.directory.join(name);
    let mut file = OneFile::create(&path).map_err(lost)?;
    let mut text = begin(target.format, &headings);
    let mut first = true;
    loop {
        put(target.format, &headings, row, first, &mut text).map_err(failed)?;
        first = false;
        if text.len() > BLOCK {
            file.put(text.as_bytes()).map_err(lost)?;
            text.clear();
        }
        match rows.next().map_err(failed)? {
            Some(next) => row = next,
            None => break,
        }
    }
    text.push_str(match target.format {
        Format::Json => "\n]\n",
        Format::Html => "  </tbody>\n</table>\n",
        _ => "",
    });
    file.put(text.as_bytes()).map_err(lost)?;
    file.finish().map_err(lost)?;
    Ok(Exported::File(path))
}

/// What helps if a query cannot be run.
const SCHEMA: &str = "midair show FILE names the tables and views of a database";

fn lost(error: midair_output::WriteError) -> Failure {
    Failure::new(Kind::Output, error.to_string())
}

fn console(
    statement: &mut Statement<'_>,
    headings: &[String],
    print: &mut dyn FnMut(&str),
) -> rusqlite::Result<Exported> {
    let cell = |row: &Row<'_>, column: usize| -> rusqlite::Result<String> {
        let text = shown(row.get_ref(column)?);
        Ok(plain::line(&text).into_owned())
    };
    let width = |text: &str| text.chars().count();
    let mut widths: Vec<usize> = headings.iter().map(|heading| width(heading)).collect();
    let mut rows = statement.query([])?;
    let mut is_empty = true;
    while let Some(row) = rows.next()? {
        is_empty = false;
        for (column, widest) in widths.iter_mut().enumerate() {
            *widest = (*widest).max(width(&cell(row, column)?));
        }
    }
    if is_empty {
        return Ok(Exported::Empty);
    }
    let line = |cells: &[String]| {
        let cells = cells.iter().zip(&widths);
        let padded =
            cells.map(|(cell, wide)| cell.clone() + &" ".repeat(wide - width(cell).min(*wide)));
        let line: Vec<String> = padded.collect();
        line.join("  ").trim_end().to_owned()
    };
    let clean: Vec<String> = headings
        .iter()
        .map(|heading| plain::line(heading).into_owned())
        .collect();
    print(&line(&clean));
    drop(rows);
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let cells: rusqlite::Result<Vec<String>> = (0..headings.len())
            .map(|column| cell(row, column))
            .collect();
        print(&line(&cells?));
    }
    Ok(Exported::Printed)
}

fn begin(format: Format, headings: &[String]) -> String {
    let mut text = String::new();
    match format {
        Format::Console => {}
        Format::Csv => {
            let all: Vec<String> = headings.iter().map(|it| quoted(&title(it))).collect();
            text = all.join(",") + "\n";
        }
        Format::Json => text.push('['),
        Format::Html => {
            text.push_str("<table border=\"1\" class=\"dataframe\">\n  <thead>\n    <tr>\n");
            for heading in headings {
                text.push_str(&format!("      <th>{}</th>\n", escaped(heading)));
            }
            text.push_str("    </tr>\n  </thead>\n  <tbody>\n");
        }
        Format::Markdown => {
            text = format!("| {} |\n|", headings.join(" | "));
            text.push_str(&"---|".repeat(headings.len()));
            text.push('\n');
        }
    }
    text
}

fn put(
    format: Format,
    headings: &[String],
    row: &Row<'_>,
    first: bool,
    text: &mut String,
) -> rusqlite::Result<()> {
    match format {
        Format::Console => {}
        Format::Csv => {
            for column in 0..headings.len() {
                if column > 0 {
                    text.push(',');
                }
                match row.get_ref(column)? {
                    ValueRef::Null => text.push_str("\"\""),
                    value @ (ValueRef::Integer(_) | ValueRef::Real(_)) => {
                        text.push_str(&shown(value));
                    }
                    value => text.push_str(&quoted(&shown(value))),
                }
            }
            text.push('\n');
        }
        Format::Json => {
            text.push_str(if first { "\n  {" } else { ",\n  {" });
            for (column, heading) in headings.iter().enumerate() {
                text.push_str(if column > 0 { ",\n    " } else { "\n    " });
                text.push_str(&json(heading));
                text.push_str(": ");
                match row.get_ref(column)? {
                    ValueRef::Null => text.push_str("null"),
                    ValueRef::Integer(number) => text.push_str(&number.to_string()),
                    ValueRef::Real(number) if number.is_infinite() => {
                        text.push_str(if number > 0.0 { "1e999" } else { "-1e999" });
                    }
                    ValueRef::Real(number) => text.push_str(&real(number)),
                    ValueRef::Text(bytes) => text.push_str(&json(&String::from_utf8_lossy(bytes))),
                    ValueRef::Blob(bytes) => text.push_str(&json(&blob(bytes))),
                }
            }
            text.push_str("\n  }");
        }
        Format::Html => {
            text.push_str("    <tr>\n");
            for column in 0..headings.len() {
                let cell = shown(row.get_ref(column)?);
                text.push_str(&format!("      <td>{}</td>\n", escaped(&cell)));
            }
            text.push_str("    </tr>\n");
        }
        Format::Markdown => {
            let cells: rusqlite::Result<Vec<String>> = (0..headings.len())
                .map(|column| Ok(shown(row.get_ref(column)?).replace(['\n', '\r'], " ")))
                .collect();
            text.push_str(&format!("| {} |\n", cells?.join(" | ")));
        }
    }
    Ok(())
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}

fn json(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
