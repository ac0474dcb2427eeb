//! Counters of whole devices over time: what each reading adds to the one before.

use super::Counting;
use crate::job::Job;
use crate::model::Trace;
use midair_counters::plan::Wanted;
use midair_counters::value::Values;
use midair_counters::{CounterPlan, Prepared};
use midair_record::event::{CounterWindow, WindowResult};
use std::collections::HashSet;

/// What came of the readings of a session.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Tally {
    /// With values.
    pub(crate) counted: u64,
    /// Somebody else had started the counters anew.
    pub(crate) disturbed: u64,
    /// The device wrote no plausible times.
    pub(crate) without_times: u64,
}

impl Tally {
    /// Takes a record; false where it is none of a reading.
    pub(super) fn take(&mut self, plan: &CounterPlan, part: &CounterWindow) -> bool {
        if plan.interval == 0 {
            return false;
        }
        let one = u64::from(part.first == 0);
        if part.result == WindowResult::Sampled as u32 {
            self.counted += one;
        } else if part.result == WindowResult::Disturbed as u32 {
            self.disturbed += one;
        } else {
            self.without_times += one;
        }
        true
    }

    /// What a reader has to know, in a line.
    pub(super) fn note(self) -> String {
        let mut line = format!("counters of the whole device: {} readings", self.counted);
        if self.disturbed > 0 {
            line.push_str(&format!(
                "; {} have no values, since somebody else started the counters anew",
                self.disturbed
            ));
        }
        if self.without_times > 0 {
            line.push_str(&format!("; {} have no plausible times", self.without_times));
        }
        line
    }
}

/// What a device counted from one reading to the next.
pub(crate) struct Reading {
    pub(crate) number: u64,
    pub(crate) node: u32,
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Number, name and values of each counter, by name, and whether it is a sum over time.
    pub(crate) counters: Vec<(u64, &'static str, Values, bool)>,
}

impl Reading {
    /// Seconds.
    pub(crate) fn duration(&self) -> f64 {
        self.end.saturating_sub(self.start) as f64 / 1e9
    }

    /// What is shown of a counter over time: how many in a second, of a sum; else the value itself.
    pub(crate) fn shown(&self, value: f64, is_sum: bool) -> f64 {
        if is_sum && self.end > self.start {
            value / self.duration()
        } else {
            value
        }
    }
}

/// Puts readings together from their records, which a target writes one after the other.
#[derive(Default)]
pub(super) struct Reader {
    number: u64,
    memory: Vec<u64>,
}

impl Reader {
    /// Takes a record; returns a reading when its last came.
    pub(super) fn part(
        &mut self,
        job: &Job<'_>,
        part: &CounterWindow,
        words: &[u8],
    ) -> Option<Reading> {
        if part.result != WindowResult::Sampled as u32 {
            return None;
        }
        let prepared = super::windows::group(&job.trace.counters, part)?;
        let size = prepared.template.output_bytes.div_ceil(8);
        if part.first == 0 {
            self.number = part.window;
            self.memory.clear();
        }
        let is_next = part.window == self.number && part.first as usize == self.memory.len();
        if !is_next || u64::from(part.total) != size || part.end < part.start {
            // A record was lost, or they contradict themselves: nothing comes of this reading.
            self.number = 0;
            return None;
        }
        let (words, _) = words.as_chunks();
        let words = words.iter().map(|word| u64::from_le_bytes(*word));
        self.memory.extend(words);
        if (self.memory.len() as u64) < size {
            return None;
        }
        self.memory.truncate(size as usize);
        let counting = &job.counting;
        let mut counters = Vec::new();
        for wanted in &prepared.group.counters {
            let key = (part.node, wanted.name);
            let values = counting.values(part.node, prepared, wanted, &self.memory);
            if let (Some(id), Some(values)) = (counting.ids.get(&key), values) {
                counters.push((*id, wanted.name, values, counting.sums.contains(&key)));
            }
        }
        counters.sort_by_key(|(_, name, ..)| *name);
        Some(Reading {
            number: part.window,
            node: part.node,
            start: part.start,
            end: part.end,
            counters,
        })
    }
}

/// The counters that are sums over time: twice the counts are twice the value. The others are ratios,
/// or what is left of them.
pub(super) fn sums(counting: &Counting, trace: &Trace) -> HashSet<(u32, &'static str)> {
    let mut sums = HashSet::new();
    if trace.counters.interval == 0 {
        return sums;
    }
    for (node, groups) in &trace.counters.agents {
        for prepared in groups {
            for wanted in &prepared.group.counters {
                if is_sum(counting, *node, prepared, wanted) {
                    sums.insert((*node, wanted.name));
                }
            }
        }
    }
    sums
}

fn is_sum(counting: &Counting, node: u32, prepared: &Prepared, wanted: &Wanted) -> bool {
    if wanted.expression.is_none() {
        return true;
    }
    let words = prepared.template.output_bytes.div_ceil(8);
    // Different ones, so that differences of counters are not 0.
    let value = |factor: u64| {
        let memory: Vec<u64> = (0..words).map(|n| factor * (1000 + n * n)).collect();
        let values = counting.values(node, prepared, wanted, &memory)?;
        Some(super::values::sum(&values))
    };
    match (value(1), value(2)) {
        (Some(one), Some(two)) => (two - 2.0 * one).abs() <= 1e-9 * two.abs(),
        _ => false,
    }
}
