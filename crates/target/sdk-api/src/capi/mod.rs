//! The C API: AMD's functions over the modules of this crate. Each function only checks and
//! converts its C arguments.
//!
//! Functions of AMD's headers that are not built yet are generated: `build/not_implemented.rs`
//! lists those that are built.

pub mod calling;
pub mod context;
pub mod counting;
pub mod counting_services;
pub mod hardware;
pub mod info;
pub mod names;
pub mod registration;

use crate::status::Status;

/// The functions that return "not implemented", and the list of those that are built.
pub mod not_implemented {
    use midair_abi::constants::ROCPROFILER_STATUS_ERROR_NOT_IMPLEMENTED;
    use std::ffi::c_int;
    include!(concat!(env!("OUT_DIR"), "/not_implemented.rs"));
}

/// Exported functions that are not in the JSON's headers: injectors, registration libraries and our
/// own parts look them up (source: `docs/sources.md#register`).
pub const BEYOND_HEADERS: &[&str] = &[
    "rocprofiler_set_api_table",
    "rocprofiler_attach",
    "rocprofiler_detach",
    "rocprofiler_load_attachment_tool",
    "rocprofiler_is_current_client_attachment",
    "ompt_start_tool",
];

/// Writes through an out pointer from C; null is an invalid argument.
///
/// # Safety
/// `to` must be null or valid for a write of a T.
pub unsafe fn put<T>(to: *mut T, value: T) -> Result<(), Status> {
    if to.is_null() {
        return Err(Status::INVALID_ARGUMENT);
    }
    // SAFETY: the caller's promise. The write is unaligned, since the alignment of C's pointer is
    // unknown.
    unsafe { to.write_unaligned(value) };
    Ok(())
}

/// Returns a list from C as a slice; null or no items give an empty slice.
///
/// # Safety
/// `items` must be null or valid for reads of `count` items for `'a`.
pub unsafe fn list<'a, T>(items: *const T, count: usize) -> Result<&'a [T], Status> {
    if items.is_null() || count == 0 {
        return Ok(&[]);
    }
    if !items.is_aligned() || count > isize::MAX as usize / size_of::<T>().max(1) {
        return Err(Status::INVALID_ARGUMENT);
    }
    // SAFETY: the pointer is not null and aligned; the caller promises the rest.
    Ok(unsafe { std::slice::from_raw_parts(items, count) })
}
