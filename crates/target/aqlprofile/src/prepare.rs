//! What can be done about a counter group before a target is touched.

use crate::helper::Error;
use crate::maker::Maker;
use midair_agents::{Agent, AgentType};
use midair_counters::group;
use midair_counters::template::Slot;
use midair_counters::wire::{Gpu, Question, RawEvent};
use midair_counters::{Architecture, Definitions, Prepared, plan};
use midair_failure::{Failure, Kind};

/// Describes an agent to the library; None for a CPU.
pub fn gpu(agent: &Agent) -> Option<Gpu> {
    (agent.agent_type == AgentType::Gpu).then(|| Gpu {
        name: agent.name.clone(),
        xccs: agent.num_xcc.max(1),
        engines: agent.num_shader_banks,
        units: agent.cu_count,
        arrays: agent.simd_arrays_per_engine,
        domain: agent.domain,
        location: agent.location_id,
    })
}

/// Finds the counters, checks that they fit, and has their packets made. `added` are the user's own
/// definitions.
///
/// # Errors
/// A sentence for the user: the GPU or a counter is unknown, there are too many counters, there is
/// no library, or the library cannot do it.
pub fn prepare(
    maker: &mut dyn Maker,
    gpu: &Gpu,
    added: &Definitions,
    counters: &[&str],
) -> Result<Prepared, Failure> {
    let architecture = Architecture::find(&gpu.name)
        .ok_or_else(|| planned(&plan::Error::Gpu(gpu.name.clone())))?;
    let architecture = architecture.with(added).map_err(|error| planned(&error))?;
    let group = group::one(architecture, counters).map_err(|error| planned(&error))?;
    let (question, which) = question(gpu, &group.events);
    let mut template = maker.template(&question).map_err(|error| failure(&error))?;
    template.slots = for_each_name(&template.slots, &which);
    Ok(Prepared {
        architecture,
        group,
        template,
    })
}

/// Returns the question to the library about some events, and for each of these events its index in
/// the question; see [`for_each_name`].
pub fn question(gpu: &Gpu, events: &[plan::Event]) -> (Question, Vec<u32>) {
    let (events, which) = distinct(events);
    let gpu = gpu.clone();
    (Question { gpu, events }, which)
}

/// Returns the events in the library's terms, each once, and for each event of the group its index
/// among them: one event may have two names (gfx950: `TCP_UTCL1_STALL_LFIFO_NO_RES` and
/// `_NOT_RES`).
fn distinct(events: &[plan::Event]) -> (Vec<RawEvent>, Vec<u32>) {
    let mut all: Vec<RawEvent> = Vec::new();
    let mut which = Vec::new();
    for event in events {
        let raw = RawEvent {
            block: event.block.to_owned(),
            event: event.event,
            flags: event.accumulate as u32,
        };
        let known = all.iter().position(|known| *known == raw);
        which.push(known.unwrap_or(all.len()) as u32);
        if known.is_none() {
            all.push(raw);
        }
    }
    (all, which)
}

/// Returns the slots with the group's events in place of the library's: one slot for each name of
/// an event.
pub fn for_each_name(slots: &[Slot], which: &[u32]) -> Vec<Slot> {
    let mut all = Vec::new();
    for slot in slots {
        let names = (0..).zip(which).filter(|(_, raw)| **raw == slot.event);
        all.extend(names.map(|(event, _)| Slot { event, ..*slot }));
    }
    all
}

/// Returns the failure for a group that cannot be counted.
pub(crate) fn planned(error: &plan::Error) -> Failure {
    match error {
        plan::Error::Gpu(_) => {
            let known: Vec<&str> = Architecture::all().iter().map(|a| a.name).collect();
            Failure::new(Kind::NoCounters, error.to_string())
                .hint(format!("midair has counters of {}", known.join(", ")))
        }
        plan::Error::TooMany { .. } => Failure::new(Kind::Usage, error.to_string())
            .hint("use fewer counters of that block at once"),
        _ => Failure::new(Kind::Usage, error.to_string()),
    }
}

/// Returns the failure to show when the library did not make a template.
pub fn failure(error: &Error) -> Failure {
    let failure = Failure::new(Kind::NoCounters, error.to_string());
    match error {
        Error::Start(_) => Failure::new(Kind::Installation, error.to_string())
            .hint("reinstall; the message names the file"),
        Error::Missing(_) => failure.hint(
            "install the package hsa-amd-aqlprofile (Debian: libhsa-amd-aqlprofile64-1), or set ROCM_PATH",
        ),
        Error::Outside(_) => failure.hint(
            "install the package hsa-amd-aqlprofile where midair runs, or run midair as root on the host (Linux 5.12 or later, with user namespaces)",
        ),
        Error::Loader(_) => failure.hint(
            "install the package hsa-amd-aqlprofile where midair runs; or install glibc 2.34 or later and libgcc_s.so.1 in the process's root",
        ),
        Error::Refused { .. } => failure.hint("this GPU or these counters may need another ROCm"),
        Error::Died(_) | Error::Silent(_) => {
            failure.hint("try another ROCm or fewer counters; the process was not touched")
        }
        Error::Odd(_) | Error::None(_) => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_with_two_names_is_counted_once_and_told_for_both() {
        let gfx950 = Architecture::find("gfx950").unwrap();
        let names = [
            "TCC_READ",
            "TCP_UTCL1_STALL_LFIFO_NO_RES",
            "TCP_UTCL1_STALL_LFIFO_NOT_RES",
        ];
        let group = group::one(gfx950, &names).unwrap();
        let (raw, which) = distinct(&group.events);
        assert_eq!((raw.len(), &which[..]), (2, &[0, 1, 1][..]));
        let slot = |word, event| Slot {
            word,
            event,
            position: midair_counters::Position::default(),
        };
        assert_eq!(
            for_each_name(&[slot(0, 0), slot(1, 1)], &which),
            [slot(0, 0), slot(1, 1), slot(1, 2)]
        );
    }
}
