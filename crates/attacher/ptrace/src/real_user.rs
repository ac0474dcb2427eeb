//! Limits a program with raised rights to the rights of the user who runs it, when it uses files.

use std::io;

use crate::added::Barred;
use crate::sys::{self, Capabilities};

/// The credentials by which the kernel checked this thread's file accesses before, restored on
/// drop.
///
/// No capability stays effective (ENG-053, `docs/deviations/engine.md`). The capabilities that
/// override file permissions are not the only ones that lead to files: with CAP_SYS_PTRACE the
/// links `cwd`, `root` and `fd` in another user's `/proc/PID` lead into directories that are closed
/// to the user. The supplementary groups are already the user's own: starting a program changes
/// none of them.
#[derive(Debug)]
struct FileRights {
    uid: u32,
    gid: u32,
    effective: [u32; 2],
    _barred: Barred,
}

impl FileRights {
    /// Switches to the real user's rights. No capability stays effective, unless the real user is
    /// root.
    fn real() -> io::Result<FileRights> {
        let before = sys::capabilities()?;
        let real = sys::real_ids();
        let (uid, gid) = sys::set_file_ids(real.0, real.1);
        let rights = FileRights {
            uid,
            gid,
            effective: before.map(|half| half.effective),
            _barred: Barred::begin(),
        };
        let dropped = before.map(|half| Capabilities {
            effective: 0,
            ..half
        });
        sys::set_capabilities(dropped)?;
        // The calls report no failure, so a second call asks which ids are in force. If they are
        // not the right ones, dropping `rights` switches back.
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
            // They were ours a moment ago. If this fails, we can do less, not more.
            let _ = sys::set_capabilities(data);
        }
    }
}

/// Runs `work` with the real user's file permissions, if starting this program gave it other ones
/// (`AT_SECURE`). That holds for this thread and for threads that it starts.
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

/// Runs `work` as the real user without any capability, whether starting this program added it or the
/// user has it.
///
/// # Errors
/// When the rights cannot be dropped; then `work` has not run.
pub fn without_capabilities<T>(work: impl FnOnce() -> T) -> io::Result<T> {
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
