//! The tables of `--summary`, `--summary-per-domain` and `--summary-groups`, as rocprofv3 prints
//! them.
//!
//! Columns, widths and number formats are AMD's, so that programs that read its tables can read
//! these. One thing differs: a name that occurs in two domains has a row in each, where AMD adds
//! both up under the first.

use crate::files::{FileSet, WriteError};
use crate::job::Job;
use crate::model::Plan;
use crate::options::{Console, SummaryTo, Unit};
use crate::stats::{self, DomainStats, exponent};
use midair_failure::plain;
use midair_trace::index::Stat;
use regex_lite::Regex;
use std::cmp::Reverse;
use std::fmt::Write;

/// The least width of the columns of names and domains.
const NAME: usize = 40;
const DOMAIN: usize = 12;
/// The number of characters of a row's other columns.
const NUMBERS: usize = 160;
/// The most characters of a table. Further rows are summed up in one.
const MOST_BYTES: usize = 16 << 20;
/// The indentation of every line on a console. In a file there is none.
const INDENT: &str = "    ";

/// Returns the tables for a console and which console it is, if they go to one.
pub(crate) fn console(jobs: &[Job<'_>], plan: &Plan) -> Option<(Console, String)> {
    match &plan.summary_to {
        SummaryTo::Console(console) => {
            let text = tables(jobs, plan, INDENT);
            (!text.is_empty()).then_some((*console, text))
        }
        SummaryTo::File(_) => None,
    }
}

/// Writes `PREFIX_NAME.txt`, if the tables go to a file.
pub(crate) fn write(jobs: &[Job<'_>], plan: &Plan, files: &mut FileSet) -> Result<(), WriteError> {
    let SummaryTo::File(name) = &plan.summary_to else {
        return Ok(());
    };
    let text = tables(jobs, plan, "");
    if text.is_empty() {
        return Ok(());
    }
    let mut file = files.create(&suffix(name))?;
    file.put(text.as_bytes())?;
    files.add(file)
}

/// Returns the end of the name of that file.
pub(crate) fn suffix(name: &str) -> String {
    format!("{name}.txt")
}

/// Checks that a group's expression is valid.
///
/// # Errors
/// What is wrong with it.
pub fn check_group(expression: &str) -> Result<(), String> {
    whole(expression)
        .map(drop)
        .map_err(|error| error.to_string())
}

/// Returns an expression that has to match the whole of a name.
fn whole(expression: &str) -> Result<Regex, regex_lite::Error> {
    Regex::new(&format!("^(?:{expression})$"))
}

fn tables(jobs: &[Job<'_>], plan: &Plan, indent: &str) -> String {
    if !plan.has_summary() {
        return String::new();
    }
    let mut domains = stats::collect(jobs);
    domains.sort_by_key(|stats| stats.domain.rank);
    let all: Vec<&DomainStats> = domains.iter().collect();
    let mut out = String::new();
    if plan.summary_per_domain {
        for stats in &all {
            let title = format!("{} SUMMARY", stats.domain.name);
            table(&mut out, plan, &title, &[stats], indent);
        }
    }
    for expression in &plan.summary_groups {
        // Invalid expressions were refused before the session.
        let Ok(expression) = whole(expression) else {
            continue;
        };
        let group: Vec<&DomainStats> = all
            .iter()
            .copied()
            .filter(|stats| expression.is_match(stats.domain.name))
            .collect();
        let names: Vec<&str> = group.iter().map(|stats| stats.domain.name).collect();
        let title = format!("{} SUMMARY", names.join(" + "));
        table(&mut out, plan, &title, &group, indent);
    }
    if plan.summary {
        table(&mut out, plan, "SUMMARY", &all, indent);
    }
    out
}

/// Appends a table. Writing to a String cannot fail, hence the ignored results.
fn table(out: &mut String, plan: &Plan, title: &str, domains: &[&DomainStats], indent: &str) {
    let mut total = Stat::default();
    let mut rows: Vec<(String, &'static str, &Stat)> = Vec::new();
    for stats in domains {
        total.merge(&stats.total);
        for (name, stat) in &stats.operations {
            rows.push((printable(name), stats.domain.name, stat));
        }
    }
    if rows.is_empty() {
        return;
    }
    rows.sort_by(|a, b| (Reverse(a.2.total), a.1, &a.0).cmp(&(Reverse(b.2.total), b.1, &b.0)));
    let longest = |of: fn(&(String, &'static str, &Stat)) -> usize| rows.iter().map(of).max();
    let name = longest(|row| row.0.chars().count()).unwrap_or(0).max(NAME);
    // A formatter's width is at most that.
    let name = name.min(usize::from(u16::MAX));
    let domain = longest(|row| row.1.len()).unwrap_or(0).max(DOMAIN);
    // Every row is as long as the longest name.
    let most = MOST_BYTES / (name + domain + NUMBERS);
    let left_out = rows.len().saturating_sub(most);
    let mut others = Stat::default();
    for (_, _, stat) in rows.drain(rows.len() - left_out..) {
        others.merge(stat);
    }
    if left_out > 0 {
        rows.push((format!("({left_out} others)"), "", &others));
    }
    let unit = plan.summary_unit;

    let _ = writeln!(out, "\n{indent}ROCPROFV3 {title}:\n");
    let _ = write!(out, "{indent}| {:^name$} | {:^domain$} |", "NAME", "DOMAIN");
    for (width, column) in [
        (15, "CALLS".to_owned()),
        (15, format!("DURATION ({})", unit.text())),
        (15, format!("AVERAGE ({})", unit.text())),
        (13, "PERCENT (INC)".to_owned()),
        (15, format!("MIN ({})", unit.text())),
        (15, format!("MAX ({})", unit.text())),
        (15, "STDDEV".to_owned()),
    ] {
        let _ = write!(out, " {column:^width$} |");
    }
    let _ = write!(out, "\n{indent}|");
    for width in [name, domain, 15, 15, 15, 13, 15, 15, 15] {
        let _ = write!(out, "-{:-<width$}-|", "");
    }
    out.push('\n');
    for (text, of, stat) in &rows {
        let percent = if total.total == 0 {
            0.0
        } else {
            stat.total as f64 * 100.0 / total.total as f64
        };
        let scaled = |value: f64| exponent(value / unit.nanoseconds() as f64, 3);
        let _ = writeln!(
            out,
            "{indent}| {text:<name$} | {of:<domain$} | {:>15} | {:>15} | {:>15} | {:>13} | {:>15} | {:>15} | {:>15} |",
            stat.calls,
            whole_or_shortest(stat.total, unit),
            scaled(stat.mean()),
            format!("{percent:.6}"),
            whole_or_shortest(stat.min, unit),
            whole_or_shortest(stat.max, unit),
            scaled(stat.deviation()),
        );
    }
    out.push('\n');
}

/// Returns nanoseconds as they are, or a time in a larger unit with as many digits as the number
/// needs.
fn whole_or_shortest(nanoseconds: u64, unit: Unit) -> String {
    if unit == Unit::Nsec {
        return nanoseconds.to_string();
    }
    shortest(nanoseconds as f64 / unit.nanoseconds() as f64)
}

/// Returns as few digits as distinguish the number from its neighbours, with an exponent below 1e-4
/// and from 1e16 on.
fn shortest(value: f64) -> String {
    let text = format!("{value:e}");
    match text.split_once('e').map(|(m, e)| (m, e.parse::<i32>())) {
        Some((mantissa, Ok(power))) if value != 0.0 && !(-4..16).contains(&power) => {
            let sign = if power < 0 { '-' } else { '+' };
            format!("{mantissa}e{sign}{:02}", power.abs())
        }
        _ => value.to_string(),
    }
}

/// Returns a name of the target without anything that a terminal would interpret.
fn printable(name: &str) -> String {
    name.chars()
        .map(|c| if plain::is_obeyed(c) { '?' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_as_many_digits_as_they_need() {
        for (nanoseconds, unit, wanted) in [
            (366_687, Unit::Nsec, "366687"),
            (366_687, Unit::Usec, "366.687"),
            (366_000, Unit::Usec, "366"),
            (30, Unit::Sec, "3e-08"),
            (150_000, Unit::Sec, "0.00015"),
            (0, Unit::Sec, "0"),
        ] {
            assert_eq!(whole_or_shortest(nanoseconds, unit), wanted);
        }
    }

    #[test]
    fn groups_have_to_match_the_whole_name() {
        assert!(whole("HIP|HSA").is_ok_and(|group| !group.is_match("HIP_API")));
        assert!(whole("H.*_API").is_ok_and(|group| group.is_match("HIP_API")));
        assert!(check_group("(").is_err());
    }

    /// Thousands of names have rows; a table ends only where it is many megabytes long.
    #[test]
    fn a_table_has_rows_for_thousands_of_names() {
        let domain = &midair_domain::Statistics {
            name: "MARKER_API",
            csv: "",
            rank: 0,
            json_rank: 0,
        };
        let table = |names: &[String]| {
            let one = Stat {
                calls: 1,
                ..Stat::default()
            };
            let operations = names.iter().map(|name| (name.clone(), one));
            let stats = DomainStats {
                domain,
                total: Stat::default(),
                operations: operations.collect(),
            };
            let mut text = String::new();
            table(&mut text, &Plan::default(), "SUMMARY", &[&stats], "");
            text
        };
        let many: Vec<String> = (0..9_000).map(|number| format!("m{number:04}")).collect();
        let text = table(&many);
        assert!(text.contains("| m0000 ") && text.contains("| m8999 "));
        assert!(!text.contains(" others)"));
        // Each row is as wide as a name of 40,000 characters: there is room for 417 of 40,172.
        let mut wide: Vec<String> = (0..419).map(|number| format!("m{number:03}")).collect();
        wide.push("x".repeat(40_000));
        let text = table(&wide);
        let has = |name: &str| text.contains(&format!("| {name} "));
        assert!(has("m416") && !has("m417") && has("(3 others)"));
    }
}
