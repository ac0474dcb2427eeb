//! Reports as comma-separated files, one for each table.

use super::text::number;
use super::{Entry, Report};
use crate::files;
use midair_failure::Failure;
use std::path::{Path, PathBuf};

/// Writes a report's tables into a directory. Returns the files.
///
/// # Errors
/// When a file cannot be written.
pub fn write(directory: &Path, report: &Report) -> Result<Vec<PathBuf>, Failure> {
    files::make(directory)?;
    let mut written = Vec::new();
    for sheet in &report.sheets {
        if !sheet.has_values() {
            continue;
        }
        let title = plain(&sheet.title);
        let name = match title.trim_matches('_') {
            "" => sheet.id.to_string(),
            title => format!("{}_{title}", sheet.id),
        };
        let file = directory.join(format!("{name}.csv"));
        let mut text = String::new();
        let ids = sheet.lines.iter().any(|line| !line.id.is_empty());
        let mut row: Vec<String> = Vec::new();
        let metrics = sheet.source == crate::architecture::Source::Metrics;
        if ids && metrics {
            row.push("Metric_ID".to_owned());
        }
        row.extend(sheet.headings.iter().cloned());
        if metrics {
            // Our columns stand behind AMD's.
            row.extend(["N", "Coverage", "Half_Width_95", "Note"].map(str::to_owned));
        }
        push(&mut text, &row);
        for line in &sheet.lines {
            row.clear();
            if ids && metrics {
                row.push(line.id.clone());
            }
            let mut note = String::new();
            for entry in &line.entries {
                row.push(match (entry, number(entry)) {
                    (Entry::Text(text), _) => text.clone(),
                    (Entry::Whole(number), _) => number.to_string(),
                    (_, Some(number)) => format!("{number}"),
                    (Entry::Empty, None) => String::new(),
                    (_, None) => "N/A".to_owned(),
                });
                if let Entry::Value(value) = entry
                    && let Err(why) = &value.result
                {
                    note = why.to_string();
                }
            }
            if metrics {
                match line.main() {
                    Some(value) => {
                        row.push(value.n.to_string());
                        row.push(format!("{:.6}", value.coverage));
                        row.push(value.half_width.map_or_else(String::new, |w| w.to_string()));
                    }
                    None => row.extend([String::new(), String::new(), String::new()]),
                }
                row.push(note);
            }
            push(&mut text, &row);
        }
        files::write(&file, &text)?;
        written.push(file);
    }
    Ok(written)
}

/// Returns a text as a part of a file's name.
pub(crate) fn plain(text: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    text.chars().map(plain).collect()
}

/// Appends a line.
pub(crate) fn push(text: &mut String, row: &[String]) {
    for (place, word) in row.iter().enumerate() {
        if place > 0 {
            text.push(',');
        }
        if word.contains([',', '"', '\n', '\r']) {
            text.push('"');
            text.push_str(&word.replace('"', "\"\""));
            text.push('"');
        } else {
            text.push_str(word);
        }
    }
    text.push('\n');
}
