//! A child that was forked while this library was in its parent.
//!
//! It has our code, our memory as it was at the fork, and the hooks in its own copy of the runtimes'
//! tables; it has no worker thread. The hooks only pass calls on there: the fork wipes the word that
//! says otherwise (see [`midair_sdk_hot::probe`]). Before the child's first own session all state
//! that a thread of the parent may have left half changed is replaced: locks that it held, lists that
//! it was changing, slots of threads that the child does not have. The memory of such lists is
//! leaked, since they may be inconsistent.
//!
//! Facts that are one word each are kept: what a slot held before ours, numbers that are used once.

use midair_guest::claim;
use midair_sdk_hot::probe;

/// Replaces the state before the first session of a forked child; does nothing in a process that has
/// its state from no parent. Called on the worker thread, before anything else.
pub fn reset_after_fork() {
    if !probe::is_forked() {
        return;
    }
    // First: from here on every query finds that no session is on.
    // SAFETY: as below.
    unsafe { crate::state::reset_after_fork() };
    claim::reset_after_fork();
    // SAFETY: as below.
    unsafe { midair_sdk_api::reset_after_fork() };
    // SAFETY: as below.
    unsafe { midair_sdk_device::reset_after_fork() };
    // Last: a thread that enters a wrapper now gets a slot of the child's own.
    // SAFETY: a forked child before its first session: the worker thread is the only one that uses the state.
    if unsafe { midair_sdk_hot::reset_after_fork() } {
        probe::is_ours();
    }
}
