//! The function that is stored in HIP's slot for the registration of kernels.

use midair_sdk_hot::host_functions::{self, HostFunction};
use midair_sdk_hot::probe;
use midair_sdk_hot::wrappers;
use std::ffi::{CStr, c_void};

/// Returns three words at an address, or zeros if it is null.
///
/// # Safety
/// `at` must be null or three readable words.
unsafe fn three(at: *const c_void) -> [u32; 3] {
    if at.is_null() {
        return [0; 3];
    }
    // SAFETY: the caller's promise.
    unsafe { at.cast::<[u32; 3]>().read_unaligned() }
}

/// Notes the host function by which a program launches a kernel, when the program registers it.
#[allow(non_snake_case, reason = "the slot's own name, by which it is found")]
pub(crate) unsafe extern "C-unwind" fn __hipRegisterFunction(
    modules: *mut c_void,
    host_function: *mut c_void,
    device_function: *mut c_void,
    device_name: *mut c_void,
    thread_limit: u32,
    thread_ids: *mut c_void,
    block_ids: *mut c_void,
    block_size: *mut c_void,
    grid_size: *mut c_void,
    workgroup_size: *mut c_void,
) {
    if probe::generation() != 0 && host_functions::is_kept() && !device_function.is_null() {
        // SAFETY: the program passes HIP a C string, null or `uint3`s and `dim3`s (three words
        // each), and null or an `int`, all valid during the call.
        let function = unsafe {
            HostFunction {
                device_function: CStr::from_ptr(device_function.cast()).to_owned(),
                host_function: host_function.addr() as u64,
                modules: modules.addr() as u64,
                thread_limit,
                bounds: [thread_ids, block_ids, block_size, grid_size].map(|at| three(at)),
                workgroup_size: if workgroup_size.is_null() {
                    0
                } else {
                    u64::try_from(workgroup_size.cast::<i32>().read_unaligned()).unwrap_or(0)
                },
            }
        };
        host_functions::add(function);
    }
    // SAFETY: the application's own call, passed on.
    unsafe {
        wrappers::hip_compiler::__hipRegisterFunction(
            modules,
            host_function,
            device_function,
            device_name,
            thread_limit,
            thread_ids,
            block_ids,
            block_size,
            grid_size,
            workgroup_size,
        );
    }
}
