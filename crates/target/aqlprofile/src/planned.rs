//! Turns the user's counter groups into the plan of a session.

use crate::prepare::gpu;
use midair_agents::{Agent, AgentType};
use midair_counters::prepared::HELD;
use midair_counters::wire::Gpu;
use midair_counters::{CounterPlan, Definitions, Prepared, template};
use midair_failure::{Failure, Kind};
use midair_record::counter_plan::{Form, Group, Place};
use midair_settings::{CounterGroups, EXTRA_COUNTERS, Settings};

/// The groups for one kind of GPU: what was asked for, and what was prepared for it.
struct Made<'a> {
    gpu: Gpu,
    names: Vec<Vec<&'a str>>,
    prepared: Vec<Prepared>,
}

/// Returns the counters that the user has defined.
///
/// # Errors
/// When the definitions cannot be read.
pub fn definitions(settings: &Settings) -> Result<Definitions, Failure> {
    match settings.text(EXTRA_COUNTERS) {
        Some(text) => Definitions::read(text)
            .map_err(|error| Failure::new(Kind::Usage, format!("{EXTRA_COUNTERS}: {error}"))),
        None => Ok(Definitions::default()),
    }
}

/// Returns what is counted on each GPU. `prepare` makes the groups from the names that are wanted
/// on one.
///
/// # Errors
/// The errors of `prepare`.
pub fn of_agents(
    groups: &CounterGroups,
    agents: &[Agent],
    mut prepare: impl FnMut(&Gpu, &[Vec<&str>]) -> Result<Vec<Prepared>, Failure>,
) -> Result<CounterPlan, Failure> {
    let gpus = agents
        .iter()
        .filter(|agent| agent.agent_type == AgentType::Gpu);
    let mut plan = CounterPlan::default();
    let mut made: Vec<Made<'_>> = Vec::new();
    for (number, agent) in (0..).zip(gpus) {
        let Some(gpu) = gpu(agent) else {
            continue;
        };
        let here: Vec<Vec<&str>> = groups
            .iter()
            .map(|group| {
                let here = group
                    .iter()
                    .filter(|counter| counter.device.is_none_or(|device| device == number));
                here.map(|counter| counter.name.as_str()).collect()
            })
            .filter(|names: &Vec<&str>| !names.is_empty())
            .collect();
        if here.is_empty() {
            continue;
        }
        // GPUs of one kind, at one place in the machine, have the same packets.
        let known = made
            .iter()
            .find(|made| made.gpu == gpu && made.names == here);
        let prepared = match known {
            Some(known) => known.prepared.clone(),
            None => prepare(&gpu, &here)?,
        };
        made.push(Made {
            gpu,
            names: here,
            prepared: prepared.clone(),
        });
        plan.agents.insert(agent.node_id, prepared);
    }
    Ok(plan)
}

/// Returns the plan in the form that the target reads.
pub fn groups(plan: &CounterPlan) -> Vec<Group> {
    let mut groups = Vec::new();
    for (&node, prepared) in &plan.agents {
        // The driver has enabled the counters for all queues.
        let is_locked = plan.locks.get(&node).is_some_and(|lock| lock == HELD);
        for (number, Prepared { template, .. }) in (0..).zip(prepared) {
            let place = |place: &template::Place| Place {
                word: place.word,
                form: match place.form {
                    template::Form::Bytes => Form::Bytes,
                    template::Form::Pages => Form::Pages,
                },
                offset: place.offset,
            };
            groups.push(Group {
                node,
                number,
                output_bytes: template.output_bytes.next_multiple_of(8) as u32,
                start: template.start.clone(),
                read_stop: disabled_after(&template.start, &template.read_stop),
                read_words: template.read_words,
                enable: match is_locked {
                    true => Vec::new(),
                    false => enabling(&template.start).to_vec(),
                },
                places: template.places.iter().map(place).collect(),
            });
        }
    }
    groups
}

/// `SET_SH_REG` for one compute register, as the header for the packet processor: number and length
/// of the command, without the bit that tells compute from graphics.
const SET_ONE_SH_REG: u32 = 0xc001_7600;
/// `PERFCOUNT_ENABLE` relative to the first register of `SET_SH_REG` (source:
/// `docs/sources.md#counters`).
const PERFCOUNT_ENABLE: u32 = 0x2e0b - 0x2c00;

/// Returns the commands that read and stop, followed by a command that disables counting for the
/// queue. The commands that start enable it, and AMD's leave it enabled. This way windows of other
/// queues count no kernels of this queue, and nothing is left changed (AMD-122).
pub fn disabled_after(start: &[u32], read_stop: &[u32]) -> Vec<u32> {
    let mut words = read_stop.to_vec();
    if let [header, register, _] = enabling(start) {
        words.extend([*header, *register, 0]);
    }
    words
}

/// Returns the command that enables counting for a queue, from among those that start the counters;
/// empty where a library has none.
pub fn enabling(start: &[u32]) -> &[u32] {
    let on = start.windows(3).find(|words| {
        matches!(words, [header, register, 1]
            if header & !2 == SET_ONE_SH_REG && *register == PERFCOUNT_ENABLE)
    });
    on.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_switched_on_for_a_queue_is_switched_off_behind_the_read() {
        let start = [7, 0xc001_7602, 0x20b, 1, 9];
        assert_eq!(
            disabled_after(&start, &[1, 2]),
            [1, 2, 0xc001_7602, 0x20b, 0]
        );
        // The commands of a library that does not enable it stay as they are.
        assert_eq!(disabled_after(&[7, 0xc001_7602, 0x20c, 1], &[1, 2]), [1, 2]);
    }
}
