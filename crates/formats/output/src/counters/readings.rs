//! Counters of whole devices over time: what each reading adds to the one before.

use super::Counting;
use midair_counters::plan::Wanted;
use midair_counters::value::Values;
use midair_counters::{CounterPlan, Prepared};
use midair_record::event::{CounterWindow, WindowResult};
use std::collections::HashSet;

/// The outcomes of a session's readings.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Tally {
    /// Readings with values.
    pub(crate) counted: u64,
    /// Readings in which a counter was lower than before, as if it had been restarted.
    pub(crate) disturbed: u64,
    /// Readings for which the device wrote no plausible times.
    pub(crate) without_times: u64,
}

impl Tally {
    /// Counts the outcome that a record reports. Returns false if the record belongs to no reading.
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

    /// Returns a line with what a reader has to know.
    pub(super) fn note(self) -> String {
        let mut line = format!("counters of the whole device: {} readings", self.counted);
        if self.disturbed > 0 {
            line.push_str(&format!(
                "; {} have no values, since a counter was lower than before, as when another profiler restarts them",
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
    /// The number, name and values of each counter, sorted by name, and whether it is a sum over
    /// time.
    pub(crate) counters: Vec<(u64, &'static str, Values, bool)>,
}

impl Reading {
    /// Returns the time between the readings in seconds.
    pub(crate) fn duration(&self) -> f64 {
        self.end.saturating_sub(self.start) as f64 / 1e9
    }

    /// Returns what is shown of a counter over time: of a sum its rate per second, otherwise the
    /// value itself.
    pub(crate) fn shown(&self, value: f64, is_sum: bool) -> f64 {
        if is_sum && self.end > self.start {
            value / self.duration()
        } else {
            value
        }
    }
}

/// Assembles readings from their records, which a target writes one after the other.
#[derive(Debug, Default)]
pub(crate) struct Partial {
    number: u64,
    memory: Vec<u64>,
}

impl Partial {
    /// Takes a record. Returns a reading when its last record has come.
    pub(crate) fn part(
        &mut self,
        plan: &CounterPlan,
        counting: &Counting,
        part: &CounterWindow,
        words: &[u8],
    ) -> Option<Reading> {
        if part.result != WindowResult::Sampled as u32 {
            return None;
        }
        let prepared = super::windows::group(plan, part)?;
        let size = prepared.template.output_bytes.div_ceil(8);
        if part.first == 0 {
            self.number = part.window;
            self.memory.clear();
        }
        let is_next = part.window == self.number && part.first as usize == self.memory.len();
        if !is_next || u64::from(part.total) != size || part.end < part.start {
            // A record was lost, or the records contradict each other, so this reading is given up.
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

/// Returns the counters that are sums over time, whose value doubles when the counts double. The
/// others are ratios and the like.
pub(super) fn sums(counting: &Counting, plan: &CounterPlan) -> HashSet<(u32, &'static str)> {
    let mut sums = HashSet::new();
    if plan.interval == 0 {
        return sums;
    }
    for (node, groups) in &plan.agents {
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
    // The values differ, so that differences between counters are not 0.
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

#[cfg(test)]
mod tests {
    use super::*;
    use midair_agents::Agent;
    use midair_counters::dimension::{Dimension, Position};
    use midair_counters::template::{Slot, Template};
    use midair_counters::{Architecture, group};

    /// Returns a plan in which events of SQ are counted on 16 engines, and others once.
    fn plan(counters: &[&str]) -> CounterPlan {
        let architecture = Architecture::find("gfx942").unwrap();
        let group = group::one(architecture, counters).unwrap();
        let mut slots = Vec::new();
        for (event, of) in (0..).zip(&group.events) {
            for engine in 0..if of.block == "SQ" { 16 } else { 1 } {
                slots.push(Slot {
                    word: slots.len() as u32,
                    event,
                    position: Position::default().with(Dimension::ShaderEngine, engine),
                });
            }
        }
        let template = Template {
            output_bytes: 8 * slots.len() as u64,
            slots,
            ..Template::default()
        };
        let prepared = Prepared {
            architecture,
            group,
            template,
        };
        CounterPlan {
            agents: [(1, vec![prepared])].into(),
            interval: 1,
            ..CounterPlan::default()
        }
    }

    #[test]
    fn what_doubles_with_the_counts_is_a_sum_and_ratios_are_not() {
        let sums = ["GRBM_COUNT", "SQ_WAVES", "SQ_WAVES_sum", "TCC_HIT_sum"];
        // Quotients, and a property of the agent that is not counted at all.
        let others = ["GPU_UTIL", "SALUBusy", "LDSBankConflict", "MAX_WAVE_SIZE"];
        let mut plan = plan(&[sums, others].concat());
        let agent = |_| {
            Some(Agent {
                wave_front_size: 64,
                num_xcc: 1,
                num_shader_banks: 2,
                array_count: 2,
                cu_count: 4,
                simd_count: 16,
                simd_per_cu: 4,
                ..Agent::default()
            })
        };
        let found = Counting::of_plan(&plan, agent).sums;
        assert_eq!(found, sums.map(|name| (1, name)).into());
        // Per dispatch nothing is a rate.
        plan.interval = 0;
        assert!(Counting::of_plan(&plan, agent).sums.is_empty());
    }

    #[test]
    fn each_reading_is_counted_once_by_its_outcome() {
        let mut tally = Tally::default();
        let plan = CounterPlan {
            interval: 1,
            ..CounterPlan::default()
        };
        for (result, readings) in [
            (WindowResult::Sampled, 3),
            (WindowResult::Disturbed, 2),
            (WindowResult::BadTimes, 4),
        ] {
            for _ in 0..readings {
                for first in [0, 8] {
                    let part = CounterWindow {
                        result: result as u32,
                        first,
                        ..CounterWindow::default()
                    };
                    assert!(tally.take(&plan, &part));
                }
            }
        }
        assert_eq!(
            tally.note(),
            "counters of the whole device: 3 readings; 2 have no values, since a counter was lower than before, as when another profiler restarts them; 4 have no plausible times"
        );
        assert!(!tally.take(&CounterPlan::default(), &CounterWindow::default()));
        assert_eq!(
            Tally::default().note(),
            "counters of the whole device: 0 readings"
        );
    }
}
