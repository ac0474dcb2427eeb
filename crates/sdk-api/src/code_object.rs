//! Code objects and kernel symbols for the callbacks of contexts that asked for them.

use crate::agents;
use crate::context::services::CodeObjectService;
use crate::registration::out::expel_owner;
use crate::state::{self, STATE};
use midair_abi::constants as c;
use midair_abi::records::{CallbackRecord, CodeObjectLoad, CorrelationId, KernelSymbol};
use midair_record::event::{self, Record};
use std::ffi::{CString, c_void};
use std::sync::PoisonError;

/// Delivers one. Strings and data are ours and valid until the callback returns.
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

fn text(bytes: &[u8]) -> CString {
    let end = bytes
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(bytes.len());
    CString::new(bytes.get(..end).unwrap_or_default()).unwrap_or_default()
}

fn load(object: &event::CodeObject, uri: &[u8]) {
    let uri = text(uri);
    let memory = object.memory_base != 0;
    let handle = STATE
        .agent_handles
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .as_ref()
        .and_then(|h| h.get(&object.node).copied());
    let mut data = CodeObjectLoad {
        size: size_of::<CodeObjectLoad>() as u64,
        code_object_id: object.code_object_id,
        agent_id: agents::id_of_node(object.node),
        hsa_agent: handle.unwrap_or(0),
        uri: uri.as_ptr(),
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
    };
    call(c::ROCPROFILER_CODE_OBJECT_LOAD, (&raw mut data).cast());
}

fn register(symbol: &event::KernelSymbol, name: &[u8]) {
    let name = text(name);
    let mut data = KernelSymbol {
        size: size_of::<KernelSymbol>() as u64,
        kernel_id: symbol.kernel_id,
        code_object_id: symbol.code_object_id,
        kernel_name: name.as_ptr(),
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
    };
    call(
        c::ROCPROFILER_CODE_OBJECT_DEVICE_KERNEL_SYMBOL_REGISTER,
        (&raw mut data).cast(),
    );
}

/// Calls every running context's callback that wants the operation.
fn call(operation: i32, payload: *mut c_void) {
    let services: Vec<(u64, CodeObjectService)> = {
        let state = state::lock();
        let running = (1..)
            .zip(&state.contexts)
            .filter(|(_, context)| context.active && !context.spool);
        running
            .filter_map(|(handle, context)| Some((handle, context.code_objects?)))
            .collect()
    };
    for (context, service) in services
        .into_iter()
        .filter(|(_, service)| service.operations.has(operation as u32))
    {
        let record = CallbackRecord {
            context_id: context,
            // SAFETY: a system call without arguments.
            thread_id: unsafe { libc::gettid() } as u64,
            correlation_id: CorrelationId {
                internal: 0,
                external: 0,
                ancestor: 0,
            },
            kind: c::ROCPROFILER_CALLBACK_TRACING_CODE_OBJECT,
            operation,
            phase: c::ROCPROFILER_CALLBACK_PHASE_LOAD,
            payload,
        };
        let mut user_data = 0;
        let user_data = &raw mut user_data;
        // SAFETY: the tool gave us this function for such calls; the payload outlives the call.
        let called = midair_tool_call::call(&[], || unsafe {
            (service.callback)(record, user_data, service.data.0)
        });
        if let Err(thrown) = called {
            expel_owner(context, "code object callback", &thrown);
        }
    }
}
