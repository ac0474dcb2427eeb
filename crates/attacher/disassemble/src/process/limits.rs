//! Limits of this process, which LLVM's program inherits: it ends by itself, whatever the bytes do to a
//! disassembler.

use std::io;

/// Processor time, in seconds.
const SECONDS: u64 = 20;
/// Address space. The libraries themselves take some hundred MiB.
const MEMORY: u64 = 8 << 30;

/// Sets the limits, and ends this process when its parent does.
///
/// # Errors
/// The kernel's.
pub(crate) fn set() -> io::Result<()> {
    let limits = [
        (libc::RLIMIT_CPU, SECONDS),
        (libc::RLIMIT_AS, MEMORY),
        (libc::RLIMIT_CORE, 0),
    ];
    for (what, most) in limits {
        let mut limit = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: the structure outlives the call.
        if unsafe { libc::getrlimit(what, &raw mut limit) } != 0 {
            return Err(io::Error::last_os_error());
        }
        limit.rlim_max = limit.rlim_max.min(most);
        limit.rlim_cur = limit.rlim_max;
        // SAFETY: the structure outlives the call.
        if unsafe { libc::setrlimit(what, &raw const limit) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    // What is executed from here on gets no further rights.
    // SAFETY: these calls take no pointers.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) == 0
    };
    if done {
        return Ok(());
    }
    Err(io::Error::last_os_error())
}
