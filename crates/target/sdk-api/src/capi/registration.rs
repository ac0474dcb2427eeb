//! Whether tools are initialised and finalised.

use super::put;
use crate::registration;
use midair_capi_build::{c_api, copies, edge};
use std::ffi::c_int;

c_api! {
    /// Stores 0 before the first tool is initialised, -1 while one is being initialised, then 1.
    fn rocprofiler_is_initialized(status: *mut c_int) {
        // SAFETY: the caller promises that the pointer is null or writable.
        unsafe { put(status, registration::is_initialized()) }
    }

    /// Stores 1 after all tools were finalised, otherwise 0.
    fn rocprofiler_is_finalized(status: *mut c_int) {
        // SAFETY: the caller promises that the pointer is null or writable.
        unsafe { put(status, registration::is_finalized()) }
    }
}

/// Returns 1 inside the configuration of a tool that was named for an attach, otherwise 0.
#[unsafe(no_mangle)]
pub extern "C" fn rocprofiler_is_current_client_attachment() -> c_int {
    let here: extern "C" fn() -> c_int = rocprofiler_is_current_client_attachment;
    if let Some(there) = copies::elsewhere(here as usize) {
        // SAFETY: it is the same function of the same build, in a copy that is never unloaded.
        return unsafe { std::mem::transmute::<usize, extern "C" fn() -> c_int>(there)() };
    }
    edge(0, || {
        c_int::from(registration::is_current_client_attachment())
    })
}
