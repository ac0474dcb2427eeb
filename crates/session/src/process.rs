//! A live thread of a process, and its root.

use midair_procinfo::files::Place;
use midair_procinfo::{Pid, Tid, task};

/// A thread of a process that has not ended.
pub(crate) fn live(pid: Pid) -> Option<Tid> {
    task::live(pid).ok()?
}

/// The root directory of a process as it sees it, if we may look at it. A first thread that has ended
/// has no root, so another thread stands for it.
pub(crate) fn root_of(pid: Pid) -> Option<Place> {
    let tid = live(pid).unwrap_or(pid.leader());
    Place::root_of(tid).ok()
}
