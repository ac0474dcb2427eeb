//! The tables are handed to a registration library (`rocprofiler_register_library_api_table`), if one is loaded or can be. Once, at
//! the first call of any function, before it is served: a profiler that the library brings sees that first call, too.
//!
//! Not from a constructor: a profiler's start makes threads and loads libraries, which must not wait for the loader's lock.

use crate::tables::{CONTROL, CORE, NAMES};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// 10000 * major + 100 * minor + patch, of the SDK whose header we follow.
pub const VERSION: u32 = 10201;

/// Name among registered libraries.
const NAME: &CStr = c"roctx";
const FUNCTION: &CStr = c"rocprofiler_register_library_api_table";
/// As programs and runtimes link it, then as it is found by those that do not.
const LIBRARIES: [&CStr; 2] = [
    c"librocprofiler-register.so.0",
    c"librocprofiler-register.so",
];

/// Name, import function, version, tables, how many, where to store the registration's id.
type RegisterTable = unsafe extern "C" fn(
    *const c_char,
    *const c_void,
    u32,
    *mut *mut c_void,
    u64,
    *mut u64,
) -> c_int;

/// 0 before the first call, 1 while it registers, 2 after.
static STATE: AtomicU32 = AtomicU32::new(0);

/// Registers, once. Returns whether this call has done it. Another thread's call that comes meanwhile goes on without.
#[inline]
pub(crate) fn once() -> bool {
    STATE.load(Acquire) == 0 && first()
}

#[cold]
fn first() -> bool {
    if STATE.compare_exchange(0, 1, AcqRel, Relaxed).is_err() {
        return false;
    }
    if let Some(register) = find() {
        let mut tables: [*mut c_void; 3] = [
            (&raw const CORE).cast_mut().cast(),
            (&raw const CONTROL).cast_mut().cast(),
            (&raw const NAMES).cast_mut().cast(),
        ];
        let mut id = 0;
        // SAFETY: the function of this name has this type; name and tables live for ever, the list as long as the call, which copies
        // it. What it answers changes nothing for us: "no tools" is its usual word.
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
    STATE.store(2, Release);
    true
}

fn find() -> Option<RegisterTable> {
    // SAFETY: a C string; the default search order of the process.
    let mut address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, FUNCTION.as_ptr()) };
    for library in LIBRARIES {
        if !address.is_null() {
            break;
        }
        // SAFETY: a C string. The library is the one that every runtime of the platform loads; it is not closed again.
        let handle = unsafe { libc::dlopen(library.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) };
        if handle.is_null() {
            // Nobody else shall find our failure.
            // SAFETY: no arguments.
            unsafe { libc::dlerror() };
            continue;
        }
        // SAFETY: a live handle and a C string.
        address = unsafe { libc::dlsym(handle, FUNCTION.as_ptr()) };
    }
    // SAFETY: the function of this name has this type.
    (!address.is_null())
        .then(|| unsafe { std::mem::transmute::<*mut c_void, RegisterTable>(address) })
}
