//! `librocprofiler-sdk-attach.so.1`: the C names over `midair-sdk-attach`.

use midair_capi_build::edge;
use midair_sdk_attach::{Register, VERSION, status};
use std::ffi::{c_char, c_int, c_void};

/// A register library hands over HSA's tables, and the function to register our own with. Any other
/// runtime is an invalid argument.
///
/// # Safety
/// As [`midair_sdk_attach::set_api_table`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocprofiler_attach_set_api_table(
    name: *const c_char,
    _lib_version: u64,
    _lib_instance: u64,
    tables: *mut *mut c_void,
    num_tables: u64,
    register: Option<Register>,
) -> c_int {
    edge(status::ERROR, || {
        let Some(register) = register else {
            return status::INVALID_ARGUMENT;
        };
        // SAFETY: the caller's promise is the same.
        unsafe { midair_sdk_attach::set_api_table(name, tables, num_tables, register) }
    })
}

/// For newer register libraries: starts the listener and registers our table, before any runtime's.
///
/// # Safety
/// As [`midair_sdk_attach::initialize`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocprofiler_attach_initialize(register: Option<Register>) -> c_int {
    edge(status::ERROR, || {
        let Some(register) = register else {
            return status::INVALID_ARGUMENT;
        };
        // SAFETY: the caller's promise is the same.
        unsafe { midair_sdk_attach::initialize(register) }
    })
}

/// 10000 major + 100 minor + patch.
#[unsafe(no_mangle)]
pub extern "C" fn rocprofiler_attach_get_version() -> c_int {
    VERSION as c_int
}
