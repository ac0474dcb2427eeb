//! OpenMP's tool interface (OMPT): a runtime that starts asks for a tool, and we are it if a tool of
//! this process is configured for events of OpenMP. Otherwise the next library's tool is.
//!
//! A runtime asks once, before its first event, so a process must have been started with us. An
//! attach comes too late.
//!
//! The words that follow an event are its arguments, in order: [`midair_abi::ompt`].
//!
//! Decisions: AMD-055, AMD-065 (`docs/deviations/amd.md`).

mod event_functions;

use crate::local;
use crate::openmp_use::Use;
use crate::state::STATE;
use midair_abi::ompt::{CALLBACKS, FUNCTIONS, operation};
use midair_capi_build::{copies, edge};
use midair_sdk_api::context;
use midair_sdk_hot::openmp::{self, MOST_WORDS};
use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::sync::atomic::Ordering::SeqCst;

type Function = unsafe extern "C" fn();
type Lookup = unsafe extern "C" fn(*const c_char) -> Option<Function>;
type SetCallback = unsafe extern "C" fn(c_int, Function) -> c_int;

/// `ompt_start_tool_result_t`.
#[repr(C)]
#[derive(Debug)]
pub struct StartToolResult {
    initialize: unsafe extern "C" fn(Option<Lookup>, c_int, *mut u64) -> c_int,
    finalize: extern "C" fn(*mut u64),
    tool_data: u64,
}

const _: () = assert!(size_of::<StartToolResult>() == 24);

static RESULT: StartToolResult = StartToolResult {
    initialize,
    finalize,
    tool_data: 0,
};

/// Passes the runtime's question on to the next library in the loader's order. It may be the
/// runtime's own function, which asks the libraries behind it.
fn next(version: c_uint, text: *const c_char) -> *const c_void {
    // SAFETY: the handle is one of the loader's own, and the name is a C string.
    let function = unsafe { libc::dlsym(libc::RTLD_NEXT, c"ompt_start_tool".as_ptr()) };
    if function.is_null() {
        return std::ptr::null();
    }
    type Start = unsafe extern "C" fn(c_uint, *const c_char) -> *const c_void;
    // SAFETY: each function of this name has this type (OpenMP 5.2, 19.2.1); the arguments are the
    // caller's.
    unsafe { std::mem::transmute::<*mut c_void, Start>(function)(version, text) }
}

/// Makes us the tool of a runtime that is starting, if a tool of the process wants its events.
/// OpenMP's runtime calls this; the tools that the process was started with are found first.
///
/// # Safety
/// `text` must be null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ompt_start_tool(version: c_uint, text: *const c_char) -> *const c_void {
    let here: unsafe extern "C" fn(c_uint, *const c_char) -> *const c_void = ompt_start_tool;
    if let Some(there) = copies::elsewhere(here as usize) {
        type Same = unsafe extern "C" fn(c_uint, *const c_char) -> *const c_void;
        // SAFETY: the same function of the same build, in a copy that is never unloaded.
        return unsafe { std::mem::transmute::<usize, Same>(there)(version, text) };
    }
    edge(std::ptr::null(), || {
        if midair_secure::has_more_rights() {
            return next(version, text);
        }
        local::serve_the_start(crate::capi::table(), false);
        let wanted = context::openmp_operations();
        let any = FUNCTIONS
            .iter()
            .any(|function| wanted.has(function.operation));
        match result() {
            Some(result) if any => result,
            _ => next(version, text),
        }
    })
}

fn result() -> Option<*const c_void> {
    let is_free = STATE.openmp.load(SeqCst) == Use::Never;
    is_free.then_some((&raw const RESULT).cast())
}

/// Returns what a tool's own `ompt_start_tool` passes on to the runtime when it leaves the events
/// to us. Null when a runtime has made us its tool already.
///
/// # Safety
/// None of the arguments is used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocprofiler_ompt_start_tool(
    version: c_uint,
    text: *const c_char,
) -> *const c_void {
    let here: unsafe extern "C" fn(c_uint, *const c_char) -> *const c_void =
        rocprofiler_ompt_start_tool;
    if let Some(there) = copies::elsewhere(here as usize) {
        type Same = unsafe extern "C" fn(c_uint, *const c_char) -> *const c_void;
        // SAFETY: the same function of the same build, in a copy that is never unloaded.
        return unsafe { std::mem::transmute::<usize, Same>(there)(version, text) };
    }
    edge(std::ptr::null(), || result().unwrap_or(std::ptr::null()))
}

midair_capi_build::c_api! {
    /// Stores whether a runtime of OpenMP has made us its tool.
    fn rocprofiler_ompt_is_initialized(status: *mut c_int) {
        // SAFETY: the caller promises that the pointer is null or writable.
        unsafe { midair_sdk_api::capi::put(status, c_int::from(STATE.openmp.load(SeqCst) != Use::Never)) }
    }

    /// Stores whether that runtime has ended.
    fn rocprofiler_ompt_is_finalized(status: *mut c_int) {
        let ended = STATE.openmp.load(SeqCst) == Use::Ended;
        // SAFETY: the caller promises that the pointer is null or writable.
        unsafe { midair_sdk_api::capi::put(status, c_int::from(ended)) }
    }
}

/// Called by the runtime before its first event: asks for the events that tools want. Returns 0
/// where the runtime shall have no tool, else 1.
unsafe extern "C" fn initialize(lookup: Option<Lookup>, _device: c_int, _data: *mut u64) -> c_int {
    edge(0, || {
        let Some(lookup) = lookup else { return 0 };
        // SAFETY: the runtime's function, which takes a C string.
        let find = |name: &str| unsafe { lookup(CString::new(name).ok()?.as_ptr()) };
        let Some(set_callback) = find("ompt_set_callback") else {
            return 0;
        };
        // SAFETY: OpenMP gives the function of this name this type (5.2, 19.6.4).
        let set_callback = unsafe { std::mem::transmute::<Function, SetCallback>(set_callback) };
        let first = STATE
            .openmp
            .compare_exchange(Use::Never, Use::Traced, SeqCst, SeqCst);
        if first.is_err() {
            return 0;
        }
        local::openmp_is_here();
        let wanted = context::openmp_operations();
        for (operation, number) in (0..).zip(CALLBACKS) {
            if wanted.has(operation)
                && let Some(function) = event_functions::function(operation)
            {
                // SAFETY: the function is of the type that OpenMP gives this callback. What the
                // runtime cannot tell it refuses, and there is nothing to be done.
                unsafe { set_callback(number, function) };
            }
        }
        if wanted.has(operation::CALLBACK_FUNCTIONS) {
            openmp::event(operation::CALLBACK_FUNCTIONS, &functions(find));
        }
        1
    })
}

/// Returns the addresses of the runtime's own functions, for tools; 0 for one that it lacks.
fn functions(find: impl Fn(&str) -> Option<Function>) -> [u64; MOST_WORDS] {
    let mut words = [0; MOST_WORDS];
    let names = FUNCTIONS
        .iter()
        .find(|function| function.operation == operation::CALLBACK_FUNCTIONS)
        .map_or(&[][..], |function| function.parameters);
    for (word, parameter) in words.iter_mut().zip(names) {
        *word = find(parameter.name).map_or(0, |function| function as usize as u64);
    }
    words
}

extern "C" fn finalize(_data: *mut u64) {
    edge((), || STATE.openmp.store(Use::Ended, SeqCst));
}
