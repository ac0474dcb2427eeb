//! `librocprofiler-sdk.so.1`: the C names of the SDK's crates, and the entry of the worker thread.
//!
//! What is not defined by `c_api!` is passed on here to the first copy of this library
//! ([`midair_capi_build::copies`]).

use midair_capi_build::copies;
use midair_record::boot::BootBlock;
pub use midair_sdk_api::capi as api;
pub use midair_sdk_control::capi as control;
pub use midair_sdk_control::openmp;

/// Entry of the worker thread in a target ([`midair_record::boot::ENTRY`]), called by the boot code.
/// Returns when the thread shall end.
///
/// # Safety
/// `boot` must be the live boot block of the calling thread, mapped for ever.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn midair_agent_enter(boot: *mut BootBlock) {
    let here: unsafe extern "C" fn(*mut BootBlock) = midair_agent_enter;
    if let Some(there) = copies::elsewhere(here as usize) {
        // SAFETY: the same function of the same build, in a copy that is never unloaded; the
        // caller's promise.
        return unsafe {
            std::mem::transmute::<usize, unsafe extern "C" fn(*mut BootBlock)>(there)(boot)
        };
    }
    // SAFETY: the caller's promise is the same; panics are caught inside.
    unsafe { midair_sdk_control::worker::enter(boot) }
}

/// Serves the tools that the process is started with (`midair_abi::private::LAUNCH`).
#[unsafe(no_mangle)]
pub extern "C" fn midair_launch() {
    let here: extern "C" fn() = midair_launch;
    if let Some(there) = copies::elsewhere(here as usize) {
        // SAFETY: as above; no arguments.
        return unsafe { std::mem::transmute::<usize, extern "C" fn()>(there)() };
    }
    midair_capi_build::edge((), || {
        midair_sdk_control::local::serve_the_start(control::table(), true)
    });
}

/// Ends the session of a process that ends without its exit handlers (`midair_abi::private::LEAVE`).
#[unsafe(no_mangle)]
pub extern "C" fn midair_leave(becomes_another: std::ffi::c_int) {
    let here: extern "C" fn(std::ffi::c_int) = midair_leave;
    if let Some(there) = copies::elsewhere(here as usize) {
        // SAFETY: as above.
        return unsafe {
            std::mem::transmute::<usize, extern "C" fn(std::ffi::c_int)>(there)(becomes_another)
        };
    }
    midair_capi_build::edge((), || {
        midair_sdk_control::local::leave(becomes_another != 0)
    });
}

/// Run by the loader when the library is loaded: finds the first copy, and serves a process that is being started under
/// the profiler.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = {
    extern "C" fn at_load() {
        midair_capi_build::edge((), || {
            if !copies::find_first() {
                midair_sdk_control::local::at_load(control::table());
            }
        });
    }
    at_load
};
