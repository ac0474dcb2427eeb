//! Names of kinds and operations.

use super::put;
use crate::arguments::{self, ArgumentCallback, CallArgumentCallback};
use crate::c_api_calling;
use crate::ended::Ended;
use crate::status::Status;
use midair_abi::constants as c;
use midair_abi::names::{BUFFER_KINDS, CALLBACK_KINDS, Kind, Name};
use midair_abi::records::{CallbackRecord, RecordHeader};
use midair_capi_build::c_api;
use midair_tool_call::call;
use std::ffi::{CStr, c_char, c_int, c_void};

/// Called for each kind: kind, the tool's data. A result other than 0 ends the iteration.
type KindCallback = unsafe extern "C-unwind" fn(c_int, *mut c_void) -> c_int;
/// Called for each operation: kind, operation, the tool's data. A result other than 0 ends the
/// iteration.
type OperationCallback = unsafe extern "C-unwind" fn(c_int, c_int, *mut c_void) -> c_int;

/// The values of `rocprofiler_intercept_table_t`, and their names without prefix and suffix.
const INTERCEPT_TABLES: &[(i32, &CStr)] = &[
    (c::ROCPROFILER_HSA_TABLE, c"HSA"),
    (c::ROCPROFILER_HIP_RUNTIME_TABLE, c"HIP_RUNTIME"),
    (c::ROCPROFILER_HIP_COMPILER_TABLE, c"HIP_COMPILER"),
    (c::ROCPROFILER_MARKER_CORE_TABLE, c"MARKER_CORE"),
    (c::ROCPROFILER_MARKER_CONTROL_TABLE, c"MARKER_CONTROL"),
    (c::ROCPROFILER_MARKER_NAME_TABLE, c"MARKER_NAME"),
    (c::ROCPROFILER_RCCL_TABLE, c"RCCL"),
    (c::ROCPROFILER_ROCDECODE_TABLE, c"ROCDECODE"),
    (c::ROCPROFILER_ROCJPEG_TABLE, c"ROCJPEG"),
];

/// The names of `rocprofiler_external_correlation_id_request_kind_t` by value, without prefix.
const REQUEST_KINDS: &[&CStr] = &[
    c"NONE",
    c"HSA_CORE_API",
    c"HSA_AMD_EXT_API",
    c"HSA_IMAGE_EXT_API",
    c"HSA_FINALIZE_EXT_API",
    c"HIP_RUNTIME_API",
    c"HIP_COMPILER_API",
    c"MARKER_CORE_API",
    c"MARKER_CONTROL_API",
    c"MARKER_NAME_API",
    c"MEMORY_COPY",
    c"KERNEL_DISPATCH",
    c"SCRATCH_MEMORY",
    c"RCCL_API",
    c"OMPT",
    c"MEMORY_ALLOCATION",
    c"ROCDECODE_API",
    c"ROCJPEG_API",
    c"MARKER_CORE_RANGE_API",
];
const _: () =
    assert!(REQUEST_KINDS.len() == c::ROCPROFILER_EXTERNAL_CORRELATION_REQUEST_LAST as usize);

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

/// Stores a name and its length; null pointers are skipped.
///
/// # Safety
/// Each pointer must be null or valid for a write.
unsafe fn give(found: Name, name: *mut *const c_char, length: *mut u64) -> Result<(), Status> {
    if !name.is_null() {
        // SAFETY: the caller promises that the pointer is null or writable.
        unsafe { put(name, found.as_ptr())? };
    }
    if !length.is_null() {
        // SAFETY: as above.
        unsafe { put(length, found.len() as u64)? };
    }
    Ok(())
}

/// Does the same as [`give`], for a midair text.
///
/// # Safety
/// As for [`give`].
unsafe fn give_text(
    found: &'static CStr,
    name: *mut *const c_char,
    length: *mut u64,
) -> Result<(), Status> {
    if !name.is_null() {
        // SAFETY: the caller promises that the pointer is null or writable.
        unsafe { put(name, found.as_ptr())? };
    }
    if !length.is_null() {
        // SAFETY: as above.
        unsafe { put(length, found.count_bytes() as u64)? };
    }
    Ok(())
}

fn iterate_kinds(
    kinds: &[Kind],
    callback: Option<KindCallback>,
    data: *mut c_void,
) -> Result<(), Ended> {
    let callback = callback.ok_or(Status::INVALID_ARGUMENT)?;
    for kind in 0..kinds.len() {
        // SAFETY: this calls the tool's function with its own data.
        if call(&[], || unsafe { callback(kind as c_int, data) })? != 0 {
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
) -> Result<(), Ended> {
    let callback = callback.ok_or(Status::INVALID_ARGUMENT)?;
    let kind = kind(kinds, of)?;
    for id in 0..kind.operations.len() + kind.added.len() {
        // SAFETY: this calls the tool's function with its own data.
        if call(&[], || unsafe { callback(of, id as c_int, data) })? != 0 {
            break;
        }
    }
    Ok(())
}

c_api! {
    /// Stores the name of a buffer-tracing kind, without prefix; it lives forever.
    fn rocprofiler_query_buffer_tracing_kind_name(kind_: c_int, name: *mut *const c_char, name_len: *mut u64) {
        // SAFETY: the caller promises that each pointer is null or valid.
        unsafe { give(kind(BUFFER_KINDS, kind_)?.name, name, name_len) }
    }

    /// Stores the name of an operation of a buffer-tracing kind; it lives forever.
    fn rocprofiler_query_buffer_tracing_kind_operation_name(
        kind_: c_int,
        operation_: c_int,
        name: *mut *const c_char,
        name_len: *mut u64,
    ) {
        // SAFETY: the caller promises that each pointer is null or valid.
        unsafe { give(operation(BUFFER_KINDS, kind_, operation_)?, name, name_len) }
    }

    /// Stores the name of a callback-tracing kind, without prefix; it lives forever.
    fn rocprofiler_query_callback_tracing_kind_name(kind_: c_int, name: *mut *const c_char, name_len: *mut u64) {
        // SAFETY: the caller promises that each pointer is null or valid.
        unsafe { give(kind(CALLBACK_KINDS, kind_)?.name, name, name_len) }
    }

    /// Stores the name of an operation of a callback-tracing kind; it lives forever.
    fn rocprofiler_query_callback_tracing_kind_operation_name(
        kind_: c_int,
        operation_: c_int,
        name: *mut *const c_char,
        name_len: *mut u64,
    ) {
        // SAFETY: the caller promises that each pointer is null or valid.
        unsafe { give(operation(CALLBACK_KINDS, kind_, operation_)?, name, name_len) }
    }

    /// Stores the name of an intercept table; it lives forever.
    fn rocprofiler_query_intercept_table_name(kind_: c_int, name: *mut *const c_char, name_len: *mut u64) {
        let found = INTERCEPT_TABLES.iter().find(|(bit, _)| *bit == kind_).ok_or(Status::KIND_NOT_FOUND)?.1;
        // SAFETY: the caller promises that each pointer is null or valid.
        unsafe { give_text(found, name, name_len) }
    }

    /// Stores the name of a kind of external correlation ids that a tool can be asked for; it lives
    /// forever.
    fn rocprofiler_query_external_correlation_id_request_kind_name(
        kind_: c_int,
        name: *mut *const c_char,
        name_len: *mut u64,
    ) {
        let found = usize::try_from(kind_).ok().and_then(|kind| REQUEST_KINDS.get(kind)).ok_or(Status::KIND_NOT_FOUND)?;
        // SAFETY: the caller promises that each pointer is null or valid.
        unsafe { give_text(found, name, name_len) }
    }
}

c_api_calling! {
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

    /// Calls back for each argument of a record with arguments. The record's header is passed by
    /// value.
    fn rocprofiler_iterate_buffer_tracing_record_args(
        record: RecordHeader,
        callback: Option<ArgumentCallback>,
        user_data: *mut c_void,
    ) {
        let callback = callback.ok_or(Status::INVALID_ARGUMENT)?;
        if record.category != c::ROCPROFILER_BUFFER_CATEGORY_TRACING as u32 || record.payload.is_null() {
            return Err(Status::INVALID_ARGUMENT.into());
        }
        // SAFETY: the caller promises its function's type, and the header of a midair record.
        unsafe { arguments::iterate(&record, callback, user_data) }
    }

    /// Calls back for each argument of the call that is being reported to a tool's function. Only
    /// from within that function.
    fn rocprofiler_iterate_callback_tracing_kind_operation_args(
        record: CallbackRecord,
        callback: Option<CallArgumentCallback>,
        max_dereference_count: i32,
        user_data: *mut c_void,
    ) {
        let callback = callback.ok_or(Status::INVALID_ARGUMENT)?;
        // SAFETY: the caller promises its function's type, and the record that it was given.
        unsafe { arguments::iterate_call(&record, callback, max_dereference_count, user_data) }
    }
}
