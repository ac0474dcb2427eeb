//! The old interface of `libroctx64.so.4` for profilers: in place of tables, one function that is
//! called at the start of each call (facts: Debian's libroctx64-4; the struct is as users of
//! the function declare it).

use std::ffi::{c_char, c_int};
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{Acquire, Release};

/// `roctx_api_data_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Data {
    /// Id of a process range.
    pub message: *const c_char,
    /// Id of a range that may end on any thread.
    pub id: u64,
}

/// Domain, operation, [`Data`].
pub type Callback = unsafe extern "C" fn(u32, u32, *const Data) -> c_int;

/// Number of ROCTx among the domains of the old tracer.
const DOMAIN: u32 = 6;

static CALLBACK: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

/// Sets the callback.
///
/// # Safety
/// The function must stay loaded until it is replaced, and until the calls that started before that
/// have returned.
pub(crate) unsafe fn set(callback: Option<Callback>) {
    let pointer = callback.map_or(std::ptr::null_mut(), |callback| callback as *mut ());
    CALLBACK.store(pointer, Release);
}

/// Calls the callback. Operations: 0 mark, 1 push, 2 pop, 3 start, 4 stop.
#[inline]
pub(crate) fn notify(operation: u32, message: *const c_char, id: u64) {
    let callback = CALLBACK.load(Acquire);
    if callback.is_null() {
        return;
    }
    // SAFETY: only `set` stores here, and it stores functions of this type.
    let callback = unsafe { std::mem::transmute::<*mut (), Callback>(callback) };
    let data = Data { message, id };
    // SAFETY: the caller of `set` promised that the function stays loaded. The struct lives until
    // the call returns.
    unsafe { callback(DOMAIN, operation, &raw const data) };
}
