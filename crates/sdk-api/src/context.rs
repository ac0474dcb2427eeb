//! Contexts: what a tool wants to know, and when. [`wanted`] is the union of what the running ones
//! want.

pub(crate) mod services;

use crate::changes;
use crate::state;
use crate::status::Status;
use midair_abi::constants as c;
use midair_abi::names::{BUFFER_KINDS, CALLBACK_KINDS};
use midair_domain::{CallbackTime, KindSet};
use midair_sdk_hot::callbacks::{self, Service, Services};
use midair_sdk_hot::clock;
use midair_sdk_hot::operations::{Opaque, OperationSet, TracingCallback};
use services::{BufferService, CallbackService, CodeObjectService, Context};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// How long a stop waits for threads that are about to call a tool's function. What they do then
/// takes nanoseconds; only one without a processor takes longer.
const SETTLE_LIMIT: Duration = Duration::from_millis(250);

/// The kind of our records that a buffer-tracing kind is made from; `None` when it is not built.
pub(crate) fn record_kind(tracing_kind: i32) -> Option<u8> {
    midair_domain::of_buffer_kind(tracing_kind)
        .filter(|domain| domain.built)
        .map(|domain| domain.kind)
}

/// What the running contexts want of one kind of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demand {
    /// Operations that some context wants.
    pub operations: OperationSet,
    /// Some context wants them in the attacher's spool.
    pub spool: bool,
    /// Some context wants them through [`crate::buffer::deliver`].
    pub deliver: bool,
}

/// What the running contexts want.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// By kind of our records ([`midair_record::event::kind`]).
    pub kinds: BTreeMap<u8, Demand>,
    /// Some context wants code objects and kernel symbols through [`crate::buffer::deliver`].
    pub code_objects: bool,
    /// Services whose functions are called on the threads that make the calls.
    pub services: Services,
}

impl Wanted {
    /// The kinds.
    pub fn kinds(&self) -> KindSet {
        self.kinds.keys().copied().collect()
    }
    /// Whether an operation is wanted.
    pub fn wants(&self, kind: u8, operation: u32) -> bool {
        self.kinds
            .get(&kind)
            .is_some_and(|demand| demand.operations.has(operation))
    }
    /// Whether anything is to be delivered.
    pub fn delivers(&self) -> bool {
        self.code_objects
            || !self.services.is_empty()
            || self.kinds.values().any(|demand| demand.deliver)
    }
    /// Whether anything is wanted at all.
    pub fn is_empty(&self) -> bool {
        self.kinds.is_empty() && !self.code_objects && self.services.is_empty()
    }
}

/// The union of what all running contexts want.
pub fn wanted() -> Wanted {
    let state = state::lock();
    let mut wanted = Wanted::default();
    let active = (1..)
        .zip(&state.contexts)
        .filter(|(_, context)| context.active);
    for (handle, context) in active {
        wanted.code_objects |= context.code_objects.is_some() && !context.spool;
        for service in &context.callbacks {
            match late_kind(service.kind) {
                Some(kind) => {
                    let demand = wanted.kinds.entry(kind).or_insert(Demand {
                        operations: OperationSet::NONE,
                        spool: false,
                        deliver: false,
                    });
                    demand.operations.add_all(&service.operations);
                    demand.deliver = true;
                }
                None => {
                    if !context.spool
                        && let Some(record_kind) =
                            midair_sdk_hot::callbacks::record_kind(service.kind)
                    {
                        let service = Service {
                            context: handle,
                            on: context.on,
                            operations: service.operations,
                            callback: service.callback,
                            data: service.data,
                        };
                        wanted.services.add(record_kind, service);
                    }
                }
            }
        }
        for service in &context.services {
            let Some(kind) = record_kind(service.kind) else {
                continue;
            };
            let none = Demand {
                operations: OperationSet::NONE,
                spool: false,
                deliver: false,
            };
            let demand = wanted.kinds.entry(kind).or_insert(none);
            demand.operations.add_all(&service.operations);
            demand.spool |= context.spool;
            demand.deliver |= !context.spool;
        }
    }
    wanted
}

/// Whether any context runs.
pub fn any_active() -> bool {
    state::lock().contexts.iter().any(|context| context.active)
}

/// Makes a context for the client that is being initialised; returns its handle.
pub fn create() -> Result<u64, Status> {
    let mut state = state::lock();
    let client = state.configuring()?;
    state.contexts.push(Context {
        client,
        out: false,
        active: false,
        on: Box::leak(Box::new(AtomicBool::new(false))),
        started_at: 0,
        stopped_at: 0,
        spool: false,
        services: Vec::new(),
        code_objects: None,
        callbacks: Vec::new(),
    });
    Ok(state.contexts.len() as u64)
}

/// Sends the records of a context to the attacher's spool, and to no buffer.
pub fn use_spool(context: u64) -> Result<(), Status> {
    let mut state = state::lock();
    state.configuring()?;
    state.context(context)?.spool = true;
    Ok(())
}

/// Starts a context; does nothing when it is running.
pub fn start(context: u64) -> Result<(), Status> {
    let mut state = state::lock();
    if state.finalized {
        return Err(Status::FINALIZED);
    }
    let context = state.context(context)?;
    if context.out {
        return Err(Status::NOT_AVAILABLE);
    }
    if context.active {
        return Ok(());
    }
    if context.services.is_empty() && context.code_objects.is_none() && context.callbacks.is_empty()
    {
        return Err(Status::CONTEXT_INVALID);
    }
    context.begin(clock::now());
    drop(state);
    changes::changed();
    Ok(())
}

/// Stops a context. Its records up to now still arrive in its buffers. Its functions are not called
/// any more when this returns, but for the ends of calls whose beginnings were reported, and where
/// a thread is inside one already.
pub fn stop(context: u64) -> Result<(), Status> {
    let is_told_late = {
        let mut state = state::lock();
        let services = &state.context(context)?.callbacks;
        services
            .iter()
            .any(|service| late_kind(service.kind).is_some())
    };
    if is_told_late {
        // What has ended by now is told now.
        changes::round_within(changes::LIMIT);
    }
    let mut state = state::lock();
    if !state.context(context)?.end(clock::now()) {
        return Err(Status::CONTEXT_NOT_STARTED);
    }
    drop(state);
    callbacks::settle(SETTLE_LIMIT);
    changes::changed();
    Ok(())
}

/// Stops several contexts at the same time, those that are running.
pub(crate) fn stop_all(handles: &[u64]) {
    let mut state = state::lock();
    let now = clock::now();
    let mut changed = false;
    for handle in handles {
        if let Ok(context) = state.context(*handle) {
            changed |= context.end(now);
        }
    }
    drop(state);
    if changed {
        callbacks::settle(SETTLE_LIMIT);
        changes::changed();
    }
}

/// Whether a context runs.
pub fn is_active(context: u64) -> Result<bool, Status> {
    Ok(state::lock().context(context)?.active)
}

/// Adds a buffered service to a context. An empty list means every operation.
pub fn configure_buffer_tracing(
    context: u64,
    tracing_kind: i32,
    operations: &[i32],
    buffer: u64,
) -> Result<(), Status> {
    let mut state = state::lock();
    state.configuring()?;
    let spool = state.context(context)?.spool;
    let operations = operation_set(BUFFER_KINDS, tracing_kind, operations)?;
    if record_kind(tracing_kind).is_none() {
        return Err(Status::NOT_IMPLEMENTED);
    }
    if !(spool && buffer == 0) {
        state.buffer(buffer)?;
    }
    let context = state.context(context)?;
    if context
        .services
        .iter()
        .any(|service| service.kind == tracing_kind)
    {
        return Err(Status::SERVICE_ALREADY_CONFIGURED);
    }
    context.services.push(BufferService {
        kind: tracing_kind,
        operations,
        buffer,
    });
    Ok(())
}

/// The kind of our records whose completion a callback-tracing kind reports, on the worker thread;
/// `None` when it is not built, or is reported around calls.
pub(crate) fn late_kind(callback_kind: i32) -> Option<u8> {
    let domain = midair_domain::of_callback_kind(callback_kind)?;
    let is_late = domain
        .callback
        .is_some_and(|callback| callback.told == CallbackTime::Late);
    (domain.built && is_late).then_some(domain.kind)
}

/// Adds a callback service to a context. An empty list means every operation. Served are code
/// objects, API calls, runtimes, and the completion of dispatches; a tool that asks for the
/// enqueuing of dispatches by name is refused.
pub fn configure_callback_tracing(
    context: u64,
    tracing_kind: i32,
    operations: &[i32],
    callback: TracingCallback,
    data: *mut c_void,
) -> Result<(), Status> {
    let mut state = state::lock();
    state.configuring()?;
    let context = state.context(context)?;
    let operations = operation_set(CALLBACK_KINDS, tracing_kind, operations)?;
    if tracing_kind != c::ROCPROFILER_CALLBACK_TRACING_CODE_OBJECT {
        let enqueue = tracing_kind == c::ROCPROFILER_CALLBACK_TRACING_KERNEL_DISPATCH
            && operations != OperationSet::ALL
            && operations.has(c::ROCPROFILER_KERNEL_DISPATCH_ENQUEUE as u32);
        let served = late_kind(tracing_kind).is_some()
            || midair_sdk_hot::callbacks::record_kind(tracing_kind).is_some();
        if !served || enqueue {
            return Err(Status::NOT_IMPLEMENTED);
        }
        if context.spool {
            return Err(Status::INVALID_ARGUMENT);
        }
        if context
            .callbacks
            .iter()
            .any(|service| service.kind == tracing_kind)
        {
            return Err(Status::SERVICE_ALREADY_CONFIGURED);
        }
        context.callbacks.push(CallbackService {
            kind: tracing_kind,
            operations,
            callback,
            data: Opaque(data),
        });
        return Ok(());
    }
    if context.code_objects.is_some() {
        return Err(Status::SERVICE_ALREADY_CONFIGURED);
    }
    context.code_objects = Some(CodeObjectService {
        operations,
        callback,
        data: Opaque(data),
    });
    Ok(())
}

/// Checks a kind and its operations against the names that we know.
fn operation_set(
    kinds: &[midair_abi::names::Kind],
    kind: i32,
    operations: &[i32],
) -> Result<OperationSet, Status> {
    let names = usize::try_from(kind)
        .ok()
        .filter(|kind| *kind != 0)
        .and_then(|kind| kinds.get(kind));
    let names = names.ok_or(Status::KIND_NOT_FOUND)?;
    if operations.is_empty() {
        return Ok(OperationSet::ALL);
    }
    let mut set = OperationSet::NONE;
    for operation in operations {
        let id = u32::try_from(*operation).map_err(|_| Status::OPERATION_NOT_FOUND)?;
        names
            .operation(id as usize)
            .ok_or(Status::OPERATION_NOT_FOUND)?;
        set.add(id);
    }
    Ok(set)
}
