//! C functions that call a function of their caller. What that function throws is for the caller to
//! catch, and passes through our functions as it does through AMD's.

pub use crate::ended::Ended;
use crate::status::Status;
use std::ffi::c_int;

/// Returns the status of a body, 1 after a panic. Does not return if something was thrown in the
/// body.
pub fn status(body: impl FnOnce() -> Result<(), Ended>) -> c_int {
    match midair_capi_build::edge(Err(Ended::With(Status::ERROR)), body) {
        Ok(()) => 0,
        Err(Ended::With(status)) => status.into(),
        Err(Ended::Thrown(thrown)) => thrown.pass_on(),
    }
}

/// Does the same as [`midair_capi_build::c_api`], for functions that call one of their caller's.
/// The body has the type `Result<(), Ended>`.
#[macro_export]
macro_rules! c_api_calling {
    ($( $(#[$meta:meta])* fn $name:ident ( $($argument:ident : $type:ty),* $(,)? ) $body:block )*) => { $(
        $(#[$meta])*
        ///
        /// # Safety
        /// Pointers must be null or valid for what the C function of this name does with them.
        /// Function pointers must have its types.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name($($argument: $type),*) -> ::std::ffi::c_int {
            let here = $name as unsafe extern "C-unwind" fn($($type),*) -> ::std::ffi::c_int;
            if let Some(there) = ::midair_capi_build::copies::elsewhere(here as usize) {
                // SAFETY: it is the same function of the same build, in a copy that is never
                // unloaded.
                let there = unsafe {
                    ::std::mem::transmute::<usize, unsafe extern "C-unwind" fn($($type),*) -> ::std::ffi::c_int>(there)
                };
                // SAFETY: the caller's promise applies to that copy, too.
                return unsafe { there($($argument),*) };
            }
            $crate::capi::calling::status(move || $body)
        }
    )* };
}
