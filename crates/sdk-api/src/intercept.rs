//! Runtimes' tables for tools that put functions of their own into them
//! (`rocprofiler_at_intercept_table_registration`).
//!
//! A tool gets a table when its runtime registers it, before our own functions go in: what the tool
//! leaves in a slot is what ours call. A runtime that registered before the tool came, as in a
//! process that is attached to, is not offered: somebody may be inside (AMD-066).

pub(crate) mod held;

pub use held::InterceptCallback;

use crate::notes;
use crate::state::{self, STATE};
use crate::status::Status;
use held::Interceptor;
use midair_abi::constants as c;
use midair_sdk_hot::operations::Opaque;
use std::ffi::{CStr, c_int, c_void};
use std::sync::PoisonError;

/// Tables by the names under which libraries register them, in the order of the list that comes.
const TABLES: &[(&CStr, &[c_int])] = &[
    (c"hsa", &[c::ROCPROFILER_HSA_TABLE]),
    (c"hip", &[c::ROCPROFILER_HIP_RUNTIME_TABLE]),
    (c"hip_compiler", &[c::ROCPROFILER_HIP_COMPILER_TABLE]),
    (
        c"roctx",
        &[
            c::ROCPROFILER_MARKER_CORE_TABLE,
            c::ROCPROFILER_MARKER_CONTROL_TABLE,
            c::ROCPROFILER_MARKER_NAME_TABLE,
        ],
    ),
    (c"rccl", &[c::ROCPROFILER_RCCL_TABLE]),
    (c"rocdecode", &[c::ROCPROFILER_ROCDECODE_TABLE]),
    (c"rocjpeg", &[c::ROCPROFILER_ROCJPEG_TABLE]),
];

/// Registers a tool's function for tables of the set `libraries`.
///
/// # Errors
/// [`Status::CONFIGURATION_LOCKED`] when no tool is being configured, [`Status::INVALID_ARGUMENT`]
/// for none, [`Status::NOT_IMPLEMENTED`] for one that does not exist.
pub fn register(
    callback: InterceptCallback,
    libraries: c_int,
    data: *mut c_void,
) -> Result<(), Status> {
    if !state::lock().busy {
        return Err(Status::CONFIGURATION_LOCKED);
    }
    if libraries == 0 {
        return Err(Status::INVALID_ARGUMENT);
    }
    let known = TABLES
        .iter()
        .flat_map(|(_, tables)| *tables)
        .fold(0, |all, table| all | table);
    if libraries & !known != 0 {
        return Err(Status::NOT_IMPLEMENTED);
    }
    STATE
        .interceptors
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(Interceptor {
            callback,
            libraries,
            data: Opaque(data),
        });
    Ok(())
}

/// A function that did not return is called no more.
fn forget(callback: InterceptCallback) {
    STATE
        .interceptors
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .retain(|it| !std::ptr::fn_addr_eq(it.callback, callback));
}

/// Offers the tables of a library that registers itself.
pub fn offer(name: &CStr, version: u64, instance: u64, tables: &mut [*mut c_void]) {
    let interceptors = STATE
        .interceptors
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone();
    let Some((_, kinds)) = TABLES.iter().find(|(of, _)| *of == name) else {
        return;
    };
    for (kind, table) in kinds.iter().zip(tables) {
        for interceptor in interceptors
            .iter()
            .filter(|interceptor| interceptor.libraries & kind != 0)
        {
            let list = std::ptr::from_mut(table);
            // SAFETY: the tool gave us this function for such calls; the table is the runtime's,
            // which is registering it and makes no call through it yet.
            let called = midair_tool_call::call(&[], || unsafe {
                (interceptor.callback)(*kind, version, instance, list, 1, interceptor.data.0)
            });
            if let Err(thrown) = called {
                notes::post(&format!("a tool that was given a table: {thrown}"));
                forget(interceptor.callback);
            }
        }
    }
}
