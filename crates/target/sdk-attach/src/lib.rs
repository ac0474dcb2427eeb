//! The attach helper (`librocprofiler-sdk-attach.so.1`): for an SDK that is not ours and is loaded
//! late.
//!
//! AMD's SDK learns of queues and code objects when they are made. For an SDK that is to be loaded
//! later, AMD's register library loads a helper at the start of the process. The helper records
//! queues and code objects. It registers a table of functions, "rocattach", by which the SDK
//! queries them. Midair's own SDK needs none of this, so the helper is loaded only where
//! `ROCP_TOOL_ATTACH` asks for it.
//!
//! * [`hooks`]: seven functions of HSA's table, none of them on a hot path.
//! * [`objects`]: what is recorded, and the callbacks for it.
//! * [`intercept`]: queues whose packets an SDK may intercept.
//! * [`table`]: the table.
//!
//! Unlike AMD's helper, this one makes a queue an intercept queue only when there is a reason (see
//! [`intercept`]), since such a queue slows down every dispatch, profiled or not.
//!
//! Source of names, layouts and orders: `docs/sources.md#register`.

pub mod hooks;
pub mod intercept;
pub mod objects;
pub mod status;
pub mod table;

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

/// Our version as 10000 major + 100 minor + patch. We have the interface of 1.2.1.
pub const VERSION: u32 = 10201;

/// The function that a register library provides for registering. It is
/// `rocprofiler_register_library_api_table` without a lock of its own.
pub type Register = unsafe extern "C" fn(
    *const c_char,
    *const c_void,
    u32,
    *const *mut c_void,
    u64,
    *mut u64,
) -> u32;

static REGISTERED: AtomicBool = AtomicBool::new(false);

/// Starts the listener and registers the table "rocattach", once. Later calls succeed and do
/// nothing.
///
/// # Safety
/// `register` is such a function of a register library.
pub unsafe fn initialize(register: Register) -> c_int {
    if REGISTERED.swap(true, Ordering::AcqRel) {
        return status::SUCCESS;
    }
    if !listener_is_there() {
        midair_register::listener::ensure();
    }
    let tables = [table::address()];
    let mut id = 0;
    // SAFETY: this is the caller's function. The name, the table and the out pointer live long
    // enough, and the table is never freed.
    let answer = unsafe {
        register(
            c"rocattach".as_ptr(),
            std::ptr::null(),
            VERSION,
            tables.as_ptr(),
            1,
            &raw mut id,
        )
    };
    if answer != 0 {
        REGISTERED.store(false, Ordering::Release);
        return status::ERROR;
    }
    status::SUCCESS
}

/// Takes a runtime's tables from a register library. Only HSA's tables are of use.
///
/// # Safety
/// `name` is null or a C string. `tables` is null, or points to the addresses of `count` tables of
/// that library, which live as long as the process. `register` is a function as [`initialize`]
/// requires it.
pub unsafe fn set_api_table(
    name: *const c_char,
    tables: *const *mut c_void,
    count: u64,
    register: Register,
) -> c_int {
    // SAFETY: the caller promises that a name that is not null is a C string.
    if name.is_null() || unsafe { CStr::from_ptr(name) } != c"hsa" {
        return status::INVALID_ARGUMENT;
    }
    if tables.is_null() || count == 0 {
        return status::INVALID_ARGUMENT;
    }
    // The hooks come first, since an attacher that sees the listener may attach immediately.
    // SAFETY: the caller promises that the tables are live.
    let hooked = unsafe { hooks::install((*tables).cast()) };
    if hooked != status::SUCCESS {
        return hooked;
    }
    // SAFETY: the caller promises that `register` is such a function.
    unsafe { initialize(register) }
}

/// Whether this process already has a listener, of the register library itself.
fn listener_is_there() -> bool {
    let name = midair_register::listener::NAME.to_bytes();
    std::fs::read_dir("/proc/self/task").is_ok_and(|tasks| {
        tasks.flatten().any(|task| {
            std::fs::read(task.path().join("comm")).is_ok_and(|comm| comm.trim_ascii_end() == name)
        })
    })
}
