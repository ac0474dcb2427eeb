//! The lines above the tables.

use super::{Gpu, Head, open, steps};
use crate::burst_report;
use crate::table::{Style, duration, fit};
use midair_failure::plain::counted;
use midair_trace::index::StackSummary;
use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

/// The width of the words at the start of lines.
const KEY: usize = 10;
/// With more sessions than this, GPUs have no lines of their own.
const MOST_SESSIONS: usize = 64;
/// The columns of GPUs behind the name, with heading and width.
const COLUMNS: [(&str, usize); 5] = [
    ("BUSY", 8),
    ("COPIES", 8),
    ("STARTING", 10),
    ("HOST WAITS", 12),
    ("NOTHING QUEUED", 16),
];

pub(super) fn heading(heads: &[Head], files: &[PathBuf], style: Style) -> String {
    let Some(first) = heads.first() else {
        return String::new();
    };
    let mut lines = Lines {
        style,
        columns: style.columns.clamp(40, 160),
        out: String::new(),
    };
    if heads.len() == 1 {
        let command = first.command.join(" ");
        lines.cut("PROCESS", &format!("{}  {command}", first.pid));
    } else {
        lines.cut("PROCESSES", &heads.len().to_string());
    }
    lines.wrapped("TIME", &time(heads));
    for head in heads {
        if let Some(outcome) = &head.outcome {
            let of = of_process(heads, head);
            lines.wrapped("ENDED", &format!("{of}{outcome}"));
        }
    }
    lines.wrapped("RECORDS", &records(heads));
    lines.wrapped("PAUSE", &pause(heads));
    lines.wrapped("OVERHEAD", &overhead(heads));
    for head in heads.iter().take(MOST_SESSIONS) {
        if let Some(coverage) = &head.coverage {
            let of = of_process(heads, head);
            lines.wrapped("BURSTS", &format!("{of}{}", burst_report::words(coverage)));
        }
    }
    for head in heads.iter().take(MOST_SESSIONS) {
        if let Some(all) = &head.stacks {
            let of = of_process(heads, head);
            lines.wrapped("STACKS", &format!("{of}{}", stacks(all)));
        }
    }
    for head in heads.iter().take(MOST_SESSIONS) {
        if let Some((found, from)) = &head.main_loop {
            let of = of_process(heads, head);
            lines.wrapped("STEPS", &format!("{of}{}", steps::words(found, *from)));
        }
    }
    if let Some(place) = open::place(files) {
        lines.whole("RESULTS", &place);
    }
    for way in open::ways(files) {
        lines.whole("OPEN", &way);
    }
    lines.gpus(heads);
    lines.out
}

/// Returns the words that start a statement about one process among several.
fn of_process(heads: &[Head], head: &Head) -> String {
    match heads.len() {
        1 => String::new(),
        _ => format!("process {}: ", head.pid),
    }
}

fn time(heads: &[Head]) -> String {
    let longest = heads.iter().map(|head| head.time).max().unwrap_or(0);
    let mut text = duration(longest as f64);
    let first = heads.first();
    if let Some(began) = first
        .map(|head| &head.began)
        .filter(|began| !began.is_empty())
    {
        let _ = write!(text, " from {began}");
    }
    if let Some(host) = first.map(|head| &head.host).filter(|host| !host.is_empty()) {
        let _ = write!(text, " on {host}");
    }
    // Of bursts there is a line of its own.
    if let [head] = heads
        && head.recorded < head.time
        && head.coverage.is_none()
    {
        let _ = write!(
            text,
            "; records cover {} of it",
            duration(head.recorded as f64)
        );
    }
    text
}

fn records(heads: &[Head]) -> String {
    let sum = |of: fn(&Head) -> u64| heads.iter().map(of).fold(0, u64::saturating_add);
    let mut lost: Vec<(&str, u64)> = Vec::new();
    for (what, count) in heads.iter().flat_map(|head| &head.lost) {
        match lost.iter_mut().find(|(known, _)| known == what) {
            Some((_, all)) => *all += count,
            None => lost.push((what, *count)),
        }
    }
    let mut text = sum(|head| head.records).to_string();
    match lost.is_empty() {
        true => text.push_str(", none lost"),
        false => {
            let lost: Vec<String> = lost
                .iter()
                .map(|(what, count)| format!("{count} {what}"))
                .collect();
            let _ = write!(text, "; LOST: {}", lost.join(", "));
        }
    }
    match sum(|head| head.untimed) {
        0 => {}
        untimed => {
            let _ = write!(text, "; {untimed} dispatches or copies have no times");
        }
    }
    text
}

/// Returns the longest of the times for which our entry stopped a thread.
fn pause(heads: &[Head]) -> String {
    let longest = heads
        .iter()
        .filter_map(|head| Some((head.cost.longest_stop?, head)));
    match longest.max_by_key(|(time, _)| *time) {
        None => String::new(),
        Some((Duration::ZERO, _)) => "none: no application thread was stopped".to_owned(),
        Some((time, head)) => format!(
            "{}one application thread was stopped for at most {}",
            of_process(heads, head),
            duration(time.as_nanos() as f64)
        ),
    }
}

fn overhead(heads: &[Head]) -> String {
    let time = heads.iter().map(|head| head.time).max().unwrap_or(0);
    let sum = |of: fn(&Head) -> Option<Duration>| -> Option<Duration> {
        let each: Vec<Duration> = heads.iter().filter_map(of).collect();
        (!each.is_empty()).then(|| each.iter().sum())
    };
    let share = |used: Duration| {
        let share = used.as_nanos() as f64 * 100.0 / time.max(1) as f64;
        format!("{share:.1} % of a core")
    };
    let within =
        sum(|head| head.cost.in_process).map(|used| format!("{} in the process", share(used)));
    // Sessions of one command share the attaching program, so its time counts once.
    let beside = heads.iter().filter_map(|head| head.cost.beside).max();
    let beside = beside.map(|used| format!("{} outside it", share(used)));
    let parts: Vec<String> = within.into_iter().chain(beside).collect();
    match parts.is_empty() {
        true => String::new(),
        false => format!("midair took {}", parts.join(", ")),
    }
}

/// Returns how many calls have a stack, and what that has cost.
fn stacks(all: &StackSummary) -> String {
    let mut words = format!(
        "{} at {}",
        counted(all.calls, "call", "calls"),
        counted(all.different, "stack", "different stacks")
    );
    if let (Some(mean), Some(total)) = (all.mean, all.total) {
        let [mean, total] = [mean, total].map(duration);
        words.push_str(&format!("; a walk takes {mean}, all together took {total}"));
    }
    words
}

struct Lines {
    style: Style,
    columns: usize,
    out: String,
}

impl Lines {
    fn key(&self, key: &str) -> String {
        match self.style.colour {
            true => format!("\x1b[1m{key:<KEY$}\x1b[0m"),
            false => format!("{key:<KEY$}"),
        }
    }

    /// Adds a line that is cut where it is too long, unless the style has no width.
    fn cut(&mut self, key: &str, text: &str) {
        let width = match self.style.whole_names {
            true => usize::MAX,
            false => self.columns - KEY,
        };
        let text = fit(text, width, self.style.unicode);
        self.line(key, text.trim_end());
    }

    /// Adds a line that is never cut, because it is meant to be copied.
    fn whole(&mut self, key: &str, text: &str) {
        let text = fit(text, usize::MAX, self.style.unicode);
        self.line(key, &text);
    }

    fn line(&mut self, key: &str, text: &str) {
        let key = self.key(key);
        let _ = writeln!(self.out, "{key}{text}");
    }

    /// Adds a text that may continue on the next line. Adds nothing where the text is empty.
    fn wrapped(&mut self, key: &str, text: &str) {
        let text = fit(text, usize::MAX, self.style.unicode);
        let width = self.columns - KEY;
        let (mut line, mut key) = (String::new(), key);
        for word in text.split(' ').filter(|word| !word.is_empty()) {
            let long = line.chars().count() + 1 + word.chars().count() > width;
            if long && !line.is_empty() && !self.style.whole_names {
                self.line(key, &line);
                line.clear();
                key = "";
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        if !line.is_empty() {
            self.line(key, &line);
        }
    }

    /// Adds a row for each GPU with how it spent the time.
    fn gpus(&mut self, heads: &[Head]) {
        let mut rows: Vec<(String, &Gpu)> = Vec::new();
        for head in heads.iter().take(MOST_SESSIONS) {
            for gpu in &head.gpus {
                let of = match heads.len() {
                    1 => String::new(),
                    _ => format!(" of {}", head.pid),
                };
                let name = format!("{}{of} {}", gpu.name, gpu.model);
                rows.push((name.trim_end().to_owned(), gpu));
            }
        }
        if rows.is_empty() {
            return;
        }
        self.out.push('\n');
        let fixed: usize = COLUMNS.iter().map(|(_, width)| width).sum();
        let longest = rows.iter().map(|(name, _)| name.chars().count()).max();
        let longest = longest.unwrap_or(0);
        match self.columns.checked_sub(fixed).filter(|room| *room >= 12) {
            Some(room) => self.table_of_gpus(&rows, longest.min(room)),
            None => {
                for (name, gpu) in &rows {
                    let text = fit(name, self.columns, self.style.unicode);
                    self.line("", "");
                    self.out.truncate(self.out.len() - KEY - 1);
                    let _ = writeln!(self.out, "{text}");
                    for ((word, _), value) in COLUMNS.iter().zip(values(gpu)) {
                        let _ = writeln!(self.out, "  {word:<16}{value:>7}");
                    }
                }
            }
        }
        if let (1, Some(head)) = (heads.len(), heads.first()) {
            match head.idle_gpus {
                0 => {}
                1 => self.out.push_str("1 other GPU was idle for this process\n"),
                more => {
                    let _ = writeln!(self.out, "{more} other GPUs were idle for this process");
                }
            }
        }
        if let more @ 1.. = heads.len().saturating_sub(MOST_SESSIONS) {
            let _ = writeln!(self.out, "(GPUs of {more} other processes)");
        }
    }

    fn table_of_gpus(&mut self, rows: &[(String, &Gpu)], width: usize) {
        let (bold, plain) = match self.style.colour {
            true => ("\x1b[1m", "\x1b[0m"),
            false => ("", ""),
        };
        let width = width.max(3);
        let _ = write!(self.out, "{bold}{:<width$}", "GPU");
        for (word, columns) in COLUMNS {
            let _ = write!(self.out, "{word:>columns$}");
        }
        let _ = writeln!(self.out, "{plain}");
        for (name, gpu) in rows {
            let name = fit(name, width, self.style.unicode);
            let _ = write!(self.out, "{name:<width$}");
            for ((_, columns), value) in COLUMNS.iter().zip(values(gpu)) {
                let _ = write!(self.out, "{value:>columns$}");
            }
            self.out.push('\n');
        }
    }
}

/// Returns the shares in percent, in the order of [`COLUMNS`].
fn values(gpu: &Gpu) -> [String; 5] {
    let shares = &gpu.shares;
    let time = shares.sum();
    let percent = |part: u64| format!("{:.1}%", part as f64 * 100.0 / time.max(1) as f64);
    // Without recorded calls it is not known what the host did, so the two shares are shown as one
    // number.
    let waited = match gpu.sees_waits {
        true => percent(shares.waited),
        false => "-".to_owned(),
    };
    [
        percent(shares.busy),
        percent(shares.copies),
        percent(shares.starting),
        waited,
        percent(shares.nothing),
    ]
}
