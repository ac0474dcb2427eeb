//! Conditions under which a window of records is written to files.

use crate::lane::Span;
use crate::model::{Flight, Model};
use midair_settings::duration_word;
use regex_lite::Regex;
use std::collections::HashMap;
use std::fmt;

/// How many dispatches of a kernel must have ended before their median is used.
const ENOUGH: u64 = 20;
/// The longest time between an event and its record. A gap is judged only after this time.
const LATE: u64 = 300_000_000;
/// The most events that wait to be taken.
const MOST_EVENTS: usize = 64;
/// The most devices and queues that a condition remembers.
const MOST_SEEN: usize = 4096;

/// When an event happens.
#[derive(Debug, Clone)]
pub struct Trigger {
    text: String,
    when: When,
}

#[derive(Debug, Clone)]
enum When {
    /// A kernel whose name matches took longer than the limit.
    Kernel(Regex, Limit),
    /// No kernel ran on a device for longer than this, ns.
    Gap(u64),
    /// One dispatch has been at the head of its queue for longer than this, ns.
    Stuck(u64),
    /// More than this share of a device's memory is in use.
    Memory(f64),
    /// A mark or range whose message matches.
    Message(Regex),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Limit {
    Time(u64),
    Medians(f64),
}

/// The forms of conditions that are understood.
pub const FORMS: &str = "kernel(REGEX) > 3*median, kernel(REGEX) > 5ms, gap > 50ms, queue stuck > 10s, memory > 90%, message(REGEX)";

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn time(word: &str) -> Option<u64> {
    u64::try_from(duration_word(word.trim())?.as_nanos()).ok()
}

/// Returns the text in the brackets behind a word, and what follows the brackets.
fn brackets<'a>(text: &'a str, word: &str) -> Option<(&'a str, &'a str)> {
    let rest = text.strip_prefix(word)?.trim_start().strip_prefix('(')?;
    let end = rest.rfind(')')?;
    Some((rest.get(..end)?, rest.get(end + 1..)?.trim()))
}

impl Trigger {
    /// Reads one of the [`FORMS`].
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn parse(text: &str) -> Result<Trigger, String> {
        let text = text.trim();
        let regex = |pattern: &str| {
            Regex::new(pattern)
                .map_err(|why| format!("'{pattern}' is not a regular expression: {why}"))
        };
        let unknown = || format!("'{text}' is not a condition; use one of {FORMS}");
        let above = |rest: &str| {
            rest.trim()
                .strip_prefix('>')
                .map(|rest| rest.trim().to_owned())
        };
        let when = if let Some((pattern, rest)) = brackets(text, "message") {
            if !rest.is_empty() {
                return Err(unknown());
            }
            When::Message(regex(pattern)?)
        } else if let Some((pattern, rest)) = brackets(text, "kernel") {
            let limit = above(rest).ok_or_else(unknown)?;
            let limit = match limit.strip_suffix("median") {
                Some(factor) => {
                    let factor = factor.trim().trim_end_matches(['*', 'x']).trim();
                    let factor: f64 = factor.parse().map_err(|_| unknown())?;
                    // With a factor below one, half of all kernels would be events.
                    (factor > 1.0 && factor.is_finite()).then_some(Limit::Medians(factor))
                }
                None => time(&limit).map(Limit::Time),
            };
            When::Kernel(regex(pattern)?, limit.ok_or_else(unknown)?)
        } else if let Some(rest) = text.strip_prefix("gap") {
            When::Gap(above(rest).as_deref().and_then(time).ok_or_else(unknown)?)
        } else if let Some(rest) = text.strip_prefix("queue stuck") {
            When::Stuck(above(rest).as_deref().and_then(time).ok_or_else(unknown)?)
        } else if let Some(rest) = text.strip_prefix("memory") {
            let limit = above(rest).ok_or_else(unknown)?;
            let percent = limit
                .strip_suffix('%')
                .and_then(|number| number.trim().parse::<f64>().ok());
            let percent = percent.filter(|percent| (0.0..100.0).contains(percent));
            When::Memory(percent.ok_or_else(unknown)? / 100.0)
        } else {
            return Err(unknown());
        };
        Ok(Trigger {
            text: text.to_owned(),
            when,
        })
    }

    /// Whether it needs the share of the devices' memory that is in use.
    pub fn is_of_memory(&self) -> bool {
        matches!(self.when, When::Memory(_))
    }
}

/// An event that a trigger was waiting for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Happened {
    /// When it happened, CLOCK_BOOTTIME ns.
    pub at: u64,
    /// What happened, in words for the user.
    pub what: String,
}

/// A trigger in use.
#[derive(Debug)]
pub(crate) struct Armed {
    trigger: Trigger,
    /// Whether a kernel's name matches, by our number for it.
    matches: HashMap<u64, bool>,
    /// The events that were reported already: the start of a device's gap, or a queue's dispatch.
    told: HashMap<u32, u64>,
    /// Whether the memory was above the limit.
    above: bool,
}

/// All triggers of a model, and the events that happened.
#[derive(Debug, Default)]
pub(crate) struct Triggers {
    armed: Vec<Armed>,
    events: Vec<Happened>,
}

impl Triggers {
    pub(crate) fn is_empty(&self) -> bool {
        self.armed.is_empty()
    }

    fn happened(events: &mut Vec<Happened>, trigger: &Trigger, at: u64, what: &str) {
        if events.len() < MOST_EVENTS {
            events.push(Happened {
                at,
                what: format!("{trigger}: {what}"),
            });
        }
    }

    /// Takes a kernel that ended. `before` is the median of the kernels before it, with their
    /// number.
    pub(crate) fn kernel(&mut self, id: u64, symbol: &[u8], span: Span, before: (u64, u64)) {
        let took = span.1 - span.0;
        for armed in &mut self.armed {
            let When::Kernel(pattern, limit) = &armed.trigger.when else {
                continue;
            };
            let limit = match limit {
                Limit::Time(limit) => *limit,
                Limit::Medians(factor) if before.0 >= ENOUGH => (before.1 as f64 * factor) as u64,
                Limit::Medians(_) => continue,
            };
            // Most kernels are fast, so names are compared only for slow ones.
            if took <= limit {
                continue;
            }
            if armed.matches.len() > MOST_SEEN {
                armed.matches.clear();
            }
            let matches = armed.matches.entry(id).or_insert_with(|| {
                let label = midair_output::table::kernel_labels(&[symbol])
                    .pop()
                    .unwrap_or_default();
                pattern.is_match(&label) || pattern.is_match(&String::from_utf8_lossy(symbol))
            });
            if *matches {
                let what = format!("a kernel took {:.3} ms", took as f64 / 1e6);
                Self::happened(&mut self.events, &armed.trigger, span.1, &what);
            }
        }
    }

    /// Takes a mark or range.
    pub(crate) fn message(&mut self, at: u64, message: &[u8]) {
        for armed in &self.armed {
            if let When::Message(pattern) = &armed.trigger.when {
                let text = String::from_utf8_lossy(message);
                if pattern.is_match(&text) {
                    let what = format!("'{text}'");
                    Self::happened(&mut self.events, &armed.trigger, at, &what);
                }
            }
        }
    }

    /// Takes the gaps of a device so far. `spans` are the times in which it was busy in the last
    /// seconds, and `flying` says that some dispatch has not ended.
    pub(crate) fn gaps(&mut self, (node, gpu): (u32, u32), spans: &[Span], flying: bool, now: u64) {
        let horizon = now.saturating_sub(LATE);
        for armed in &mut self.armed {
            let When::Gap(limit) = armed.trigger.when else {
                continue;
            };
            // A gap that goes on ends now.
            let ends = spans.iter().skip(1).map(|span| span.0);
            let ends = ends.chain((!flying).then_some(horizon));
            for (span, end) in spans.iter().zip(ends) {
                let told = armed.told.get(&node).is_some_and(|told| span.1 <= *told);
                if told || end > horizon || end.saturating_sub(span.1) <= limit {
                    continue;
                }
                armed.told.insert(node, span.1);
                let ms = (end - span.1) as f64 / 1e6;
                let what = format!("GPU {gpu} was idle for {ms:.1} ms or more");
                Self::happened(&mut self.events, &armed.trigger, span.1 + limit, &what);
            }
        }
    }

    /// Takes the head of a queue.
    pub(crate) fn head(&mut self, flight: &Flight, began: u64, now: u64) {
        for armed in &mut self.armed {
            let When::Stuck(limit) = armed.trigger.when else {
                continue;
            };
            let told = armed.told.get(&flight.queue) == Some(&flight.dispatch);
            if told || now.saturating_sub(began) <= limit || armed.told.len() > MOST_SEEN {
                continue;
            }
            armed.told.insert(flight.queue, flight.dispatch);
            let seconds = (now - began) as f64 / 1e9;
            let what = format!(
                "queue {} has been in dispatch {} for {seconds:.1} s",
                flight.queue, flight.dispatch
            );
            Self::happened(&mut self.events, &armed.trigger, began + limit, &what);
        }
    }

    /// Takes the share of the fullest device's memory that is in use.
    pub(crate) fn memory(&mut self, share: f64, now: u64) {
        for armed in &mut self.armed {
            let When::Memory(limit) = armed.trigger.when else {
                continue;
            };
            let was_above = std::mem::replace(&mut armed.above, share > limit);
            if armed.above && !was_above {
                let what = format!("{:.1} % are in use", share * 100.0);
                Self::happened(&mut self.events, &armed.trigger, now, &what);
            }
        }
    }
}

impl Model {
    /// Starts to look for these events.
    pub fn arm(&mut self, triggers: &[Trigger]) {
        self.triggers.armed = triggers
            .iter()
            .map(|trigger| Armed {
                trigger: trigger.clone(),
                matches: HashMap::new(),
                told: HashMap::new(),
                above: false,
            })
            .collect();
    }

    /// Records an event that something else reports, at the present time.
    pub fn happen(&mut self, what: &str) {
        let at = self.now();
        if self.triggers.events.len() < MOST_EVENTS {
            self.triggers.events.push(Happened {
                at,
                what: what.to_owned(),
            });
        }
    }

    /// Returns the events since the last call.
    pub fn happened(&mut self) -> Vec<Happened> {
        std::mem::take(&mut self.triggers.events)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn armed(text: &str) -> Triggers {
        Triggers {
            armed: vec![Armed {
                trigger: Trigger::parse(text).unwrap(),
                matches: HashMap::new(),
                told: HashMap::new(),
                above: false,
            }],
            events: Vec::new(),
        }
    }

    const MS: u64 = 1_000_000;

    #[test]
    fn what_is_no_condition_is_refused() {
        for good in [
            "kernel(gemm) > 3*median",
            "kernel(gemm|conv) > 2.5 * median",
            "kernel(k(1)) > 5ms",
            "gap > 50ms",
            "queue stuck > 10s",
            "memory>90%",
            "message(^epoch 3$)",
        ] {
            assert_eq!(Trigger::parse(good).unwrap().to_string(), good);
        }
        for bad in [
            "",
            "gap",
            "gap > 0",
            "gap < 5ms",
            "kernel(x)",
            "kernel(x > 5ms",
            "kernel(() > 5ms",
            "kernel(x) > 0.5*median",
            "kernel(x) > NaN*median",
            "memory > 100%",
            "memory > 3",
            "message(x) > 3",
            "queue > 3s",
        ] {
            assert!(Trigger::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_kernel_is_compared_with_those_before_it() {
        let mut triggers = armed("kernel(^gemm) > 3*median");
        triggers.kernel(1, b"gemm", (0, 100 * MS), (ENOUGH - 1, MS));
        assert_eq!(triggers.events, [], "there is no median yet");
        triggers.kernel(1, b"gemm", (0, 3 * MS), (ENOUGH, MS));
        triggers.kernel(2, b"conv", (0, 9 * MS), (ENOUGH, MS));
        assert_eq!(triggers.events, []);
        triggers.kernel(1, b"gemm", (5, 5 + 4 * MS), (ENOUGH, MS));
        assert_eq!(triggers.events.len(), 1);
        assert_eq!(triggers.events[0].at, 5 + 4 * MS);
    }

    #[test]
    fn a_gap_is_told_once_and_not_while_something_runs() {
        let mut triggers = armed("gap > 50ms");
        let spans = [(0, 10 * MS), (40 * MS, 50 * MS), (150 * MS, 160 * MS)];
        // Later records may still fill this gap.
        triggers.gaps((1, 0), &spans, true, 200 * MS);
        assert_eq!(triggers.events, []);
        triggers.gaps((1, 0), &spans, true, 700 * MS);
        triggers.gaps((1, 0), &spans, true, 800 * MS);
        assert_eq!(triggers.events.len(), 1, "{:?}", triggers.events);
        assert_eq!(triggers.events[0].at, 100 * MS);
        // Nothing has run since 160 ms, which is another gap.
        triggers.gaps((1, 0), &spans, false, 900 * MS);
        triggers.gaps((1, 0), &spans, false, 1_000 * MS);
        assert_eq!(triggers.events.len(), 2, "{:?}", triggers.events);
        triggers.gaps((2, 0), &spans, false, 1_000 * MS);
        assert_eq!(triggers.events.len(), 4, "another device has its own");
    }

    #[test]
    fn heads_messages_and_memory() {
        let mut triggers = armed("queue stuck > 10s");
        let flight = Flight {
            queue: 1,
            node: 1,
            dispatch: 7,
            kernel_object: 0,
            rung: 0,
            under_way: 1,
        };
        triggers.head(&flight, 0, 9_000 * MS);
        assert_eq!(triggers.events, []);
        triggers.head(&flight, 0, 11_000 * MS);
        triggers.head(&flight, 0, 12_000 * MS);
        assert_eq!(triggers.events.len(), 1);
        let mut triggers = armed("message(^slow)");
        triggers.message(5, b"fast");
        triggers.message(6, b"slow step");
        assert_eq!(triggers.events.len(), 1);
        let mut triggers = armed("memory > 90%");
        for (share, events) in [(0.5, 0), (0.95, 1), (0.96, 1), (0.5, 1), (0.91, 2)] {
            triggers.memory(share, 0);
            assert_eq!(triggers.events.len(), events, "{share}");
        }
    }
}
