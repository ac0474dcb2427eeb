//! Contexts, buffers, services, callback threads.

use super::{list, put};
use crate::buffer::{self, BufferCallback};
use crate::c_api_calling;
use crate::callback_thread::{self, ThreadNotice};
use crate::context;
use crate::counting::devices;
use crate::external;
use crate::intercept::{self, InterceptCallback};
use crate::status::Status;
use midair_capi_build::c_api;
use midair_sdk_hot::callbacks::requests::RequestCallback;
use midair_sdk_hot::operations::TracingCallback;
use std::ffi::{c_int, c_void};

c_api! {
    /// Creates a context; only in a tool's `initialize`.
    fn rocprofiler_create_context(context_id: *mut u64) {
        if context_id.is_null() {
            return Err(Status::INVALID_ARGUMENT);
        }
        // SAFETY: the caller promises that the pointer is null or writable.
        unsafe { put(context_id, context::create()?) }
    }

    /// Stops a context.
    fn rocprofiler_stop_context(context_id: u64) {
        devices::stop(context_id);
        context::stop(context_id)
    }

    /// Stores 1 if the context runs, else 0.
    fn rocprofiler_context_is_active(context_id: u64, status: *mut c_int) {
        // SAFETY: the caller promises that the pointer is null or writable.
        unsafe { put(status, c_int::from(context::is_active(context_id)?)) }
    }

    /// Stores 1 if there is such a context, else 0.
    fn rocprofiler_context_is_valid(context_id: u64, status: *mut c_int) {
        // SAFETY: the caller promises that the pointer is null or writable.
        unsafe { put(status, c_int::from(context::is_active(context_id).is_ok())) }
    }

    /// Creates a buffer; only in a tool's `initialize`.
    fn rocprofiler_create_buffer(
        context: u64,
        size: usize,
        watermark: usize,
        policy: c_int,
        callback: Option<BufferCallback>,
        callback_data: *mut c_void,
        buffer_id: *mut u64,
    ) {
        let callback = callback.filter(|_| !buffer_id.is_null()).ok_or(Status::INVALID_ARGUMENT)?;
        // SAFETY: the caller promises that the pointer is null or writable.
        unsafe { put(buffer_id, buffer::create(context, size, watermark, policy, callback, callback_data)?) }
    }

    /// Removes a buffer.
    fn rocprofiler_destroy_buffer(buffer_id: u64) {
        buffer::destroy(buffer_id)
    }

    /// Calls the callback with the records in the buffer.
    fn rocprofiler_flush_buffer(buffer_id: u64) {
        buffer::flush(buffer_id)
    }

    /// Adds a buffered service to a context; only in a tool's `initialize`.
    fn rocprofiler_configure_buffer_tracing_service(
        context_id: u64,
        kind: c_int,
        operations: *const c_int,
        operations_count: usize,
        buffer_id: u64,
    ) {
        // SAFETY: the caller promises that the list is null or readable.
        let operations = unsafe { list(operations, operations_count)? };
        context::configure_buffer_tracing(context_id, kind, operations, buffer_id)
    }

    /// Adds a callback service to a context; only in a tool's `initialize`.
    fn rocprofiler_configure_callback_tracing_service(
        context_id: u64,
        kind: c_int,
        operations: *const c_int,
        operations_count: usize,
        callback: Option<TracingCallback>,
        callback_args: *mut c_void,
    ) {
        let callback = callback.ok_or(Status::INVALID_ARGUMENT)?;
        // SAFETY: the caller promises that the list is null or readable.
        let operations = unsafe { list(operations, operations_count)? };
        context::configure_callback_tracing(context_id, kind, operations, callback, callback_args)
    }

    /// Puts a value on the stack of external correlation ids that a context has for a thread.
    fn rocprofiler_push_external_correlation_id(context: u64, tid: u64, external_correlation_id: u64) {
        external::push(context, tid, external_correlation_id)
    }

    /// Pops such a value and stores it; a null pointer is skipped.
    fn rocprofiler_pop_external_correlation_id(context: u64, tid: u64, external_correlation_id: *mut u64) {
        let value = external::pop(context, tid)?;
        if !external_correlation_id.is_null() {
            // SAFETY: the caller promises that the pointer is null or writable.
            unsafe { put(external_correlation_id, value)? };
        }
        Ok::<(), Status>(())
    }

    /// Makes us ask the tool for external correlation ids; only in a tool's `initialize`. No kinds:
    /// all.
    fn rocprofiler_configure_external_correlation_id_request_service(
        context_id: u64,
        kinds: *const c_int,
        kinds_count: usize,
        callback: Option<RequestCallback>,
        callback_args: *mut c_void,
    ) {
        let callback = callback.ok_or(Status::INVALID_ARGUMENT)?;
        // SAFETY: the caller promises that the list is null or readable.
        let kinds = unsafe { list(kinds, kinds_count)? };
        context::configure_external_requests(context_id, kinds, callback, callback_args)
    }

    /// Makes us pass to the tool the tables of runtimes that register after this; only while a tool
    /// is being configured.
    fn rocprofiler_at_intercept_table_registration(
        callback: Option<InterceptCallback>,
        libs: c_int,
        data: *mut c_void,
    ) {
        let callback = callback.ok_or(Status::INVALID_ARGUMENT)?;
        intercept::register(callback, libs, data)
    }

    /// Makes a buffer's callbacks run on that thread.
    fn rocprofiler_assign_callback_thread(buffer_id: u64, cb_thread_id: u64) {
        buffer::assign_thread(buffer_id, cb_thread_id)
    }

    /// Registers a tool's functions that are called before and after a thread is created.
    fn rocprofiler_at_internal_thread_create(
        precreate: Option<ThreadNotice>,
        postcreate: Option<ThreadNotice>,
        libs: c_int,
        data: *mut c_void,
    ) {
        callback_thread::listen(precreate, postcreate, libs, data);
        Ok::<(), Status>(())
    }
}

c_api_calling! {
    /// Creates a callback thread; only in a tool's `initialize`.
    fn rocprofiler_create_callback_thread(cb_thread_id: *mut u64) {
        if cb_thread_id.is_null() {
            return Err(Status::INVALID_ARGUMENT.into());
        }
        // SAFETY: the caller promises that the pointer is null or writable.
        Ok(unsafe { put(cb_thread_id, callback_thread::create()?) }?)
    }
}
