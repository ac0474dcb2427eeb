//! The screen as one JSON document. `docs/results.md` describes its members.

use super::{Gpu, Head, Screen, steps};
use crate::table::CODE;
use midair_trace::index::Stat;
use serde_json::{Map, Value, json};
use std::time::Duration;

/// The version of the document's schema. It is raised when a member is removed or changes its
/// meaning.
const SCHEMA: u32 = 1;
/// The most iterations of a main loop in the document.
const MOST_ITERATIONS: usize = 1000;

impl Screen {
    /// Returns everything that is shown as one document. Each table has at most `rows` rows, and
    /// says how many more there are.
    pub fn json(&self, rows: usize) -> Value {
        let tables = self.sections.iter().filter(|section| !section.is_empty());
        let tables = tables.map(|section| {
            let shown = section.rows().take(rows);
            let shown = shown.map(|(name, stat)| {
                let mut row = row(name, stat, section.total());
                if section.title() == CODE {
                    self.stacks.complete(name, &mut row);
                }
                row
            });
            json!({
                "title": section.title(),
                "rows": shown.collect::<Vec<_>>(),
                "rows_left_out": section.rows().count().saturating_sub(rows),
            })
        });
        let mut document = json!({
            "schema": SCHEMA,
            "midair": env!("CARGO_PKG_VERSION"),
            "processes": self.heads.iter().map(head).collect::<Vec<_>>(),
            "tables": tables.collect::<Vec<_>>(),
            "files": self.files,
            "warnings": self.warnings,
        });
        if let Some(members) = document.as_object_mut() {
            let bursts = self.bursts.iter().map(|(_, report)| report.fields(rows));
            members.insert("bursts".to_owned(), bursts.collect());
            self.stacks.put(members, rows);
            self.counters.put(members, rows);
        }
        document
    }
}

fn row(name: &str, stat: &Stat, all: u64) -> Value {
    json!({
        "name": name,
        "calls": stat.calls,
        "total_ns": stat.total,
        "mean_ns": stat.mean(),
        "min_ns": stat.min.min(stat.max),
        "max_ns": stat.max,
        "deviation_ns": stat.deviation(),
        "share": stat.total as f64 / all.max(1) as f64,
    })
}

pub(crate) fn head(head: &Head) -> Value {
    let nanoseconds = |time: Option<Duration>| time.map(|time| time.as_nanos() as u64);
    let lost = head
        .lost
        .iter()
        .map(|(what, count)| (what.clone(), json!(count)));
    let mut all = json!({
        "pid": head.pid,
        "command": head.command,
        "host": head.host,
        "began": head.began,
        "duration_ns": head.time,
        "recorded_ns": head.recorded,
        "outcome": head.outcome.as_deref().unwrap_or("complete"),
        "records": head.records,
        "lost": lost.collect::<serde_json::Map<_, _>>(),
        "without_times": head.untimed,
        "longest_stop_ns": nanoseconds(head.cost.longest_stop),
        "cpu_in_process_ns": nanoseconds(head.cost.in_process),
        "cpu_beside_ns": nanoseconds(head.cost.beside),
        "gpus": head.gpus.iter().map(gpu).collect::<Vec<_>>(),
        "gpus_without_work": head.idle_gpus,
    });
    if let Some(stacks) = &head.stacks {
        let numbers = stacks.numbers();
        all["stacks"] = numbers
            .map(|(name, number)| (name.to_owned(), number.into()))
            .collect::<Map<_, _>>()
            .into();
    }
    if let Some((found, from)) = &head.main_loop {
        all["main_loop"] = steps::json(found, *from, MOST_ITERATIONS);
    }
    all
}

fn gpu(gpu: &Gpu) -> Value {
    let shares = &gpu.shares;
    json!({
        "name": gpu.name,
        "model": gpu.model,
        "busy_ns": shares.busy,
        "copies_ns": shares.copies,
        "starting_ns": shares.starting,
        "host_waits_ns": gpu.sees_waits.then_some(shares.waited),
        "nothing_queued_ns": shares.nothing,
    })
}
