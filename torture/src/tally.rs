//! The results of the cycles of one cell by one attach method.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// The result of one cycle, as the attach method itself tells it.
#[derive(Debug, Clone)]
pub enum Cycle {
    /// The library ran in the target, and the target was left again.
    Entered(Entry),
    /// The attach was refused without touching anything, with the name and the text of the refusal.
    Refused(String, String),
    /// The attach failed, with its own message.
    Failed(String),
    /// It did not end before the deadline.
    Hung(String),
}

/// The times of a cycle in which a library was loaded and the target was left again.
#[derive(Debug, Clone, Default)]
pub struct Entry {
    /// The time from the start until the library in the target ran.
    pub attach: Duration,
    /// The time from then until the target was left.
    pub out: Duration,
    /// How long the borrowed thread was stopped, as the attach method measured it.
    pub stopped: Option<Duration>,
    /// The entry path, in a word.
    pub tier: String,
    /// The thread that was stopped and may notice it, by its id in our own pid namespace.
    pub thread: Option<i32>,
}

/// The cycles of one cell by one attach method.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// Cycles that were started.
    pub cycles: u64,
    /// Cycles in which the library ran.
    pub entered: u64,
    /// The number of refusals by name, each with the text of the first.
    pub refused: BTreeMap<String, (u64, String)>,
    /// Cycles that did not end in time.
    pub hung: u64,
    /// Cycles that failed without a refusal.
    pub failed: u64,
    /// Targets that were gone afterwards.
    pub crashed: u64,
    /// Targets whose own checks failed, or that made no progress.
    pub wrong: u64,
    /// Calls of application threads that ended early, other than the borrowed thread's.
    pub eintr: u64,
    /// Calls of the borrowed thread that ended early.
    pub eintr_own: u64,
    /// Targets that were not as before.
    pub residue: u64,
    /// The latencies of attaches.
    pub attach: Vec<Duration>,
    /// The times from the run of the library until the target was left.
    pub out: Vec<Duration>,
    /// How long the borrowed thread was stopped.
    pub stopped: Vec<Duration>,
    /// The longest gap of busy threads in each cycle, as they saw it.
    pub gaps: Vec<Duration>,
    /// The same without an attach, before the first cycle.
    pub rest: Vec<Duration>,
    /// Cycles by entry path.
    pub tiers: BTreeMap<String, u64>,
    /// The first few notes for the table.
    pub notes: Vec<String>,
    /// The reason why the cell could not be run at all, if so. It has then shown nothing.
    pub left_out: Option<String>,
}

/// How many notes are kept.
const NOTES: usize = 6;

impl Tally {
    /// Makes the tally of a cell that could not be run here.
    pub fn left_out(why: impl Into<String>) -> Tally {
        Tally {
            left_out: Some(why.into()),
            ..Tally::default()
        }
    }

    /// Keeps a note, if it is one of the first.
    pub fn note(&mut self, text: impl Into<String>) {
        let text = text.into();
        if self.notes.len() < NOTES && !self.notes.contains(&text) {
            self.notes.push(text);
        }
    }

    /// Counts a cycle, and returns the thread that may have noticed.
    pub fn count(&mut self, cycle: &Cycle) {
        self.cycles += 1;
        match cycle {
            Cycle::Entered(entry) => {
                self.entered += 1;
                self.attach.push(entry.attach);
                self.out.push(entry.out);
                self.stopped.extend(entry.stopped);
                *self.tiers.entry(entry.tier.clone()).or_default() += 1;
            }
            Cycle::Refused(name, words) => {
                let entry = self.refused.entry(name.clone());
                entry.or_insert_with(|| (0, words.clone())).0 += 1;
            }
            Cycle::Failed(words) => {
                self.failed += 1;
                self.note(format!("failed: {words}"));
            }
            Cycle::Hung(words) => {
                self.hung += 1;
                self.note(format!("hung: {words}"));
            }
        }
    }

    /// Returns how many cycles were refused.
    pub fn refusals(&self) -> u64 {
        self.refused.values().map(|(count, _)| count).sum()
    }

    /// Returns how many cycles did harm to a target or did not end.
    pub fn harm(&self) -> u64 {
        self.hung + self.crashed + self.wrong + self.eintr + self.residue
    }

    /// Returns all numbers, for other programs.
    pub fn json(&self) -> Value {
        json!({
            "left_out": self.left_out,
            "cycles": self.cycles,
            "entered": self.entered,
            "refused": self.refused.iter().map(|(name, (count, words))| json!({"name": name, "count": count, "words": words})).collect::<Vec<_>>(),
            "failed": self.failed,
            "hung": self.hung,
            "crashed": self.crashed,
            "wrong": self.wrong,
            "eintr": self.eintr,
            "eintr_of_the_borrowed_thread": self.eintr_own,
            "residue": self.residue,
            "attach_ns": spread(&self.attach),
            "out_ns": spread(&self.out),
            "stopped_ns": spread(&self.stopped),
            "gap_ns": spread(&self.gaps),
            "gap_at_rest_ns": spread(&self.rest),
            "tiers": self.tiers,
            "notes": self.notes,
        })
    }
}

/// Returns the value at this part of the whole, by rank.
pub fn at(times: &[Duration], part: f64) -> Option<Duration> {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let rank = (part * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

fn spread(times: &[Duration]) -> Value {
    let part = |part: f64| at(times, part).map(|time| time.as_nanos() as u64);
    json!({"count": times.len(), "p50": part(0.5), "p99": part(0.99), "max": part(1.0)})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks() {
        let times: Vec<Duration> = (1..=100).map(Duration::from_millis).collect();
        let ms = |part| at(&times, part).map(|time| time.as_millis());
        assert_eq!(
            (ms(0.5), ms(0.99), ms(1.0)),
            (Some(50), Some(99), Some(100))
        );
        assert_eq!(at(&times[..1], 0.5), Some(Duration::from_millis(1)));
        assert_eq!(at(&[], 0.5), None);
    }

    #[test]
    fn harm_is_what_a_target_suffers() {
        let mut tally = Tally::default();
        tally.count(&Cycle::Refused("Traced".into(), "by gdb".into()));
        tally.count(&Cycle::Failed("no".into()));
        assert_eq!((tally.cycles, tally.refusals(), tally.harm()), (2, 1, 0));
        tally.count(&Cycle::Hung("5 s".into()));
        assert_eq!(tally.harm(), 1);
    }
}
