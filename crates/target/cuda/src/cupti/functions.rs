//! CUPTI's functions as it exports them (source: api/cupti_12.json, api/cupti_13.json).

use midair_abi::cupti::result;
use std::ffi::{c_char, c_void};
use std::fmt;

/// Result of a function of CUPTI that is not `CUPTI_SUCCESS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status(pub u32);

impl Status {
    /// Another profiler is subscribed, and this CUPTI accepts only one.
    pub const OTHER_SUBSCRIBER: Status = Status(result::ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
    /// Also returned for a function that this CUPTI does not have.
    pub const NOT_IMPLEMENTED: Status = Status(result::ERROR_API_NOT_IMPLEMENTED);

    /// Converts a return value.
    pub(crate) fn check(code: u32) -> Result<(), Status> {
        match code {
            result::SUCCESS => Ok(()),
            other => Err(Status(other)),
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match result::name(self.0) {
            Some(name) => write!(f, "CUPTI_{name}"),
            None => write!(f, "CUPTI result {}", self.0),
        }
    }
}

/// Requests a buffer: its address, its size in bytes, and the maximum number of records (0: as many
/// as fit). A null address or a size of 0 means that there is none.
pub type BufferRequested = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
/// Returns a buffer: context and stream (both unused since CUDA 12), address, size in bytes, and
/// bytes that contain records.
pub type BufferCompleted = unsafe extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);
/// A clock: ns.
pub type Clock = unsafe extern "C" fn() -> u64;
/// Writes the id of a node of a graph.
pub type NodeId = unsafe extern "C" fn(*mut c_void, *mut u64) -> u32;
/// A subscriber's function: its data, domain, callback id, data of the call.
pub type Callback = unsafe extern "C" fn(*mut c_void, u32, u32, *const c_void);

/// Selects a counter of unified memory (`CUpti_ActivityUnifiedMemoryCounterConfig`).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnifiedMemoryConfig {
    /// `CUpti_ActivityUnifiedMemoryCounterScope`.
    pub scope: u32,
    /// Kind of counter: `CUpti_ActivityUnifiedMemoryCounterKind`.
    pub kind: u32,
    /// Device, by CUDA's number.
    pub device: u32,
    /// 1: counted.
    pub enable: u32,
}

/// Defines the function table, and how it is filled from the symbols of a library.
macro_rules! functions {
    (always { $( $(#[$meta:meta])* $name:ident = $symbol:literal : $ty:ty; )* }
     not_always { $( $(#[$ometa:meta])* $oname:ident = $osymbol:literal : $oty:ty; )* }) => {
        /// CUPTI's functions. Each returns a `CUptiResult`.
        #[derive(Debug, Clone, Copy)]
        pub struct Functions {
            $( $(#[$meta])* pub $name: $ty, )*
            $( $(#[$ometa])* pub $oname: Option<$oty>, )*
        }

        impl Functions {
            /// Resolves the table by a symbol look-up.
            ///
            /// # Errors
            /// The first missing symbol among those that every CUPTI since 12.0 has.
            ///
            /// # Safety
            /// What `look_up` finds are CUPTI's functions of these names, and they stay where they
            /// are.
            pub unsafe fn find(look_up: impl Fn(&std::ffi::CStr) -> *mut c_void) -> Result<Functions, &'static str> {
                Ok(Functions {
                    $( $name: {
                        let at = look_up($symbol);
                        if at.is_null() {
                            return Err($symbol.to_str().unwrap_or("a function"));
                        }
                        // SAFETY: CUPTI's function of this name has this type in all versions
                        // (api/cupti_1x.json); the caller vouches that it is that one.
                        unsafe { std::mem::transmute::<*mut c_void, $ty>(at) }
                    }, )*
                    $( $oname: {
                        let at = look_up($osymbol);
                        // SAFETY: as above, where it exists; null is no function.
                        (!at.is_null()).then(|| unsafe { std::mem::transmute::<*mut c_void, $oty>(at) })
                    }, )*
                })
            }
        }
    };
}

functions! {
    always {
    /// Returns the interface version.
    get_version = c"cuptiGetVersion": unsafe extern "C" fn(*mut u32) -> u32;
    /// Name of a result.
    get_result_string = c"cuptiGetResultString": unsafe extern "C" fn(u32, *mut *const c_char) -> u32;
    /// Makes a subscriber.
    subscribe = c"cuptiSubscribe": unsafe extern "C" fn(*mut *mut c_void, Option<Callback>, *mut c_void) -> u32;
    /// Ends a subscription.
    unsubscribe = c"cuptiUnsubscribe": unsafe extern "C" fn(*mut c_void) -> u32;
    /// Starts the recording of a kind.
    enable = c"cuptiActivityEnable": unsafe extern "C" fn(u32) -> u32;
    /// Stops the recording of a kind.
    disable = c"cuptiActivityDisable": unsafe extern "C" fn(u32) -> u32;
    /// Registers the callbacks that provide and take back buffers.
    register_callbacks = c"cuptiActivityRegisterCallbacks":
        unsafe extern "C" fn(Option<BufferRequested>, Option<BufferCompleted>) -> u32;
    /// Returns buffers with completed records; with 1, those with incomplete ones, too.
    flush_all = c"cuptiActivityFlushAll": unsafe extern "C" fn(u32) -> u32;
    /// Removes CUPTI from this process until it is used again.
    finalize = c"cuptiFinalize": unsafe extern "C" fn() -> u32;
    /// The record behind a record; the first one for null.
    next_record = c"cuptiActivityGetNextRecord": unsafe extern "C" fn(*mut u8, usize, *mut *mut u8) -> u32;
    /// Number of records that were dropped for lack of a buffer since the last call.
    dropped = c"cuptiActivityGetNumDroppedRecords": unsafe extern "C" fn(*mut c_void, u32, *mut usize) -> u32;
    /// Reads its clock.
    timestamp = c"cuptiGetTimestamp": unsafe extern "C" fn(*mut u64) -> u32;
    /// Reads an attribute.
    get_attribute = c"cuptiActivityGetAttribute": unsafe extern "C" fn(u32, *mut usize, *mut c_void) -> u32;
    /// Sets an attribute.
    set_attribute = c"cuptiActivitySetAttribute": unsafe extern "C" fn(u32, *mut usize, *mut c_void) -> u32;
    /// Selects the kind of thread id in records.
    set_thread_id_type = c"cuptiSetThreadIdType": unsafe extern "C" fn(u32) -> u32;
    /// Selects the counters of unified memory that are recorded.
    configure_unified_memory = c"cuptiActivityConfigureUnifiedMemoryCounter":
        unsafe extern "C" fn(*mut UnifiedMemoryConfig, u32) -> u32;

    }
    not_always {
    /// Replaces the clock of records.
    register_timestamp_callback = c"cuptiActivityRegisterTimestampCallback":
        unsafe extern "C" fn(Option<Clock>) -> u32;
    /// Adds or removes one call of the runtime.
    enable_runtime_api = c"cuptiActivityEnableRuntimeApi": unsafe extern "C" fn(u32, u8) -> u32;
    /// Adds or removes one call of the driver.
    enable_driver_api = c"cuptiActivityEnableDriverApi": unsafe extern "C" fn(u32, u8) -> u32;
    /// Has kernels timed by the GPU's own hardware (since 12.8).
    enable_hw_trace = c"cuptiActivityEnableHWTrace": unsafe extern "C" fn(u8) -> u32;
    /// Has a subscriber's function called at a call of the runtime or of the driver.
    enable_callback = c"cuptiEnableCallback": unsafe extern "C" fn(u32, *mut c_void, u32, u32) -> u32;
    /// Writes the id that records of kernels have for this node of a graph.
    graph_node_id = c"cuptiGetGraphNodeId": NodeId;
    /// Returns the number and a list of the kinds of callbacks.
    supported_domains = c"cuptiSupportedDomains": unsafe extern "C" fn(*mut usize, *mut *const u32) -> u32;
    /// Milliseconds between flushes by CUPTI's own thread; 0: none.
    flush_period = c"cuptiActivityFlushPeriod": unsafe extern "C" fn(u32) -> u32;
    /// CUPTI's part in NVTX: fills a library's function table; see `InitializeInjectionNvtx2` in
    /// NVTX's headers.
    initialize_nvtx = c"InitializeInjectionNvtx2":
        unsafe extern "C" fn(unsafe extern "C" fn(u32) -> *const c_void) -> i32;
    }
}
