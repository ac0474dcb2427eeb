//! Where a process's files are in `/proc`.

use midair_procinfo::{Pid, Tid, task};
use std::path::PathBuf;

/// A thread of a process that has not ended.
pub(crate) fn live(pid: Pid) -> Option<Tid> {
    task::live(pid).ok()?
}

/// The root directory of a process as it sees it. A first thread that has ended has no root, so
/// another thread stands for it.
pub(crate) fn root_of(pid: Pid) -> PathBuf {
    let tid = live(pid).unwrap_or(pid.leader());
    PathBuf::from(format!("/proc/{pid}/task/{tid}/root"))
}
