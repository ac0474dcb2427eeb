//! Hardware counters in a process that was started for them.
//!
//! A helper process makes the packets with AMD's packet library (AMD-131). The program does not see
//! the helper, and the library, which is C++, does not enter the program. The command line has
//! already had the same packets made before the program started, so that counters that cannot be
//! counted get a message of their own.

use crate::sdk::Sdk;
use midair_aqlprofile::{Unseen, planned, prepare_each};
use midair_counters::CounterPlan;
use midair_failure::{Failure, Kind};
use midair_record::counter_plan::{self, Plan};
use midair_results::Identity;
use midair_settings::Settings;
use std::ffi::CStr;

/// How many successive dispatches have the same group, where there are several groups.
const INTERVAL: &CStr = c"ROCPROF_COUNTER_GROUPS_INTERVAL";
/// Counting may take all of the time.
const ALL: u32 = 100;

/// Has every dispatch counted as the settings say. Returns the plan with which to interpret the
/// records.
///
/// # Errors
/// When counters cannot be counted.
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
            "the process sees no GPU of the requested counters",
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
            Failure::new(Kind::Usage, format!("{name} is not a number: {text}"))
        })?,
    };
    sdk.count_every(&bytes, interval).map_err(|error| {
        let what = format!("the SDK does not count (status {})", error.0);
        Failure::new(Kind::Setup, what)
    })?;
    Ok(plan)
}
