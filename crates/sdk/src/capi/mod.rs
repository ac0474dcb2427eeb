//! The C API: AMD's names over the modules of this crate. Each function checks what C gave it and converts; nothing else.
//!
//! Functions of AMD's headers that are not built yet are generated: `build/not_implemented.rs` lists those that are.

pub mod context;
pub mod info;
pub mod names;
pub mod registration;

use crate::status::Status;
use midair_abi::private::{SDK_TABLE_VERSION, SdkTable};
use std::ffi::{CStr, c_char, c_int};

/// The functions that say that they are not implemented, and the list of those that are.
pub mod not_implemented {
    use midair_abi::constants::ROCPROFILER_STATUS_ERROR_NOT_IMPLEMENTED;
    use std::ffi::{c_int, c_void};
    include!(concat!(env!("OUT_DIR"), "/not_implemented.rs"));
}

/// Functions beyond the JSON's headers that we export: what injectors, registration libraries and our own parts look up
/// (source: `docs/sources.md#register`).
pub const BEYOND_HEADERS: &[&str] = &[
    "rocprofiler_set_api_table",
    "rocprofiler_attach",
    "rocprofiler_detach",
    "rocprofiler_load_attachment_tool",
    "rocprofiler_is_current_client_attachment",
];

/// The table for our own tool.
pub(crate) fn table() -> *const SdkTable {
    static TABLE: SdkTable = SdkTable {
        size: size_of::<SdkTable>(),
        version: SDK_TABLE_VERSION,
        sdk_version: crate::registration::VERSION_NUMBER,
        create_context: context::rocprofiler_create_context,
        start_context: context::rocprofiler_start_context,
        stop_context: context::rocprofiler_stop_context,
        context_is_active: context::rocprofiler_context_is_active,
        configure_buffer_tracing_service: context::rocprofiler_configure_buffer_tracing_service,
        use_spool,
        get_setting,
        note,
        session_kind,
        give_spool,
    };
    &raw const TABLE
}

unsafe extern "C" fn use_spool(context: u64) -> c_int {
    midair_capi_build::edge(1, || {
        crate::context::use_spool(context).map_or_else(c_int::from, |()| 0)
    })
}

unsafe extern "C" fn get_setting(name: *const c_char) -> *const c_char {
    midair_capi_build::edge(std::ptr::null(), || {
        if name.is_null() {
            return std::ptr::null();
        }
        // SAFETY: our own tool passes C strings.
        let name = unsafe { CStr::from_ptr(name) };
        crate::setting::get(name)
    })
}

unsafe extern "C" fn session_kind() -> c_int {
    midair_capi_build::edge(0, || crate::local::kind() as c_int)
}

unsafe extern "C" fn give_spool(base: *mut u8, len: usize) -> c_int {
    midair_capi_build::edge(1, || {
        // SAFETY: our own tool's promise, which is this table's.
        unsafe { crate::local::give_spool(base, len) }.map_or_else(c_int::from, |()| 0)
    })
}

unsafe extern "C" fn note(text: *const c_char) {
    midair_capi_build::edge((), || {
        if !text.is_null() {
            // SAFETY: our own tool passes C strings.
            crate::collector::note(&unsafe { CStr::from_ptr(text) }.to_string_lossy());
        }
    });
}

/// Writes through an out pointer of C's; null is an invalid argument.
///
/// # Safety
/// `to` must be null or valid for a write of a T.
unsafe fn put<T>(to: *mut T, value: T) -> Result<(), Status> {
    if to.is_null() {
        return Err(Status::INVALID_ARGUMENT);
    }
    // SAFETY: the caller's promise; unaligned, since nothing is known of C's pointer.
    unsafe { to.write_unaligned(value) };
    Ok(())
}

/// A list of C's as a slice; null or no items is an empty one.
///
/// # Safety
/// `items` must be null or valid for reads of `count` items for `'a`.
unsafe fn list<'a, T>(items: *const T, count: usize) -> Result<&'a [T], Status> {
    if items.is_null() || count == 0 {
        return Ok(&[]);
    }
    if !items.is_aligned() || count > isize::MAX as usize / size_of::<T>().max(1) {
        return Err(Status::INVALID_ARGUMENT);
    }
    // SAFETY: not null, aligned, and the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(items, count) })
}
