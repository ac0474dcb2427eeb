//! Multiplexed groups of counters.

use crate::maker::Maker;
use crate::prepare::{planned, prepare};
use midair_counters::wire::Gpu;
use midair_counters::{Accumulate, Architecture, Definitions, Prepared, group, plan};
use midair_failure::Failure;

/// The counter of the device's clock, which is counted in every group that has room for it. If it
/// is too low for a window's time, another profiler has restarted the counters during the
/// window.
pub const CLOCK: &str = "GRBM_COUNT";

/// Reference counters. Where there are several groups, these are counted in every group that has
/// room for them, and windows of different groups are compared by them.
pub const REFERENCES: [&str; 2] = ["GRBM_GUI_ACTIVE", "SQ_WAVES"];

/// Prepares counter groups as the user made them: each is counted as a whole, or not at all.
///
/// # Errors
/// As [`prepare`], also when a group does not fit.
pub fn prepare_each(
    maker: &mut dyn Maker,
    gpu: &Gpu,
    added: &Definitions,
    groups: &[Vec<&str>],
) -> Result<Vec<Prepared>, Failure> {
    let one = |group: &Vec<&str>| prepare(maker, gpu, added, group);
    groups.iter().map(one).collect()
}

/// Prepares any number of counters. Groups stay as the user made them; a group that does not fit
/// into one pass is split into as few as first fit finds. The clock and reference counters are among
/// a group's events, but not among its counters.
///
/// # Errors
/// As [`prepare`]. There are too many counters only if a single one does not fit.
pub fn prepare_groups(
    maker: &mut dyn Maker,
    gpu: &Gpu,
    added: &Definitions,
    groups: &[Vec<&str>],
) -> Result<Vec<Prepared>, Failure> {
    let architecture = Architecture::find(&gpu.name)
        .ok_or_else(|| plan::Error::Gpu(gpu.name.clone()))
        .and_then(|architecture| architecture.with(added));
    let groups = architecture
        .and_then(|architecture| group::in_turns(architecture, groups, CLOCK, &REFERENCES))
        .map_err(|error| planned(&error))?;
    let mut all = Vec::new();
    for group in groups {
        let own: Vec<&str> = group.counters.iter().map(|counter| counter.name).collect();
        let is_there = |reference: &&str| {
            let mut events = group.events.iter();
            events.any(|e| e.name == *reference && e.accumulate == Accumulate::None)
        };
        let references = [CLOCK].into_iter().chain(REFERENCES).filter(is_there);
        let names: Vec<&str> = own.iter().copied().chain(references).collect();
        // Counters that the user did not ask for are no reason to refuse.
        let mut prepared = match prepare(maker, gpu, added, &names) {
            Err(_) if names.len() > own.len() => prepare(maker, gpu, added, &own)?,
            prepared => prepared?,
        };
        prepared.group.counters.retain(|c| own.contains(&c.name));
        all.push(prepared);
    }
    Ok(all)
}
