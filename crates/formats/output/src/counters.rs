//! Hardware counters: turns windows around dispatches into values of kernels.
//!
//! A window is what the device counted between two midair packets around one dispatch. Nothing
//! keeps other dispatches from running meanwhile. So all dispatches are compared with all windows
//! first ([`windows`]), and only windows whose dispatch had the device for itself give values. The
//! other windows are counted by reason. Values are then read in the same walk as all other records.
//! A window may hold several dispatches that were launched at once, and its values then cover all
//! of them together ([`batch`]).
//!
//! Decisions: FMT-023, FMT-024, FMT-026, FMT-030 (`docs/deviations/formats.md`).

pub(crate) mod batch;
mod clock;
mod overlap;
pub(crate) mod reader;
mod readings;
pub(crate) mod values;
mod verdict;
mod windows;

pub(crate) use readings::{Partial as PartialReading, Reading};
pub(crate) use verdict::Verdict;

use batch::Batch;

use crate::model::Trace;
use midair_agents::Agent;
use midair_counters::counted::Counted;
use midair_counters::plan::Wanted;
use midair_counters::prepared::HELD;
use midair_counters::value::Values;
use midair_counters::{CounterPlan, Prepared};
use midair_record::event::{Kernel, kind};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use values::Properties;
use windows::Windows;

/// The most processes that a note names.
const MOST_NAMED: usize = 8;

/// The counters of a session: what was asked for, and which windows give values.
#[derive(Debug, Default)]
pub(crate) struct Counting {
    pub(crate) windows: Windows,
    /// The numbers of counters in files by KFD node and name, from 1. AMD's numbers are positions
    /// in a table that changes with each version.
    ids: BTreeMap<(u32, &'static str), u64>,
    properties: HashMap<u32, Properties>,
    /// The counters of whole devices that are sums over time, by KFD node and name.
    sums: HashSet<(u32, &'static str)>,
    /// Why windows could not be read.
    failed: Option<String>,
}

/// A counter of an agent.
pub(crate) struct Counter<'a> {
    pub(crate) node: u32,
    pub(crate) id: u64,
    pub(crate) wanted: &'a Wanted,
    pub(crate) prepared: &'a Prepared,
}

/// The counters of one dispatch, or of several together.
pub(crate) struct Counts<'a> {
    /// The dispatch, or the first one of several.
    pub(crate) kernel: &'a Kernel,
    /// The dispatches, where there are several.
    pub(crate) batch: Option<&'a Batch>,
    /// Number of the window.
    pub(crate) window: u64,
    /// The number, name and values of each counter, sorted by name.
    pub(crate) counters: Vec<(u64, &'a str, Values)>,
    /// The sum of the counter by which windows are compared over time
    /// ([`CounterPlan::over_time`]), where the group counts it.
    pub(crate) over_time: Option<f64>,
}

impl Counting {
    /// Makes the counters of a plan, without any windows.
    pub(crate) fn of_plan(plan: &CounterPlan, agent: impl Fn(u32) -> Option<Agent>) -> Counting {
        let mut counting = Counting::default();
        for (node, groups) in &plan.agents {
            counting
                .properties
                .insert(*node, Properties::of(agent(*node).as_ref()));
            for wanted in groups.iter().flat_map(|group| &group.group.counters) {
                counting.ids.insert((*node, wanted.name), 0);
            }
        }
        for (id, number) in counting.ids.values_mut().zip(1..) {
            *id = number;
        }
        counting.sums = readings::sums(&counting, plan);
        counting
    }

    /// Makes the counters of a trace. The result is empty where there are neither windows nor a
    /// plan.
    pub(crate) fn of(trace: &Trace, agent: impl Fn(u32) -> Option<Agent>) -> Counting {
        let mut counting = Counting::of_plan(&trace.counters, agent);
        // Even without a window there are dispatches, whose missing values have to be explained.
        if trace.records.index().count_of(kind::COUNTER_COLLECTION) == 0
            && trace.counters.agents.is_empty()
        {
            return counting;
        }
        let kernels = midair_domain::domain(kind::KERNEL_DISPATCH);
        let kernels = kernels.map_or("", |domain| domain.files.records);
        let lost = |(what, count): &(String, u64)| *count > 0 && what.starts_with(kernels);
        let lost = trace.lost.iter().any(lost);
        match Windows::read(&trace.records, &trace.counters, lost) {
            Ok(windows) => counting.windows = windows,
            Err(error) => counting.failed = Some(error.to_string()),
        }
        counting
    }

    /// Returns the name of a counter by its number.
    pub(crate) fn name(&self, id: u64) -> Option<&'static str> {
        let mut all = self.ids.iter();
        all.find(|(_, number)| **number == id)
            .map(|((_, name), _)| *name)
    }

    /// Returns every counter that was asked for, by node and name.
    pub(crate) fn counters<'a>(&self, plan: &'a CounterPlan) -> Vec<Counter<'a>> {
        let mut all = Vec::new();
        for ((node, name), id) in &self.ids {
            let groups = plan.agents.get(node).into_iter().flatten();
            let found = groups.into_iter().find_map(|prepared| {
                let wanted = prepared.group.counters.iter().find(|c| c.name == *name)?;
                Some((wanted, prepared))
            });
            if let Some((wanted, prepared)) = found {
                all.push(Counter {
                    node: *node,
                    id: *id,
                    wanted,
                    prepared,
                });
            }
        }
        all
    }

    /// Returns the places where a counter is counted, sorted.
    pub(crate) fn places(&self, counter: &Counter<'_>) -> Values {
        let words = counter.prepared.template.output_bytes.div_ceil(8);
        // The template is the attacher's own, and was made with memory of this size.
        let memory = vec![0; usize::try_from(words).unwrap_or_default()];
        self.values(counter.node, counter.prepared, counter.wanted, &memory)
            .unwrap_or_default()
    }

    fn values(
        &self,
        node: u32,
        prepared: &Prepared,
        of: &Wanted,
        memory: &[u64],
    ) -> Option<Values> {
        let nothing = Properties::default();
        let properties = self.properties.get(&node).unwrap_or(&nothing);
        let Prepared {
            architecture,
            group,
            template,
        } = prepared;
        Counted::read(architecture, group, template, properties, memory)
            .of(of)
            .ok()
    }

    /// Returns a line on whether the kernel driver's profiler lock was held, or none where no
    /// counters were asked for.
    pub(crate) fn lock_note(
        &self,
        plan: &CounterPlan,
        name: impl Fn(u32) -> String,
    ) -> Option<String> {
        let mut by_state: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (node, state) in &plan.locks {
            by_state.entry(state).or_default().push(name(*node));
        }
        if by_state.is_empty() {
            return None;
        }
        let text = |(state, agents): (&str, Vec<String>)| {
            let agents = agents.join(", ");
            match state {
                HELD => format!("held for {agents}"),
                why => format!(
                    "not held for {agents} ({why}): another profiler may restart the counters"
                ),
            }
        };
        let texts: Vec<String> = by_state.into_iter().map(text).collect();
        Some(format!(
            "counters: the kernel driver's profiler lock was {}",
            texts.join("; ")
        ))
    }

    /// Returns a line on other processes that used the GPUs, or none where there were none.
    pub(crate) fn others_note(
        &self,
        plan: &CounterPlan,
        name: impl Fn(u32) -> String,
    ) -> Option<String> {
        let text = |(node, others): (&u32, &BTreeSet<u32>)| {
            let named: Vec<String> = others.iter().take(MOST_NAMED).map(u32::to_string).collect();
            let more = match others.len() - named.len() {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            format!("{}{more} on {}", named.join(", "), name(*node))
        };
        let with_others = plan.others.iter().filter(|(_, others)| !others.is_empty());
        let texts: Vec<String> = with_others.map(text).collect();
        (!texts.is_empty()).then(|| {
            format!(
                "counters: other processes used the GPU at the start or end of the session ({}): counters of blocks other than SQ and SPI include their work",
                texts.join("; ")
            )
        })
    }

    /// Returns a line with what a reader has to know about the counters, or none where none were
    /// asked for.
    pub(crate) fn note(&self, plan: &CounterPlan) -> Option<String> {
        if let Some(failed) = &self.failed {
            return Some(format!("cannot read counters: {failed}"));
        }
        let windows = &self.windows;
        if plan.interval != 0 {
            return Some(windows.readings.note());
        }
        if windows.count() == 0 {
            let asked = !plan.agents.is_empty();
            return asked.then(|| match windows.chosen {
                0 => "counters: no dispatch was counted".to_owned(),
                chosen => format!("counters: none of {chosen} dispatches was counted"),
            });
        }
        let tally = windows.tally();
        let alone = tally.get(&Verdict::Alone).copied().unwrap_or(0);
        let mut line = format!(
            "counters: {alone} of {} dispatches have values, from {} windows",
            windows.chosen,
            windows.count()
        );
        for verdict in Verdict::ALL.into_iter().skip(1) {
            if let Some(count) = tally.get(&verdict) {
                line.push_str(&format!("; {count} {}", verdict.text()));
            }
        }
        if windows.beyond > 0 {
            line.push_str(&format!("; {} were too many to keep", windows.beyond));
        }
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_that_were_too_many_are_told() {
        let mut counting = Counting::default();
        counting.windows.beyond = 3;
        let note = counting.note(&CounterPlan::default());
        assert_eq!(
            note.as_deref(),
            Some(
                "counters: 0 of 0 dispatches have values, from 3 windows; 3 were too many to keep"
            )
        );
    }

    #[test]
    fn other_processes_on_the_gpus_are_named_up_to_eight() {
        let of = |others: &[(u32, std::ops::Range<u32>)]| {
            let others = others.iter().cloned();
            let plan = CounterPlan {
                others: others.map(|(node, pids)| (node, pids.collect())).collect(),
                ..CounterPlan::default()
            };
            Counting::default().others_note(&plan, |node| format!("Agent {node}"))
        };
        let note = |who: &str| {
            Some(format!(
                "counters: other processes used the GPU at the start or end of the session ({who}): counters of blocks other than SQ and SPI include their work"
            ))
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[(1, 0..0), (2, 0..0)]), None);
        assert_eq!(of(&[(1, 70..71), (2, 0..0)]), note("70 on Agent 1"));
        assert_eq!(
            of(&[(1, 70..78), (2, 70..80)]),
            note(
                "70, 71, 72, 73, 74, 75, 76, 77 on Agent 1; 70, 71, 72, 73, 74, 75, 76, 77 and 2 more on Agent 2"
            )
        );
    }
}
