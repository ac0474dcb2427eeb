//! Hardware counters in a process that was started for them.
//!
//! AMD's packet library is loaded into the process, as AMD's tool loads it: a helper cannot be had
//! here. A process that executes a program signals its end with SIGCHLD, whatever it was cloned with,
//! and whoever waits for any child meets it: the application, or where it is handed on to, a program
//! that is the first of its container. One that ran before the program, beside our command line,
//! cannot answer tools that choose counters later. So the command line has the same packets made in a
//! helper before the program starts, where a crash of the library's is a message; and here it is asked
//! for what it has done once (AMD-131).

use crate::sdk::Sdk;
use midair_aqlprofile::{libraries, making::Loaded, planned, prepare_each};
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
    let mut library = Loaded::new(libraries(midair_secure::variable));
    let plan = planned::of_agents(&groups, &identity.agents, |gpu, names| {
        prepare_each(&mut library, gpu, &added, names)
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
