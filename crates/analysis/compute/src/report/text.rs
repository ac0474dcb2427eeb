//! Reports as text for a terminal or a file.

use super::grid::{Side, draw};
use super::{Entry, Line, Options, Report, Sheet, chart, roofline};
use crate::architecture::{Source, Style};
use crate::select::ROOFLINE;
use std::collections::BTreeMap;

/// The length of the longest kernel name that is not shortened.
const NAME: usize = 60;

/// The most reasons that are listed below a table.
const REASONS: usize = 5;

/// Returns one workload's report, or several side by side.
pub fn render(reports: &[(&str, &Report)], options: &Options) -> String {
    let mut out = String::new();
    let Some((_, first)) = reports.first() else {
        return out;
    };
    let mut panel = None;
    let mut roofline = first.roofline.as_ref().filter(|_| reports.len() == 1);
    for sheet in &first.sheets {
        if sheet.panel > ROOFLINE
            && let Some(places) = roofline.take()
        {
            roof(&mut out, places, panel, options);
        }
        let others: Vec<&Sheet> = reports[1..]
            .iter()
            .filter_map(|(_, report)| report.sheets.iter().find(|other| other.id == sheet.id))
            .collect();
        if reports.len() > 1
            && (others.len() + 1 < reports.len() || sheet.source == Source::Dispatches)
        {
            continue;
        }
        if !sheet.has_values() && sheet.lines.is_empty() {
            continue;
        }
        if panel != Some(sheet.panel) {
            panel = Some(sheet.panel);
            out.push_str(&format!(
                "\n{}\n{}. {}\n",
                "-".repeat(80),
                sheet.panel,
                sheet.panel_title
            ));
        }
        let number = format!("{}.{}", sheet.id / 100, sheet.id % 100);
        if !sheet.title.is_empty() {
            out.push_str(&format!("{number} {}\n", sheet.title));
        }
        if others.is_empty() {
            one(&mut out, sheet, options);
            if sheet.source == Source::TopKernels {
                out.extend(first.drifts.iter().map(|drift| format!("Drift: {drift}\n")));
            }
        } else {
            let names: Vec<&str> = reports.iter().map(|(name, _)| *name).collect();
            compared(&mut out, sheet, &others, &names, options);
        }
    }
    if let Some(places) = roofline {
        roof(&mut out, places, panel, options);
    }
    out
}

/// Appends the roofline, below the other tables of its panel or alone.
fn roof(
    out: &mut String,
    (peaks, points): &(roofline::Peaks, Vec<roofline::Point>),
    before: Option<u32>,
    options: &Options,
) {
    if before != Some(ROOFLINE) {
        out.push_str(&format!("\n{}\n{}. Roofline\n", "-".repeat(80), ROOFLINE));
    }
    out.push_str(&roofline::tables(peaks, points, options.decimals));
}

/// Returns a field as text.
pub fn field(entry: &Entry, decimals: usize) -> String {
    match entry {
        Entry::Text(text) => text.clone(),
        Entry::Whole(number) => number.to_string(),
        Entry::Number(number) => format!("{number:.decimals$}"),
        Entry::Value(value) => match value.number() {
            Some(number) => format!("{number:.decimals$}"),
            None => "N/A".to_owned(),
        },
        Entry::Empty => String::new(),
    }
}

fn shortened(text: &str) -> String {
    match text.chars().count() > NAME {
        true => text.chars().take(NAME - 1).chain(['…']).collect(),
        false => text.to_owned(),
    }
}

fn has_ids(sheet: &Sheet) -> bool {
    sheet.lines.iter().any(|line| !line.id.is_empty())
}

fn one(out: &mut String, sheet: &Sheet, options: &Options) {
    if !sheet.has_values() {
        reasons(out, sheet);
        return;
    }
    if sheet.style == Style::MemoryChart && !options.plain_tables {
        out.push_str(&chart::draw(sheet, options.decimals));
        reasons(out, sheet);
        return;
    }
    let sampled = sheet.is_sampled();
    let mut headings: Vec<String> = Vec::new();
    if has_ids(sheet) {
        headings.push(match sheet.source {
            Source::Metrics => "Metric_ID".to_owned(),
            _ => String::new(),
        });
    }
    let shown = |column: usize| options.columns.is_empty() || options.columns.contains(&column);
    headings.extend(
        sheet
            .headings
            .iter()
            .enumerate()
            .filter(|(c, _)| shown(*c))
            .map(|(_, h)| h.clone()),
    );
    if sheet.style == Style::Bar {
        headings.push(String::new());
    }
    if sampled {
        headings.extend(["± 95 %", "n", "Coverage"].map(str::to_owned));
    }
    let mut sides = Vec::new();
    let mut rows: Vec<Vec<String>> = Vec::new();
    for line in &sheet.lines {
        let mut row = Vec::new();
        let mut side = Vec::new();
        if has_ids(sheet) {
            row.push(line.id.clone());
            side.push(Side::Left);
        }
        for (column, entry) in line.entries.iter().enumerate().filter(|(c, _)| shown(*c)) {
            let mut text = field(entry, options.decimals);
            if is_marked(line, entry) {
                text.insert(0, '!');
            }
            let kernel = sheet
                .headings
                .get(column)
                .is_some_and(|h| h == "Kernel_Name");
            row.push(if kernel { shortened(&text) } else { text });
            side.push(match entry {
                Entry::Text(_) | Entry::Empty => Side::Left,
                _ => Side::Right,
            });
        }
        if sheet.style == Style::Bar {
            row.push(bar(line));
            side.push(Side::Left);
        }
        if sampled {
            row.extend(certainty(line, options.decimals));
            side.extend([Side::Right; 3]);
        }
        if side.len() > sides.len() {
            sides = side;
        }
        rows.push(row);
    }
    out.push_str(&draw(&headings, &rows, &sides));
    reasons(out, sheet);
    above(out, sheet);
}

/// Whether a unit is percent, in any version's word.
fn is_percent(unit: &str) -> bool {
    ["pct", "percent"]
        .iter()
        .any(|word| unit.eq_ignore_ascii_case(word))
}

/// Whether a row's value is no percentage, although it should be one: it is certainly above 100.
fn is_impossible(line: &Line) -> bool {
    let is_percentage = line
        .entries
        .iter()
        .any(|entry| matches!(entry, Entry::Text(unit) if is_percent(unit)));
    is_percentage && line.main().is_some_and(|value| value.exceeds(100.0))
}

/// Whether an entry is one of the numbers that make such a row's value impossible.
pub(crate) fn is_marked(line: &Line, entry: &Entry) -> bool {
    is_impossible(line) && matches!(entry, Entry::Value(value) if value.exceeds(100.0))
}

/// Appends the rows whose value is impossible.
fn above(out: &mut String, sheet: &Sheet) {
    let ids: Vec<&str> = sheet
        .lines
        .iter()
        .filter(|line| is_impossible(line))
        .map(|line| line.id.as_str())
        .collect();
    if !ids.is_empty() {
        out.push_str(&format!(
            "Above 100 % (!): {}: these cannot be percentages, so their counters do not count what their names say\n",
            ids.join(", ")
        ));
    }
}

/// Returns how certain a row's value is: half the width of its interval, windows, and coverage.
pub(crate) fn certainty(line: &Line, decimals: usize) -> [String; 3] {
    let Some(value) = line.main().filter(|value| value.result.is_ok()) else {
        return [String::new(), String::new(), String::new()];
    };
    let width = match value.half_width {
        Some(width) => format!("{width:.decimals$}"),
        None if value.is_exact() => "exact".to_owned(),
        None => "unknown".to_owned(),
    };
    [
        width,
        value.n.to_string(),
        format!("{:.1} %", value.coverage * 100.0),
    ]
}

/// Returns a bar for a percentage.
fn bar(line: &Line) -> String {
    let percent = line.entries.iter().any(|entry| match entry {
        Entry::Text(unit) => is_percent(unit) || unit == "Pct of Peak",
        _ => false,
    });
    match line.main().and_then(|value| value.number()) {
        Some(number) if percent => {
            let width = 40;
            let filled = (number.clamp(0.0, 100.0) / 100.0 * width as f64).round() as usize;
            format!("{}{}", "█".repeat(filled), "·".repeat(width - filled))
        }
        _ => String::new(),
    }
}

/// Appends why values are N/A: each reason once, with the rows that it applies to.
fn reasons(out: &mut String, sheet: &Sheet) {
    let mut all: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for line in &sheet.lines {
        for entry in &line.entries {
            if let Entry::Value(value) = entry
                && let Err(why) = &value.result
            {
                let lines = all.entry(why.to_string()).or_default();
                if lines.last() != Some(&line.id.as_str()) {
                    lines.push(&line.id);
                }
            }
        }
    }
    let count = all.len();
    for (why, lines) in all.into_iter().take(REASONS) {
        let shown: Vec<&str> = lines.iter().copied().take(6).collect();
        let more = match lines.len() - shown.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        out.push_str(&format!("N/A: {}{more}: {why}\n", shown.join(", ")));
    }
    if count > REASONS {
        let more = count - REASONS;
        out.push_str(&format!(
            "N/A: {more} more reasons; see --output-format csv\n"
        ));
    }
}

/// Appends the tables of several workloads; the first is the one that the others are compared with.
fn compared(out: &mut String, sheet: &Sheet, others: &[&Sheet], names: &[&str], options: &Options) {
    let mut headings = Vec::new();
    let mut sides = Vec::new();
    let columns = sheet.headings.len();
    for (column, heading) in sheet.headings.iter().enumerate() {
        let words = sheet.lines.iter().all(|line| {
            matches!(
                line.entries.get(column),
                Some(Entry::Text(_) | Entry::Empty) | None
            )
        });
        if words && sheet.source != Source::System {
            headings.push(heading.clone());
            sides.push(Side::Left);
            continue;
        }
        if column == 0 {
            headings.push(heading.clone());
            sides.push(Side::Left);
            continue;
        }
        for name in names {
            headings.push(format!("{heading} ({name})"));
            sides.push(Side::Right);
        }
    }
    let mut rows = Vec::new();
    for line in &sheet.lines {
        let same: Option<Vec<&Line>> = others
            .iter()
            .map(|other| {
                other
                    .lines
                    .iter()
                    .find(|theirs| theirs.name() == line.name())
            })
            .collect();
        // Show only what all workloads have.
        let Some(same) = same else { continue };
        let mut row = Vec::new();
        for column in 0..columns {
            let entry = line.entries.get(column).unwrap_or(&Entry::Empty);
            row.push(shortened(&field(entry, options.decimals)));
            let words = matches!(entry, Entry::Text(_) | Entry::Empty);
            if column == 0 || (words && sheet.source != Source::System) {
                continue;
            }
            for theirs in &same {
                let theirs = theirs.entries.get(column).unwrap_or(&Entry::Empty);
                let mut text = shortened(&field(theirs, options.decimals));
                if let (Some(base), Some(theirs)) = (number(entry), number(theirs))
                    && base != 0.0
                {
                    let percent = 100.0 * (theirs - base) / base.abs();
                    text.push_str(&format!(
                        " ({percent:+.decimals$} %)",
                        decimals = options.decimals
                    ));
                }
                row.push(text);
            }
        }
        rows.push(row);
    }
    if rows.is_empty() {
        out.push_str("the workloads have no common row in this table\n");
        return;
    }
    out.push_str(&draw(&headings, &rows, &sides));
}

/// Returns the number of a field.
pub fn number(entry: &Entry) -> Option<f64> {
    match entry {
        Entry::Whole(number) => Some(*number as f64),
        Entry::Number(number) => Some(*number),
        Entry::Value(value) => value.number(),
        Entry::Text(_) | Entry::Empty => None,
    }
}
