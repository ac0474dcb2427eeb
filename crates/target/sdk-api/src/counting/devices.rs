//! Counting on whole devices: counters are started with the context, and read when the tool asks.

pub use super::services::Engine;

use super::services::{Agent, DeviceCallback, Devices, Inner, Opaque, Stage};
use super::words_of;
use crate::agents;
use crate::buffer;
use crate::registration::out::expel_owner;
use crate::registry;
use crate::state::{self, STATE};
use crate::status::Status;
use midair_abi::constants as c;
use midair_abi::counting::CounterRecord;
use midair_capi_build::edge;
use midair_sdk_hot::callbacks;
use std::ffi::c_int;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long a tool's start waits for the start on the worker thread, for which packets may have to
/// be made first.
const STARTED_WITHIN: Duration = Duration::from_secs(30);
/// How long a stop waits for another thread that is reading.
const STOPPED_WITHIN: Duration = Duration::from_millis(500);

/// Sets the engine that counts; from now on counters are available.
pub fn set_engine(engine: &'static dyn Engine) {
    *STATE
        .counting_engine
        .lock()
        .unwrap_or_else(PoisonError::into_inner) = Some(engine);
}

fn engine() -> Option<&'static dyn Engine> {
    let engine = *STATE
        .counting_engine
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    engine.filter(|engine| engine.is_open())
}

/// Adds an agent to those that a context counts on.
///
/// # Errors
/// [`Status::CONTEXT_INVALID`], [`Status::AGENT_DISPATCH_CONFLICT`], [`Status::BUFFER_NOT_FOUND`],
/// [`Status::AGENT_NOT_FOUND`]; [`Status::INVALID_ARGUMENT`] for an agent that the context has.
pub(crate) fn configure(
    context: u64,
    buffer: u64,
    agent: u64,
    callback: DeviceCallback,
    data: Opaque,
) -> Result<(), Status> {
    {
        let mut state = state::lock();
        if state.finalized {
            return Err(Status::FINALIZED);
        }
        let counts = state
            .context(context)
            .map_err(|_| Status::CONTEXT_INVALID)?
            .counts;
        if counts {
            return Err(Status::AGENT_DISPATCH_CONFLICT);
        }
        if buffer != 0 {
            state.buffer(buffer)?;
        }
        if agents::by_id(agent).is_none() {
            return Err(Status::AGENT_NOT_FOUND);
        }
        let found = state.context(context)?;
        let devices = found.devices.get_or_insert_with(|| {
            Arc::new(Devices {
                context,
                inner: Mutex::new(Inner {
                    stage: Stage::Stopped,
                    by: None,
                    agents: Vec::new(),
                }),
            })
        });
        let mut inner = devices.lock();
        if inner.agents.iter().any(|known| known.agent == agent) {
            return Err(Status::INVALID_ARGUMENT);
        }
        inner.agents.push(Agent {
            agent,
            buffer,
            callback,
            data,
            config: None,
            started: None,
        });
    }
    crate::changes::changed();
    Ok(())
}

/// The function by which a tool chooses counters, inside its callback.
unsafe extern "C" fn set(context: u64, config: u64) -> c_int {
    edge(1, || {
        choose(context, config).map_or_else(c_int::from, |()| 0)
    })
}

fn choose(context: u64, config: u64) -> Result<(), Status> {
    let devices = of(context).map_err(|_| Status::CONTEXT_INVALID)?;
    let config = super::config(config).ok_or(Status::PROFILE_NOT_FOUND)?;
    let devices = devices.ok_or(Status::CONTEXT_INVALID)?;
    let mut inner = devices.lock();
    if inner.stage != Stage::Locked {
        return Err(Status::CONFIGURATION_LOCKED);
    }
    let agent = inner
        .agents
        .iter_mut()
        .find(|agent| agent.agent == config.device().id)
        .ok_or(Status::AGENT_MISMATCH)?;
    agent.config = Some(config);
    Ok(())
}

/// Returns a context's counting on devices.
fn of(context: u64) -> Result<Option<Arc<Devices>>, Status> {
    Ok(state::lock().context(context)?.devices.clone())
}

/// Starts the counters of a context that was started, if there is a runtime. Otherwise they start
/// when there is one ([`runtime_is_open`]).
///
/// # Errors
/// The engine's errors.
pub fn start(context: u64) -> Result<(), Status> {
    start_within(context, STARTED_WITHIN)
}

fn start_within(context: u64, limit: Duration) -> Result<(), Status> {
    match (of(context)?, engine()) {
        (Some(devices), Some(engine)) => devices.start(engine, limit),
        _ => Ok(()),
    }
}

/// Stops the counters of a context that was stopped.
pub fn stop(context: u64) {
    let engine = *STATE
        .counting_engine
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    if let (Ok(Some(devices)), Some(engine)) = (of(context), engine) {
        devices.stop(engine);
    }
}

fn running() -> Vec<u64> {
    let state = state::lock();
    (1..)
        .zip(&state.contexts)
        .filter(|(_, context)| context.active && context.devices.is_some())
        .map(|(handle, _)| handle)
        .collect()
}

/// Starts the counters of running contexts, because there is a runtime now. Called on the worker
/// thread.
pub fn runtime_is_open() {
    for context in running() {
        // An error is reported when the counters are read.
        let _ = start_within(context, Duration::ZERO);
    }
}

/// Stops all counters, because the session ends, and with it the use of the runtime. Called on the
/// worker thread.
pub fn runtime_closes() {
    let all = state::lock().contexts.len() as u64;
    (1..=all).for_each(stop);
}

/// Reads a context's counters now. The values go into the buffers of their agents, and are also
/// returned.
///
/// # Errors
/// [`Status::CONTEXT_INVALID`] for a context that counts for no device, [`Status::HSA_NOT_LOADED`]
/// without a runtime, [`Status::CONTEXT_ERROR`] while another thread starts, stops or reads.
pub(crate) fn sample(context: u64, user_data: u64) -> Result<Vec<CounterRecord>, Status> {
    let devices = of(context)?.ok_or(Status::CONTEXT_INVALID)?;
    let engine = engine().ok_or(Status::HSA_NOT_LOADED)?;
    devices.sample(engine, user_data)
}

/// Checks that a context may be read: it was started, and tools have not ended.
///
/// # Errors
/// [`Status::CONTEXT_NOT_FOUND`], [`Status::FINALIZED`], [`Status::CONTEXT_NOT_STARTED`].
pub(crate) fn may_sample(context: u64) -> Result<(), Status> {
    let mut state = state::lock();
    if context == 0 {
        return Err(Status::CONTEXT_NOT_FOUND);
    }
    if state.finalized {
        return Err(Status::FINALIZED);
    }
    // As in AMD's library: a context that does not exist has not been started either.
    match state.context(context) {
        Ok(context) if context.active => Ok(()),
        _ => Err(Status::CONTEXT_NOT_STARTED),
    }
}

impl Devices {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the stage for a call, if the stage is this one.
    fn take(&self, stage: Stage) -> bool {
        let mut inner = self.lock();
        let is_free = inner.stage == stage;
        if is_free {
            inner.stage = Stage::Locked;
            inner.by = Some(thread::current().id());
        }
        is_free
    }

    /// Does the same, after waiting for another thread that starts, stops or reads.
    fn take_soon(&self, stage: Stage, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        while !self.take(stage) {
            let (now, by) = {
                let inner = self.lock();
                (inner.stage, inner.by)
            };
            // The stage may be locked by this very thread, inside a function of the tool.
            let is_own = by == Some(thread::current().id());
            if now != Stage::Locked || is_own || Instant::now() >= until {
                return false;
            }
            thread::sleep(Duration::from_micros(100));
        }
        true
    }

    fn set(&self, stage: Stage) {
        self.lock().stage = stage;
    }

    fn start(&self, engine: &'static dyn Engine, limit: Duration) -> Result<(), Status> {
        if !self.take_soon(Stage::Stopped, limit) {
            // The worker thread may have started them first.
            return match self.lock().stage {
                Stage::Started => Ok(()),
                _ => Err(Status::SERVICE_ALREADY_CONFIGURED),
            };
        }
        let count = self.lock().agents.len();
        let started = (0..count).try_for_each(|number| self.start_one(engine, number));
        self.set(Stage::Started);
        started
    }

    fn start_one(&self, engine: &'static dyn Engine, number: usize) -> Result<(), Status> {
        let (agent, callback, data) = {
            let mut inner = self.lock();
            let Some(agent) = inner.agents.get_mut(number) else {
                return Ok(());
            };
            (agent.config, agent.started) = (None, None);
            (agent.agent, agent.callback, agent.data)
        };
        let context = self.context;
        let called = callbacks::as_tool(|| {
            // SAFETY: the tool gave us this function for such calls.
            midair_tool_call::call(&[], || unsafe { callback(context, agent, set, data.0) })
        });
        if let Err(thrown) = called {
            expel_owner(context, "callback", &thrown);
            return Err(Status::ERROR);
        }
        let chosen = self
            .lock()
            .agents
            .get(number)
            .and_then(|a| a.config.clone());
        let Some(config) = chosen.filter(|config| !config.events().is_empty()) else {
            return Ok(());
        };
        let started = engine.start(&config)?;
        if let Some(agent) = self.lock().agents.get_mut(number) {
            agent.started = Some(started);
        }
        Ok(())
    }

    fn stop(&self, engine: &'static dyn Engine) {
        if !self.take_soon(Stage::Started, STOPPED_WITHIN) {
            return;
        }
        let started: Vec<u64> = {
            let mut inner = self.lock();
            let agents = inner.agents.iter_mut();
            agents.filter_map(|agent| agent.started.take()).collect()
        };
        for started in started {
            engine.stop(started);
        }
        self.set(Stage::Stopped);
    }

    fn sample(
        &self,
        engine: &'static dyn Engine,
        user_data: u64,
    ) -> Result<Vec<CounterRecord>, Status> {
        if !self.take(Stage::Started) {
            return Err(Status::CONTEXT_ERROR);
        }
        let agents: Vec<_> = {
            let inner = self.lock();
            let agents = inner.agents.iter();
            agents
                .filter_map(|agent| Some((agent.buffer, agent.config.clone()?, agent.started)))
                .collect()
        };
        let mut all = Vec::new();
        let mut outcome = Ok(());
        for (buffer, config, started) in agents {
            let read = match started {
                Some(started) => engine.read(started),
                // The list has only properties of the agent.
                None => Ok(config.values(&Default::default(), &[], 0)),
            };
            match read {
                Ok(mut values) => {
                    for value in &mut values {
                        value.user_data = user_data;
                    }
                    put(buffer, &values);
                    all.extend(values);
                }
                Err(status) => outcome = Err(status),
            }
        }
        self.set(Stage::Started);
        outcome.map(|()| all)
    }
}

fn put(handle: u64, values: &[CounterRecord]) {
    let due = {
        let mut state = state::lock();
        let Some(buffer) = registry::index(handle)
            .and_then(|index| state.buffers.get_mut(index))
            .and_then(Option::as_mut)
        else {
            return;
        };
        for value in values {
            buffer.push_counted(c::ROCPROFILER_COUNTER_RECORD_VALUE as u32, &words_of(value));
        }
        buffer.due()
    };
    if due {
        buffer::call(handle);
    }
}
