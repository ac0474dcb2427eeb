//! The lock by which only one attacher at a time enters a process.
//!
//! Once a worker thread is in a process, a second attacher finds it and learns that the process is
//! busy. Two attachers that start at the same moment would find no worker thread, and each would
//! make one. Two copies of our libraries would then hook the same dispatch tables.

use crate::explain;
use midair_failure::{Failure, Kind};
use midair_procinfo::Pid;
use midair_procinfo::files::kernel_file;
use std::fs::{File, TryLockError};

/// The exclusive right to enter a process, until it is dropped.
#[derive(Debug)]
pub(crate) struct EntryLock {
    _file: File,
}

impl EntryLock {
    /// Locks process `pid` through one of its own files in `/proc`, which everybody may read and which
    /// vanishes with the process. So no lock file is left anywhere, and the lock of an attacher that dies is
    /// released.
    ///
    /// # Errors
    /// [`Kind::NoProcess`], or [`Kind::Busy`] when another attacher holds the lock.
    pub(crate) fn acquire(pid: Pid) -> Result<EntryLock, Failure> {
        let file =
            kernel_file(format!("{pid}/stat")).map_err(|_| explain::no_process(pid.get()))?;
        // Where the file cannot be locked at all, only the guard inside the target protects it.
        if matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
            return Err(Failure::new(
                Kind::Busy,
                format!("process {pid} is already attached (another attach is in progress)"),
            )
            .hint("wait for the other session to end, or end it"));
        }
        Ok(EntryLock { _file: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_has_it_until_it_lets_go() {
        let me = Pid::own();
        let lock = EntryLock::acquire(me).unwrap();
        assert_eq!(EntryLock::acquire(me).unwrap_err().kind, Kind::Busy);
        drop(lock);
        EntryLock::acquire(me).unwrap();
        assert_eq!(
            EntryLock::acquire(Pid::MAX).unwrap_err().kind,
            Kind::NoProcess
        );
    }
}
