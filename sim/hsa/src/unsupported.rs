//! Functions that are not modelled. Each returns an answer of the right type that means "not
//! supported".

use crate::status;

/// Returns the `hsa_status_t` of a plain error.
pub extern "C" fn status() -> u32 {
    status::ERROR
}

/// Returns 0 as a number or a signal's value.
pub extern "C" fn zero() -> u64 {
    0
}
