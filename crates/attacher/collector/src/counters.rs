//! The plan of counters for a program that was started with counters: every dispatch is counted.
//!
//! The packets are made in a process of their own. The command line has already had the same
//! packets made before the program started, so that counters that cannot be counted get a message
//! of their own.

use midair_aqlprofile::{Helper, planned, prepare_each, traced};
use midair_counters::CounterPlan;
use midair_domain::KindSet;
use midair_failure::{Failure, Kind};
use midair_record::counter_plan::{self, Plan};
use midair_record::event::kind;
use midair_results::{Identity, RecordFile};
use midair_settings::Settings;

/// The name of the helper's file, which lies next to this program.
const HELPER: &str = "midair-aqlprofile";
/// Counting may take all of the time.
const ALL: u32 = 100;

/// Returns the plan with which to interpret the records, and the same in the form that the SDK
/// reads, which is empty where nothing is counted.
///
/// # Errors
/// When counters cannot be counted.
pub(crate) fn plan(
    settings: &Settings,
    identity: &Identity,
) -> Result<(CounterPlan, Vec<u8>), Failure> {
    let groups = settings
        .counter_groups()
        .map_err(|bad| Failure::new(Kind::Usage, bad.to_string()))?;
    let traces = traced::of_agents(settings, &identity.agents, |question| {
        let trace = helper()?.trace(question);
        trace.map_err(|error| midair_aqlprofile::failure(&error))
    })?;
    if !traces.is_empty() {
        let bytes = counter_plan::encode(&Plan {
            traces,
            ..Plan::default()
        });
        return Ok((CounterPlan::default(), bytes));
    }
    if groups.is_empty() {
        return Ok(Default::default());
    }
    let added = planned::definitions(settings)?;
    let mut helper = helper()?;
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
    Ok((plan, bytes))
}

/// Returns what to do with the thread traces of a session, if there are any.
pub(crate) fn note(settings: &Settings, records: &RecordFile) -> Option<String> {
    let traces = KindSet::of(&[kind::THREAD_TRACE]);
    records.index().has(traces).then(|| {
        let decoder = midair_aqlprofile::decoder(settings, midair_secure::variable);
        midair_aqlprofile::decoder_note(decoder.as_deref())
    })
}

/// Starts the process that loads AMD's library.
fn helper() -> Result<Helper, Failure> {
    let program = std::env::current_exe().map_err(|error| {
        Failure::new(Kind::Installation, format!("cannot find {HELPER}: {error}"))
    })?;
    let libraries = midair_aqlprofile::libraries(midair_secure::variable);
    Helper::start(&program.with_file_name(HELPER), &libraries)
        .map_err(|error| midair_aqlprofile::failure(&error))
}
