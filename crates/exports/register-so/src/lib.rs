//! `librocprofiler-register.so.0`: the C names over `midair-register`, and nothing else.
//!
//! It exports the functions of AMD's header, those that SDKs and injectors look up by name, what
//! newer runtimes are linked against (`correlation`, a callback), and the five names of the first
//! generation of attaching (docs/sources.md#register). Of these five, `attach` and `detach` are
//! forwarded ([`pass`]).

#[cfg(not(midair_sanitized))]
pub mod correlation;
pub mod pass;

use midair_register::{Code, LibraryId, activation, info};
use std::ffi::{c_char, c_int, c_void};

/// The boundary between C and Rust: a panic becomes the general error.
fn edge(body: impl FnOnce() -> Code) -> u32 {
    midair_capi_build::edge(Code::RocprofilerError, body).raw()
}

/// A runtime hands over its API tables. See [`midair_register::library_api_table`].
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocprofiler_register_library_api_table(
    lib_name: *const c_char,
    import_func: *const c_void,
    lib_version: u32,
    api_tables: *mut *mut c_void,
    api_table_length: u64,
    register_id: *mut LibraryId,
) -> u32 {
    edge(|| {
        // SAFETY: the caller's promise is the same.
        unsafe {
            midair_register::library_api_table(
                lib_name,
                import_func,
                lib_version,
                api_tables,
                api_table_length,
                register_id,
            )
        }
    })
}

/// Returns the text for a code, even for a number that is no code. The text lives as long as the
/// process.
#[unsafe(no_mangle)]
pub extern "C" fn rocprofiler_register_error_string(error_code: u32) -> *const c_char {
    midair_register::error_string(error_code)
}

/// Calls back for each registration. See [`midair_register::iterate`].
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocprofiler_register_iterate_registration_info(
    callback: Option<unsafe extern "C" fn(*mut info::Info, *mut c_void) -> c_int>,
    data: *mut c_void,
) -> u32 {
    // SAFETY: the caller's promise is the same.
    edge(|| unsafe { midair_register::iterate(callback, data) })
}

/// Calls back once when a tool becomes active. See [`activation::register`].
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocprofiler_register_runtime_tool_activation_callback(
    name: *const c_char,
    callback: Option<activation::Callback>,
    data: *mut c_void,
) -> u32 {
    // SAFETY: the caller's promise is the same.
    edge(|| unsafe { activation::register(name, callback, data) })
}

/// Hands over to the SDK the tables that it has not received yet.
#[unsafe(no_mangle)]
pub extern "C" fn rocprofiler_register_invoke_nonpropagated_registrations() -> u32 {
    edge(|| midair_register::invoke_registrations(false))
}

/// Hands over all tables to the SDK, even those that it has received before.
#[unsafe(no_mangle)]
pub extern "C" fn rocprofiler_register_invoke_all_registrations() -> u32 {
    edge(|| midair_register::invoke_registrations(true))
}

/// Attaches from inside the process. See [`midair_register::attach()`].
#[unsafe(no_mangle)]
pub extern "C" fn rocprofiler_register_attach(
    environment_buffer: *const c_char,
    tool_lib_path: *const c_char,
) -> u32 {
    edge(|| midair_register::attach(environment_buffer, tool_lib_path))
}

/// Detaches from inside the process.
#[unsafe(no_mangle)]
pub extern "C" fn rocprofiler_register_detach() -> u32 {
    edge(midair_register::detach)
}

/// Attaches again with the tool and settings of the last attach. First generation.
#[unsafe(no_mangle)]
pub extern "C" fn rocprofiler_register_invoke_reattach() -> u32 {
    edge(midair_register::reattach)
}

/// As [`rocprofiler_register_invoke_reattach`], without a result. First generation.
#[unsafe(no_mangle)]
pub extern "C" fn rocprofiler_call_client_reattach() {
    edge(midair_register::reattach);
}

/// As [`rocprofiler_register_detach`], without a result. First generation.
#[unsafe(no_mangle)]
pub extern "C" fn rocprofiler_call_client_detach() {
    edge(midair_register::detach);
}
