//! A tool's function that gets runtimes' tables.

use midair_sdk_hot::operations::Opaque;
use std::ffi::{c_int, c_void};

/// `rocprofiler_intercept_library_cb_t`: kind of table, the library's version, its instance, the
/// tables, their number, the tool's data.
pub type InterceptCallback =
    unsafe extern "C-unwind" fn(c_int, u64, u64, *mut *mut c_void, u64, *mut c_void);

/// A tool's function, the tables it wants, and its data.
#[derive(Debug, Clone)]
pub(crate) struct Interceptor {
    pub callback: InterceptCallback,
    pub libraries: c_int,
    pub data: Opaque,
    /// Tables that it was given: their kinds and addresses.
    pub given: Vec<Given>,
}

/// A table that a tool was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Given {
    pub kind: c_int,
    pub table: usize,
    /// Whether it is lent until the end of the session; otherwise the tool keeps it.
    pub lent: bool,
}

impl Interceptor {
    /// Whether it wants tables of this kind and does not have this one yet.
    pub fn wants(&self, kind: c_int, table: usize) -> bool {
        self.libraries & kind != 0
            && !self
                .given
                .iter()
                .any(|given| (given.kind, given.table) == (kind, table))
    }
}
