//! A child that was forked while this library was loaded in its parent.
//!
//! It has our code, our memory as it was at the fork, and the hooks in its own copy of the
//! runtimes' tables. It has no worker thread. There the hooks only pass calls on, since the fork
//! wipes the word that enables them (see [`midair_sdk_hot::probe`]). Before the child's own first
//! session, all state is replaced that a thread of the parent may have left half changed: locks
//! that it held, lists that it was changing, slots of threads that the child does not have. The
//! memory of such lists is leaked, since they may be inconsistent.
//!
//! Facts that are one word each are kept: what a slot contained before ours, and numbers that are
//! used only once.

use midair_guest::claim;
use midair_sdk_hot::probe;

/// Replaces the state before the first session of a forked child. Does nothing in a process that
/// did not inherit its state from a parent. Called on the worker thread, before anything else.
pub fn reset_after_fork() {
    if !probe::session::is_forked() {
        return;
    }
    // Do this first: from here on every query finds that no session is on.
    // SAFETY: as below.
    unsafe { crate::state::reset_after_fork() };
    claim::reset_after_fork();
    // SAFETY: as below.
    unsafe { midair_sdk_api::reset_after_fork() };
    // SAFETY: as below.
    unsafe { midair_sdk_device::reset_after_fork() };
    // Do this last: a thread that enters a wrapper now gets one of the child's own slots.
    // SAFETY: this is a forked child before its first session, so only the worker thread uses the
    // state.
    if unsafe { midair_sdk_hot::reset_after_fork() } {
        probe::session::is_ours();
    }
}
