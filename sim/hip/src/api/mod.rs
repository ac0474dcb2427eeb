//! The implemented functions of the C interface. `build.rs` puts each function that is named here
//! into its slot. Their arguments, results and ownership are as in AMD's functions with the same
//! names.
#![expect(
    missing_docs,
    non_snake_case,
    clippy::missing_safety_doc,
    reason = "AMD's functions under AMD's names: what they do and need is in AMD's documents"
)]

mod device;
mod events;
mod kernels;
mod memory;
mod streams;

pub use device::*;
pub use events::*;
pub use kernels::*;
pub use memory::*;
pub use streams::*;

use crate::{Error, error};

/// Stores a value through an out pointer of the application.
///
/// # Safety
/// `out` must be null or valid for a write of a `T`.
unsafe fn put<T>(out: *mut T, value: T) -> Result<(), Error> {
    if out.is_null() {
        return Err(error::INVALID_VALUE);
    }
    // SAFETY: it is not null, and the caller promises the rest.
    unsafe { out.write(value) };
    Ok(())
}
