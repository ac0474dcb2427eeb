//! The table that our SDK hands to our tool. It is ours alone: the tool has no DT_NEEDED on the SDK, since both enter a
//! process under names that the loader does not know, so it gets what it calls through `midair_tool_bind`.

use std::ffi::{c_char, c_int};

/// Changes with every change of [`SdkTable`].
pub const SDK_TABLE_VERSION: u32 = 5;
/// Name of the function of a tool that takes the table: [`ToolBind`].
pub const TOOL_BIND: &str = "midair_tool_bind";
/// 0: bound; anything else: the tool cannot work with this table and must not be configured.
pub type ToolBind = unsafe extern "C" fn(*const SdkTable) -> c_int;

/// Name of the SDK's function that serves the tools that a process is started with: [`Launch`]. For
/// a tool of ours that is preloaded.
pub const LAUNCH: &str = "midair_launch";
/// Does nothing where they are served.
pub type Launch = unsafe extern "C" fn();

/// Name of the SDK's function that ends the session of a process that ends without its exit
/// handlers, and its tools: [`Leave`].
pub const LEAVE: &str = "midair_leave";
/// 1: the process becomes another program, which may yet be the one to record; 0: it ends. Does
/// nothing where there is no session, and in a forked child.
pub type Leave = unsafe extern "C" fn(c_int);

/// Entry points of the SDK. Lives as long as the process; statuses are `rocprofiler_status_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct SdkTable {
    /// Bytes of this struct.
    pub size: usize,
    /// [`SDK_TABLE_VERSION`].
    pub version: u32,
    /// The SDK's version, 10000 major + 100 minor + patch.
    pub sdk_version: u32,
    /// `rocprofiler_create_context`.
    pub create_context: unsafe extern "C" fn(*mut u64) -> c_int,
    /// `rocprofiler_start_context`.
    pub start_context: unsafe extern "C" fn(u64) -> c_int,
    /// `rocprofiler_stop_context`.
    pub stop_context: unsafe extern "C" fn(u64) -> c_int,
    /// `rocprofiler_context_is_active`.
    pub context_is_active: unsafe extern "C" fn(u64, *mut c_int) -> c_int,
    /// `rocprofiler_configure_buffer_tracing_service`. The buffer may be 0 for a context that uses the spool.
    pub configure_buffer_tracing_service:
        unsafe extern "C" fn(u64, c_int, *const c_int, usize, u64) -> c_int,
    /// Records of this context go to the attacher's spool and to no callback. Only while contexts may be configured.
    pub use_spool: unsafe extern "C" fn(u64) -> c_int,
    /// The value of a setting (`ROCPROF_...`) in this session, or null. Valid until the next attach.
    pub get_setting: unsafe extern "C" fn(*const c_char) -> *const c_char,
    /// Writes a note into the session's records: something that the user must know.
    pub note: unsafe extern "C" fn(*const c_char),
    /// In what kind of session the tool is: 0 an attacher of ours reads the spool; 1 somebody
    /// else's injector attached; 2 the process was started with the tool; 3 it was, and is about to
    /// become another program. In all but the first the tool makes the spool and reads it, see
    /// `give_spool`.
    pub session_kind: unsafe extern "C" fn() -> c_int,
    /// Takes the spool of the session, its start and its length in bytes; during `tool_attach`. It
    /// stays mapped until `tool_detach` or `finalize`, and for ever when its outcome then says that
    /// memory is kept.
    pub give_spool: unsafe extern "C" fn(*mut u8, usize) -> c_int,
    /// Says how the records that go to the spool take `roctxProfilerPause` and
    /// `roctxProfilerResume` from now on: bits of [`pauses`]. Before the contexts are started.
    pub set_pauses: unsafe extern "C" fn(u32),
    /// Counts hardware counters of every dispatch of this session by a plan
    /// (`midair_record::counter_plan`), its start and its length in bytes. With several groups on an
    /// agent, as many dispatches as the last argument says have the same one. During `tool_attach`,
    /// in a process that was started with the tool.
    pub count_every: unsafe extern "C" fn(*const u8, usize, u64) -> c_int,
    /// Which dispatches are counted in this session; during `tool_attach`, before the contexts are
    /// started. The function says of a kernel, by the bytes of its symbol and their number, whether it
    /// is (0 = no; none: every kernel is); it is called on the worker thread until the session is
    /// over. The words are pairs, first and last number, of dispatches of each such kernel from 1 on,
    /// sorted and without overlaps; the last argument says how many words there are (0: all).
    pub choose_kernels: unsafe extern "C" fn(Option<ChoosesKernel>, *const u64, usize),
}

/// See [`SdkTable::choose_kernels`].
pub type ChoosesKernel = unsafe extern "C" fn(*const u8, usize) -> c_int;

/// Bits for [`SdkTable::set_pauses`]; none: the calls change nothing.
pub mod pauses {
    /// They are honoured.
    pub const HONOURED: u32 = 1;
    /// The recording begins paused.
    pub const SELECTED: u32 = 2;
    /// Nested pairs are counted.
    pub const COUNTED: u32 = 4;
}
