//! `midair flame --diff A B`: two recordings as one flame graph, and as a table of what has changed.

use crate::report::Report;
use clap::{Arg, ArgAction, ArgMatches, Command};
use midair_compute::stacks;
use midair_failure::{Failure, Kind, plain};
use midair_output::files::{Directory, OneFile};
use midair_output::table::duration;
use midair_output::{Difference, distinct_labels};
use midair_settings::Given;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The rows of the table, unless the user says otherwise.
const ROWS: u64 = 10;
/// The columns before the name.
const COLUMNS: usize = 34;
/// The width of names where there is no terminal.
const WIDE: usize = 200;

/// Adds the options to the command.
pub(crate) fn options(command: Command) -> Command {
    command
        .mut_arg("stacks-by", |by| by.visible_alias("by"))
        .arg(
            Arg::new("diff")
                .long("diff")
                .num_args(2)
                .value_names(["A", "B"])
                .conflicts_with_all(["PID", "pid"])
                .value_parser(clap::value_parser!(PathBuf))
                .help("Compare two recordings with stacks: files (.html, .db, .folded) or directories"),
        )
        .arg(
            Arg::new("normalize")
                .long("normalize")
                .action(ArgAction::SetTrue)
                .requires("diff")
                .help("With --diff: compare shares of the GPU time, as if both were equally long"),
        )
}

/// Whether the words ask for a comparison.
pub(crate) fn is_asked(matches: &ArgMatches) -> bool {
    matches.contains_id("diff")
}

/// Compares, prints and writes. Returns the exit code.
pub(crate) fn compare(matches: &ArgMatches, given: &Given, report: &Report) -> Result<u8, Failure> {
    let paths: Vec<&PathBuf> = matches.get_many("diff").into_iter().flatten().collect();
    let [before, after] = paths.as_slice() else {
        return Err(Failure::new(Kind::Usage, "--diff compares two recordings"));
    };
    let (difference, lines) = {
        let _progress = report.progress("reading");
        difference(before, after, matches.get_flag("normalize"))?
    };
    let rows = given.number("top").unwrap_or(ROWS);
    let rows = usize::try_from(rows).unwrap_or(usize::MAX);
    let width = report
        .columns()
        .map_or(WIDE, |columns| columns.saturating_sub(COLUMNS).max(20));
    let unicode = report.table_style().unicode;
    for line in table(&lines, difference.is_normalized, rows, (width, unicode)) {
        report.line(&line);
    }
    let directory = Path::new(given.text("output-directory").unwrap_or("."));
    let name = given.text("output-file").unwrap_or("flame");
    let file = directory.join(format!("{name}_diff.html"));
    let failed = |error: &dyn std::fmt::Display| {
        Failure::new(
            Kind::Output,
            format!("cannot write {}: {error}", file.display()),
        )
    };
    Directory::make(directory).map_err(|error| failed(&error))?;
    let written = OneFile::write_whole(&file, difference.page().as_bytes());
    written.map_err(|error| failed(&error))?;
    report.line(&plain::line(&file.display().to_string()));
    Ok(0)
}

/// The GPU's nanoseconds before and after, by line of code.
type Lines = BTreeMap<String, [u64; 2]>;

fn difference(
    before: &Path,
    after: &Path,
    is_normalized: bool,
) -> Result<(Difference, Lines), Failure> {
    let name = |path: &Path| plain::line(&path.display().to_string()).into_owned();
    let mut difference = Difference {
        names: [name(before), name(after)],
        is_normalized,
        ..Difference::default()
    };
    let mut lines = Lines::new();
    for (at, path) in [before, after].into_iter().enumerate() {
        let recorded = stacks::read(path)?;
        for (stack, time) in recorded.stacks {
            if let Some(sum) = difference.stacks.entry(stack).or_default().get_mut(at) {
                *sum = time;
            }
        }
        for (line, time) in recorded.lines {
            if let Some(sum) = lines.entry(line).or_default().get_mut(at) {
                *sum = time;
            }
        }
    }
    Ok((difference, lines))
}

/// Returns the lines of the table: lines of code by how much has changed. `look` is the width of names,
/// and whether they may have characters beyond ASCII.
fn table(lines: &Lines, is_normalized: bool, rows: usize, look: (usize, bool)) -> Vec<String> {
    let (width, unicode) = look;
    let time = |time: &u64| *time as f64;
    let parts = |(name, [before, after]): (&String, &[u64; 2])| {
        (plain::line(name).into_owned(), [time(before), time(after)])
    };
    let mut all: Vec<(String, [f64; 2])> = lines.iter().map(parts).collect();
    let sum = |at: usize| all.iter().filter_map(|(_, parts)| parts.get(at)).sum();
    let totals: [f64; 2] = [sum(0), sum(1)];
    let [before, after] = totals;
    let mut out = vec![format!(
        "GPU time {} before, {} after",
        duration(before),
        duration(after)
    )];
    let shown = |part: f64| match is_normalized {
        true => format!("{:.1}%", 100.0 * part),
        false => duration(part),
    };
    if is_normalized {
        for (part, total) in all
            .iter_mut()
            .flat_map(|(_, parts)| parts.iter_mut().zip(totals))
        {
            *part /= total.max(1.0);
        }
    }
    let change = |[before, after]: [f64; 2]| after - before;
    all.sort_by(|a, b| {
        let by_change = change(b.1).abs().total_cmp(&change(a.1).abs());
        by_change.then_with(|| a.0.cmp(&b.0))
    });
    let left_out = all.len().saturating_sub(rows);
    all.truncate(rows);
    let names: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
    let names = distinct_labels(&names, width, unicode);
    out.push(format!(
        "{:>10} {:>10} {:>11}  CODE",
        "BEFORE", "AFTER", "CHANGE"
    ));
    for ((_, parts), name) in all.iter().zip(names) {
        let [before, after] = *parts;
        let by = change(*parts);
        let sign = if by < 0.0 { '-' } else { '+' };
        let by = format!("{sign}{}", shown(by.abs()));
        out.push(format!(
            "{:>10} {:>10} {by:>11}  {name}",
            shown(before),
            shown(after)
        ));
    }
    if left_out > 0 {
        let more = plain::counted(left_out as u64, "more row", "more rows");
        out.push(format!("{more} with less change: --top N shows more"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_lines_by_change() {
        let lines = Lines::from([
            ("x.py:1 a".to_owned(), [2_000_000, 3_000_000]),
            ("x.py:2 b".to_owned(), [2_000_000, 0]),
            ("x.py:3 c".to_owned(), [4_000_000, 5_000_000]),
        ]);
        let wanted = [
            "GPU time 8.00 ms before, 8.00 ms after",
            "    BEFORE      AFTER      CHANGE  CODE",
            "   2.00 ms       0 ns    -2.00 ms  x.py:2 b",
            "   2.00 ms    3.00 ms    +1.00 ms  x.py:1 a",
            "1 more row with less change: --top N shows more",
        ];
        assert_eq!(table(&lines, false, 2, (40, false)), wanted);
        let shares = table(&lines, true, 1, (40, false));
        assert_eq!(shares[2], "     25.0%       0.0%      -25.0%  x.py:2 b");
    }
}
