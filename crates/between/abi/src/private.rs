//! The table of functions that our SDK passes to our tool. Only the two of us use it. The tool has
//! no DT_NEEDED on the SDK, since both enter a process under names that the loader does not know.
//! So it gets the functions that it calls through `midair_tool_bind`.

use std::ffi::{c_char, c_int};

/// The version of [`SdkTable`]; increase it with every change of the table.
pub const SDK_TABLE_VERSION: u32 = 6;
/// Name of the tool's function that receives the table: [`ToolBind`].
pub const TOOL_BIND: &str = "midair_tool_bind";
/// Returns 0 if the table is bound. With any other value the tool cannot work with this table and
/// must not be configured.
pub type ToolBind = unsafe extern "C" fn(*const SdkTable) -> c_int;

/// Name of the SDK's function that initialises the tools that a process was started with:
/// [`Launch`]. A preloaded midair tool calls it.
pub const LAUNCH: &str = "midair_launch";
/// Does nothing if they are initialised already.
pub type Launch = unsafe extern "C" fn();

/// Name of the SDK's function for a process that ends without running its exit handlers. It ends
/// the process's session and its tools: [`Leave`].
pub const LEAVE: &str = "midair_leave";
/// Argument 1: the process executes another program, which may be the one to record. 0: it ends.
/// Does nothing where there is no session, and in a forked child.
pub type Leave = unsafe extern "C" fn(c_int);

/// Entry points of the SDK. The table lives as long as the process; statuses are
/// `rocprofiler_status_t`.
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
    /// `rocprofiler_configure_buffer_tracing_service`. The buffer may be 0 for a context that uses
    /// the spool.
    pub configure_buffer_tracing_service:
        unsafe extern "C" fn(u64, c_int, *const c_int, usize, u64) -> c_int,
    /// Sends the records of this context to the attacher's spool and to no callback. Only allowed
    /// while contexts may be configured.
    pub use_spool: unsafe extern "C" fn(u64) -> c_int,
    /// Returns the value of a setting (`ROCPROF_...`) in this session, or null. Valid until the
    /// next attach.
    pub get_setting: unsafe extern "C" fn(*const c_char) -> *const c_char,
    /// Writes a note into the session's records, for something that the user must know.
    pub note: unsafe extern "C" fn(*const c_char),
    /// Returns the kind of the tool's session: 0 a midair attacher reads the spool; 1 another
    /// injector attached; 2 the process was started with the tool; 3 the same, and it is about to
    /// execute another program. In all but the first, the tool makes the spool and reads it, see
    /// `give_spool`.
    pub session_kind: unsafe extern "C" fn() -> c_int,
    /// Gives the session's spool to the SDK: its start and its length in bytes. Only during
    /// `tool_attach`. The spool must stay mapped until `tool_detach` or `finalize`, and forever if
    /// its outcome then says that memory is kept.
    pub give_spool: unsafe extern "C" fn(*mut u8, usize) -> c_int,
    /// Sets how the records that go to the spool react to `roctxProfilerPause` and
    /// `roctxProfilerResume` from now on: bits of [`pauses`]. Only before the contexts are started.
    pub set_pauses: unsafe extern "C" fn(u32),
    /// Counts hardware counters for every dispatch of this session by a plan
    /// (`midair_record::counter_plan`): its start and its length in bytes. If an agent has several
    /// groups, each group is used for as many successive dispatches as the last argument says. Only
    /// during `tool_attach`, in a process that was started with the tool.
    pub count_every: unsafe extern "C" fn(*const u8, usize, u64) -> c_int,
    /// Sets which dispatches are counted in this session. Only during `tool_attach`, before the
    /// contexts are started. The function gets the bytes of a kernel's symbol and their number, and
    /// returns whether the kernel is counted (0 = no; without a function, every kernel is, whatever its
    /// name). It is
    /// called on the worker thread until the session ends. The words are pairs of first and last
    /// number of the dispatches of each such kernel, counted from 1, sorted and without overlaps.
    /// The last argument is the number of words (0: all dispatches).
    pub choose_kernels: unsafe extern "C" fn(Option<ChoosesKernel>, *const u64, usize),
    /// Starts (1) or ends (0) a collection period. Has an effect only while [`pauses::PERIODS`] is
    /// set, and may be called by any thread at any time.
    pub set_period: unsafe extern "C" fn(u32),
}

/// See [`SdkTable::choose_kernels`].
pub type ChoosesKernel = unsafe extern "C" fn(*const u8, usize) -> c_int;

/// Bits for [`SdkTable::set_pauses`]. Without any, the calls have no effect.
pub mod pauses {
    /// The calls pause and resume the recording.
    pub const HONOURED: u32 = 1;
    /// The recording starts paused.
    pub const SELECTED: u32 = 2;
    /// Nested pairs are counted.
    pub const COUNTED: u32 = 4;
    /// Only what starts in a collection period is recorded (`SdkTable::set_period`). The recording
    /// starts outside of one.
    pub const PERIODS: u32 = 8;
    /// Only what starts in a burst is recorded: the SDK switches the recording on and off itself, by
    /// what it costs. The recording starts outside of one.
    pub const BURSTS: u32 = 16;
}
