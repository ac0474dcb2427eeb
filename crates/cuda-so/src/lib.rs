//! `libmidair-cuda.so`: the entry of our thread in a CUDA process.

use midair_record::boot::BootBlock;

/// Entry of our thread in a target ([`midair_record::boot::ENTRY`]), called by the boot code. Returns when the thread shall
/// end.
///
/// # Safety
/// `boot` must be the live boot block of the calling thread, mapped for ever.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn midair_agent_enter(boot: *mut BootBlock) {
    // SAFETY: the caller's promise is the same; panics are caught inside.
    unsafe { midair_cuda::work::enter(boot) }
}
