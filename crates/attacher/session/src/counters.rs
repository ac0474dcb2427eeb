//! Hardware counters: which groups are counted on which GPU of the process, and the packets for
//! them. All packets are made before the process is touched.
//!
//! AMD's library makes the packets, in a midair helper process. So no C++ enters the target, and a
//! crash of the library is a refusal like any other (AMD-101).

use crate::install::Install;
use crate::packets::{Packets, TargetRoot};
use crate::profiler_lock::{self, ProfilerLock};
use midair_agents::{Agent, AgentType};
use midair_aqlprofile::{planned, traced};
use midair_counters::CounterPlan;
use midair_failure::{Failure, Kind};
use midair_ptrace::kfd::Kfd;
use midair_record::counter_plan::{self, Plan};
use midair_results::Identity;
use midair_settings::{
    DEVICE_INTERVAL, EXCLUSIVE, GRAPH_KERNELS, MAX_OVERHEAD, Settings, THREAD_TRACE,
};
use std::fs::File;
use std::io::Write;
use std::sync::Arc;

/// The percentage of the time that windows may take where the user says nothing.
const DEFAULT_OVERHEAD: u32 = 2;

/// Milliseconds between readings of a whole device where the user says nothing.
const DEFAULT_INTERVAL: u64 = 10;

/// What is counted, as it is handed to the target.
#[derive(Debug)]
pub(crate) struct Counters {
    /// The plan by which the records are read.
    pub plan: CounterPlan,
    /// What the target is sent: a memory file, and its length in bytes.
    pub file: (File, u64),
    /// The profiler lock, held for as long as the session counts.
    pub lock: Option<ProfilerLock>,
}

/// Whether the settings ask for counters. Settings that cannot be read ask for none.
pub(crate) fn are_asked(settings: &Settings) -> bool {
    let some = |groups: Result<midair_settings::CounterGroups, _>| {
        groups.is_ok_and(|groups| !groups.is_empty())
    };
    some(settings.device_counter_groups())
        || some(settings.counter_groups())
        || settings.is_on(THREAD_TRACE)
}

/// Prepares the counters that the settings ask for. None where they ask for none. `there` is the root
/// of a process that has another one than this side.
///
/// # Errors
/// Groups, counters or GPUs that cannot be counted, each with its own reason and remedy.
pub(crate) fn prepare(
    settings: &Settings,
    identity: &Identity,
    install: &Install,
    there: Option<Result<TargetRoot, String>>,
) -> Result<Option<Counters>, Failure> {
    let bad = |bad: midair_settings::BadValue| Failure::new(Kind::Usage, bad.to_string());
    let mut groups = settings.device_counter_groups().map_err(bad)?;
    let interval = match groups.is_empty() {
        true => 0,
        false => interval(settings)?,
    };
    if groups.is_empty() {
        groups = settings.counter_groups().map_err(bad)?;
    }
    let there = there.map(|there| there.map(Arc::new));
    let traces = traced::of_agents(settings, &identity.agents, |question| {
        Packets::start(install, there.clone())?
            .trace(question)
            .map_err(|error| midair_aqlprofile::failure(&error))
    })?;
    if groups.is_empty() && traces.is_empty() {
        return Ok(None);
    }
    let added = planned::definitions(settings)?;
    let is_gpu = |agent: &Agent| agent.agent_type == AgentType::Gpu;
    if !identity.agents.iter().any(is_gpu) {
        return Err(Failure::new(
            Kind::NoCounters,
            "cannot count: the process sees no GPU of AMD's driver",
        )
        .hint("midair doctor PID shows its GPUs"));
    }
    let mut helper = Packets::start(install, there)?;
    let mut plan = planned::of_agents(&groups, &identity.agents, |gpu, names| {
        midair_aqlprofile::prepare_groups(&mut helper, gpu, &added, names)
    })?;
    plan.interval = interval;
    let max_overhead = match settings.text(MAX_OVERHEAD) {
        None => DEFAULT_OVERHEAD,
        Some(text) => text
            .parse()
            .ok()
            .filter(|percent| (1..=100).contains(percent))
            .ok_or_else(|| {
                Failure::new(
                    Kind::Usage,
                    format!("{MAX_OVERHEAD} is not a number from 1 to 100: {text}"),
                )
            })?,
    };
    let counted: Vec<&Agent> = identity
        .agents
        .iter()
        .filter(|agent| plan.agents.contains_key(&agent.node_id))
        .collect();
    // A window should count only its own queue, but for whole devices all queues count.
    let (lock, locks) = profiler_lock::take(Kfd::open(), &counted, interval != 0);
    plan.locks = locks;
    let bytes = counter_plan::encode(&Plan {
        max_overhead,
        interval,
        exclusive: settings.is_on(EXCLUSIVE),
        graph_kernels: settings.is_on(GRAPH_KERNELS),
        groups: planned::groups(&plan),
        traces,
    });
    if bytes.len() > counter_plan::MAX_BYTES {
        return Err(Failure::new(
            Kind::Usage,
            "these groups of counters need too much memory in the process",
        )
        .hint("use fewer groups, or fewer counters of TCP, TA and TD"));
    }
    let file = midair_ptrace::memfd_filled(c"midair-counters", |file| file.write_all(&bytes));
    let file = file.map(File::from).map_err(|error| {
        Failure::new(
            Kind::Setup,
            format!("cannot allocate memory for the counter plan: {error}"),
        )
    })?;
    Ok(Some(Counters {
        plan,
        file: (file, bytes.len() as u64),
        lock,
    }))
}

/// Returns the nanoseconds between two readings of a whole device.
fn interval(settings: &Settings) -> Result<u64, Failure> {
    let text = settings.text(DEVICE_INTERVAL);
    let interval = text.map_or(Ok(DEFAULT_INTERVAL), str::parse);
    match interval {
        Ok(interval @ 1..=3_600_000) => Ok(interval * 1_000_000),
        _ => Err(Failure::new(
            Kind::Usage,
            format!(
                "{DEVICE_INTERVAL} is not a number of milliseconds from 1 to 3600000: {}",
                text.unwrap_or_default()
            ),
        )),
    }
}

/// Checks that every dispatch of a program to be started can be counted: each group as the user
/// made it, on each of the machine's GPUs. The packets made here are thrown away, because the
/// program's collector has them made once more.
///
/// # Errors
/// As for a running process; also where a group does not fit into one pass.
pub fn check_launch(
    settings: &Settings,
    agents: &[Agent],
    install: &Install,
) -> Result<(), Failure> {
    let of_devices = settings
        .device_counter_groups()
        .map_err(|bad| Failure::new(Kind::Usage, bad.to_string()))?;
    if !of_devices.is_empty() || settings.is_on(EXCLUSIVE) {
        return Err(Failure::new(
            Kind::Usage,
            "--pmc-device and --exclusive require an attach to a running process",
        )
        .hint(
            "start the program without the profiler, and attach to it: midair attach PID --pmc-device ...",
        ));
    }
    traced::of_agents(settings, agents, |question| {
        Packets::start(install, None)?
            .trace(question)
            .map_err(|error| midair_aqlprofile::failure(&error))
    })?;
    let groups = settings
        .counter_groups()
        .map_err(|bad| Failure::new(Kind::Usage, bad.to_string()))?;
    if groups.is_empty() {
        return Ok(());
    }
    let added = planned::definitions(settings)?;
    let is_gpu = |agent: &Agent| agent.agent_type == AgentType::Gpu;
    if !agents.iter().any(is_gpu) {
        return Err(Failure::new(
            Kind::NoCounters,
            "cannot count: AMD's driver lists no GPU on this machine",
        ));
    }
    let mut helper = Packets::start(install, None)?;
    let plan = planned::of_agents(&groups, agents, |gpu, names| {
        midair_aqlprofile::prepare_each(&mut helper, gpu, &added, names)
    })?;
    if plan.agents.is_empty() {
        return Err(Failure::new(
            Kind::Usage,
            "every requested counter is for a GPU that this machine lacks",
        )
        .hint("device=0 is the first GPU"));
    }
    Ok(())
}
