//! The table of whole devices' counters at the end of `midair attach`: rates per second, or values
//! for ratios, each on average and in the readings with the least and the most.

use crate::counters::reader::Reader;
use crate::counters::{Reading, values};
use crate::job::Job;
use crate::table::{Style, fit};
use midair_record::event::{Record, kind};
use midair_trace::record_file::WalkError;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Write;

const COUNT: usize = 10;
const VALUE: usize = 14;

/// A counter of a device.
#[derive(Debug, Default)]
pub(crate) struct Line {
    is_sum: bool,
    readings: u64,
    /// The sum of what was counted, or for ratios of values times seconds.
    total: f64,
    seconds: f64,
    least: f64,
    most: f64,
}

impl Line {
    fn add(&mut self, reading: &Reading, value: f64, is_sum: bool) {
        let shown = reading.shown(value, is_sum);
        let first = self.readings == 0;
        self.is_sum = is_sum;
        self.least = if first { shown } else { self.least.min(shown) };
        self.most = if first { shown } else { self.most.max(shown) };
        self.readings += 1;
        self.seconds += reading.duration();
        self.total += shown * reading.duration();
    }

    fn mean(&self) -> f64 {
        if self.seconds > 0.0 {
            self.total / self.seconds
        } else {
            0.0
        }
    }
}

/// The counters of devices, by node and name.
pub(crate) type Lines = BTreeMap<(u32, &'static str), Line>;

/// Returns what was read of all devices.
pub(crate) fn lines(job: &Job<'_>) -> Lines {
    let mut lines = Lines::new();
    let mut reader = Reader::new(job);
    // Records that cannot be read are missing in the table. The writer of the files has already
    // reported that.
    let _: Result<(), WalkError<Infallible>> = job.trace.records.walk_all(
        |kind| kind == kind::COUNTER_COLLECTION,
        |record| {
            if let Record::CounterWindow(part, words) = record
                && let Some(reading) = reader.reading(part, words)
            {
                for (_, name, values, is_sum) in &reading.counters {
                    let line = lines.entry((reading.node, name)).or_default();
                    line.add(&reading, values::sum(values), *is_sum);
                }
            }
            Ok(())
        },
    );
    lines
}

/// Returns these lines as members of the JSON document.
pub(crate) fn fields(job: &Job<'_>, lines: &Lines) -> Vec<Value> {
    let field = |((node, name), line): (&(u32, &'static str), &Line)| {
        json!({
            "agent": job.agent_name(*node),
            "name": name,
            "per_second": line.is_sum,
            "readings": line.readings,
            "mean": line.mean(),
            "min": line.least,
            "max": line.most,
        })
    };
    lines.iter().map(field).collect()
}

/// Returns the table, or an empty text where no device was read.
pub(crate) fn text(job: &Job<'_>, lines: &Lines, style: Style) -> String {
    let (bold, plain) = if style.colour {
        ("\x1b[1m", "\x1b[0m")
    } else {
        ("", "")
    };
    let width = style.columns.clamp(70, 160) - COUNT - 3 * VALUE;
    // Writing to a String cannot fail.
    let mut out = String::new();
    if !lines.is_empty() {
        let _ = writeln!(
            out,
            "{bold}{:<width$}{:>COUNT$}{:>VALUE$}{:>VALUE$}{:>VALUE$}{plain}",
            "COUNTER", "READINGS", "MEAN", "LEAST", "MOST"
        );
    }
    let mut agent = None;
    for ((node, name), line) in lines {
        if agent.replace(*node) != Some(*node) {
            let _ = writeln!(out, "{}", job.agent_name(*node));
        }
        let unit = if line.is_sum { " /s" } else { "" };
        let name = fit(name, width.saturating_sub(2 + unit.len()), style.unicode);
        let name = format!("  {name}{unit}");
        let [mean, least, most] =
            [line.mean(), line.least, line.most].map(crate::counter_table::short);
        let _ = writeln!(
            out,
            "{name:<width$}{:>COUNT$}{mean:>VALUE$}{least:>VALUE$}{most:>VALUE$}",
            line.readings
        );
    }
    out
}
