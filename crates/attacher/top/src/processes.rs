//! The table with one line for each process, where there are several.

use crate::draw::{Line, Tone};
use crate::view::View;
use crate::words::{bytes_rate, percent, rate};
use midair_live::{Snapshot, stragglers};
use midair_output::distinct_labels;

/// The most lines. Further processes are only counted.
const MOST: usize = 16;

/// Returns why a process's GPU was idle for most of its idle time.
pub(crate) fn cause(snapshot: &Snapshot) -> &'static str {
    let Some(device) = snapshot
        .devices
        .iter()
        .min_by(|a, b| a.busy.total_cmp(&b.busy))
    else {
        return "no kernel yet";
    };
    let idle = device.idle;
    let causes = [
        (idle.nothing, "nothing queued"),
        (idle.waiting, "host waits"),
        (idle.launching, "launching"),
        (idle.copies, "copies"),
    ];
    let largest = causes.into_iter().max_by(|a, b| a.0.total_cmp(&b.0));
    largest
        .filter(|cause| cause.0 > 0.005)
        .map_or("", |cause| cause.1)
}

/// Returns the table, or nothing where there is only one process.
pub(crate) fn lines(view: &View, columns: usize) -> Vec<Line> {
    let all = &view.snapshots;
    if all.len() < 2 {
        return Vec::new();
    }
    let narrow = columns < 78;
    let late = stragglers(all);
    let names: Vec<String> = all
        .iter()
        .map(|it| format!("{} {}", it.pid, it.name))
        .collect();
    let rest = if narrow { 34 } else { 52 };
    let width = columns.saturating_sub(rest).clamp(12, 40);
    let names = distinct_labels(&names, width, view.look.unicode);
    let mut head = format!("{:<width$} {:>6} {:>9}", "PROCESS", "BUSY", "KERNELS/s");
    head.push_str(if narrow {
        "  IDLE"
    } else {
        "      COPIES  IDLE FOR"
    });
    let mut lines = vec![Line::new(Tone::Head, head)];
    for ((snapshot, name), late) in all.iter().zip(names).zip(late).take(MOST) {
        let mut line = format!(
            "{name:<width$} {:>6} {:>9}",
            percent(snapshot.busy()),
            rate(snapshot.kernel_rate())
        );
        if !narrow {
            line.push_str(&format!(" {:>11}", bytes_rate(snapshot.copy_rate())));
        }
        let (tone, words) = match (&snapshot.ended, late) {
            (Some(how), _) => (Tone::Dim, how.clone()),
            (None, true) => (Tone::Bad, format!("STRAGGLER: {}", cause(snapshot))),
            (None, false) => (Tone::Plain, cause(snapshot).to_owned()),
        };
        line.push_str("  ");
        line.push_str(words.trim_start());
        lines.push(Line::new(tone, line));
    }
    if all.len() > MOST {
        let more = format!("({} more processes)", all.len() - MOST);
        lines.push(Line::new(Tone::Dim, more));
    }
    lines.push(Line::empty());
    lines
}
