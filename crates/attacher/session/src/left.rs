//! Threads that were left behind at a process that does not answer.
//!
//! Such a thread comes back when the process answers after all, or ends. Until then no other thread goes to
//! that process: a program that asks again and again, as a server does, keeps one thread for it, however
//! long it runs. One user's processes hold so many threads at most, and looks at other users' processes go on.

use midair_procinfo::{Pid, task};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The most threads at processes of one user, and in all.
const MOST_OF_ONE: usize = 64;
const MOST: usize = 512;

/// A process for good: its number, and its start in clock ticks.
pub(crate) type Key = (Pid, u64);

/// The processes, and their users.
static LEFT: Mutex<BTreeMap<Key, u32>> = Mutex::new(BTreeMap::new());

fn all() -> MutexGuard<'static, BTreeMap<Key, u32>> {
    LEFT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns how many threads this program has left behind at processes that do not answer.
pub fn hanging_looks() -> usize {
    all().len()
}

/// Names a process.
pub(crate) fn key(pid: Pid) -> Key {
    (pid, task::stat(pid).map_or(0, |stat| stat.start_ticks))
}

fn user(pid: Pid) -> u32 {
    task::status(pid).map_or(u32::MAX, |status| status.uid[0])
}

/// Notes that a thread is left behind at a process.
pub(crate) fn leave(key: Key) {
    let user = user(key.0);
    all().insert(key, user);
}

/// Notes that the thread is back.
pub(crate) fn back(key: Key) {
    all().remove(&key);
}

/// Whether a thread may look at this process.
pub(crate) fn may_look(pid: Pid) -> bool {
    // Usually no thread hangs, and then nothing of the process is read.
    if all().is_empty() {
        return true;
    }
    let (key, user) = (key(pid), user(pid));
    let all = all();
    let of_user = all.values().filter(|other| **other == user).count();
    !all.contains_key(&key) && of_user < MOST_OF_ONE && all.len() < MOST
}
