//! Names of kinds and operations.

use super::put;
use crate::status::Status;
use midair_abi::names::{BUFFER_KINDS, CALLBACK_KINDS, Kind, Name};
use midair_capi_build::c_api;
use std::ffi::{c_char, c_int, c_void};

/// Called per kind: kind, the tool's data. Not zero ends the iteration.
type KindCallback = unsafe extern "C" fn(c_int, *mut c_void) -> c_int;
/// Called per operation: kind, operation, the tool's data. Not zero ends the iteration.
type OperationCallback = unsafe extern "C" fn(c_int, c_int, *mut c_void) -> c_int;

fn kind(kinds: &'static [Kind], kind: c_int) -> Result<&'static Kind, Status> {
    usize::try_from(kind)
        .ok()
        .and_then(|kind| kinds.get(kind))
        .ok_or(Status::KIND_NOT_FOUND)
}

fn operation(kinds: &'static [Kind], of: c_int, operation: c_int) -> Result<Name, Status> {
    let kind = kind(kinds, of)?;
    usize::try_from(operation)
        .ok()
        .and_then(|id| kind.operation(id))
        .ok_or(Status::OPERATION_NOT_FOUND)
}

/// Stores a name and its length where C wants them; null pointers are skipped.
///
/// # Safety
/// Each must be null or valid for a write.
unsafe fn give(found: Name, name: *mut *const c_char, length: *mut u64) -> Result<(), Status> {
    if !name.is_null() {
        // SAFETY: the caller's pointer.
        unsafe { put(name, found.as_ptr())? };
    }
    if !length.is_null() {
        // SAFETY: as above.
        unsafe { put(length, found.len() as u64)? };
    }
    Ok(())
}

fn iterate_kinds(
    kinds: &[Kind],
    callback: Option<KindCallback>,
    data: *mut c_void,
) -> Result<(), Status> {
    let callback = callback.ok_or(Status::INVALID_ARGUMENT)?;
    for kind in 0..kinds.len() {
        // SAFETY: the tool's function with its own data.
        if unsafe { callback(kind as c_int, data) } != 0 {
            break;
        }
    }
    Ok(())
}

fn iterate_operations(
    kinds: &'static [Kind],
    of: c_int,
    callback: Option<OperationCallback>,
    data: *mut c_void,
) -> Result<(), Status> {
    let callback = callback.ok_or(Status::INVALID_ARGUMENT)?;
    let kind = kind(kinds, of)?;
    for id in 0..kind.operations.len() + kind.added.len() {
        // SAFETY: the tool's function with its own data.
        if unsafe { callback(of, id as c_int, data) } != 0 {
            break;
        }
    }
    Ok(())
}

c_api! {
    /// Name of a buffer-tracing kind, without prefix; lives for ever.
    fn rocprofiler_query_buffer_tracing_kind_name(kind_: c_int, name: *mut *const c_char, name_len: *mut u64) {
        // SAFETY: the caller's pointers.
        unsafe { give(kind(BUFFER_KINDS, kind_)?.name, name, name_len) }
    }

    /// Name of an operation of a buffer-tracing kind; lives for ever.
    fn rocprofiler_query_buffer_tracing_kind_operation_name(
        kind_: c_int,
        operation_: c_int,
        name: *mut *const c_char,
        name_len: *mut u64,
    ) {
        // SAFETY: the caller's pointers.
        unsafe { give(operation(BUFFER_KINDS, kind_, operation_)?, name, name_len) }
    }

    /// Calls back for each buffer-tracing kind.
    fn rocprofiler_iterate_buffer_tracing_kinds(callback: Option<KindCallback>, data: *mut c_void) {
        iterate_kinds(BUFFER_KINDS, callback, data)
    }

    /// Calls back for each operation of a buffer-tracing kind.
    fn rocprofiler_iterate_buffer_tracing_kind_operations(
        kind_: c_int,
        callback: Option<OperationCallback>,
        data: *mut c_void,
    ) {
        iterate_operations(BUFFER_KINDS, kind_, callback, data)
    }

    /// Name of a callback-tracing kind, without prefix; lives for ever.
    fn rocprofiler_query_callback_tracing_kind_name(kind_: c_int, name: *mut *const c_char, name_len: *mut u64) {
        // SAFETY: the caller's pointers.
        unsafe { give(kind(CALLBACK_KINDS, kind_)?.name, name, name_len) }
    }

    /// Name of an operation of a callback-tracing kind; lives for ever.
    fn rocprofiler_query_callback_tracing_kind_operation_name(
        kind_: c_int,
        operation_: c_int,
        name: *mut *const c_char,
        name_len: *mut u64,
    ) {
        // SAFETY: the caller's pointers.
        unsafe { give(operation(CALLBACK_KINDS, kind_, operation_)?, name, name_len) }
    }

    /// Calls back for each callback-tracing kind.
    fn rocprofiler_iterate_callback_tracing_kinds(callback: Option<KindCallback>, data: *mut c_void) {
        iterate_kinds(CALLBACK_KINDS, callback, data)
    }

    /// Calls back for each operation of a callback-tracing kind.
    fn rocprofiler_iterate_callback_tracing_kind_operations(
        kind_: c_int,
        callback: Option<OperationCallback>,
        data: *mut c_void,
    ) {
        iterate_operations(CALLBACK_KINDS, kind_, callback, data)
    }
}
