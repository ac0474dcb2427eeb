//! Whether tools are initialised and finalised.

use super::put;
use crate::registration;
use midair_capi_build::{c_api, edge};
use std::ffi::c_int;

c_api! {
    /// Stores 0 before the first tool is initialised, -1 while one is, then 1.
    fn rocprofiler_is_initialized(status: *mut c_int) {
        // SAFETY: the caller's pointer.
        unsafe { put(status, registration::is_initialized()) }
    }

    /// Stores 1 after the end, else 0.
    fn rocprofiler_is_finalized(status: *mut c_int) {
        // SAFETY: the caller's pointer.
        unsafe { put(status, registration::is_finalized()) }
    }
}

/// 1 inside the configuration of a tool that was named for an attach, else 0.
#[unsafe(no_mangle)]
pub extern "C" fn rocprofiler_is_current_client_attachment() -> c_int {
    edge(0, || {
        c_int::from(registration::is_current_client_attachment())
    })
}
