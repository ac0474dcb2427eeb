//! When CUPTI is asked, and what the user reads.
#![cfg(target_arch = "x86_64")]

use super::*;
use crate::session::fake;
use std::ffi::{CStr, c_int, c_uint, c_void};
use std::sync::atomic::AtomicU32;

/// What CUPTI answers, how often it was asked, and which device has a context.
static ANSWER: AtomicU32 = AtomicU32::new(0);
static ASKED: AtomicU32 = AtomicU32::new(0);
static ACTIVE: AtomicU32 = AtomicU32::new(u32::MAX);

unsafe extern "C" fn enable(on: u8) -> u32 {
    assert_eq!(on, 1);
    ASKED.fetch_add(1, SeqCst);
    ANSWER.load(SeqCst)
}
unsafe extern "C" fn version(_: *mut c_int) -> c_uint {
    0
}
unsafe extern "C" fn count(count: *mut c_int) -> c_uint {
    // SAFETY: a valid out pointer.
    unsafe { count.write(2) };
    0
}
unsafe extern "C" fn get(device: *mut c_int, ordinal: c_int) -> c_uint {
    // SAFETY: a valid out pointer.
    unsafe { device.write(100 + ordinal) };
    0
}
unsafe extern "C" fn state(device: c_int, flags: *mut c_uint, active: *mut c_int) -> c_uint {
    let is = ACTIVE.load(SeqCst) == device.unsigned_abs();
    // SAFETY: valid out pointers.
    unsafe {
        flags.write(0);
        active.write(is.into());
    }
    0
}

fn driver() -> Driver {
    let look_up = |name: &CStr| -> *mut c_void {
        match name.to_bytes() {
            b"cuDriverGetVersion" => version as *mut c_void,
            b"cuDeviceGetCount" => count as *mut c_void,
            b"cuDeviceGet" => get as *mut c_void,
            b"cuDevicePrimaryCtxGetState" => state as *mut c_void,
            _ => std::ptr::null_mut(),
        }
    };
    // SAFETY: functions of these types, which stay.
    unsafe { Driver::find(look_up) }.unwrap()
}

#[test]
fn cupti_is_asked_only_before_a_context_and_its_answer_is_told() {
    let _alone = fake::alone();
    let without = fake::cupti();
    let mut functions = *without.functions();
    functions.enable_hw_trace = Some(enable);
    // SAFETY: they behave like CUPTI's, and stay.
    let cupti = unsafe { Cupti::with_functions(functions) }.unwrap();
    let why = ask(&without, &driver()).unwrap_err();
    assert!(why.starts_with("CUPTI 13.0 has no function"), "{why}");
    assert_eq!(ask(&cupti, &driver()), Ok(()));
    for (answer, told) in [
        (
            result::ERROR_NOT_SUPPORTED,
            "does not support it (CUPTI_ERROR_NOT_SUPPORTED)",
        ),
        (
            result::ERROR_NOT_INITIALIZED,
            "CUPTI says CUPTI_ERROR_NOT_INITIALIZED",
        ),
    ] {
        ANSWER.store(answer, SeqCst);
        let why = ask(&cupti, &driver()).unwrap_err();
        assert!(why.ends_with(told), "{why}");
    }
    ANSWER.store(0, SeqCst);
    assert_eq!(ASKED.load(SeqCst), 3);
    for device in [100, 101] {
        ACTIVE.store(device, SeqCst);
        let why = ask(&cupti, &driver()).unwrap_err();
        assert!(why.contains("already has a CUDA context"), "{why}");
    }
    assert_eq!(ASKED.load(SeqCst), 3);
}
