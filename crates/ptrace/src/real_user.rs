//! The rights of the person who runs this, for what a program with raised rights does with files.

use std::io;

use crate::sys::{self, Capabilities};

/// The credentials by which the kernel checks this thread's file accesses, restored on drop.
///
/// No capability stays effective (ENG-053, `docs/deviations/engine.md`). Those that override file
/// permissions are not the only ones that lead to files: with CAP_SYS_PTRACE the links `cwd`, `root`
/// and `fd` in another user's `/proc/PID` lead into directories that are closed to the user. The
/// supplementary groups are the user's own already: starting a program changes none of them.
#[derive(Debug)]
struct FileRights {
    uid: u32,
    gid: u32,
    effective: [u32; 2],
}

impl FileRights {
    /// Switches to the real user's: no capability is left in effect. Those of real root stay.
    fn real() -> io::Result<FileRights> {
        let before = sys::capabilities()?;
        let real = sys::real_ids();
        let (uid, gid) = sys::set_file_ids(real.0, real.1);
        let rights = FileRights {
            uid,
            gid,
            effective: before.map(|half| half.effective),
        };
        let dropped = before.map(|half| Capabilities {
            effective: 0,
            ..half
        });
        sys::set_capabilities(dropped)?;
        // The calls do not tell of a failure: a second one tells what is now. `rights` goes back if
        // it is not what it should be.
        if sys::file_ids() != real {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok(rights)
    }
}

impl Drop for FileRights {
    fn drop(&mut self) {
        sys::set_file_ids(self.uid, self.gid);
        if let Ok(mut data) = sys::capabilities() {
            for (half, effective) in data.iter_mut().zip(self.effective) {
                half.effective = effective & half.permitted;
            }
            // They were ours a moment ago; without them less is possible, not more.
            let _ = sys::set_capabilities(data);
        }
    }
}

/// Runs `work` on this thread, and on threads that it starts, with the real user's file permissions
/// where starting this program gave it others (`AT_SECURE`).
///
/// # Errors
/// When the permissions cannot be dropped; then `work` has not run.
pub fn with_own_rights<T>(work: impl FnOnce() -> T) -> io::Result<T> {
    if !sys::is_secure() {
        return Ok(work());
    }
    let _real = FileRights::real()?;
    Ok(work())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_come_back() {
        let before = sys::capabilities().unwrap();
        let ids = sys::file_ids();
        let during = {
            let _real = FileRights::real().unwrap();
            sys::capabilities().unwrap()
        };
        assert_eq!(during.map(|half| half.effective), [0, 0]);
        assert_eq!(sys::capabilities().unwrap(), before);
        assert_eq!(sys::file_ids(), ids);
    }
}
