//! What a slot holds that nobody here needs: an answer of the right type that says no.

use crate::status;

/// `hsa_status_t`.
pub extern "C" fn status() -> u32 {
    status::ERROR
}

/// A number or a signal's value.
pub extern "C" fn zero() -> u64 {
    0
}
