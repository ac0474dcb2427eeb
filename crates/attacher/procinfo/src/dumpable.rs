//! Whether a process is dumpable (prctl(2), PR_SET_DUMPABLE): whether its user may read and trace it.
//!
//! Decisions: ENG-070 (`docs/deviations/engine.md`).

use std::ffi::CString;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;

use midair_ptrace::sys;

use crate::files::{kernel_place, kernel_text, proc_directory};
use crate::status::Status;
use crate::{Pid, Tid};

/// Whether the process of this thread, which has this status, is dumpable. None if the kernel does not
/// tell: before Linux 6.16, of a process of its user namespace's root.
pub fn is_dumpable(tid: Tid, status: &Status) -> Option<bool> {
    let pid = status.tgid.or(Pid::new(tid.get()))?;
    let answer = midair_ptrace::pidfd_open_thread(tid, pid)
        .ok()
        .and_then(|pidfd| sys::is_dumpable(pidfd.as_fd()));
    answer.or_else(|| seems_dumpable(tid, status))
}

/// Returns the same for a kernel that has no call for it.
#[expect(
    clippy::disallowed_methods,
    reason = "the kernel's own file, without the rights by which `files` opens it"
)]
pub fn seems_dumpable(tid: Tid, status: &Status) -> Option<bool> {
    let owner = kernel_place(format!("{tid}/mem")).ok()?;
    // The files of a process that is not dumpable belong to root of the process's user namespace
    // (see proc(5)). So the owner tells nothing about a process of that root.
    if (owner.uid(), owner.gid()) != (status.uid[1], status.gid[1]) {
        return Some(false);
    }
    let root = |map: &str| first_of(&kernel_text(format!("{tid}/{map}")).unwrap_or_default());
    let is_roots = root("uid_map") == Some(status.uid[1]) && root("gid_map") == Some(status.gid[1]);
    if !is_roots {
        return Some(true);
    }
    // The kernel lets a user without capabilities read a dumpable process of the same user, and
    // processes of a namespace that this user made (a container without root).
    let name = CString::new(format!("{tid}/auxv")).ok()?;
    let directory = proc_directory().ok()?;
    let read = midair_ptrace::without_capabilities(|| sys::open_at(Some(directory), &name, 0));
    read.is_ok_and(|read| read.is_ok()).then_some(true)
}

/// Returns the id outside that is root (0) in a user namespace with this map (see
/// user_namespaces(7)).
fn first_of(map: &[u8]) -> Option<u32> {
    let text = String::from_utf8_lossy(map);
    text.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let (inside, outside) = (words.next()?, words.next()?);
        (inside == "0").then(|| outside.parse().ok()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task;

    #[test]
    fn a_namespaces_root_is_known_outside() {
        let of = |map: &str| first_of(map.as_bytes());
        assert_eq!(of("         0     100000      65536\n"), Some(100_000));
        assert_eq!(of("1000 1000 1\n0 5 1\n"), Some(5));
        assert_eq!(of(""), None);
    }

    /// The session's tests ask for processes of other shapes.
    #[test]
    fn this_process_is_dumpable() {
        let me = Pid::own().leader();
        let status = task::status(me).unwrap();
        assert_ne!(is_dumpable(me, &status), Some(false));
        assert_ne!(seems_dumpable(me, &status), Some(false));
        assert_eq!(is_dumpable(Tid::MAX, &Status::default()), None);
    }
}
