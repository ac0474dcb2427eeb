//! Whether this process has more rights than its user, which variables it may then obey, and what
//! its start leaves of those rights ([`begin`]); and which signals whoever started it ignores
//! ([`is_ignored`]). [`filter`] takes system calls away from a helper process, and
//! [`own_output`] keeps its answers apart from what a library prints.
//!
//! A set-uid program, or one with file capabilities, keeps the environment of the user who started
//! it. A variable that names a file or a library, or that causes one to be loaded, would let that
//! user run code with the program's rights. So every midair library reads such variables through
//! [`variable`], or calls [`has_more_rights`] first. The C library treats `LD_PRELOAD` in the same
//! way.
//!
//! Switches that only turn something off, levels of logging and numbers are read in any case, since
//! they give no user additional rights.
//!
//! Decisions: ENG-052 (`docs/deviations/engine.md`).

pub mod filter;
mod start;

pub use start::{Command, Refused, begin, drop_all, held};

use std::ffi::{OsString, c_int};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Whether starting this program gave it rights that its user lacks: by set-uid, set-gid, file
/// capabilities, or a rule of a security module. The kernel says so (`AT_SECURE`, see
/// getauxval(3)).
pub fn has_more_rights() -> bool {
    // SAFETY: the call reads a word of this process's auxiliary vector, which never changes.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Whether a signal is ignored. A signal that is ignored at the start of a program, as by nohup(1),
/// stays so.
pub fn is_ignored(signal: c_int) -> bool {
    // SAFETY: an all-zero structure is valid, and the call only writes to it.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &mut now) == 0
            && now.sa_sigaction == libc::SIG_IGN
    }
}

/// Returns the value of a variable that names a file or causes a library to be loaded. None where
/// it is not set or is empty, or where this process has more rights than its user.
pub fn variable(name: &str) -> Option<OsString> {
    if has_more_rights() {
        return None;
    }
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Keeps standard output for the answers of a helper process alone: what the libraries that it loads
/// print goes to standard error. It is called once, before there is another thread.
///
/// # Errors
/// When the descriptors cannot be duplicated.
pub fn own_output() -> io::Result<File> {
    let (out, error) = (io::stdout(), io::stderr());
    let own = out.as_fd().try_clone_to_owned()?;
    // SAFETY: both descriptors are open, and no other thread exists yet that could close them.
    if unsafe { libc::dup2(error.as_raw_fd(), out.as_raw_fd()) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(File::from(own))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_runtime_ignores_one_signal() {
        assert!(is_ignored(libc::SIGPIPE) && !is_ignored(libc::SIGTERM));
        assert!(!is_ignored(-1));
    }

    #[test]
    fn an_ordinary_process_honours_its_environment() {
        assert!(!has_more_rights(), "tests are not set-uid");
        assert_eq!(variable("PATH"), std::env::var_os("PATH"));
        assert_eq!(variable("MIDAIR_NOBODY_SETS_THIS"), None);
    }
}
