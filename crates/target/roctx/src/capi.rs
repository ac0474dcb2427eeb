//! The C functions. Each loads the table's address, and jumps through the slot. A profiler that did not get this library's tables decodes their address from these
//! instructions.

use crate::legacy::Callback;
use crate::{legacy, register, tables};
use std::ffi::{c_char, c_int, c_void};
use std::mem::offset_of;

macro_rules! stub {
    ($($(#[$meta:meta])* $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)? = $static:ident . $slot:ident : $struct:ident;)*) => { $(
        $(#[$meta])*
        ///
        /// # Safety
        /// As the C function of this name: texts are C strings or null.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) $(-> $result)? {
            #[cfg(target_arch = "x86_64")]
            std::arch::naked_asm!(
                "endbr64",
                "lea rax, [rip + {table}]",
                "jmp [rax + {slot}]",
                table = sym tables::$static,
                slot = const offset_of!(tables::$struct, $slot),
            );
            #[cfg(target_arch = "aarch64")]
            std::arch::naked_asm!(
                // `bti c`, which older processors take for a `nop`.
                "hint #34",
                "adrp x16, {table}",
                "add x16, x16, :lo12:{table}",
                "ldr x16, [x16, #{slot}]",
                "br x16",
                table = sym tables::$static,
                slot = const offset_of!(tables::$struct, $slot),
            )
        }
    )* };
}

stub! {
    /// Marks a moment.
    roctxMarkA(message: *const c_char) = CORE.mark: Core;
    /// Starts a range of the calling thread; returns its level, from 0.
    roctxRangePushA(message: *const c_char) -> c_int = CORE.push: Core;
    /// Ends the calling thread's innermost range; returns its level, -1 when there is none.
    roctxRangePop() -> c_int = CORE.pop: Core;
    /// Starts a range that any thread may end; returns its id, from 1.
    roctxRangeStartA(message: *const c_char) -> u64 = CORE.start: Core;
    /// Ends the range with this id.
    roctxRangeStop(id: u64) = CORE.stop: Core;
    /// Stores the calling thread's id; returns 0.
    roctxGetThreadId(tid: *mut u64) -> c_int = CORE.get_thread_id: Core;
    /// Asks a profiler to pause for a thread (0: all); returns 0.
    roctxProfilerPause(tid: u64) -> c_int = CONTROL.pause: Control;
    /// Asks a profiler to resume; returns 0.
    roctxProfilerResume(tid: u64) -> c_int = CONTROL.resume: Control;
    /// Names the calling thread for a profiler; returns 0.
    roctxNameOsThread(name: *const c_char) -> c_int = NAMES.os_thread: Names;
    /// Names an HSA agent; returns 0.
    roctxNameHsaAgent(name: *const c_char, agent: *const c_void) -> c_int = NAMES.hsa_agent: Names;
    /// Names a device; returns 0.
    roctxNameHipDevice(name: *const c_char, device: c_int) -> c_int = NAMES.hip_device: Names;
    /// Names a stream; returns 0.
    roctxNameHipStream(name: *const c_char, stream: *const c_void) -> c_int = NAMES.hip_stream: Names;
}

/// Returns the version of the interface that old programs ask for: `libroctx64.so.4`'s.
#[unsafe(no_mangle)]
pub extern "C" fn roctx_version_major() -> u32 {
    4
}

/// See [`roctx_version_major`].
#[unsafe(no_mangle)]
pub extern "C" fn roctx_version_minor() -> u32 {
    1
}

/// Registers a function that is called at the start of each call of the core table, as in the
/// old library; null removes it.
///
/// # Safety
/// The function must stay loaded until another one, or null, is set, and until the calls that started
/// before that have returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn roctxRegisterTracerCallback(callback: Option<Callback>) {
    // SAFETY: the caller's promise.
    unsafe { legacy::set(callback) };
}

/// Returns a version for registration libraries, whose secure mode checks which file contains this
/// function.
#[unsafe(no_mangle)]
pub extern "C" fn rocprofiler_register_import_roctx() -> u32 {
    register::VERSION
}
