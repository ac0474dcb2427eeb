//! Functions that are not modelled: an answer of the right type that says "not supported".

use crate::status;

/// `hsa_status_t`.
pub extern "C" fn status() -> u32 {
    status::ERROR
}

/// A number or a signal's value.
pub extern "C" fn zero() -> u64 {
    0
}
