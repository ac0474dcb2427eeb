//! C functions that call a function of their caller's: what that one throws is the caller's to catch,
//! and passes through ours as it does through AMD's.

pub use crate::ended::Ended;
use crate::status::Status;
use std::ffi::c_int;

/// The status of a body, 1 after a panic. A body that ended by what was thrown does not return.
pub fn status(body: impl FnOnce() -> Result<(), Ended>) -> c_int {
    match midair_capi_build::edge(Err(Ended::With(Status::ERROR)), body) {
        Ok(()) => 0,
        Err(Ended::With(status)) => status.into(),
        Err(Ended::Thrown(thrown)) => thrown.pass_on(),
    }
}

/// As [`midair_capi_build::c_api`], for functions that call one of their caller's. The body is of
/// type `Result<(), Ended>`.
#[macro_export]
macro_rules! c_api_calling {
    ($( $(#[$meta:meta])* fn $name:ident ( $($argument:ident : $type:ty),* $(,)? ) $body:block )*) => { $(
        $(#[$meta])*
        ///
        /// # Safety
        /// Pointers are null or valid for what the C function of this name does with them; function
        /// pointers have its types.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name($($argument: $type),*) -> ::std::ffi::c_int {
            let here = $name as unsafe extern "C-unwind" fn($($type),*) -> ::std::ffi::c_int;
            if let Some(there) = ::midair_capi_build::copies::elsewhere(here as usize) {
                // SAFETY: the same function of the same build, in a copy that is never unloaded.
                let there = unsafe {
                    ::std::mem::transmute::<usize, unsafe extern "C-unwind" fn($($type),*) -> ::std::ffi::c_int>(there)
                };
                // SAFETY: the caller's promise.
                return unsafe { there($($argument),*) };
            }
            $crate::capi::calling::status(move || $body)
        }
    )* };
}
