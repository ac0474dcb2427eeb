//! What tools and the SDK exchange when a tool is configured, attached and detached.
//!
//! The functions have the ABI `C-unwind`, because a tool's functions may throw, see
//! `midair-tool-call`.

use crate::c_struct;
use std::ffi::{c_char, c_int, c_void};

c_struct! {
    /// The identity of a tool. The tool writes `name`, and the SDK writes the rest.
    ClientId = rocprofiler_client_id_t {
        /// Bytes of this struct.
        size: usize,
        /// The tool's name; it must live as long as the process.
        name: *const c_char,
        /// The number that the SDK assigned.
        handle: u32,
    }
}

/// `rocprofiler_client_finalize_t`: a tool may call it to end itself.
pub type ClientFinalize = unsafe extern "C-unwind" fn(ClientId);
/// `rocprofiler_tool_initialize_t`: returns 0 for success.
pub type Initialize = unsafe extern "C-unwind" fn(Option<ClientFinalize>, *mut c_void) -> c_int;
/// `rocprofiler_tool_finalize_t`.
pub type Finalize = unsafe extern "C-unwind" fn(*mut c_void);

c_struct! {
    /// The result of `rocprofiler_configure`. It is the tool's memory, and is copied at once.
    ConfigureResult = rocprofiler_tool_configure_result_t {
        /// Bytes of this struct.
        size: usize,
        /// Creates the contexts.
        initialize: Option<Initialize>,
        /// Called once, at the end.
        finalize: Option<Finalize>,
        /// Passed to both.
        tool_data: *mut c_void,
    }
}

/// A tool's `tool_attach`: detach function (may be null), the tool's contexts, their number, tool
/// data. Returns 0 for success.
pub type ToolAttach =
    unsafe extern "C-unwind" fn(Option<ClientFinalize>, *mut u64, u64, *mut c_void) -> c_int;

/// The result of `rocprofiler_configure_attach` (source: `docs/sources.md#register`; newer than the
/// headers that the JSON was made from).
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ConfigureAttachResult {
    /// Bytes of this struct.
    pub size: usize,
    /// Called at each attach; starts contexts.
    pub tool_attach: Option<ToolAttach>,
    /// Called at each detach, after the contexts were stopped.
    pub tool_detach: Option<Finalize>,
    /// Passed to both.
    pub tool_data: *mut c_void,
}
const _: () = assert!(size_of::<ConfigureAttachResult>() == 32);

/// `rocprofiler_configure_func_t`: version (10000 major + 100 minor + patch), version text,
/// priority, the tool's id.
pub type Configure =
    unsafe extern "C-unwind" fn(u32, *const c_char, u32, *mut ClientId) -> *mut ConfigureResult;
/// `rocprofiler_configure_attach`, with the same arguments.
pub type ConfigureAttach = unsafe extern "C-unwind" fn(
    u32,
    *const c_char,
    u32,
    *mut ClientId,
) -> *mut ConfigureAttachResult;

/// The result of `rocprofiler_configure_experimental` of the first generation (source:
/// `docs/sources.md#register`): [`ConfigureResult`] with two more fields.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ConfigureExperimentalResult {
    /// Bytes of this struct.
    pub size: usize,
    /// Creates and starts the contexts.
    pub initialize: Option<Initialize>,
    /// Called once, at the end.
    pub finalize: Option<Finalize>,
    /// Passed to all of them.
    pub tool_data: *mut c_void,
    /// Called at each attach except the first.
    pub tool_reattach: Option<Finalize>,
    /// Called at each detach, after the contexts were stopped.
    pub tool_detach: Option<Finalize>,
}
const _: () = assert!(size_of::<ConfigureExperimentalResult>() == 48);

/// `rocprofiler_configure_experimental`, with the same arguments.
pub type ConfigureExperimental = unsafe extern "C-unwind" fn(
    u32,
    *const c_char,
    u32,
    *mut ClientId,
) -> *mut ConfigureExperimentalResult;
