//! Where a process's files are in `/proc`.

use midair_procinfo::{Tid, task};
use std::path::PathBuf;

/// A thread of a process that has not ended.
pub(crate) fn live(pid: u32) -> Option<Tid> {
    task::live(Tid::try_from(pid).ok()?).ok()?
}

/// The root directory of a process as it sees it. A first thread that has ended has no root, so another thread stands for it.
pub(crate) fn root_of(pid: u32) -> PathBuf {
    let tid = live(pid).map_or(pid, Tid::cast_unsigned);
    PathBuf::from(format!("/proc/{pid}/task/{tid}/root"))
}
