//! Gives up this process's rights, before it reads a byte of a target. Its attacher may be root.

use midair_secure::filter::Filter;
use std::io;

/// The user and the group that own no files.
const NOBODY: u32 = 65534;

/// Drops all capabilities for good, and if this process is root's, gives it this user and group. Returns
/// whether it is not root's now: some containers have no other user.
///
/// # Errors
/// The kernel's.
pub(crate) fn leave() -> io::Result<bool> {
    for capability in 0..64 {
        // Only root may do that. For others it does not matter: they execute with `no_new_privs`.
        // SAFETY: takes numbers.
        unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
    }
    let is_root = || {
        // SAFETY: both take nothing.
        unsafe { libc::getuid() == 0 || libc::geteuid() == 0 }
    };
    if is_root() {
        // SAFETY: no group is read of an empty list; the others take numbers. The result shows below.
        let _ = unsafe {
            libc::setgroups(0, std::ptr::null()) == 0
                && libc::setresgid(NOBODY, NOBODY, NOBODY) == 0
                && libc::setresuid(NOBODY, NOBODY, NOBODY) == 0
        };
    }
    midair_secure::drop_all()?;
    // Another user resets it.
    // SAFETY: takes numbers.
    if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(!is_root())
}

/// The same for a process that has loaded its library. It can open no file and execute no program from
/// here on, whoever's it is.
///
/// # Errors
/// The kernel's.
pub(crate) fn confine() -> io::Result<()> {
    leave()?;
    Filter::for_loaded().install()
}
