//! The functions' own behaviour, when no profiler has replaced them. Each function first registers
//! the tables, if that has not been done. If the registration has put a profiler's function into
//! its slot, the call is forwarded to that function.
//!
//! The level of a thread is stored under a pthread key, as the value itself, so that nothing has to
//! be allocated or freed.

use crate::tables::{CONTROL, CORE, NAMES};
use crate::{legacy, register};
use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

/// Id of the next process range.
static NEXT_RANGE: AtomicU64 = AtomicU64::new(1);
/// The pthread key of the levels.
static KEY: AtomicU32 = AtomicU32::new(NO_KEY);
const NO_KEY: u32 = u32::MAX;

/// Returns the function in `slot` after a registration that replaced `own` there.
#[inline]
fn replacement(slot: &AtomicPtr<()>, own: *const ()) -> Option<*mut ()> {
    let was_ours = slot.load(Acquire).cast_const() == own;
    if !register::once() || !was_ours {
        // The profiler's function was there already, so the profiler has called us.
        return None;
    }
    let now = slot.load(Acquire);
    (now.cast_const() != own).then_some(now)
}

macro_rules! bodies {
    ($($(#[$meta:meta])* fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty = $table:ident . $slot:ident $body:block)*) => { $(
        $(#[$meta])*
        pub(crate) extern "C" fn $name($($argument: $type),*) -> $result {
            if let Some(other) = replacement(&$table.$slot, $name as *const ()) {
                // SAFETY: the slot of this name holds only functions of this type.
                let other = unsafe {
                    std::mem::transmute::<*mut (), unsafe extern "C" fn($($type),*) -> $result>(other)
                };
                // SAFETY: this forwards the application's own call with its own arguments.
                return unsafe { other($($argument),*) };
            }
            $body
        }
    )* };
}

bodies! {
    fn mark(message: *const c_char) -> () = CORE.mark {
        legacy::notify(0, message, 0);
    }
    fn push(message: *const c_char) -> c_int = CORE.push {
        legacy::notify(1, message, 0);
        let Some(level) = level() else { return -1 };
        set_level(level + 1);
        level as c_int
    }
    fn pop() -> c_int = CORE.pop {
        legacy::notify(2, std::ptr::null(), 0);
        match level() {
            None | Some(0) => -1,
            Some(level) => {
                set_level(level - 1);
                (level - 1) as c_int
            }
        }
    }
    fn start(message: *const c_char) -> u64 = CORE.start {
        let id = NEXT_RANGE.fetch_add(1, Relaxed);
        legacy::notify(3, message, id);
        id
    }
    fn stop(id: u64) -> () = CORE.stop {
        legacy::notify(4, std::ptr::null(), id);
    }
    fn get_thread_id(tid: *mut u64) -> c_int = CORE.get_thread_id {
        if tid.is_null() {
            return -1;
        }
        // SAFETY: gettid takes no arguments. The caller promises that its pointer is writable.
        unsafe { tid.write_unaligned(libc::syscall(libc::SYS_gettid) as u64) };
        0
    }
    fn pause(_tid: u64) -> c_int = CONTROL.pause { 0 }
    fn resume(_tid: u64) -> c_int = CONTROL.resume { 0 }
    fn name_os_thread(_name: *const c_char) -> c_int = NAMES.os_thread { 0 }
    fn name_hsa_agent(_name: *const c_char, _agent: *const c_void) -> c_int = NAMES.hsa_agent { 0 }
    fn name_hip_device(_name: *const c_char, _device: c_int) -> c_int = NAMES.hip_device { 0 }
    fn name_hip_stream(_name: *const c_char, _stream: *const c_void) -> c_int = NAMES.hip_stream { 0 }
}

/// Returns the key, which is created at the first range. `None` when the process has no key left.
fn key() -> Option<libc::pthread_key_t> {
    let key = KEY.load(Acquire);
    if key != NO_KEY {
        return Some(key);
    }
    let mut fresh: libc::pthread_key_t = 0;
    // SAFETY: the out pointer is valid, and the values need no destructor.
    if unsafe { libc::pthread_key_create(&raw mut fresh, None) } != 0 {
        return None;
    }
    match KEY.compare_exchange(NO_KEY, fresh, AcqRel, Acquire) {
        Ok(_) => Some(fresh),
        Err(winner) => {
            // SAFETY: the key was created above, and no other thread knows it.
            unsafe { libc::pthread_key_delete(fresh) };
            Some(winner)
        }
    }
}

/// Returns the number of open ranges of the calling thread.
fn level() -> Option<usize> {
    // SAFETY: the key is never deleted, and its values are numbers that are not dereferenced.
    key().map(|key| unsafe { libc::pthread_getspecific(key) }.addr())
}

fn set_level(level: usize) {
    if let Some(key) = key() {
        // SAFETY: as above: the value is never dereferenced.
        unsafe { libc::pthread_setspecific(key, std::ptr::without_provenance(level)) };
    }
}
