//! A tool's function that gets runtimes' tables.

use midair_sdk_hot::operations::Opaque;
use std::ffi::{c_int, c_void};

/// `rocprofiler_intercept_library_cb_t`: kind of table, the library's version, its instance, the
/// tables, their number, the tool's data.
pub type InterceptCallback =
    unsafe extern "C-unwind" fn(c_int, u64, u64, *mut *mut c_void, u64, *mut c_void);

/// A tool's function, the tables it wants, and its data.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Interceptor {
    pub callback: InterceptCallback,
    pub libraries: c_int,
    pub data: Opaque,
}
