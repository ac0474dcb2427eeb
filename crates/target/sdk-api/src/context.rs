//! Contexts: what a tool wants to record, and when. [`wanted`] is the union of what the running
//! contexts want.

pub(crate) mod services;

use crate::changes;
use crate::sampling::setting::Setting;
use crate::state;
use crate::status::Status;
use midair_abi::constants as c;
use midair_abi::names::{BUFFER_KINDS, CALLBACK_KINDS};
use midair_domain::kind as kinds;
use midair_domain::{CallbackTime, KindSet};
use midair_sdk_hot::callbacks::requests::RequestCallback;
use midair_sdk_hot::callbacks::{self, Request, Service, Services, requests, work};
use midair_sdk_hot::clock;
use midair_sdk_hot::operations::{Opaque, OperationSet, TracingCallback};
use services::{BufferService, CallbackService, CodeObjectService, Context, RequestService};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// How long a stop waits for threads that are about to call a tool's function. This takes
/// nanoseconds, unless a thread has no processor to run on.
const SETTLE_LIMIT: Duration = Duration::from_millis(250);

/// The kind for correlation ids that are no longer used. These records are made here, not on the
/// target's threads.
pub(crate) const RETIREMENT: i32 = c::ROCPROFILER_BUFFER_TRACING_CORRELATION_ID_RETIREMENT;

/// Callback kinds of AMD's newest headers that are not built.
const NO_CALLBACKS: [i32; 4] = [
    c::ROCPROFILER_CALLBACK_TRACING_HIP_GRAPH,
    c::ROCPROFILER_CALLBACK_TRACING_ROCSHMEM_API,
    c::ROCPROFILER_CALLBACK_TRACING_HIPFILE_API,
    c::ROCPROFILER_CALLBACK_TRACING_KERNEL_REPLAY,
];

/// Returns the kind of our records that a buffer-tracing kind is made from; `None` when it is not
/// built.
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
    /// Some context wants to know when correlation ids are no longer used ([`crate::retirement`]).
    pub retirement: bool,
    /// Some context counts around dispatches ([`crate::counting`]), or will when it is started.
    pub counts_dispatches: bool,
    /// The same for counting on whole devices.
    pub counts_devices: bool,
    /// What the running contexts sample.
    pub samples: Option<Setting>,
}

impl Wanted {
    /// Adds operations of a kind to what is wanted, and returns the kind's entry.
    fn demand(&mut self, kind: u8, operations: &OperationSet) -> &mut Demand {
        let demand = self.kinds.entry(kind).or_insert(Demand {
            operations: OperationSet::NONE,
            spool: false,
            deliver: false,
        });
        demand.operations.add_all(operations);
        demand
    }
    /// Returns the wanted kinds.
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
            || self.retirement
            || self.counts()
            || self.kinds.values().any(|demand| demand.deliver)
    }
    /// Whether records of a kind are to be delivered.
    fn passes_on(&self, kind: u8) -> bool {
        self.kinds.get(&kind).is_some_and(|demand| demand.deliver)
    }
    /// Whether HIP's events are to be delivered ([`crate::events`]).
    pub fn passes_on_events(&self) -> bool {
        self.passes_on(kinds::HIP_EVENT)
    }
    /// Whether any context counts.
    pub fn counts(&self) -> bool {
        self.counts_dispatches || self.counts_devices
    }
    /// Whether anything is wanted at all.
    pub fn is_empty(&self) -> bool {
        self.kinds.is_empty() && !self.code_objects && self.services.is_empty() && !self.counts()
    }
}

/// Adds what a context wants that writes to the spool: records only.
fn continue_with_spool(context: &Context, wanted: &mut Wanted) {
    for service in &context.services {
        if let Some(kind) = record_kind(service.kind) {
            wanted.demand(kind, &service.operations).spool = true;
        }
    }
}

/// Returns the kinds for which a context is asked: those that it named and also has a service for.
fn request_of(handle: u64, context: &Context, request: &RequestService) -> Request {
    let asked = |kind: &u8| {
        requests::request_kind(*kind)
            .is_some_and(|kind| request.kinds.is_empty() || request.kinds.contains(&kind))
    };
    let stored: KindSet = context
        .services
        .iter()
        .filter_map(|service| record_kind(service.kind))
        .filter(asked)
        .collect();
    let told: KindSet = context
        .callbacks
        .iter()
        .filter_map(|service| {
            midair_sdk_hot::callbacks::record_kind(service.kind).or(late_kind(service.kind))
        })
        .filter(asked)
        .collect();
    Request {
        context: handle,
        on: context.on,
        kinds: stored | told,
        stored,
        callback: request.callback,
        data: request.data,
    }
}

/// Returns the union of what all running contexts want.
pub fn wanted() -> Wanted {
    let state = state::lock();
    let mut wanted = Wanted::default();
    let active = (1..)
        .zip(&state.contexts)
        .filter(|(_, context)| context.active);
    for (handle, context) in active {
        wanted.code_objects |= context.code_objects.is_some() && !context.spool;
        if context.spool {
            continue_with_spool(context, &mut wanted);
            continue;
        }
        for service in &context.callbacks {
            let told = Service {
                context: handle,
                on: context.on,
                operations: service.operations,
                callback: service.callback,
                data: service.data,
            };
            if service.kind == c::ROCPROFILER_CALLBACK_TRACING_HIP_STREAM {
                wanted.services.add_streams(told);
            } else if let Some(kind) = midair_sdk_hot::callbacks::record_kind(service.kind) {
                wanted.services.add(kind, told);
            } else if let Some(kind) = late_kind(service.kind) {
                wanted.demand(kind, &service.operations).deliver = true;
                // The completion of a dispatch is reported with its record.
                let is_told_before = kind != kinds::KERNEL_DISPATCH
                    || service
                        .operations
                        .has(c::ROCPROFILER_KERNEL_DISPATCH_ENQUEUE as u32);
                let only_late = [kinds::RUNTIME_INITIALIZATION, kinds::HIP_EVENT];
                if is_told_before && !only_late.contains(&kind) {
                    wanted.services.add(kind, told);
                }
            }
        }
        if let Some(service) = &context.samples {
            wanted.samples = Some(service.setting);
            let kind = match service.setting.is_stochastic() {
                true => kinds::PC_SAMPLING_STOCHASTIC,
                false => kinds::PC_SAMPLING_HOST_TRAP,
            };
            // A sample belongs to a dispatch, and is in a code object, which are looked up.
            for kind in [kind, kinds::KERNEL_DISPATCH] {
                wanted.demand(kind, &OperationSet::ALL).deliver = true;
            }
        }
        for service in &context.services {
            wanted.retirement |= service.kind == RETIREMENT;
            if let Some(kind) = record_kind(service.kind) {
                wanted.demand(kind, &service.operations).deliver = true;
            }
        }
        if let Some(request) = &context.request {
            wanted
                .services
                .add_request(request_of(handle, context, request));
        }
    }
    wanted.counts_dispatches = state
        .contexts
        .iter()
        .any(|context| context.counts && context.is_counting());
    wanted.counts_devices = state
        .contexts
        .iter()
        .any(|context| context.devices.is_some() && context.is_counting());
    // The values come with the records of dispatches; counters of the whole device need its queues.
    // The kernels of a graph are counted as its thread dispatches them.
    // Barriers of events are followed alongside dispatches.
    if wanted.counts() || wanted.passes_on(kinds::HIP_GRAPH) || wanted.passes_on_events() {
        wanted
            .demand(kinds::KERNEL_DISPATCH, &OperationSet::ALL)
            .deliver = true;
    }
    if !wanted.services.is_empty() || wanted.counts() {
        work::set_agents(crate::agents::ids());
    }
    wanted
}

/// Returns the operations of OpenMP that any tool is configured for, whether its context runs or
/// not: callbacks are registered with the runtime once, when it starts.
pub fn openmp_operations() -> OperationSet {
    let mut all = OperationSet::NONE;
    let state = state::lock();
    for context in state.contexts.iter().filter(|context| !context.out) {
        let records = context.services.iter();
        let records = records.map(|service| (record_kind(service.kind), &service.operations));
        let calls = context.callbacks.iter();
        let calls =
            calls.map(|service| (callbacks::record_kind(service.kind), &service.operations));
        for (kind, operations) in records.chain(calls) {
            if kind == Some(kinds::OMPT) {
                all.add_all(operations);
            }
        }
    }
    all
}

/// Whether any context runs, or will count once it runs, which has to be prepared for.
pub fn any_active() -> bool {
    state::lock()
        .contexts
        .iter()
        .any(|context| context.active || context.is_counting())
}

/// Creates a context for the client that is being initialised. Returns its handle.
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
        runtimes: 0,
        spool: false,
        services: Vec::new(),
        code_objects: None,
        callbacks: Vec::new(),
        request: None,
        counts: false,
        devices: None,
        samples: None,
    });
    Ok(state.contexts.len() as u64)
}

/// Makes the records of a context go to the attacher's spool, and to no buffer.
pub fn use_spool(context: u64) -> Result<(), Status> {
    let mut state = state::lock();
    state.configuring()?;
    state.context(context)?.spool = true;
    Ok(())
}

/// Starts a context; does nothing when it is already running. One without services runs, as with AMD's
/// SDK.
pub fn start(context: u64) -> Result<(), Status> {
    let mut state = state::lock();
    if state.finalized {
        return Err(Status::FINALIZED);
    }
    let others_count = (1..)
        .zip(&state.contexts)
        .any(|(other, found)| other != context && found.active && found.counts);
    let context = state.context(context)?;
    if context.out {
        return Err(Status::NOT_AVAILABLE);
    }
    if context.active {
        return Ok(());
    }
    if context.counts && others_count {
        return Err(Status::CONTEXT_CONFLICT);
    }
    context.begin(clock::now());
    drop(state);
    changes::changed();
    Ok(())
}

/// Stops a context. Its records up to now still arrive in its buffers. When this returns, its
/// functions are not called any more, with two exceptions: for the end of a call whose start
/// was reported, and where a thread is inside such a function already.
pub fn stop(context: u64) -> Result<(), Status> {
    let is_told_late = {
        let mut state = state::lock();
        let services = &state.context(context)?.callbacks;
        services
            .iter()
            .any(|service| late_kind(service.kind).is_some())
    };
    if is_told_late {
        // Report what has ended by now, while the context still runs.
        changes::round_within(changes::LIMIT);
    }
    let mut state = state::lock();
    if !state.context(context)?.end(clock::now()) {
        return Err(Status::CONTEXT_NOT_STARTED);
    }
    drop(state);
    callbacks::settle(SETTLE_LIMIT);
    changes::fewer();
    Ok(())
}

/// Stops several contexts at the same time; those that do not run are skipped.
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
        changes::fewer();
    }
}

/// Whether a context runs.
pub fn is_active(context: u64) -> Result<bool, Status> {
    Ok(state::lock().context(context)?.active)
}

/// Adds a buffered service to a context. An empty list means every operation. A kind of a library
/// that is not loaded is accepted, and has no records (AMD-065); one that is not built is refused
/// (AMD-180).
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
    // As in AMD's library there are only callbacks for streams, no records.
    let is_refused = match tracing_kind {
        c::ROCPROFILER_BUFFER_TRACING_HIP_STREAM => true,
        _ => midair_domain::of_buffer_kind(tracing_kind).is_some_and(|domain| !domain.built),
    };
    if is_refused {
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

/// Returns the kind of our records for a callback-tracing kind of work or of an event, whose
/// records the worker thread delivers. `None` when it is not built, or is reported around calls.
pub(crate) fn late_kind(callback_kind: i32) -> Option<u8> {
    let domain = midair_domain::of_callback_kind(callback_kind)?;
    let is_late = domain
        .callback
        .is_some_and(|callback| matches!(callback.told, CallbackTime::Late | CallbackTime::Work));
    (domain.built && is_late).then_some(domain.kind)
}

/// Adds a callback service to a context. An empty list means every operation. A kind of a library
/// that is not loaded is accepted, and has no events (AMD-065); one that is not built is refused
/// (AMD-180).
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
    if NO_CALLBACKS.contains(&tracing_kind) {
        return Err(Status::NOT_IMPLEMENTED);
    }
    if tracing_kind != c::ROCPROFILER_CALLBACK_TRACING_CODE_OBJECT {
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

/// Makes us ask a context's tool for external correlation ids of these kinds
/// (`rocprofiler_external_correlation_id_request_kind_t`); none means all.
///
/// # Errors
/// [`Status::CONFIGURATION_LOCKED`] outside of `initialize`, [`Status::CONTEXT_NOT_FOUND`],
/// [`Status::SERVICE_ALREADY_CONFIGURED`], [`Status::KIND_NOT_FOUND`].
pub fn configure_external_requests(
    context: u64,
    kinds: &[i32],
    callback: RequestCallback,
    data: *mut c_void,
) -> Result<(), Status> {
    let mut state = state::lock();
    state.configuring()?;
    let context = state.context(context)?;
    let known = c::ROCPROFILER_EXTERNAL_CORRELATION_REQUEST_NONE + 1
        ..c::ROCPROFILER_EXTERNAL_CORRELATION_REQUEST_LAST;
    if kinds.iter().any(|kind| !known.contains(kind)) {
        return Err(Status::KIND_NOT_FOUND);
    }
    if context.request.is_some() {
        return Err(Status::SERVICE_ALREADY_CONFIGURED);
    }
    context.request = Some(RequestService {
        kinds: kinds.to_vec(),
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
