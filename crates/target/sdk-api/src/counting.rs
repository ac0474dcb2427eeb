//! Hardware counters for tools: which counters exist, and lists of counters to count together.
//!
//! * [`table`]: the counters of all architectures by id, and [`ids`] of records,
//! * [`mod@info`]: information about a counter, in AMD's layout,
//! * [`mod@config`]: a checked list, from which values are computed,
//! * [`device`]: an agent's shape and properties,
//! * [`dispatch`], [`devices`]: the services that count.
//!
//! Nothing is created before a tool asks: a process whose tools do not count has no table.

pub mod config;
pub mod device;
pub mod devices;
pub mod dispatch;
pub(crate) mod ids;
pub(crate) mod info;
pub(crate) mod kept;
pub(crate) mod places;
pub(crate) mod services;
pub(crate) mod table;

use crate::agents;
use crate::state::STATE;
use crate::status::Status;
use config::Config;
use device::Device;
use kept::Counting;
use midair_abi::constants as c;
use midair_abi::counting::{CounterRecord, RecordDimensionInfo};
use midair_counters::Definitions;
use std::sync::{Arc, MutexGuard, PoisonError};
use table::Table;

/// Returns an agent by its id.
fn device_of(id: u64) -> Option<Device> {
    agents::by_id(id).map(Device::new)
}

/// Locks the state. The lock is never held while a function of a tool runs.
fn lock() -> MutexGuard<'static, Counting> {
    STATE
        .counting
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
}

/// Loads definitions, before any counters were asked for.
///
/// # Errors
/// [`Status::ERROR`] when counters were already asked for, as in AMD's library;
/// [`Status::INVALID_ARGUMENT`] for a text that is not a definition.
pub(crate) fn load(text: &[u8], flags: i32) -> Result<(), Status> {
    let append = flags == c::ROCPROFILER_COUNTER_FLAG_APPEND_DEFINITION;
    let mut counting = lock();
    if counting.table.is_some() {
        return Err(Status::ERROR);
    }
    if text.is_empty() {
        counting.custom = None;
        return Ok(());
    }
    let text = std::str::from_utf8(text).map_err(|_| Status::INVALID_ARGUMENT)?;
    let read = Definitions::read(text).map_err(|_| Status::INVALID_ARGUMENT)?;
    // Invalid definitions are reported now, not when counters are asked for.
    Table::check(&read, append)?;
    counting.custom = Some((read, append));
    Ok(())
}

/// Returns the ids of an agent's counters.
///
/// # Errors
/// [`Status::AGENT_NOT_FOUND`]; [`Status::AGENT_ARCH_NOT_SUPPORTED`] for one without counters.
pub(crate) fn of_agent(agent: u64) -> Result<Vec<u64>, Status> {
    let device = device_of(agent).ok_or(Status::AGENT_NOT_FOUND)?;
    let mut counting = lock();
    let ids = counting.table().of(&device.name);
    if ids.is_empty() {
        return Err(Status::AGENT_ARCH_NOT_SUPPORTED);
    }
    Ok(ids)
}

/// Creates a counter from others.
///
/// # Errors
/// [`Status::AGENT_NOT_FOUND`]; [`Status::INVALID_ARGUMENT`] for a name that exists already or is
/// not valid; [`Status::AST_GENERATION_FAILED`] for an invalid expression.
pub(crate) fn create(
    agent: u64,
    name: &str,
    expression: &str,
    description: &str,
) -> Result<u64, Status> {
    let device = device_of(agent).ok_or(Status::AGENT_NOT_FOUND)?;
    lock()
        .table()
        .create(&device.name, name, expression, description)
}

/// Returns the information about a counter. Everything in it lives forever.
///
/// # Errors
/// [`Status::COUNTER_NOT_FOUND`].
pub(crate) fn info(counter: u64) -> Result<info::Basics, Status> {
    let mut counting = lock();
    let metric = counting
        .table()
        .metric(counter)
        .ok_or(Status::COUNTER_NOT_FOUND)?;
    Ok(info::Basics::of(&metric))
}

/// Returns the places at which a counter has values, on the first agent that has the counter.
///
/// # Errors
/// [`Status::COUNTER_NOT_FOUND`]; [`Status::AGENT_NOT_FOUND`] when no agent has it.
pub(crate) fn places(counter: u64) -> Result<&'static places::Places, Status> {
    let mut counting = lock();
    let metric = counting
        .table()
        .metric(counter)
        .ok_or(Status::COUNTER_NOT_FOUND)?;
    let device = agents::ids()
        .filter_map(|(_, id)| device_of(id))
        .find(|device| device.name == metric.architecture.name)
        .ok_or(Status::AGENT_NOT_FOUND)?;
    Ok(info::places(&mut counting.infos, counter, &metric, &device))
}

/// Returns the dimensions of a counter.
///
/// # Errors
/// The errors of [`fn@places`].
pub(crate) fn dimensions(counter: u64) -> Result<&'static [RecordDimensionInfo], Status> {
    Ok(places(counter)?.dimensions)
}

/// Returns how many values a counter has on an agent.
///
/// # Errors
/// [`Status::AGENT_NOT_FOUND`], [`Status::COUNTER_NOT_FOUND`].
pub(crate) fn instances(agent: u64, counter: u64) -> Result<usize, Status> {
    let device = device_of(agent).ok_or(Status::AGENT_NOT_FOUND)?;
    let mut counting = lock();
    let metric = counting
        .table()
        .metric(counter)
        .filter(|metric| metric.architecture.name == device.name)
        .ok_or(Status::COUNTER_NOT_FOUND)?;
    let extents = info::extents(&metric, &device);
    Ok(extents.iter().map(|(_, extent)| *extent as usize).product())
}

/// Creates a list of counters that are counted together, including the counters of the list `base`
/// if it exists. Returns its handle.
///
/// # Errors
/// [`Status::AGENT_NOT_FOUND`], [`Status::COUNTER_NOT_FOUND`],
/// [`Status::METRIC_NOT_VALID_FOR_AGENT`], [`Status::EXCEEDS_HW_LIMIT`].
pub(crate) fn configure(agent: u64, counters: &[u64], base: u64) -> Result<u64, Status> {
    let device = device_of(agent).ok_or(Status::AGENT_NOT_FOUND)?;
    let mut counting = lock();
    let mut all: Vec<u64> = Vec::new();
    for counter in counters {
        let metric = counting
            .table()
            .metric(*counter)
            .ok_or(Status::COUNTER_NOT_FOUND)?;
        if metric.architecture.name != device.name {
            return Err(Status::METRIC_NOT_VALID_FOR_AGENT);
        }
        if !all.contains(counter) {
            all.push(*counter);
        }
    }
    if let Some(base) = counting.configs.get(&base) {
        let more: Vec<u64> = base.ids().filter(|id| !all.contains(id)).collect();
        all.extend(more);
    }
    let metrics: Vec<_> = all
        .iter()
        .filter_map(|id| Some((*id, counting.table().metric(*id)?)))
        .collect();
    let config = Config::new(device, &metrics)?;
    counting.configured += 1;
    let handle = counting.configured;
    counting.configs.insert(handle, Arc::new(config));
    Ok(handle)
}

/// Removes a list. An unknown handle is not an error, as in AMD's library.
pub(crate) fn forget(config: u64) {
    lock().configs.remove(&config);
}

/// Returns a value as words.
fn words_of(value: &CounterRecord) -> [u64; size_of::<CounterRecord>() / 8] {
    [
        value.id,
        value.counter_value.to_bits(),
        value.dispatch_id,
        value.user_data,
        value.agent_id,
    ]
}

/// Returns a list by its handle.
pub fn config(handle: u64) -> Option<Arc<Config>> {
    lock().configs.get(&handle).cloned()
}
