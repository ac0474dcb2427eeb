//! The metrics of the server itself.

use crate::otlp::outbox::Exported;
use crate::page::{Kind, Page};
use crate::processes::{self, Recorded};
use crate::push::pushed::Pushed;
use nix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

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

/// What a page has, next to the counts.
#[derive(Debug, Default)]
pub(crate) struct Sources<'a> {
    /// Attaches and looks of requests.
    pub(crate) under_way: usize,
    /// Connections of strangers that found no place.
    pub(crate) strangers: u64,
    pub(crate) exported: Option<&'a Exported>,
    pub(crate) pushed: Option<&'a Pushed>,
    /// What is recorded all the time.
    pub(crate) recorded: Option<&'a Recorded>,
}

/// Returns the page.
pub(crate) fn page(counts: &Counts, from: &Sources<'_>) -> Page {
    let mut page = Page::default();
    let version = [("version", env!("CARGO_PKG_VERSION"))];
    page.family("midair_build", Kind::Info, "", "The version")
        .add(&version, 1.0);
    let name = "midair_serve_requests";
    let requests = page.family(name, Kind::Counter, "", "Requests that were answered");
    {
        let answers = counts.answers.lock();
        let answers = answers.unwrap_or_else(PoisonError::into_inner);
        for ((kind, status), count) in answers.iter() {
            let labels = [("kind", *kind), ("status", &status.to_string())];
            requests.add(&labels, *count as f64);
        }
    }
    let help = "Attaches and looks of requests that are under way";
    page.family("midair_serve_sessions", Kind::Gauge, "", help)
        .add(&[], from.under_way as f64);
    let spent = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID);
    let spent = spent.map(Duration::from).unwrap_or_default();
    let (name, help) = ("midair_serve_cpu_seconds", "Processor time of the server");
    page.family(name, Kind::Counter, "seconds", help)
        .add(&[], spent.as_secs_f64());
    let name = "midair_serve_uptime_seconds";
    let help = "Time since the start of the server";
    page.family(name, Kind::Gauge, "seconds", help)
        .add(&[], counts.began.elapsed().as_secs_f64());
    let help = "Threads that wait for a process that does not answer";
    page.family("midair_serve_hanging_looks", Kind::Gauge, "", help)
        .add(&[], midair_session::hanging_looks() as f64);
    let help = "Connections of clients without a right to ask so far that found no place";
    page.family("midair_serve_refused_connections", Kind::Counter, "", help)
        .add(&[], from.strangers as f64);
    if let Some(exported) = from.exported {
        exported.write(&mut page);
    }
    if let Some(pushed) = from.pushed {
        pushed.write(&mut page);
    }
    if let Some(recorded) = from.recorded {
        processes::write(&mut page, recorded);
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::{Text, write};

    #[test]
    fn the_page_is_families_with_their_samples() {
        let counts = Counts::new();
        counts.answered("top", 200);
        counts.answered("top", 200);
        for text in [Text::Open, Text::Prometheus] {
            let from = Sources {
                under_way: 3,
                recorded: Some(&Recorded::default()),
                ..Sources::default()
            };
            let page = write(&page(&counts, &from), text);
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
