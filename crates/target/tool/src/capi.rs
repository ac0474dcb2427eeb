//! The functions that an SDK looks up in the tool's library.

use crate::{sdk, session};
use midair_abi::private::SdkTable;
use midair_abi::registration::{ClientFinalize, ClientId, ConfigureAttachResult, ConfigureResult};
use midair_capi_build::edge;
use std::ffi::{c_char, c_int, c_void};

/// Our name among the clients of an SDK.
const NAME: &std::ffi::CStr = c"midair";

/// Binds the tool to our SDK. Returns 0, or -1 for a table of another build.
///
/// # Safety
/// As for [`sdk::bind`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn midair_tool_bind(table: *const SdkTable) -> c_int {
    // SAFETY: the caller's promise.
    edge(-1, || if unsafe { sdk::bind(table) } { 0 } else { -1 })
}

/// Configures the tool. Returns null under an SDK that did not bind the tool, since its functions
/// are unknown.
///
/// # Safety
/// `id` must be null or the SDK's struct for this client.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocprofiler_configure(
    _version: u32,
    _runtime_version: *const c_char,
    _priority: u32,
    id: *mut ClientId,
) -> *mut ConfigureResult {
    edge(std::ptr::null_mut(), || {
        if sdk::bound().is_none() {
            return std::ptr::null_mut();
        }
        if !id.is_null() {
            // SAFETY: the caller promises a valid struct; the name is the field that a tool writes.
            unsafe { (*id).name = NAME.as_ptr() };
        }
        // The SDK may keep the pointer, so it is never freed.
        Box::into_raw(Box::new(ConfigureResult {
            size: size_of::<ConfigureResult>(),
            initialize: Some(initialize),
            finalize: Some(finalize),
            tool_data: std::ptr::null_mut(),
        }))
    })
}

/// Configures the tool for attaching. Returns null in the same case as [`rocprofiler_configure`].
///
/// # Safety
/// None needed: the arguments are not used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocprofiler_configure_attach(
    _version: u32,
    _runtime_version: *const c_char,
    _priority: u32,
    _id: *mut ClientId,
) -> *mut ConfigureAttachResult {
    edge(std::ptr::null_mut(), || {
        if sdk::bound().is_none() {
            return std::ptr::null_mut();
        }
        Box::into_raw(Box::new(ConfigureAttachResult {
            size: size_of::<ConfigureAttachResult>(),
            tool_attach: Some(tool_attach),
            tool_detach: Some(tool_detach),
            tool_data: std::ptr::null_mut(),
        }))
    })
}

unsafe extern "C-unwind" fn initialize(_end: Option<ClientFinalize>, _data: *mut c_void) -> c_int {
    edge(-1, || {
        sdk::bound().map_or(-1, |sdk| {
            session::initialize(sdk).map_or_else(|error| error.0, |()| 0)
        })
    })
}

unsafe extern "C-unwind" fn finalize(_data: *mut c_void) {
    edge((), || {
        if let Some(sdk) = sdk::bound() {
            session::detach(sdk);
            crate::collector::report_if_empty(sdk);
        }
    });
}

unsafe extern "C-unwind" fn tool_attach(
    _detach: Option<ClientFinalize>,
    _contexts: *mut u64,
    _count: u64,
    _data: *mut c_void,
) -> c_int {
    edge(-1, || {
        sdk::bound().map_or(-1, |sdk| {
            session::attach(sdk).map_or_else(|error| error.0, |()| 0)
        })
    })
}

unsafe extern "C-unwind" fn tool_detach(_data: *mut c_void) {
    edge((), || {
        if let Some(sdk) = sdk::bound() {
            session::detach(sdk);
        }
    });
}
