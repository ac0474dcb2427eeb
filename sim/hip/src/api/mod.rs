//! The functions of the C interface that are implemented. `build.rs` puts each function that is
//! named here into its slot. Their arguments, results and ownership are those of AMD's functions of
//! the same names.
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

/// Puts a value where the application wants it.
///
/// # Safety
/// `out` is null or takes a `T`.
unsafe fn put<T>(out: *mut T, value: T) -> Result<(), Error> {
    if out.is_null() {
        return Err(error::INVALID_VALUE);
    }
    // SAFETY: not null; else the caller's promise.
    unsafe { out.write(value) };
    Ok(())
}
