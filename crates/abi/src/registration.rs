//! What tools and the SDK exchange when a tool is configured, attached and detached.
//!
//! The functions are of the ABI `C-unwind`: a tool's may throw, see `midair-tool-call`.

use crate::c_struct;
use std::ffi::{c_char, c_int, c_void};

c_struct! {
    /// Who a tool is. The tool writes `name`; the SDK the rest.
    ClientId = rocprofiler_client_id_t {
        /// Bytes of this struct.
        size: usize,
        /// Name, the tool's; must live as long as the process.
        name: *const c_char,
        /// Number, the SDK's.
        handle: u32,
    }
}

/// `rocprofiler_client_finalize_t`: a tool may end itself with it.
pub type ClientFinalize = unsafe extern "C-unwind" fn(ClientId);
/// `rocprofiler_tool_initialize_t`: 0 is success.
pub type Initialize = unsafe extern "C-unwind" fn(Option<ClientFinalize>, *mut c_void) -> c_int;
/// `rocprofiler_tool_finalize_t`.
pub type Finalize = unsafe extern "C-unwind" fn(*mut c_void);

c_struct! {
    /// What `rocprofiler_configure` returns; the tool's memory, copied at once.
    ConfigureResult = rocprofiler_tool_configure_result_t {
        /// Bytes of this struct.
        size: usize,
        /// Contexts are created in it.
        initialize: Option<Initialize>,
        /// Called once, at the end.
        finalize: Option<Finalize>,
        /// Passed to both.
        tool_data: *mut c_void,
    }
}

/// The `tool_attach` of a tool: detach function (may be null), its contexts, how many, tool data. 0 is success.
pub type ToolAttach =
    unsafe extern "C-unwind" fn(Option<ClientFinalize>, *mut u64, u64, *mut c_void) -> c_int;

/// What `rocprofiler_configure_attach` returns (source: `docs/sources.md#register`; newer than the JSON's headers).
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ConfigureAttachResult {
    /// Bytes of this struct.
    pub size: usize,
    /// Called at each attach; starts contexts.
    pub tool_attach: Option<ToolAttach>,
    /// Called at each detach, when the contexts are stopped.
    pub tool_detach: Option<Finalize>,
    /// Passed to both.
    pub tool_data: *mut c_void,
}
const _: () = assert!(size_of::<ConfigureAttachResult>() == 32);

/// `rocprofiler_configure_func_t`: version (10000 major + 100 minor + patch), version text, priority, the tool's id.
pub type Configure =
    unsafe extern "C-unwind" fn(u32, *const c_char, u32, *mut ClientId) -> *mut ConfigureResult;
/// `rocprofiler_configure_attach`, same arguments.
pub type ConfigureAttach = unsafe extern "C-unwind" fn(
    u32,
    *const c_char,
    u32,
    *mut ClientId,
) -> *mut ConfigureAttachResult;

/// What `rocprofiler_configure_experimental` of the first generation returns (source: `docs/sources.md#register`):
/// [`ConfigureResult`] with two more.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ConfigureExperimentalResult {
    /// Bytes of this struct.
    pub size: usize,
    /// Contexts are created, and started, in it.
    pub initialize: Option<Initialize>,
    /// Called once, at the end.
    pub finalize: Option<Finalize>,
    /// Passed to all.
    pub tool_data: *mut c_void,
    /// Called at each attach but the first.
    pub tool_reattach: Option<Finalize>,
    /// Called at each detach, when the contexts are stopped.
    pub tool_detach: Option<Finalize>,
}
const _: () = assert!(size_of::<ConfigureExperimentalResult>() == 48);

/// `rocprofiler_configure_experimental`, same arguments.
pub type ConfigureExperimental = unsafe extern "C-unwind" fn(
    u32,
    *const c_char,
    u32,
    *mut ClientId,
) -> *mut ConfigureExperimentalResult;
