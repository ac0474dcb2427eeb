//! The page for Prometheus, in OpenMetrics' text.

use crate::processes::{self, Recorded};
use midair_failure::plain;
use nix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The two texts of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Text {
    /// OpenMetrics, for those who accept it, as Prometheus does.
    Open,
    /// The older text of Prometheus.
    Prometheus,
}

impl Text {
    /// Returns the text that this `Accept` prefers.
    pub(crate) fn accepted(accept: &str) -> Text {
        match accept.contains("application/openmetrics-text") {
            true => Text::Open,
            false => Text::Prometheus,
        }
    }

    /// Returns the content type.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Text::Open => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Text::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// What the server has done so far.
#[derive(Debug)]
pub(crate) struct Counts {
    began: Instant,
    /// Answers, by kind of request and status. Both are few.
    answers: Mutex<BTreeMap<(&'static str, u16), u64>>,
}

impl Counts {
    pub(crate) fn new() -> Counts {
        Counts {
            began: Instant::now(),
            answers: Mutex::default(),
        }
    }

    /// Counts an answer.
    pub(crate) fn answered(&self, kind: &'static str, status: u16) {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        *answers.entry((kind, status)).or_default() += 1;
    }
}

/// A page that is being written.
#[derive(Debug)]
pub(crate) struct Page {
    text: Text,
    page: String,
}

impl Page {
    pub(crate) fn new(text: Text) -> Page {
        Page {
            text,
            page: String::new(),
        }
    }

    /// Starts a family. In the older text its name is the samples' own, and it has no unit.
    pub(crate) fn family(&mut self, name: &str, kind: &str, unit: &str, help: &str) {
        let (name, kind) = match (self.text, kind) {
            (Text::Prometheus, "counter") => (format!("{name}_total"), kind),
            (Text::Prometheus, "info") => (format!("{name}_info"), "gauge"),
            _ => (name.to_owned(), kind),
        };
        let _ = writeln!(self.page, "# TYPE {name} {kind}");
        if !unit.is_empty() && self.text == Text::Open {
            let _ = writeln!(self.page, "# UNIT {name} {unit}");
        }
        let _ = writeln!(self.page, "# HELP {name} {help}.");
    }

    /// Returns the whole page.
    pub(crate) fn finish(mut self) -> String {
        if self.text == Text::Open {
            self.page.push_str("# EOF\n");
        }
        self.page
    }

    /// Adds a sample of a family of counters.
    pub(crate) fn counted(&mut self, family: &str, labels: &[(&str, &str)], value: f64) {
        self.sample(&format!("{family}_total"), labels, value);
    }

    /// Adds a sample of it.
    pub(crate) fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        self.page.push_str(name);
        for (at, (key, text)) in labels.iter().enumerate() {
            let before = if at == 0 { '{' } else { ',' };
            let _ = write!(self.page, "{before}{key}=\"{}\"", escaped(text));
        }
        let after = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.page, "{after} {value}");
    }
}

/// The most bytes of a label's value.
const MOST_LABEL: usize = 256;

/// Returns a value as a label has it. Names are a process's own words.
fn escaped(text: &str) -> String {
    let text = plain::line(text);
    let mut all = String::new();
    for char in text.chars() {
        if all.len() >= MOST_LABEL {
            all.push('…');
            break;
        }
        match char {
            '\\' => all.push_str("\\\\"),
            '"' => all.push_str("\\\""),
            '\n' => all.push_str("\\n"),
            _ => all.push(char),
        }
    }
    all
}

/// Returns the page. `recorded` is what is recorded all the time.
pub(crate) fn page(
    text: Text,
    counts: &Counts,
    under_way: usize,
    recorded: Option<&Recorded>,
) -> String {
    let mut page = Page::new(text);
    page.family("midair_build", "info", "", "The version");
    let version = [("version", env!("CARGO_PKG_VERSION"))];
    page.sample("midair_build_info", &version, 1.0);
    let name = "midair_serve_requests";
    page.family(name, "counter", "", "Requests that were answered");
    {
        let answers = counts.answers.lock();
        let answers = answers.unwrap_or_else(PoisonError::into_inner);
        for ((kind, status), count) in answers.iter() {
            let labels = [("kind", *kind), ("status", &status.to_string())];
            page.counted(name, &labels, *count as f64);
        }
    }
    let name = "midair_serve_sessions";
    let help = "Attaches and looks of requests that are under way";
    page.family(name, "gauge", "", help);
    page.sample(name, &[], under_way as f64);
    let name = "midair_serve_cpu_seconds";
    page.family(name, "counter", "seconds", "Processor time of the server");
    let spent = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID);
    let spent = spent.map(Duration::from).unwrap_or_default();
    page.counted(name, &[], spent.as_secs_f64());
    let name = "midair_serve_uptime_seconds";
    let help = "Time since the start of the server";
    page.family(name, "gauge", "seconds", help);
    page.sample(name, &[], counts.began.elapsed().as_secs_f64());
    let name = "midair_serve_hanging_looks";
    let help = "Threads that wait for a process that does not answer";
    page.family(name, "gauge", "", help);
    page.sample(name, &[], midair_session::hanging_looks() as f64);
    if let Some(recorded) = recorded {
        processes::write(&mut page, recorded);
    }
    page.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_processes_break_no_line() {
        let mut page = Page::new(Text::Open);
        let name = "a\"} 1\nmidair_x 2\\\u{1b}";
        page.sample("m", &[("kernel", name), ("x", &"y".repeat(999))], 0.5);
        let line = page.page.strip_suffix('\n').unwrap();
        assert!(!line.contains(['\n', '\u{1b}']), "{line}");
        assert!(line.starts_with("m{kernel=\"a\\\"} 1"), "{line}");
        assert!(line.ends_with("yyy…\"} 0.5") && line.len() < 400, "{line}");
    }

    #[test]
    fn the_page_is_families_with_their_samples() {
        let counts = Counts::new();
        counts.answered("top", 200);
        counts.answered("top", 200);
        for text in [Text::Open, Text::Prometheus] {
            let page = page(text, &counts, 3, Some(&Recorded::default()));
            assert!(page.contains("midair_serve_requests_total{kind=\"top\",status=\"200\"} 2\n"));
            assert!(page.contains("\nmidair_serve_sessions 3\n"));
            assert_eq!(page.ends_with("\n# EOF\n"), text == Text::Open);
            let mut family = String::new();
            for line in page.lines() {
                match line.strip_prefix("# TYPE ") {
                    Some(rest) => family = rest.split(' ').next().unwrap().to_owned(),
                    None if line.starts_with('#') => {}
                    None => assert!(line.starts_with(&family), "{line}"),
                }
            }
        }
    }
}
