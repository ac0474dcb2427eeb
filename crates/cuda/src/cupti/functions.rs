//! CUPTI's functions as it exports them (source: api/cupti_12.json, api/cupti_13.json).

use midair_abi::cupti::result;
use std::ffi::{c_char, c_void};
use std::fmt;

/// What a function of CUPTI returned, where it was not `CUPTI_SUCCESS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status(pub u32);

impl Status {
    /// Somebody else has subscribed, and this CUPTI takes one only.
    pub const OTHER_SUBSCRIBER: Status = Status(result::ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
    /// Also what is said of a function that this CUPTI does not have.
    pub const NOT_IMPLEMENTED: Status = Status(result::ERROR_API_NOT_IMPLEMENTED);

    /// A return value.
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

/// Asks for a buffer: start, bytes, and how many records at most (0: as many as fit). A null start or no bytes: there is none.
pub type BufferRequested = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
/// Gives one back: context and stream (neither is given any more), start, bytes, and how many of them are records.
pub type BufferCompleted = unsafe extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);
/// A clock: nanoseconds.
pub type Clock = unsafe extern "C" fn() -> u64;
/// A subscriber's function: what it gave, domain, callback id, data.
pub type Callback = unsafe extern "C" fn(*mut c_void, u32, u32, *const c_void);

/// How unified memory is counted (`CUpti_ActivityUnifiedMemoryCounterConfig`).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnifiedMemoryConfig {
    /// `CUpti_ActivityUnifiedMemoryCounterScope`.
    pub scope: u32,
    /// `CUpti_ActivityUnifiedMemoryCounterKind`.
    pub kind: u32,
    /// Device, by CUDA's number.
    pub device: u32,
    /// 1: counted.
    pub enable: u32,
}

/// Defines the table, and how it is filled from a library's symbols.
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
            /// The table by a look-up of symbols.
            ///
            /// # Errors
            /// The first symbol that is missing, of those that every CUPTI since 12.0 has.
            ///
            /// # Safety
            /// What `look_up` finds are CUPTI's functions of these names, and they stay where they are.
            pub unsafe fn find(look_up: impl Fn(&std::ffi::CStr) -> *mut c_void) -> Result<Functions, &'static str> {
                Ok(Functions {
                    $( $name: {
                        let at = look_up($symbol);
                        if at.is_null() {
                            return Err($symbol.to_str().unwrap_or("a function"));
                        }
                        // SAFETY: CUPTI's function of this name has this type in all versions (api/cupti_1x.json); the caller vouches
                        // that it is that one.
                        unsafe { std::mem::transmute::<*mut c_void, $ty>(at) }
                    }, )*
                    $( $oname: {
                        let at = look_up($osymbol);
                        // SAFETY: as above, where it is there; null is no function.
                        (!at.is_null()).then(|| unsafe { std::mem::transmute::<*mut c_void, $oty>(at) })
                    }, )*
                })
            }
        }
    };
}

functions! {
    always {
    /// Version.
    get_version = c"cuptiGetVersion": unsafe extern "C" fn(*mut u32) -> u32;
    /// A result's name.
    get_result_string = c"cuptiGetResultString": unsafe extern "C" fn(u32, *mut *const c_char) -> u32;
    /// Makes a subscriber.
    subscribe = c"cuptiSubscribe": unsafe extern "C" fn(*mut *mut c_void, Option<Callback>, *mut c_void) -> u32;
    /// Ends one.
    unsubscribe = c"cuptiUnsubscribe": unsafe extern "C" fn(*mut c_void) -> u32;
    /// Begins to record a kind.
    enable = c"cuptiActivityEnable": unsafe extern "C" fn(u32) -> u32;
    /// Ends it.
    disable = c"cuptiActivityDisable": unsafe extern "C" fn(u32) -> u32;
    /// Who gives buffers and takes them.
    register_callbacks = c"cuptiActivityRegisterCallbacks":
        unsafe extern "C" fn(Option<BufferRequested>, Option<BufferCompleted>) -> u32;
    /// Buffers with finished records come back; with 1 those with unfinished ones, too.
    flush_all = c"cuptiActivityFlushAll": unsafe extern "C" fn(u32) -> u32;
    /// Ends CUPTI in this process, until it is used again.
    finalize = c"cuptiFinalize": unsafe extern "C" fn() -> u32;
    /// The record behind a record; the first behind null.
    next_record = c"cuptiActivityGetNextRecord": unsafe extern "C" fn(*mut u8, usize, *mut *mut u8) -> u32;
    /// Records that found no buffer since the last call.
    dropped = c"cuptiActivityGetNumDroppedRecords": unsafe extern "C" fn(*mut c_void, u32, *mut usize) -> u32;
    /// Its clock.
    timestamp = c"cuptiGetTimestamp": unsafe extern "C" fn(*mut u64) -> u32;
    /// Reads an attribute.
    get_attribute = c"cuptiActivityGetAttribute": unsafe extern "C" fn(u32, *mut usize, *mut c_void) -> u32;
    /// Sets an attribute.
    set_attribute = c"cuptiActivitySetAttribute": unsafe extern "C" fn(u32, *mut usize, *mut c_void) -> u32;
    /// Which number of a thread records have.
    set_thread_id_type = c"cuptiSetThreadIdType": unsafe extern "C" fn(u32) -> u32;
    /// Which counters of unified memory are recorded.
    configure_unified_memory = c"cuptiActivityConfigureUnifiedMemoryCounter":
        unsafe extern "C" fn(*mut UnifiedMemoryConfig, u32) -> u32;

    }
    not_always {
    /// Another clock for records.
    register_timestamp_callback = c"cuptiActivityRegisterTimestampCallback":
        unsafe extern "C" fn(Option<Clock>) -> u32;
    /// One call of the runtime more, or less.
    enable_runtime_api = c"cuptiActivityEnableRuntimeApi": unsafe extern "C" fn(u32, u8) -> u32;
    /// One call of the driver more, or less.
    enable_driver_api = c"cuptiActivityEnableDriverApi": unsafe extern "C" fn(u32, u8) -> u32;
    /// Milliseconds between flushes by CUPTI's own thread; 0: none.
    flush_period = c"cuptiActivityFlushPeriod": unsafe extern "C" fn(u32) -> u32;
    /// CUPTI's side of NVTX: a library's functions, see `InitializeInjectionNvtx2` in NVTX's headers.
    initialize_nvtx = c"InitializeInjectionNvtx2":
        unsafe extern "C" fn(unsafe extern "C" fn(u32) -> *const c_void) -> i32;
    }
}
