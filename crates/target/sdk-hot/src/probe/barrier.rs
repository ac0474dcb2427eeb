//! The barrier on the stopping side: all threads of the process execute one, by `membarrier`.
//!
//! The kernel wants a process registered for it. In a process with several threads the
//! registration takes 10 to 30 ms, since the kernel waits until all processors were seen outside of it.
//! So an attach does not wait for it: the worker thread registers at its first turn after that, or
//! here if it has not come to it.

use std::ffi::{c_int, c_long};

/// Registers the process. A second time costs a system call and no wait.
pub fn register() -> bool {
    membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0
}

/// Has all threads of the process execute a barrier. After it, a thread either has a visible `busy`,
/// or will read the new generation. Returns false if the kernel has no such call.
pub(super) fn all_threads() -> bool {
    barrier() || (register() && barrier())
}

fn barrier() -> bool {
    membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0
}

fn membarrier(command: c_int) -> c_long {
    // SAFETY: the system call takes no pointers.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) }
}
