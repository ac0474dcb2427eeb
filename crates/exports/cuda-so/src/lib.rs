//! `libmidair-cuda.so`: the entry function of the worker thread in a CUDA process.

use midair_record::boot::BootBlock;

/// Entry function of the worker thread in a target ([`midair_record::boot::ENTRY`]), called by the
/// boot code. It returns when the thread is to end.
///
/// # Safety
/// `boot` must be the live boot block of the calling thread, mapped for as long as the process
/// lives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn midair_agent_enter(boot: *mut BootBlock) {
    // SAFETY: the caller's promise is the same; panics are caught inside.
    unsafe { midair_cuda::work::enter(boot) }
}
