//! Pages as text: OpenMetrics', and the older one of Prometheus.

use crate::page::{Family, Kind, Page, Sample, Value};
use midair_live::Delays;
use std::fmt::Write;

/// Bounds of the histograms' classes, as powers of 2 of a second: from a microsecond to a second.
pub(crate) const POWERS: [i32; 11] = [-20, -18, -16, -14, -12, -10, -8, -6, -4, -2, 0];

/// The two texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Text {
    /// OpenMetrics.
    Open,
    /// The older text of Prometheus.
    Prometheus,
}

/// Returns the page as text.
pub(crate) fn write(page: &Page, text: Text) -> String {
    let mut out = String::new();
    for family in &page.0 {
        head(&mut out, family, text);
        let name = family.sampled();
        for sample in &family.samples {
            match &sample.value {
                Value::Number(number) => line(&mut out, &name, sample, None, *number),
                Value::Delays(delays) => histogram(&mut out, &name, sample, delays),
            }
        }
    }
    if text == Text::Open {
        out.push_str("# EOF\n");
    }
    out
}

/// Starts a family. In the older text its name is the samples' own, and it has no unit.
fn head(out: &mut String, family: &Family, text: Text) {
    let (name, kind) = match (text, family.kind) {
        (Text::Prometheus, Kind::Info) => (family.sampled(), "gauge"),
        (Text::Prometheus, Kind::Counter) => (family.sampled(), "counter"),
        (_, Kind::Info) => (family.name.to_owned(), "info"),
        (_, Kind::Counter) => (family.name.to_owned(), "counter"),
        (_, Kind::Gauge) => (family.name.to_owned(), "gauge"),
        (_, Kind::Histogram) => (family.name.to_owned(), "histogram"),
    };
    let _ = writeln!(out, "# TYPE {name} {kind}");
    if !family.unit.is_empty() && text == Text::Open {
        let _ = writeln!(out, "# UNIT {name} {}", family.unit);
    }
    let _ = writeln!(out, "# HELP {name} {}.", family.help);
}

/// Adds a line.
fn line(out: &mut String, name: &str, sample: &Sample, le: Option<&str>, value: f64) {
    out.push_str(name);
    let labels = sample
        .labels
        .iter()
        .map(|(key, text)| (*key, text.as_str()));
    let all = labels.chain(le.map(|le| ("le", le)));
    let mut before = '{';
    for (key, text) in all {
        let _ = write!(out, "{before}{key}=\"");
        escape(out, text);
        out.push('"');
        before = ',';
    }
    let after = if before == '{' { "" } else { "}" };
    let _ = writeln!(out, "{after} {value}");
}

fn escape(out: &mut String, text: &str) {
    for char in text.chars() {
        match char {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            _ => out.push(char),
        }
    }
}

fn histogram(out: &mut String, name: &str, sample: &Sample, delays: &Delays) {
    let bucket = format!("{name}_bucket");
    for power in POWERS {
        let le = format!("{:?}", 2_f64.powi(power));
        line(out, &bucket, sample, Some(&le), delays.up_to(power) as f64);
    }
    let all = delays.count() as f64;
    line(out, &bucket, sample, Some("+Inf"), all);
    line(out, &format!("{name}_count"), sample, None, all);
    let sum = delays.sum() as f64 / 1e9;
    line(out, &format!("{name}_sum"), sample, None, sum);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_processes_break_no_line() {
        let mut page = Page::default();
        let name = "a\"} 1\nmidair_x 2\\\u{1b}";
        let family = page.family("m", Kind::Gauge, "", "Help");
        family.add(&[("kernel", name), ("x", &"y".repeat(999))], 0.5);
        let text = write(&page, Text::Open);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4, "{text}");
        let line = lines[2];
        assert!(!line.contains('\u{1b}'), "{line}");
        assert!(line.starts_with("m{kernel=\"a\\\"} 1"), "{line}");
        assert!(line.ends_with("yyy…\"} 0.5") && line.len() < 400, "{line}");
    }
}
