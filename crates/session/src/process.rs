//! A live thread of a process, and its root.

use midair_procinfo::files::Place;
use midair_procinfo::{Pid, Tid, task};

/// Returns a thread of a process that has not ended.
pub(crate) fn live(pid: Pid) -> Option<Tid> {
    task::live(pid).ok()?
}

/// Returns the root directory of a process as the process sees it, if we may look at it. A main
/// thread that has ended has no root, so another thread is used in its place.
pub(crate) fn root_of(pid: Pid) -> Option<Place> {
    let tid = live(pid).unwrap_or(pid.leader());
    Place::root_of(tid).ok()
}
