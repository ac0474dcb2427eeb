//! What the old `libroctx64.so.4` offers to profilers instead of tables: one function that is told of each call as it begins
//! (facts: Debian's libroctx64-4; the struct as users of the function declare it).

use std::ffi::{c_char, c_int};
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{Acquire, Release};

/// `roctx_api_data_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Data {
    /// Text of a mark or range; null for its end.
    pub message: *const c_char,
    /// Id of a range that may end on any thread.
    pub id: u64,
}

/// Domain, operation, [`Data`].
pub type Callback = unsafe extern "C" fn(u32, u32, *const Data) -> c_int;

/// ROCTx among the domains of the old tracer.
const DOMAIN: u32 = 6;

static CALLBACK: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

/// Sets who is told.
pub(crate) fn set(callback: Option<Callback>) {
    let pointer = callback.map_or(std::ptr::null_mut(), |callback| callback as *mut ());
    CALLBACK.store(pointer, Release);
}

/// Tells of a call. Operations: 0 mark, 1 push, 2 pop, 3 start, 4 stop.
#[inline]
pub(crate) fn tell(operation: u32, message: *const c_char, id: u64) {
    let callback = CALLBACK.load(Acquire);
    if callback.is_null() {
        return;
    }
    // SAFETY: only `set` stores here, functions of this type.
    let callback = unsafe { std::mem::transmute::<*mut (), Callback>(callback) };
    let data = Data { message, id };
    // SAFETY: whoever set it promised that it stays; the struct lives until the call returns.
    unsafe { callback(DOMAIN, operation, &raw const data) };
}
