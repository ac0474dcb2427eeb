//! What is shown of a recording in bursts at the end of `midair attach`: a line on how much was
//! recorded, and a table of kernels as they were in the whole time.

use crate::labels::distinct_labels;
use crate::options::KernelNames;
use crate::table::{Style, duration};
use midair_demangle::shortened;
use midair_record::event::basis;
use midair_trace::bursts::{Coverage, Estimate, Interval};
use midair_trace::index::Index;
use midair_trace::kernel_name::{Namer, UNSEEN_KERNEL};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fmt::Write;

/// The widths of the columns behind the name.
const CALLS: usize = 20;
const TOTAL: usize = 24;
const SHARE: usize = 18;

/// One session that was recorded in bursts.
#[derive(Debug, Clone, Default)]
pub struct BurstReport {
    pid: u32,
    coverage: Coverage,
    /// Kernels by their time, and their names.
    kernels: Vec<(String, Estimate)>,
}

/// Returns how much was recorded and what that cost, in words.
pub(crate) fn words(coverage: &Coverage) -> String {
    let part = coverage.part() * 100.0;
    let cost = f64::from(coverage.cost) / 1e4;
    let in_all = coverage.lost() * 100.0;
    let turn = coverage.switched as f64 / 1e6 / coverage.bursts.max(1) as f64;
    let turns = match coverage.switched {
        0 => String::new(),
        _ => {
            format!(", and to block it for {turn:.1} ms per burst to enable and disable recording")
        }
    };
    let costs = match coverage.basis {
        basis::MEASURED => format!(
            "recording costs the application {cost:.1} % of its speed during bursts, from launch rates inside and between them: {in_all:.2} % overall"
        ),
        basis::ASSUMED => format!(
            "recording is estimated to cost the application {cost:.1} % of its speed during bursts, from the number of records{turns}: {in_all:.2} % overall"
        ),
        _ if coverage.switched > 0 => format!(
            "too few records to measure the cost of recording; enabling and disabling it is estimated to block the application for {turn:.1} ms per burst: {:.2} % overall",
            coverage.switched as f64 / coverage.time.max(1) as f64 * 100.0
        ),
        _ => "too few launches to measure the cost of recording".to_owned(),
    };
    format!(
        "recorded {part:.1} % of the time, in {} bursts; {costs}",
        coverage.bursts
    )
}

impl BurstReport {
    /// Makes the report of a session that took so many ns. None where all of it was recorded.
    pub fn of(
        pid: u32,
        index: &Index,
        time: u64,
        kernel_names: KernelNames,
    ) -> Option<BurstReport> {
        let coverage = index.bursts.coverage()?;
        // Queues are followed between bursts, too. CUPTI has none.
        let counted = index.launched().saturating_add(index.paused());
        let launches = (counted > 0).then_some(counted);
        let mut namer = Namer::new(kernel_names);
        let mut by_name: HashMap<String, Estimate> = HashMap::new();
        for (id, one) in index.bursts.estimates(launches, time) {
            let name = match index.symbols.get(&id) {
                Some(symbol) => namer.name_or_symbol(&symbol.name),
                None => UNSEEN_KERNEL.to_owned(),
            };
            let sum = by_name.entry(name).or_default();
            *sum = Estimate {
                calls: sum.calls.plus(one.calls),
                total: sum.total.plus(one.total),
                share: sum.share.plus(one.share),
            };
        }
        let (names, estimates): (Vec<String>, Vec<Estimate>) = by_name.into_iter().unzip();
        let names = match kernel_names {
            KernelNames::Mangled => names,
            _ => shortened(&names),
        };
        let mut kernels: Vec<(String, Estimate)> = names.into_iter().zip(estimates).collect();
        kernels.sort_by(|(a, one), (b, other)| {
            let by_time = other.total.estimate.total_cmp(&one.total.estimate);
            by_time.then_with(|| a.cmp(b))
        });
        Some(BurstReport {
            pid,
            coverage,
            kernels,
        })
    }

    /// Returns the table; empty where there is no kernel.
    pub(crate) fn text(&self, label: Option<&str>, style: Style) -> String {
        if self.kernels.is_empty() {
            return String::new();
        }
        let (bold, plain) = match style.colour {
            true => ("\x1b[1m", "\x1b[0m"),
            false => ("", ""),
        };
        let columns = style.columns.clamp(40, 160);
        let shown = match style.rows {
            0 => self.kernels.len(),
            rows => rows.min(self.kernels.len()),
        };
        let shown = self.kernels.get(..shown).unwrap_or_default();
        let names: Vec<&str> = shown.iter().map(|(name, _)| name.as_str()).collect();
        let title = "KERNEL, IN ALL OF THE TIME";
        let longest = names.iter().map(|name| name.chars().count()).max();
        let longest = longest.unwrap_or(0).max(title.len());
        let room = columns
            .saturating_sub(CALLS + TOTAL + SHARE)
            .max(title.len());
        let names = match style.whole_names {
            true => distinct_labels(&names, usize::MAX, style.unicode),
            false => distinct_labels(&names, longest.min(room), style.unicode),
        };
        let width = longest.min(room);
        let mut out = String::new();
        if let Some(label) = label {
            let _ = writeln!(out, "{label}");
        }
        let _ = writeln!(
            out,
            "{bold}{title:<width$}{:>CALLS$}{:>TOTAL$}{:>SHARE$}{plain}",
            "CALLS", "TOTAL", "SHARE"
        );
        for ((_, kernel), name) in shown.iter().zip(names) {
            let about = if style.unicode { "±" } else { "+-" };
            let with = |value: &Interval, words: fn(f64) -> String| match value.half.is_finite() {
                true => format!("{} {about} {}", words(value.estimate), words(value.half)),
                false => format!("{} {about} ?", words(value.estimate)),
            };
            let _ = writeln!(
                out,
                "{name:<width$}{:>CALLS$}{:>TOTAL$}{:>SHARE$}",
                with(&kernel.calls, |calls| format!("{calls:.0}")),
                with(&kernel.total, |time| duration(time.round())),
                with(&kernel.share, |share| format!("{:.2}%", share * 100.0)),
            );
        }
        if let more @ 1.. = self.kernels.len() - shown.len() {
            let _ = writeln!(out, "(and {more} other kernels)");
        }
        out.push_str("estimated from the bursts, with 95 % confidence intervals\n");
        out
    }

    /// Returns the same for the JSON document, with so many kernels at most.
    pub(crate) fn fields(&self, rows: usize) -> Value {
        let interval = |value: &Interval| {
            let (low, high) = value.bounds();
            let is_known = value.half.is_finite();
            json!({
                "estimate": value.estimate,
                "low": is_known.then_some(low),
                "high": is_known.then_some(high),
            })
        };
        let shown = self.kernels.iter().take(rows).map(|(name, kernel)| {
            json!({
                "name": name,
                "calls": interval(&kernel.calls),
                "total_ns": interval(&kernel.total),
                "share": interval(&kernel.share),
            })
        });
        let Coverage {
            bursts,
            recorded,
            time,
            switched,
            cost,
            basis,
        } = self.coverage;
        json!({
            "process": self.pid,
            "bursts": bursts,
            "recorded_ns": recorded,
            "time_ns": time,
            "switched_ns": switched,
            "coverage": self.coverage.part(),
            "cost": (basis != basis::UNKNOWN).then_some(f64::from(cost) / 1e6),
            "cost_is": match basis {
                basis::MEASURED => "measured",
                basis::ASSUMED => "assumed",
                _ => "unknown",
            },
            "kernels": shown.collect::<Vec<_>>(),
            "kernels_left_out": self.kernels.len().saturating_sub(rows),
        })
    }
}

#[cfg(test)]
mod tests;
