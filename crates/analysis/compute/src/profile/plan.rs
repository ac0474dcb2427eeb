//! Derives the counters to count from the wanted metrics, and puts them into groups that the GPU
//! can count at once.

use crate::architecture::{Architecture, CHANNEL, Form};
use crate::needs::{counters, counters_of};
use crate::program::LEVEL_SUM;
use crate::read::unusable;
use crate::report::roofline;
use crate::select::{ALWAYS, Blocks};
use midair_counters::plan::Event;
use midair_counters::{Definitions, group};
use midair_failure::Failure;
use std::collections::{BTreeMap, BTreeSet};

/// What is counted, and in which groups.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// Groups of counters, each for one pass.
    pub groups: Vec<Vec<String>>,
    /// Definitions of counters that AMD's tables do not have, which sum up a level over time. YAML,
    /// or empty.
    pub definitions: String,
    /// Counters that expressions name but the GPU does not have.
    pub unknown: Vec<String>,
}

/// Plans what to count for metrics.
///
/// # Errors
/// When the architecture's counters are not known.
pub fn plan(
    architecture: &'static Architecture,
    blocks: &Blocks,
    form: Form,
) -> Result<Plan, Failure> {
    // Go by metric, in the order of the tables: the counters of one metric are best counted
    // together.
    let mut wanted: Vec<BTreeSet<String>> = Vec::new();
    for (_, metric) in blocks.metrics(architecture, form) {
        let counters = counters(metric, architecture);
        if metric.name == CHANNEL || !counters.is_empty() {
            wanted.push(counters);
        }
    }
    if blocks.has_hardware() {
        for (_, metric) in Blocks::default().metrics(architecture, form) {
            let mut counters = counters(metric, architecture);
            counters.retain(|name| blocks.has_counter(name));
            if !counters.is_empty() {
                wanted.push(counters);
            }
        }
    }
    let built_in = Architecture::named(architecture.name).unwrap_or(architecture);
    if blocks.has_roofline()
        && let Some(performance) = roofline::performance(built_in)
    {
        for &level in blocks.levels() {
            let mut counters = BTreeSet::new();
            let texts = [roofline::intensity(built_in, level), Some(performance)];
            for text in texts.into_iter().flatten() {
                counters_of(text, "", architecture, &mut counters);
            }
            wanted.push(counters);
        }
    }
    // These are what the units of normalization need, as in AMD's tool.
    wanted.push(ALWAYS.map(str::to_owned).into());

    let known = midair_counters::Architecture::find(architecture.name).ok_or_else(|| {
        unusable(format!(
            "the counters of {} are not known",
            architecture.name
        ))
    })?;
    let mut plan = Plan::default();
    let mut sums = BTreeMap::new();
    for name in wanted.iter().flatten() {
        if known.counter(name).is_some() && name != LEVEL_SUM {
            continue;
        }
        match name
            .strip_suffix("_ACCUM")
            .filter(|level| known.counter(level).is_some())
        {
            Some(level) => {
                sums.insert(name.clone(), level.to_owned());
            }
            None => plan.unknown.push(name.clone()),
        }
    }
    plan.unknown.sort();
    plan.unknown.dedup();
    let mut known = known;
    if !sums.is_empty() {
        let mut text =
            String::from("rocprofiler-sdk:\n  counters-schema-version: 1\n  counters:\n");
        for (name, level) in &sums {
            text.push_str(&format!(
                "  - name: {name}\n    description: {level} summed up over time\n    properties: []\n    \
                 definitions:\n    - architectures: [{}]\n      expression: accumulate({level}, HIGH_RES)\n",
                architecture.name
            ));
        }
        let definitions = Definitions::read(&text)
            .map_err(|error| unusable(format!("cannot define sums of levels: {error}")))?;
        known = known
            .with(&definitions)
            .map_err(|error| unusable(format!("cannot define sums of levels: {error}")))?;
        plan.definitions = text;
    }

    // Sums of levels go first: their counters have the fewest places.
    let mut groups: Vec<(Vec<String>, BTreeSet<Event>)> = Vec::new();
    let mut placed = BTreeSet::new();
    let is_sum = |counters: &BTreeSet<String>| counters.iter().any(|name| sums.contains_key(name));
    let (first, rest): (Vec<_>, Vec<_>) = wanted.iter().partition(|counters| is_sum(counters));
    for counters in first.into_iter().chain(rest) {
        let mut missing: Vec<(String, Vec<Event>)> = Vec::new();
        for name in counters {
            if placed.contains(name) || plan.unknown.contains(name) {
                continue;
            }
            match known.wanted(name) {
                Ok(wanted) => missing.push((name.clone(), wanted.events)),
                Err(_) => plan.unknown.push(name.clone()),
            }
        }
        if missing.is_empty() {
            continue;
        }
        let fits = |events: &BTreeSet<Event>, more: &[(String, Vec<Event>)]| {
            let mut all = events.clone();
            all.extend(more.iter().flat_map(|(_, events)| events.iter().cloned()));
            group::fits(known, &all).is_ok().then_some(all)
        };
        // Prefer a group that has some of these counters already, then any group with room for all
        // of them, and else start a new one.
        let shares =
            |names: &[String]| names.iter().filter(|name| counters.contains(*name)).count();
        let best = groups
            .iter()
            .enumerate()
            .filter(|(_, (_, events))| fits(events, &missing).is_some())
            .max_by_key(|(place, (names, _))| (shares(names), usize::MAX - place))
            .map(|(place, _)| place);
        let parts: Vec<Vec<(String, Vec<Event>)>> = match best {
            Some(_) => vec![missing],
            None if fits(&BTreeSet::new(), &missing).is_some() && groups.is_empty() => {
                vec![missing]
            }
            None => missing.into_iter().map(|one| vec![one]).collect(),
        };
        for part in parts {
            let place = match best {
                Some(place) => Some(place),
                None => groups
                    .iter()
                    .position(|(_, events)| fits(events, &part).is_some()),
            };
            let place = place.unwrap_or_else(|| {
                groups.push(Default::default());
                groups.len() - 1
            });
            let (names, events) = &mut groups[place];
            if let Some(all) = fits(events, &part) {
                *events = all;
                for (name, _) in part {
                    placed.insert(name.clone());
                    names.push(name);
                }
            } else {
                plan.unknown.extend(part.into_iter().map(|(name, _)| name));
            }
        }
    }
    groups.retain(|(names, _)| !names.is_empty());
    plan.groups = groups.into_iter().map(|(names, _)| names).collect();
    plan.unknown.sort();
    plan.unknown.dedup();
    Ok(plan)
}
