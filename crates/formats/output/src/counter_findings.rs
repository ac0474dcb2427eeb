//! What the values of counters show besides themselves: a kernel that changed while it was counted,
//! and values that are certainly above what they can be.
//!
//! A change over time says that windows of the start and of the end are not of the same
//! population; the mean still covers all dispatches. A value above its bound is shown as it is,
//! and is never cut off.

use crate::counter_table::{self, Counted, OVER_TIME, Row, short};
use crate::job::Job;
use midair_counters::bounds::{Bound, base};
use midair_counters::plan::Wanted;
use midair_counters::statistics::{Counter, Drift, Estimate};
use midair_record::event::kind;
use serde_json::{Value, json};

/// The most kernels that a note names. The others are only counted.
const MOST_NAMED: usize = 4;

/// Smaller changes are certain where there are very many windows, and tell nothing.
const LEAST_CHANGE: f64 = 0.01;

/// A change of a kernel over time.
pub(crate) struct Change {
    /// The counter that shows it.
    counter: &'static str,
    drift: Drift,
}

impl Change {
    /// Whether chance does not explain it, and it is large enough to be reported.
    pub(crate) fn is_told(&self) -> bool {
        let relative = self.drift.relative();
        self.drift.is_certain && relative.is_none_or(|change| change.abs() >= LEAST_CHANGE)
    }

    /// Returns it in words.
    pub(crate) fn text(&self) -> String {
        let change = match self.drift.relative() {
            Some(relative) => format!("{:+.1} %", 100.0 * relative),
            None => format!("0 to {}", short(self.drift.last.value)),
        };
        format!("drift: {} {change} from first to last third", self.counter)
    }

    pub(crate) fn field(&self) -> Value {
        let third = |of: &Estimate| {
            json!({
                "mean": of.value,
                "windows": of.n,
                "interval_95": of.interval().map(|(low, high)| [low, high]),
            })
        };
        json!({
            "counter": self.counter,
            "first_third": third(&self.drift.first),
            "last_third": third(&self.drift.last),
            "change": self.drift.relative(),
            "is_certain": self.drift.is_certain,
        })
    }
}

/// A value that is certainly above what it can be.
pub(crate) struct Excess {
    counter: &'static str,
    /// What it is above.
    of: String,
    limit: f64,
    estimate: Estimate,
}

impl Excess {
    /// Returns it in words.
    pub(crate) fn text(&self) -> String {
        let least = self.estimate.interval().map_or(f64::NAN, |(low, _)| low);
        match self.of.is_empty() {
            true => format!("above 100 %, certainly above {}", short(least)),
            false => format!(
                "above {}: {} times as many, certainly above {}",
                self.of,
                short(self.estimate.value),
                short(least)
            ),
        }
    }

    pub(crate) fn field(&self) -> Value {
        json!({
            "of": (!self.of.is_empty()).then_some(&self.of),
            "limit": self.limit,
            "value": self.estimate.value,
            "interval_95": self.estimate.interval().map(|(low, high)| [low, high]),
        })
    }
}

/// Returns how a row changed over time, where enough windows tell.
pub(crate) fn drift(job: &Job<'_>, counted: &Counted) -> Option<Change> {
    // Nothing is known about the dispatches between the windows of batches.
    if counted.batch.1 > 0 {
        return None;
    }
    let counter = job.trace.counters.over_time(counted.node)?;
    let value = OVER_TIME;
    let groups = counted.statistics.groups();
    let drift = counted
        .statistics
        .drift(groups.map(|group| Counter { group, value }))?;
    Some(Change { counter, drift })
}

/// Returns a row's counter whose value is certainly above what it can be.
pub(crate) fn excess(
    job: &Job<'_>,
    counted: &Counted,
    name: &'static str,
    counter: Counter,
) -> Option<Excess> {
    let found = |of: String, limit: f64, estimate: Estimate| {
        estimate.exceeds(limit).then_some(Excess {
            counter: name,
            of,
            limit,
            estimate,
        })
    };
    match Bound::of(wanted(job, counted.node, counter.group, name)?)? {
        Bound::Hundred => found(String::new(), 100.0, counted.statistics.mean(counter)?),
        Bound::Whole(whole) => {
            let mut all = counted.counters.iter();
            let (whole, to) = all.find(|(name, _)| base(name) == whole)?;
            let statistics = &counted.statistics;
            let estimate = if counter.group == to.group {
                statistics.ratio(counter, *to)
            } else {
                let over_time = |of: Counter| Counter {
                    value: OVER_TIME,
                    ..of
                };
                statistics.ratio_across(counter, *to, [over_time(counter), over_time(*to)])
            };
            found((*whole).to_owned(), 1.0, estimate?)
        }
    }
}

fn wanted<'j>(job: &Job<'j>, node: u32, group: u32, name: &str) -> Option<&'j Wanted> {
    let group = job.trace.counters.agents.get(&node)?.get(group as usize)?;
    group.group.counters.iter().find(|c| c.name == name)
}

/// Returns lines on what the values of counters show besides themselves. They are found once.
pub(crate) fn of<'j>(job: &'j Job<'_>) -> &'j [String] {
    job.findings.get_or_init(|| notes(job))
}

/// Returns lines for the notes.
fn notes(job: &Job<'_>) -> Vec<String> {
    let is_there = job.index.count_of(kind::COUNTER_COLLECTION) > 0;
    if !is_there || job.trace.counters.interval != 0 {
        return Vec::new();
    }
    let rows = counter_table::rows(job);
    let name = |((class, _), counted): &Row| counter_table::name_of(job, class, counted);
    let mut drifts = Vec::new();
    let mut excesses = Vec::new();
    for row in &rows {
        let counted = &row.1;
        if let Some(change) = drift(job, counted).filter(Change::is_told) {
            drifts.push(format!("{} ({})", name(row), change.text()));
        }
        for (counter, place) in &counted.counters {
            if let Some(excess) = excess(job, counted, counter, *place) {
                let text = format!("{} of {} ({})", excess.counter, name(row), excess.text());
                excesses.push(text);
            }
        }
    }
    let mut notes = Vec::new();
    if !drifts.is_empty() {
        notes.push(format!(
            "counters: {} kernels or grids changed while they were counted: {}",
            drifts.len(),
            some_of(&drifts)
        ));
    }
    if !excesses.is_empty() {
        notes.push(format!(
            "counters: {} values exceed their possible maximum, so their counters do not count what their names say: {}",
            excesses.len(),
            some_of(&excesses)
        ));
    }
    notes
}

fn some_of(all: &[String]) -> String {
    let named = all.get(..MOST_NAMED.min(all.len())).unwrap_or_default();
    let mut text = named.join(", ");
    if all.len() > named.len() {
        text.push_str(&format!(" and {} more", all.len() - named.len()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_are_named_and_the_others_are_counted() {
        let all = ["a", "b", "c", "d", "e", "f"].map(str::to_owned);
        assert_eq!(some_of(&all[..1]), "a");
        assert_eq!(some_of(&all[..4]), "a, b, c, d");
        assert_eq!(some_of(&all[..5]), "a, b, c, d and 1 more");
        assert_eq!(some_of(&all), "a, b, c, d and 2 more");
    }
}
