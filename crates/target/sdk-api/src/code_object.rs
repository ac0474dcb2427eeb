//! Code objects and kernel symbols for the callbacks of contexts that asked for them.
//!
//! Each is reported when it is loaded, and again, with the same data and the same user data of the
//! tool, when it is unloaded: when its executable is destroyed, when the recording ends, or when
//! the tools end. Kernels are unloaded before their code object, the newest first. The function by
//! which the program launches a kernel is reported after the kernel, and only once.

pub(crate) mod hosts;
pub(crate) mod loaded;

use crate::agents;
use crate::context::services::CodeObjectService;
use crate::interned::intern;
use crate::registration::out::expel_owner;
use crate::state::{self, STATE};
use loaded::{Loaded, Payload};
use midair_abi::constants as c;
use midair_abi::records::{CallbackRecord, CodeObjectLoad, CorrelationId, KernelSymbol};
use midair_record::event::{self, Record};
use std::sync::{MutexGuard, PoisonError};

/// Delivers a record. Texts live forever; the data is ours and valid until the callback returns.
pub(crate) fn deliver(record: &Record<'_>) {
    match record {
        Record::Agent(agent) => {
            let mut handles = STATE
                .agent_handles
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            handles
                .get_or_insert_default()
                .insert(agent.node, agent.handle);
        }
        Record::CodeObject(object, uri) => load(object, uri),
        Record::KernelSymbol(symbol, name) => register(symbol, name),
        _ => {}
    }
}

fn load(object: &event::CodeObject, uri: &[u8]) {
    let memory = object.memory_base != 0;
    let handle = STATE
        .agent_handles
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .as_ref()
        .and_then(|h| h.get(&object.node).copied());
    tell(Payload::Object(CodeObjectLoad {
        size: size_of::<CodeObjectLoad>() as u64,
        code_object_id: object.code_object_id,
        agent_id: agents::id_of_node(object.node),
        hsa_agent: handle.unwrap_or(0),
        uri: intern(uri).as_ptr(),
        load_base: object.load_base,
        load_size: object.load_size,
        load_delta: object.load_delta,
        storage_type: if memory {
            c::ROCPROFILER_CODE_OBJECT_STORAGE_TYPE_MEMORY
        } else {
            c::ROCPROFILER_CODE_OBJECT_STORAGE_TYPE_FILE
        },
        memory_base: if memory { object.memory_base } else { u64::MAX },
        memory_size: object.memory_size,
    }));
}

fn register(symbol: &event::KernelSymbol, name: &[u8]) {
    tell(Payload::Symbol(KernelSymbol {
        size: size_of::<KernelSymbol>() as u64,
        kernel_id: symbol.kernel_id,
        code_object_id: symbol.code_object_id,
        kernel_name: intern(name).as_ptr(),
        kernel_object: symbol.kernel_object,
        kernarg_segment_size: symbol.kernarg_size,
        kernarg_segment_alignment: symbol.kernarg_align,
        group_segment_size: symbol.group_segment,
        private_segment_size: symbol.private_segment,
        sgpr_count: symbol.sgpr,
        arch_vgpr_count: symbol.arch_vgpr,
        accum_vgpr_count: symbol.accum_vgpr,
        kernel_code_entry_byte_offset: symbol.entry_offset,
        kernel_address: symbol
            .kernel_object
            .wrapping_add_signed(symbol.entry_offset),
    }));
    // The host function is looked up once, so that every context gets the same number for it.
    let host = STATE
        .host_functions
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .get_or_insert_default()
        .of(symbol.kernel_id, symbol.code_object_id, name);
    if let Some(host) = host {
        tell(Payload::Host(host));
    }
}

/// Returns the code-object services of the running contexts.
fn running() -> Vec<(u64, CodeObjectService)> {
    let state = state::lock();
    (1..)
        .zip(&state.contexts)
        .filter(|(_, context)| context.active && !context.spool)
        .filter_map(|(handle, context)| Some((handle, context.code_objects?)))
        .collect()
}

/// Reports a payload to every running context that wants it.
fn tell(payload: Payload) {
    for (context, service) in running() {
        if service.operations.has(payload.operation() as u32) {
            let mut one = Loaded {
                context,
                service,
                payload,
                user_data: 0,
            };
            let is_unloaded = !matches!(payload, Payload::Host(_));
            if call(&mut one, c::ROCPROFILER_CALLBACK_PHASE_LOAD) && is_unloaded {
                all().push(one);
            }
        }
    }
}

fn all() -> MutexGuard<'static, Vec<Loaded>> {
    STATE.loaded.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reports to tools that the executables of some code objects are being destroyed, and with them
/// the code objects and their kernels. Called on the worker thread, after all their dispatches were
/// delivered.
pub fn unload(code_objects: &[u64]) {
    unload_where(|payload| code_objects.contains(&payload.code_object()));
}

/// Reports everything as unloaded, because the recording or the tools end. If another recording
/// starts, what is loaded is reported again, with new numbers.
pub fn unload_all() {
    unload_where(|_| true);
}

fn unload_where(is_gone: impl Fn(&Payload) -> bool) {
    let mut gone: Vec<Loaded> = all().extract_if(.., |one| is_gone(&one.payload)).collect();
    if gone.is_empty() {
        return;
    }
    let running = running();
    // A stopped context gets no more callbacks.
    gone.retain(|one| running.iter().any(|(context, _)| *context == one.context));
    // The order is stable: kernels were reported after their code object, and so are unloaded
    // before it.
    gone.reverse();
    let mut out = Vec::new();
    for one in &mut gone {
        if !out.contains(&one.context) && !call(one, c::ROCPROFILER_CALLBACK_PHASE_UNLOAD) {
            out.push(one.context);
        }
    }
}

/// Calls the tool's function. Returns false if it threw: its tool is no longer used.
fn call(one: &mut Loaded, phase: i32) -> bool {
    let record = CallbackRecord {
        context_id: one.context,
        // SAFETY: gettid takes no arguments.
        thread_id: unsafe { libc::gettid() } as u64,
        correlation_id: CorrelationId {
            internal: 0,
            external: 0,
            ancestor: 0,
        },
        kind: c::ROCPROFILER_CALLBACK_TRACING_CODE_OBJECT,
        operation: one.payload.operation(),
        phase,
        payload: one.payload.as_pointer(),
    };
    let (service, user_data) = (one.service, &raw mut one.user_data);
    // SAFETY: the tool gave us this function for such calls; the payload outlives the call.
    let called = midair_tool_call::call(&[], || unsafe {
        (service.callback)(record, user_data, service.data.0)
    });
    if let Err(thrown) = called {
        expel_owner(one.context, "code object callback", &thrown);
        return false;
    }
    true
}
