//! Hardware counters: which groups are to be counted on which GPU of the process, and their
//! packets. All of it is made before the process is touched.
//!
//! AMD's library makes the packets, in a helper process of ours: no C++ enters the target, and a
//! crash of the library's is a refusal like others (AMD-101).

use crate::install::Install;
use crate::rights;
use midair_agents::{Agent, AgentType};
use midair_aqlprofile::Helper;
use midair_counters::wire::Gpu;
use midair_counters::{CounterPlan, Definitions, Prepared, template};
use midair_failure::{Failure, Kind};
use midair_record::counter_plan::{self, Form, Group, Place, Plan};
use midair_results::Identity;
use midair_settings::{EXTRA_COUNTERS, MAX_OVERHEAD, Settings};
use std::fs::File;
use std::io::Write;

/// The helper's file, beside the default tool.
const HELPER: &str = "midair-aqlprofile";

/// Percent of the time that windows may take where the user says nothing.
const DEFAULT_OVERHEAD: u32 = 2;

/// What is counted, as it is handed to the target.
#[derive(Debug)]
pub(crate) struct Counters {
    /// What the records are read by.
    pub plan: CounterPlan,
    /// What the target is sent: a file in memory, and its bytes.
    pub file: (File, u64),
}

/// Prepares the counters that the settings ask for. None where they ask for none.
///
/// # Errors
/// Groups, counters or GPUs that cannot be counted, each with its own reason and remedy.
pub(crate) fn prepare(
    settings: &Settings,
    identity: &Identity,
    install: &Install,
) -> Result<Option<Counters>, Failure> {
    let groups = settings
        .counter_groups()
        .map_err(|bad| Failure::new(Kind::Usage, bad.to_string()))?;
    if groups.is_empty() {
        return Ok(None);
    }
    let added = match settings.text(EXTRA_COUNTERS) {
        Some(text) => Definitions::read(text)
            .map_err(|error| Failure::new(Kind::Usage, format!("{EXTRA_COUNTERS}: {error}")))?,
        None => Definitions::default(),
    };
    let gpus: Vec<&Agent> = identity
        .agents
        .iter()
        .filter(|agent| agent.agent_type == AgentType::Gpu)
        .collect();
    if gpus.is_empty() {
        return Err(Failure::new(
            Kind::NoCounters,
            "the process sees no GPU of AMD's driver, so there are no counters to count",
        )
        .hint("midair doctor PID tells what is known of its GPUs"));
    }
    let program = install.tool.with_file_name(HELPER);
    let libraries = midair_aqlprofile::libraries(|name| {
        (!rights::is_privileged())
            .then(|| std::env::var_os(name))
            .flatten()
    });
    let mut helper =
        Helper::start(&program, &libraries).map_err(|error| midair_aqlprofile::failure(&error))?;
    let mut plan = CounterPlan::default();
    let mut made: Vec<Made<'_>> = Vec::new();
    for (number, agent) in (0..).zip(&gpus) {
        let Some(gpu) = midair_aqlprofile::gpu(agent) else {
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
        // GPUs of one kind in one place have the same packets.
        let known = made
            .iter()
            .find(|made| made.gpu == gpu && made.names == here);
        let prepared = match known {
            Some(known) => known.prepared.clone(),
            None => midair_aqlprofile::prepare_groups(&mut helper, &gpu, &added, &here)?,
        };
        made.push(Made {
            gpu,
            names: here,
            prepared: prepared.clone(),
        });
        plan.agents.insert(agent.node_id, prepared);
    }
    let max_overhead = match settings.text(MAX_OVERHEAD) {
        None => DEFAULT_OVERHEAD,
        Some(text) => text
            .parse()
            .ok()
            .filter(|percent| (1..=100).contains(percent))
            .ok_or_else(|| {
                Failure::new(
                    Kind::Usage,
                    format!("{MAX_OVERHEAD} is no number from 1 to 100: {text}"),
                )
            })?,
    };
    let bytes = counter_plan::encode(&Plan {
        max_overhead,
        groups: groups_of(&plan),
    });
    if bytes.len() > counter_plan::MAX_BYTES {
        return Err(Failure::new(
            Kind::Usage,
            "these groups of counters need too much memory in the process",
        )
        .hint("ask for fewer groups, or for fewer counters of TCP, TA and TD"));
    }
    let file = midair_ptrace::memfd_filled(c"midair-counters", |file| file.write_all(&bytes));
    let file = file.map(File::from).map_err(|error| {
        Failure::new(
            Kind::Setup,
            format!("no memory for the plan of counters: {error}"),
        )
    })?;
    Ok(Some(Counters {
        plan,
        file: (file, bytes.len() as u64),
    }))
}

/// Groups of a kind of GPU: what was asked for, and what became of it.
struct Made<'a> {
    gpu: Gpu,
    names: Vec<Vec<&'a str>>,
    prepared: Vec<Prepared>,
}

/// The plan as the target reads it.
fn groups_of(plan: &CounterPlan) -> Vec<Group> {
    let mut groups = Vec::new();
    for (&node, prepared) in &plan.agents {
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
                places: template.places.iter().map(place).collect(),
            });
        }
    }
    groups
}

/// `SET_SH_REG` of one register of compute, as the packet processor's header has it: number of the
/// command and length, without the bit that tells compute from graphics.
const SET_ONE_SH_REG: u32 = 0xc001_7600;
/// `COMPUTE_PERFCOUNT_ENABLE` from the first register of `SET_SH_REG` (source:
/// `docs/sources.md#counters`).
const PERFCOUNT_ENABLE: u32 = 0x2e0b - 0x2c00;

/// The commands that read and stop, and behind them what switches the queue's counting off again:
/// the commands that start switch it on, and AMD's leave it on. So other windows count no kernels
/// of this queue, and nothing is left behind (AMD-122).
fn disabled_after(start: &[u32], read_stop: &[u32]) -> Vec<u32> {
    let on = start.windows(3).find(|words| {
        matches!(words, [header, register, 1]
            if header & !2 == SET_ONE_SH_REG && *register == PERFCOUNT_ENABLE)
    });
    let mut words = read_stop.to_vec();
    if let Some([header, register, _]) = on {
        words.extend([*header, *register, 0]);
    }
    words
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
        // A library that does not switch it on.
        assert_eq!(disabled_after(&[7, 0xc001_7602, 0x20c, 1], &[1, 2]), [1, 2]);
    }
}
