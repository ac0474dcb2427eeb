//! Passes the tables to a registration library (`rocprofiler_register_library_api_table`), if one
//! is loaded or can be loaded. This happens once, at the first call of any function, before that
//! call is served, so that a profiler that the library loads sees the first call, too.
//!
//! It is not done in a constructor: a profiler creates threads and loads libraries when it starts,
//! and must not wait for the loader's lock.

use crate::tables::{CONTROL, CORE, NAMES};
use midair_lockfree::{AtomicEnum, word_enum};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// The version of the SDK whose header we follow: 10000 * major + 100 * minor + patch.
pub const VERSION: u32 = 10201;

/// Name under which the tables are registered.
const NAME: &CStr = c"roctx";
const FUNCTION: &CStr = c"rocprofiler_register_library_api_table";
/// The name that programs and runtimes link, and the name without a version.
const LIBRARIES: [&CStr; 2] = [
    c"librocprofiler-register.so.0",
    c"librocprofiler-register.so",
];

/// Name, import function, version, tables, number of tables, out pointer for the registration's id.
type RegisterTable = unsafe extern "C" fn(
    *const c_char,
    *const c_void,
    u32,
    *mut *mut c_void,
    u64,
    *mut u64,
) -> c_int;

word_enum! {
    /// Progress of the registration.
    enum State else Never {
        /// There was no call so far.
        Never = 0,
        /// The first call is registering.
        Running = 1,
        /// Registered, or there is no registration library.
        Done = 2,
    }
}

static STATE: AtomicEnum<State> = AtomicEnum::new();

/// Registers the tables, once. Returns whether this call has done it. A call on another thread
/// during the registration goes on without waiting.
#[inline]
pub(crate) fn once() -> bool {
    STATE.load(Acquire) == State::Never && first()
}

#[cold]
fn first() -> bool {
    if STATE
        .compare_exchange(State::Never, State::Running, AcqRel, Relaxed)
        .is_err()
    {
        return false;
    }
    if let Some(register) = find() {
        let mut tables: [*mut c_void; 3] = [
            (&raw const CORE).cast_mut().cast(),
            (&raw const CONTROL).cast_mut().cast(),
            (&raw const NAMES).cast_mut().cast(),
        ];
        let mut id = 0;
        // SAFETY: the function of this name has this type. Name and tables are never freed. The
        // list lives as long as the call, which copies it. The result does not matter to us: "no
        // tools" is the usual one.
        unsafe {
            register(
                NAME.as_ptr(),
                crate::capi::rocprofiler_register_import_roctx as *const c_void,
                VERSION,
                tables.as_mut_ptr(),
                tables.len() as u64,
                &raw mut id,
            )
        };
    }
    STATE.store(State::Done, Release);
    true
}

fn find() -> Option<RegisterTable> {
    // SAFETY: the name is a C string, and RTLD_DEFAULT is a valid handle.
    let mut address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, FUNCTION.as_ptr()) };
    for library in LIBRARIES {
        if !address.is_null() {
            break;
        }
        // SAFETY: the name is a C string. The library is the one that every runtime of the platform
        // loads, and it is not closed again.
        let handle = unsafe { libc::dlopen(library.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) };
        if handle.is_null() {
            // Clear the error message, so that no later `dlerror` returns it.
            // SAFETY: the function takes no arguments.
            unsafe { libc::dlerror() };
            continue;
        }
        // SAFETY: the handle is open, and the name is a C string.
        address = unsafe { libc::dlsym(handle, FUNCTION.as_ptr()) };
    }
    // SAFETY: the function of this name has this type.
    (!address.is_null())
        .then(|| unsafe { std::mem::transmute::<*mut c_void, RegisterTable>(address) })
}
