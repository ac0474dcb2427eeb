//! A child that was forked while this library was in its parent.
//!
//! It has our code, our memory as it was at that moment, and the hooks in its own copy of the
//! runtimes' tables; it has no thread of ours. The hooks pass everything on there (the word that
//! says otherwise is wiped by the fork, see [`midair_sdk_hot::probe`]). Before the child's own
//! first session everything that a lost thread may have left half done is begun anew: locks that it
//! held, lists that it was changing, slots of threads that are gone. What such a list held is left
//! where it is, for who knows in what state it is.
//!
//! What is kept are facts of the process that are one word each: what a slot held before ours,
//! numbers that are used once.

use midair_guest::claim;
use midair_sdk_hot::probe;

/// Makes ready for a first session of a forked child; does nothing in a process that no attacher
/// has forked away from. On the worker thread, before anything else.
pub fn begin_anew() {
    if !probe::is_forked() {
        return;
    }
    // Before all others: whoever is asked from here on finds that no session is on.
    // SAFETY: as below.
    unsafe { crate::state::reset_after_fork() };
    claim::reset_after_fork();
    // SAFETY: as below.
    unsafe { midair_sdk_api::reset_after_fork() };
    // SAFETY: as below.
    unsafe { midair_sdk_device::reset_after_fork() };
    // Last: a thread that comes now gets a slot of the child's own.
    // SAFETY: a forked child before its first session: the worker thread is the only one that uses the state.
    if unsafe { midair_sdk_hot::reset_after_fork() } {
        probe::is_ours();
    }
}
