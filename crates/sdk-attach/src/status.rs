//! The statuses that a caller gets: those of `rocprofiler_status_t` that we need (source: api/rocprofiler_sdk.json).

use std::ffi::c_int;

/// Done.
pub const SUCCESS: c_int = 0;
/// Anything without a number of its own.
pub const ERROR: c_int = 1;
/// A null pointer, a callback that is not registered, a queue or code object that is not known.
pub const INVALID_ARGUMENT: c_int = 19;
/// The queue is no intercept queue: nothing can be put between its packets.
pub const NOT_AVAILABLE: c_int = 37;
