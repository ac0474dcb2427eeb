//! Contexts: one for each domain. They are all created when the tool is initialised, since none can
//! be created later. Each attach starts those that its settings ask for.

use crate::collector;
use crate::domain::{Collected, collected, not_built, with_all};
use crate::kernel_filter;
use crate::openmp;
use crate::periods;
use crate::sdk::{Sdk, SdkError, SessionKind};
use midair_abi::private::pauses;
use midair_domain::kind;
use midair_settings::{Benchmark, MAX_OVERHEAD, tool_boolean};
use std::ffi::CStr;
use std::sync::{Mutex, PoisonError};

/// Settings that name counters.
const COUNTS: [&CStr; 3] = [
    c"ROCPROF_COUNTERS",
    c"ROCPROF_COUNTER_GROUPS",
    c"MIDAIR_PMC_DEVICE",
];

/// The settings that ask for what comes with its packets: launches of graphs, events, and samples.
const OF_PACKETS: [&CStr; 4] = [
    TRACES,
    c"ROCPROF_HIP_GRAPH_TRACE",
    c"ROCPROF_HIP_EVENT_TRACE",
    c"ROCPROFILER_PC_SAMPLING_BETA_ENABLED",
];

/// The setting that asks for thread traces.
const TRACES: &CStr = c"ROCPROF_ADVANCED_THREAD_TRACE";

/// The domains and their contexts.
static CONTEXTS: Mutex<Vec<(Collected, u64)>> = Mutex::new(Vec::new());

fn contexts() -> Vec<(Collected, u64)> {
    CONTEXTS
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone()
}

/// Creates the contexts.
///
/// # Errors
/// The SDK's status when it refuses to create one.
pub fn initialize(sdk: Sdk) -> Result<(), SdkError> {
    periods::started();
    let mut made = Vec::new();
    let of_openmp = openmp::operations(sdk);
    let is_openmp = |domain: &Collected| domain.domain.kind == kind::OMPT;
    for domain in collected().filter(|domain| !(is_openmp(domain) && of_openmp.is_empty())) {
        let context = sdk.create_spool_context()?;
        match is_openmp(&domain) {
            true => sdk.trace_operations(context, domain.kind, &of_openmp)?,
            false => sdk.trace(context, domain.kind)?,
        }
        for kind in with_all() {
            sdk.trace(context, kind)?;
        }
        made.push((domain, context));
    }
    *CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner) = made;
    Ok(())
}

/// Whether a setting is on. A meaningless value is reported and counts as off.
fn is_on(sdk: Sdk, setting: &CStr) -> bool {
    let Some(value) = sdk.setting(setting) else {
        return false;
    };
    tool_boolean(&value).unwrap_or_else(|| {
        sdk.note(&format!(
            "{} is empty, but must be a boolean: midair uses off",
            setting.to_string_lossy()
        ));
        false
    })
}

/// Starts what this session's settings ask for, and stops the rest.
///
/// # Errors
/// The SDK's status when it refuses to start a context. Then no context is left running.
pub fn attach(sdk: Sdk) -> Result<(), SdkError> {
    if collector::benchmark(sdk) == Some(Benchmark::DisabledContexts) {
        return Ok(());
    }
    let contexts = contexts();
    // Counting happens around dispatches, so dispatches are recorded for it.
    let counts = COUNTS.iter().find(|setting| sdk.setting(setting).is_some());
    // The packets of graphs and events are found as kernels' packets are.
    let for_kernels = counts.copied().or_else(|| {
        let mut settings = OF_PACKETS.into_iter();
        settings.find(|setting| is_on(sdk, setting))
    });
    let asked_for = |domain: &Collected| {
        let asked = domain.settings().find(|setting| is_on(sdk, setting));
        let is_of_kernels = domain.domain.kind == kind::KERNEL_DISPATCH;
        asked.or(for_kernels.filter(|_| is_of_kernels))
    };
    if contexts
        .iter()
        .any(|(domain, _)| asked_for(domain).is_some())
    {
        collector::begin(sdk)?;
    }
    let periods = periods::of(sdk);
    honour_pauses(
        sdk,
        !periods.is_empty(),
        in_bursts(sdk, counts.is_some() || !periods.is_empty()),
    );
    let traces = is_on(sdk, TRACES);
    if counts.is_some() || traces {
        kernel_filter::begin(sdk, traces);
    }
    let mut any = false;
    for (domain, context) in &contexts {
        if let Some(setting) = asked_for(domain) {
            any = true;
            if let Err(error) = sdk.start(*context) {
                sdk.note(&format!(
                    "{} cannot be collected (status {})",
                    setting.to_string_lossy(),
                    error.0
                ));
                detach(sdk);
                return Err(error);
            }
        } else if sdk.is_active(*context) {
            let _ = sdk.stop(*context);
        }
    }
    for setting in not_built() {
        if is_on(sdk, setting) {
            sdk.note(&format!(
                "{} has no effect: midair does not collect this yet",
                setting.to_string_lossy()
            ));
        }
    }
    let has_openmp = contexts
        .iter()
        .any(|(domain, _)| domain.domain.kind == kind::OMPT);
    if !has_openmp && openmp::is_asked(sdk) {
        sdk.note(openmp::TOO_LATE);
    }
    periods::begin(sdk, periods);
    if !any {
        sdk.note("no setting enables a domain that midair can collect");
    }
    Ok(())
}

/// Makes the program's calls of `roctxProfilerPause` and `roctxProfilerResume` effective where
/// AMD's tool does: with markers, or where only selected regions are to be recorded. With periods or
/// bursts, the recording starts outside of one.
fn honour_pauses(sdk: Sdk, periods: bool, bursts: bool) {
    let markers = is_on(sdk, c"ROCPROF_MARKER_API_TRACE");
    let selected = is_on(sdk, c"ROCPROF_SELECTED_REGIONS");
    let counted = is_on(sdk, c"ROCPROF_SELECTED_REGIONS_REF_COUNT");
    let bits = [
        (markers || selected || counted, pauses::HONOURED),
        (selected, pauses::SELECTED),
        (counted, pauses::COUNTED),
        (periods, pauses::PERIODS),
        (bursts, pauses::BURSTS),
    ];
    let on = bits.iter().filter(|(on, _)| *on);
    sdk.set_pauses(on.fold(0, |word, (_, bit)| word | bit));
}

/// Whether the session records in bursts, so that it costs the program only a share of its speed.
/// Where counters are asked for, the setting limits their windows; periods are the user's choice.
fn in_bursts(sdk: Sdk, otherwise: bool) -> bool {
    let percent = sdk.setting(c"MIDAIR_MAX_OVERHEAD");
    let percent = percent.and_then(|text| text.parse::<u32>().ok());
    if otherwise || !percent.is_some_and(|percent| (1..100).contains(&percent)) {
        return false;
    }
    let is_attached = matches!(
        sdk.session_kind(),
        SessionKind::Engine | SessionKind::Attached
    );
    if !is_attached {
        sdk.note(&format!(
            "{MAX_OVERHEAD} has no effect without counters: everything in a started program is recorded"
        ));
    }
    is_attached
}

/// Stops all contexts, and has the files written where no attacher does this.
pub fn detach(sdk: Sdk) {
    for (_, context) in contexts() {
        if sdk.is_active(context) {
            let _ = sdk.stop(context);
        }
    }
    periods::end();
    sdk.set_pauses(0);
    kernel_filter::end(sdk);
    collector::finish();
}
