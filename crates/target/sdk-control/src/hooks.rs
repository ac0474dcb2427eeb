//! Hooks for a session's life: the application opens and closes the HSA runtime, creates its first
//! queue, and destroys kernels.
//!
//! These hooks wait for the worker thread. The hooks that record work are in `midair-sdk-device`.
//!
//! Decisions: AMD-036, AMD-038 (`docs/deviations/amd.md`).

use crate::rendezvous;
use midair_sdk_device::hooks::Hook;
use midair_sdk_device::queue::serialized;
use midair_sdk_device::symbols::leaving::Leaving;
use midair_sdk_hot::probe;
use midair_sdk_hot::wrappers;
use midair_sdk_hot::wrappers::original;
use std::ffi::c_void;

/// Hooks the creation of queues. A queue is created once and carries every dispatch. So, if a
/// session started before the runtime, nothing may be launched before the device side of the session
/// is ready.
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
    rendezvous::wait_for_device();
    let create = || {
        let arguments = serialized::Arguments {
            size,
            kind,
            callback,
            data,
            private_segment,
            group_segment,
            queue,
        };
        // SAFETY: this is the application's own call with its own arguments.
        let made =
            serialized::is_asked().then(|| unsafe { serialized::create_queue(agent, arguments) });
        // SAFETY: this forwards the application's own call.
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

/// Hooks the unloading of kernels. Their names are recorded first, since another kernel may be
/// loaded at the same address later.
unsafe extern "C-unwind" fn hsa_executable_destroy(executable: u64) -> u32 {
    let leaving =
        (probe::generation() != 0).then(|| Leaving::announce(executable, rendezvous::may_answer));
    // SAFETY: this forwards the application's own call.
    let status = unsafe { wrappers::hsa_core::hsa_executable_destroy(executable) };
    drop(leaving);
    status
}

/// Hooks the opening of the runtime, which is hooked when this returns.
unsafe extern "C-unwind" fn hsa_init() -> u32 {
    let opening = rendezvous::Opening::begin();
    // SAFETY: this forwards the application's own call.
    let status = unsafe { wrappers::hsa_core::hsa_init() };
    opening.end(status == 0);
    status
}

/// Hooks the closing of the runtime. The collection ends first, while signals and queues still
/// exist.
unsafe extern "C-unwind" fn hsa_shut_down() -> u32 {
    // A forked child has no worker that could end anything, and its generation is 0 from the start.
    let session = probe::generation() != 0;
    if session {
        rendezvous::set_runtime_leaves(true);
        rendezvous::wait_for_stop(rendezvous::SHUT_DOWN_LIMIT);
    }
    // SAFETY: this forwards the application's own call.
    let status = serialized::while_shut_down(|| unsafe { wrappers::hsa_core::hsa_shut_down() });
    rendezvous::set_runtime_leaves(false);
    status
}

/// All these hooks.
pub static HOOKS: &[Hook] = midair_sdk_device::hooks! {
    Kernels: hsa_queue_create, hsa_executable_destroy;
    Always: hsa_init, hsa_shut_down;
};
