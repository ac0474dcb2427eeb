//! The iterations of a program's main loop: a line of the heading, and the document's members.

use crate::table::duration;
use midair_trace::steps::{MainLoop, Step};
use serde_json::{Value, json};
use std::fmt::Write;

/// The most lines of the loop whose shares are printed: those with the most time.
const MOST_LINES: usize = 4;

/// Returns what the loop does, in words. `from`: when the session started.
pub(super) fn words(found: &MainLoop, from: u64) -> String {
    let mut words = format!(
        "{} iterations of {}, found in the stacks; median {}",
        found.steps.len(),
        place(found),
        duration(found.median() as f64)
    );
    if let Some((number, step)) = found.slowest() {
        let _ = write!(
            words,
            ", slowest {} (number {number}, at {}); no kernel runs for {:.0} % of the time, {:.0} % of the slowest",
            duration(step.duration as f64),
            duration(step.start.saturating_sub(from) as f64),
            100.0 * found.idle(),
            100.0 * step.idle()
        );
    }
    let times = found.lines.iter().map(|line| line.time);
    let all = times.fold(0, u64::saturating_add);
    let mut lines = found.lines.clone();
    lines.sort_by_key(|line| (std::cmp::Reverse(line.time), line.line));
    let shares: Vec<String> = lines
        .iter()
        .take(MOST_LINES)
        .map(|line| {
            let share = 100.0 * line.time as f64 / all.max(1) as f64;
            format!("{} {share:.0} %", phase(found, line.line))
        })
        .collect();
    let _ = write!(words, "; GPU time: {}", shares.join(", "));
    if found.left_out > 0 {
        let _ = write!(words, " (without the last {} kernels)", found.left_out);
    }
    words
}

/// The most characters of a function's name.
const MOST_NAME: usize = 40;

/// Returns the name of a phase, as `line 24 (Tensor.backward)`, or as `call 2 (app::decode(int))` in native code.
pub(crate) fn phase(found: &MainLoop, line: u32) -> String {
    let what = if found.is_native { "call" } else { "line" };
    match found.calls.get(&line) {
        Some(called) => {
            let name: String = midair_failure::plain::line(called)
                .chars()
                .take(MOST_NAME)
                .collect();
            format!("{what} {line} ({name})")
        }
        None => format!("{what} {line}"),
    }
}

/// Returns the function and the lines, as `the loop in train (job.py:20-30)`; of native code the program
/// or library.
pub(crate) fn place(found: &MainLoop) -> String {
    let name = midair_failure::plain::line(&found.function.name);
    let path = midair_failure::plain::line(&found.function.file);
    let file = path.rsplit('/').next().unwrap_or_default();
    if found.is_native {
        return format!("the loop in {name} ({file})");
    }
    let [first, last] =
        [found.lines.first(), found.lines.last()].map(|line| line.map_or(0, |line| line.line));
    format!("the loop in {name} ({file}:{first}-{last})")
}

/// Returns the same as a member of the document, with at most `rows` iterations.
pub(super) fn json(found: &MainLoop, from: u64, rows: usize) -> Value {
    let step = |step: &Step| {
        json!({
            "start_ns": step.start,
            "duration_ns": step.duration,
            "busy_ns": step.busy,
            "kernels": step.kernels,
        })
    };
    let lines = found.lines.iter().map(|line| {
        let number = if found.is_native { "call" } else { "line" };
        json!({
            number: line.line,
            "calls": found.calls.get(&line.line),
            "total_ns": line.time,
            "kernels": line.kernels,
        })
    });
    json!({
        "text": words(found, from),
        "function": found.function.name,
        "file": found.function.file,
        "thread": found.tid,
        "median_ns": found.median(),
        "lines": lines.collect::<Vec<_>>(),
        "iterations": found.steps.iter().take(rows).map(step).collect::<Vec<_>>(),
        "iterations_left_out": found.steps.len().saturating_sub(rows),
        "kernels_left_out": found.left_out,
    })
}
