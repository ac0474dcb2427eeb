//! Reads the times that a signal of the application carries, before the application uses it for
//! something else.

use super::flight::Flight;
use super::watch::Watcher;
use crate::state::STATE;

/// The application is about to change `signal`: reads the times that it still carries.
pub fn settle(signal: u64) {
    match STATE.watchers.unwatch(signal) {
        // SAFETY: an address that was put under watch in this session.
        Some(Watcher::Flight(address)) => unsafe { read_flight(address) },
        Some(Watcher::Copy(index)) => crate::copies::settle::settle(index),
        None => {}
    }
}

/// Reads the times of a flight from its own signal.
///
/// # Safety
/// `address` is that of a [`Flight`] that was put under watch in this session: flights live in
/// blocks of states that are never unmapped, and watches are cleared between sessions.
pub(super) unsafe fn read_flight(address: usize) {
    // SAFETY: the caller's promise.
    let flight = unsafe { &*std::ptr::with_exposed_provenance::<Flight>(address) };
    flight.read_own_signal();
}
