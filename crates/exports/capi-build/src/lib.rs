//! What every C library of this workspace has in common: how it is linked ([`cdylib`], called by
//! the build script of each `*-so` crate), and the boundary between C and Rust ([`c_api!`], used
//! where the exported functions are written).

pub mod copies;

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Tells cargo how to link the cdylib of the calling build script's crate:
///
/// * the SONAME, since cargo can only make `libNAME.so`;
/// * a build id, which injectors compare across containers;
/// * NODELETE, since threads may be inside our code when `dlclose` is called;
/// * no text relocations and no lazy binding: the first call of a function must not take the
///   loader's lock on a thread of the application;
/// * both tables of symbols: rpmlint wants the older one, which readers of ELF files other than glibc
///   use, too;
/// * `-Bsymbolic`: our references to our own names bind to our own definitions. Where AMD's SDK is
///   mapped as well, our function table and our tool would otherwise be bound to AMD's functions of
///   the same names.
pub fn cdylib(soname: &str) {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,{soname}");
    for argument in [
        "-z,nodelete",
        "--build-id=sha1",
        "--hash-style=both",
        "-z,now",
        "-z,relro",
        "-z,defs",
        "-Bsymbolic",
    ] {
        println!("cargo:rustc-cdylib-link-arg=-Wl,{argument}");
    }
    println!("cargo:rerun-if-changed=build.rs");
}

/// Runs the body of a C function and turns a panic into `on_panic`. Nothing may unwind into C, and
/// nothing may end the process that we run in.
pub fn edge<R>(on_panic: R, body: impl FnOnce() -> R) -> R {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(on_panic)
}

/// The status of a body that fails with an `S`: 0, the failure's number, or 1 after a panic.
pub fn status<S: Into<c_int>>(body: impl FnOnce() -> Result<(), S>) -> c_int {
    edge(1, || body().map_or_else(S::into, |()| 0))
}

/// Makes a thread with every signal blocked: signals of the application must not be handled on a
/// midair thread. A panic of `body` ends the thread and nothing else.
///
/// # Errors
/// The error of the system.
pub fn quiet_thread(
    name: &str,
    stack: usize,
    body: impl FnOnce() + Send + 'static,
) -> std::io::Result<()> {
    // SAFETY: an integer array; any value is one.
    let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    let mut before: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: valid sets; the calls change this thread's mask only.
    unsafe {
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
    }
    let made = std::thread::Builder::new()
        .name(name.to_owned())
        .stack_size(stack)
        .spawn(move || edge((), body));
    // SAFETY: the set that was read above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) };
    made.map(drop)
}

/// Defines exported C functions that return a status. The body is a block of type `Result<(), S>`
/// with `S: Into<c_int>`; `Ok` is 0, a panic is 1 (the general error of each of AMD's status
/// enums).
///
/// Pointers come from C and are only as valid as the caller makes them: each body says what it
/// needs of them, and checks for null.
///
/// In a later copy of a library the call is passed on to the first one ([`copies`]).
#[macro_export]
macro_rules! c_api {
    ($( $(#[$meta:meta])* fn $name:ident ( $($argument:ident : $type:ty),* $(,)? ) $body:block )*) => { $(
        $(#[$meta])*
        ///
        /// # Safety
        /// Pointers are null or valid for what the C function of this name does with them; function
        /// pointers have its types.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> ::std::ffi::c_int {
            let here = $name as unsafe extern "C" fn($($type),*) -> ::std::ffi::c_int;
            if let Some(there) = $crate::copies::elsewhere(here as usize) {
                // SAFETY: the same function of the same build, in a copy that is never unloaded.
                let there = unsafe {
                    ::std::mem::transmute::<usize, unsafe extern "C" fn($($type),*) -> ::std::ffi::c_int>(there)
                };
                // SAFETY: the caller's promise.
                return unsafe { there($($argument),*) };
            }
            $crate::status(move || $body)
        }
    )* };
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_panic_becomes_an_error() {
        struct Code(i32);
        impl From<Code> for std::ffi::c_int {
            fn from(code: Code) -> Self {
                code.0
            }
        }
        c_api! {
            /// For the test.
            fn midair_test_edge(which: i32) {
                match which {
                    0 => Ok(()),
                    1 => Err(Code(17)),
                    _ => panic!("on purpose"),
                }
            }
        }
        // SAFETY: no pointers.
        let answers = unsafe {
            [
                midair_test_edge(0),
                midair_test_edge(1),
                midair_test_edge(2),
            ]
        };
        assert_eq!(answers, [0, 17, 1]);
    }
}
