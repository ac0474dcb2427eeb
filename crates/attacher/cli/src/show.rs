//! `midair show`: a result as a table.

use crate::report::Report;
use clap::{Arg, ArgAction, ArgMatches, Command};
use midair_compute::show::{self, Options, Rows};
use midair_failure::{Failure, Kind, plain};
use midair_output::distinct_labels;
use std::path::PathBuf;

/// The text below `midair show --help`. It is here since `help` knows all commands.
pub(crate) const HELP: &str = "\
Examples:
  midair show 4242_results.db                   kernels by their time
  midair show 4242_results.db --table kernels   a table or view of the database
  midair show 4242_kernel_trace.csv --limit 10  the first rows of a file
  midair show results                           the kernels of all results";

/// The rows of a table, unless the user says otherwise.
const ROWS: &str = "50";
/// The most rows that may be asked for.
const MOST_ROWS: u64 = 1_000_000;
/// The space between two columns.
const GAP: usize = 2;
/// The width to which the widest columns are cut on a narrow terminal.
const NARROW: usize = 24;

/// The clap command.
pub(crate) fn command() -> Command {
    Command::new("show")
        .about("Print a result as a table: a .db, .csv, .parquet or .json file, or a directory of them")
        .long_about(
            "Print a result as a table. Of a database (.db), a json file or a directory of results these are the kernels by the time that they \
             took; of a csv or Parquet file the rows. A result may come from another user: nothing in it is believed.",
        )
        .args_override_self(true)
        .after_help(HELP)
        .arg(
            Arg::new("FILE")
                .required(true)
                .value_parser(clap::value_parser!(PathBuf))
                .help("Result to show: a file, or a directory of results"),
        )
        .arg(
            Arg::new("table")
                .long("table")
                .value_name("NAME")
                .help("Show this table or view of a database, or the one file of a directory with this kind of records (kernel_trace)"),
        )
        .arg(
            Arg::new("limit")
                .long("limit")
                .value_name("ROWS")
                .value_parser(clap::value_parser!(u64).range(1..=MOST_ROWS))
                .default_value(ROWS)
                .help("Show at most this number of rows, and say how many are left out"),
        )
        .arg(
            Arg::new("wide")
                .long("wide")
                .action(ArgAction::SetTrue)
                .help("Show all columns in full, whatever the terminal's width; the default when standard output is no terminal"),
        )
}

/// Prints a result. Returns the exit code.
pub(crate) fn run(matches: &ArgMatches, report: Report) -> Result<u8, Failure> {
    let path = matches
        .get_one::<PathBuf>("FILE")
        .ok_or_else(|| Failure::new(Kind::Usage, "no file is named"))?;
    let limit = matches
        .get_one::<u64>("limit")
        .copied()
        .unwrap_or(MOST_ROWS);
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let options = Options {
        table: matches.get_one::<String>("table").cloned(),
        limit,
    };
    let shown = {
        let _progress = report.progress("reading");
        show::show(path, &options)?
    };
    let wide = matches.get_flag("wide");
    let mut style = report.table_style();
    style.rows = limit;
    style.whole_names |= wide;
    for section in &shown.sections {
        report.table(&section.text(style));
    }
    if let Some(rows) = &shown.rows {
        let columns = report.columns().filter(|_| !wide);
        let (lines, hidden) = aligned(rows, columns, style.unicode);
        for line in lines {
            report.line(&line);
        }
        match rows.left_out {
            0 if rows.rows.is_empty() => report.note("there are no rows"),
            0 => {}
            left => {
                let left = plain::counted(left, "more row is", "more rows are");
                report.note(&format!("{left} left out; --limit N shows more"));
            }
        }
        if !hidden.is_empty() {
            let columns = plain::counted(hidden.len(), "column does", "columns do");
            let names = hidden.join(", ");
            report.note(&format!("{columns} not fit: {names}; --wide shows all"));
        }
    }
    for note in &shown.notes {
        report.note(note);
    }
    Ok(0)
}

/// Returns a line for the headings and for each row, and the names of the columns that do not fit a
/// terminal with so many columns. Those whose values are all the same are left out first.
fn aligned(rows: &Rows, columns: Option<usize>, unicode: bool) -> (Vec<String>, Vec<String>) {
    let clean = |text: &String| plain::line(text).into_owned();
    let headings: Vec<String> = rows.headings.iter().map(clean).collect();
    // A column at a time, since a column is cut, left out or aligned as a whole.
    let column = |at: usize| -> Vec<String> {
        let values = rows.rows.iter().map(|row| row.get(at).map(clean));
        values.map(Option::unwrap_or_default).collect()
    };
    let mut all: Vec<Column> = (0..headings.len())
        .zip(&headings)
        .map(|(at, heading)| Column::of(heading, column(at)))
        .collect();
    let mut hidden = Vec::new();
    if let Some(width) = columns {
        fit(&mut all, width, unicode, &mut hidden);
    }
    let mut lines = Vec::with_capacity(rows.rows.len() + 1);
    lines.push(line(all.iter().map(|column| (column, &column.heading))));
    for row in 0..rows.rows.len() {
        let values = all.iter().map(|column| (column, column.values.get(row)));
        lines.push(line(
            values.filter_map(|(column, value)| Some((column, value?))),
        ));
    }
    (lines, hidden)
}

struct Column {
    heading: String,
    values: Vec<String>,
    width: usize,
    /// Whether all values are numbers, which end below each other.
    numbers: bool,
}

impl Column {
    fn of(heading: &str, values: Vec<String>) -> Column {
        let lengths = values.iter().map(|value| value.chars().count());
        Column {
            width: lengths.max().unwrap_or(0).max(heading.chars().count()),
            numbers: !values.is_empty()
                && values
                    .iter()
                    .all(|value| value.is_empty() || value.parse::<f64>().is_ok()),
            heading: heading.to_owned(),
            values,
        }
    }

    fn is_constant(&self) -> bool {
        let mut values = self.values.iter();
        let first = values.next();
        self.values.len() > 1 && values.all(|value| Some(value) == first)
    }
}

/// Makes columns fit: leaves out those that say the same in each row, cuts long texts, and leaves out
/// the last ones, numbers first.
fn fit(all: &mut Vec<Column>, width: usize, unicode: bool, hidden: &mut Vec<String>) {
    let taken = |all: &[Column]| -> usize {
        let widths = all.iter().map(|column| column.width + GAP);
        widths.sum::<usize>().saturating_sub(GAP)
    };
    if taken(all) > width && all.iter().any(|column| !column.is_constant()) {
        let (same, rest): (Vec<_>, Vec<_>) = all.drain(..).partition(Column::is_constant);
        hidden.extend(names(&same));
        *all = rest;
    }
    let long = |column: &&mut Column| !column.numbers && column.width > NARROW;
    while let over @ 1.. = taken(all).saturating_sub(width) {
        let widest = all
            .iter_mut()
            .filter(long)
            .max_by_key(|column| column.width);
        let Some(widest) = widest else {
            break;
        };
        let width = widest.width.saturating_sub(over).max(NARROW);
        let values: Vec<&str> = widest.values.iter().map(String::as_str).collect();
        widest.values = distinct_labels(&values, width, unicode);
        widest.heading = widest.heading.chars().take(width).collect();
        widest.width = width;
    }
    while all.len() > 1 && taken(all) > width {
        let number = all.iter().rposition(|column| column.numbers);
        let column = all.remove(number.unwrap_or(all.len() - 1));
        hidden.push(column.heading);
    }
}

fn names(columns: &[Column]) -> impl Iterator<Item = String> {
    columns.iter().map(|column| column.heading.clone())
}

fn line<'a>(values: impl Iterator<Item = (&'a Column, &'a String)>) -> String {
    let mut line = String::new();
    for (column, value) in values {
        let space = column.width.saturating_sub(value.chars().count());
        let space = " ".repeat(space);
        match column.numbers {
            true => line.push_str(&format!("{space}{value}")),
            false => line.push_str(&format!("{value}{space}")),
        }
        line.push_str("  ");
    }
    line.truncate(line.trim_end().len());
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(all: &[&[&str]]) -> Rows {
        let mut all = all.iter().map(|row| row.iter().map(|it| (*it).to_owned()));
        Rows {
            headings: all.next().unwrap().collect(),
            rows: all.map(Iterator::collect).collect(),
            left_out: 0,
        }
    }

    #[test]
    fn columns_are_aligned_and_obey_no_terminal() {
        let rows = rows(&[
            &["Kind", "Name", "Start"],
            &["K", "vadd(float*, int)", "9"],
            &["K", "a\x1b[2Jb", "1234"],
        ]);
        let (lines, hidden) = aligned(&rows, None, true);
        assert_eq!(
            lines,
            [
                "Kind  Name               Start",
                "K     vadd(float*, int)      9",
                "K     a\u{fffd}[2Jb              1234",
            ]
        );
        assert!(hidden.is_empty());
        // The same on a terminal that is wide enough.
        assert_eq!(aligned(&rows, Some(30), true).0, lines);
    }

    #[test]
    fn a_narrow_terminal_has_whole_lines() {
        let long = "void gemm<float, 128, 64, 32, true, false>(float const*, float const*, float*)";
        let rows = rows(&[
            &["Kind", "Name", "Start", "End", "Note"],
            &["KERNEL_DISPATCH", long, "1", "1234567890", "x"],
            &["KERNEL_DISPATCH", "short", "5", "1234567891", "y"],
        ]);
        let (lines, hidden) = aligned(&rows, Some(60), true);
        assert!(
            lines.iter().all(|line| line.chars().count() <= 60),
            "{lines:?}"
        );
        assert_eq!(hidden, ["Kind"]);
        assert!(
            lines[1].contains('…') && lines[1].ends_with('x'),
            "{lines:?}"
        );
        let (lines, hidden) = aligned(&rows, Some(32), true);
        assert!(
            lines.iter().all(|line| line.chars().count() <= 32),
            "{lines:?}"
        );
        assert_eq!(hidden, ["Kind", "End", "Start"]);
    }
}
