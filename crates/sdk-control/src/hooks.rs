//! Hooks of a session's life: the application opens and closes the HSA runtime, makes its first
//! queue, destroys kernels.
//!
//! These wait for the worker thread. What records work is hooked in `midair-sdk-device`.
//!
//! Decisions: AMD-036, AMD-038 (`docs/deviations/amd.md`).

use crate::gate;
use midair_sdk_device::hooks::Hook;
use midair_sdk_device::queue::alone;
use midair_sdk_device::symbols::leaving::Leaving;
use midair_sdk_hot::probe;
use midair_sdk_hot::wrappers;
use midair_sdk_hot::wrappers::original;
use std::ffi::c_void;

/// A queue is made once and carries every dispatch: nothing may be launched before the device's
/// side of a session that began before the runtime did is ready.
unsafe extern "C-unwind" fn hsa_queue_create(
    agent: u64,
    size: u32,
    kind: u32,
    callback: *mut c_void,
    data: *mut c_void,
    private_segment: u32,
    group_segment: u32,
    queue: *mut c_void,
) -> u32 {
    gate::wait_for_device();
    let create = || {
        let arguments = alone::Arguments {
            size,
            kind,
            callback,
            data,
            private_segment,
            group_segment,
            queue,
        };
        // SAFETY: the application's own call, and its arguments.
        let made = alone::is_asked().then(|| unsafe { alone::create_queue(agent, arguments) });
        // SAFETY: the application's own call, passed on.
        made.flatten().unwrap_or_else(|| unsafe {
            original::hsa_queue_create(
                agent,
                size,
                kind,
                callback,
                data,
                private_segment,
                group_segment,
                queue,
            )
        })
    };
    wrappers::hsa_core::hsa_queue_create_by(
        agent,
        size,
        kind,
        callback,
        data,
        private_segment,
        group_segment,
        queue,
        create,
    )
}

/// Kernels are unloaded: their names are recorded first, since the next kernel at such an address is
/// another.
unsafe extern "C-unwind" fn hsa_executable_destroy(executable: u64) -> u32 {
    let leaving =
        (probe::generation() != 0).then(|| Leaving::announce(executable, gate::may_answer));
    // SAFETY: the application's own call, passed on.
    let status = unsafe { wrappers::hsa_core::hsa_executable_destroy(executable) };
    drop(leaving);
    status
}

/// The runtime opens: when this returns, it is hooked.
unsafe extern "C-unwind" fn hsa_init() -> u32 {
    let opening = gate::Opening::begin();
    // SAFETY: the application's own call, passed on.
    let status = unsafe { wrappers::hsa_core::hsa_init() };
    opening.end(status == 0);
    status
}

/// The runtime closes: the collecting ends first, while signals and queues still exist.
unsafe extern "C-unwind" fn hsa_shut_down() -> u32 {
    // A forked child has no worker that could end anything, and its generation is 0 from the start.
    let session = probe::generation() != 0;
    if session {
        gate::set_runtime_leaves(true);
        gate::wait_for_stop(gate::SHUT_DOWN_LIMIT);
    }
    // SAFETY: the application's own call, passed on.
    let status = alone::while_shut_down(|| unsafe { wrappers::hsa_core::hsa_shut_down() });
    gate::set_runtime_leaves(false);
    status
}

/// All of them.
pub static HOOKS: &[Hook] = midair_sdk_device::hooks! {
    Kernels: hsa_queue_create, hsa_executable_destroy;
    Always: hsa_init, hsa_shut_down;
};
