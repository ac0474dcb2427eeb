//! The statuses of `rocprofiler_status_t` that this crate returns (source:
//! api/rocprofiler_sdk.json).

use std::ffi::c_int;

/// Success.
pub const SUCCESS: c_int = 0;
/// Any failure without a number of its own.
pub const ERROR: c_int = 1;
/// A null pointer, a callback that is not registered, or an unknown queue or code object.
pub const INVALID_ARGUMENT: c_int = 19;
/// The queue is not an intercept queue, so its packets cannot be intercepted.
pub const NOT_AVAILABLE: c_int = 37;
