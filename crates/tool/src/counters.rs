//! Hardware counters in a process that was started for them.
//!
//! AMD's packet library makes the packets in a helper that the program does not see (AMD-131): the
//! library is C++, and does not enter the program. The command line has had the same packets made
//! before the program starts, so that counters that cannot be counted are a message of its own.

use crate::sdk::Sdk;
use midair_aqlprofile::{Unseen, planned, prepare_each};
use midair_counters::CounterPlan;
use midair_failure::{Failure, Kind};
use midair_record::counter_plan::{self, Plan};
use midair_results::Identity;
use midair_settings::Settings;
use std::ffi::CStr;

/// So many dispatches have the same group, where there are several.
const INTERVAL: &CStr = c"ROCPROF_COUNTER_GROUPS_INTERVAL";
/// There is no limit to what counting may take.
const ALL: u32 = 100;

/// Has every dispatch counted as the settings ask for. Returns what the records are read by.
///
/// # Errors
/// Counters that cannot be counted.
pub fn begin(sdk: Sdk, settings: &Settings, identity: &Identity) -> Result<CounterPlan, Failure> {
    let groups = settings
        .counter_groups()
        .map_err(|bad| Failure::new(Kind::Usage, bad.to_string()))?;
    if groups.is_empty() {
        return Ok(CounterPlan::default());
    }
    let added = planned::definitions(settings)?;
    let mut helper = Unseen::new();
    let plan = planned::of_agents(&groups, &identity.agents, |gpu, names| {
        prepare_each(&mut helper, gpu, &added, names)
    })?;
    if plan.agents.is_empty() {
        return Err(Failure::new(
            Kind::NoCounters,
            "the process sees no GPU that counters are asked of",
        ));
    }
    let bytes = counter_plan::encode(&Plan {
        max_overhead: ALL,
        groups: planned::groups(&plan),
        ..Plan::default()
    });
    let interval = match sdk.setting(INTERVAL) {
        None => 1,
        Some(text) => text.trim().parse().map_err(|_| {
            let name = INTERVAL.to_string_lossy();
            Failure::new(Kind::Usage, format!("{name} is no number: {text}"))
        })?,
    };
    sdk.count_every(&bytes, interval).map_err(|error| {
        let what = format!("the SDK does not count (status {})", error.0);
        Failure::new(Kind::Setup, what)
    })?;
    Ok(plan)
}
