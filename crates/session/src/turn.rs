//! One attacher at a time on the way in.
//!
//! Once our thread is in a process, a second attacher finds it there and is told that it is busy. Two that come at the same moment
//! would both find none, and both make one: two copies of our libraries over one another in the same tables.

use midair_failure::{Failure, Kind};
use std::fs::File;
use std::os::fd::AsRawFd;

/// The right to enter a process, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    _held: File,
}

impl Turn {
    /// Takes it for process `pid`, by a lock on a file of its own that everybody may read and that goes with it: no lock file is left
    /// anywhere, and the lock of an attacher that dies is free.
    ///
    /// # Errors
    /// [`Kind::NoProcess`], or [`Kind::Busy`] when another one has it.
    pub(crate) fn take(pid: u32) -> Result<Turn, Failure> {
        let file = File::open(format!("/proc/{pid}/stat"))
            .map_err(|_| Failure::new(Kind::NoProcess, format!("there is no process {pid}")))?;
        // SAFETY: a system call with a descriptor of ours and a number.
        let locked = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) };
        // Where the file cannot be locked at all the guard inside the target has to do.
        let held = std::io::Error::last_os_error().raw_os_error() == Some(libc::EWOULDBLOCK);
        if locked != 0 && held {
            return Err(Failure::new(
                Kind::Busy,
                format!("process {pid} is attached already (another attach is under way)"),
            )
            .hint("wait for the other session to end, or end it"));
        }
        Ok(Turn { _held: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_has_it_until_it_lets_go() {
        let me = std::process::id();
        let turn = Turn::take(me).unwrap();
        assert_eq!(Turn::take(me).unwrap_err().kind, Kind::Busy);
        drop(turn);
        Turn::take(me).unwrap();
        assert_eq!(Turn::take(u32::MAX).unwrap_err().kind, Kind::NoProcess);
    }
}
