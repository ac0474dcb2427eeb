//! Reads the times that a signal of the application holds, before the application uses the signal
//! for something else.

use super::flight::Flight;
use super::watch::Watcher;
use crate::state::STATE;

/// Reads the times that `signal` still holds, since the application is about to change it.
pub fn settle(signal: u64) {
    match STATE.watchers.unwatch(signal) {
        // SAFETY: the address was put under watch in this session.
        Some(Watcher::Flight(address)) => unsafe { read_flight(address) },
        Some(Watcher::Copy(index)) => crate::copies::settle::settle(index),
        None => {}
    }
}

/// Reads the times of a flight from its own signal.
///
/// # Safety
/// `address` points to a [`Flight`] that was put under watch in this session: flights live in
/// blocks of states that are never unmapped, and watches are cleared between sessions.
pub(super) unsafe fn read_flight(address: usize) {
    // SAFETY: the caller promises that the flight was put under watch in this session, so it is
    // still mapped.
    let flight = unsafe { &*std::ptr::with_exposed_provenance::<Flight>(address) };
    flight.read_own_signal();
}
