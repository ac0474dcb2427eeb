//! Signals of HSA.

use crate::runtime::checked;
use crate::{Error, hsa};

/// A signal, which lives as long as anyone refers to it. A stream refers to the signals that its
/// packets name until it has been waited for, whatever becomes of the event or stream they are of.
#[derive(Debug)]
pub struct Signal(u64);

impl Signal {
    /// Creates a signal with value 1.
    pub fn new() -> Result<Signal, Error> {
        let mut handle = 0;
        // SAFETY: the out pointer is ours.
        checked(unsafe { hsa::hsa_signal_create(1, 0, std::ptr::null(), &raw mut handle) })?;
        Ok(Signal(handle))
    }

    /// Returns its handle.
    pub fn handle(&self) -> u64 {
        self.0
    }

    /// Waits until it is below 1.
    pub fn wait(&self) {
        self.wait_for(u64::MAX);
    }

    /// Waits for this many ns until it is below 1. Returns whether it is.
    pub fn wait_for(&self, ns: u64) -> bool {
        // SAFETY: the signal is live; 2 is "less", 0 is "blocked".
        unsafe { hsa::hsa_signal_wait_scacquire(self.0, 2, 1, ns, 0) < 1 }
    }

    /// Returns whether it is below 1.
    pub fn is_done(&self) -> bool {
        // SAFETY: the signal is live.
        unsafe { hsa::hsa_signal_load_scacquire(self.0) < 1 }
    }

    /// Sets it to 1 again. No packet may name it any more.
    pub fn set(&self) {
        // SAFETY: the signal is live.
        unsafe { hsa::hsa_signal_silent_store_relaxed(self.0, 1) };
    }
}

impl Drop for Signal {
    fn drop(&mut self) {
        // SAFETY: this was the last reference, and no packet names the signal any more.
        unsafe { hsa::hsa_signal_destroy(self.0) };
    }
}
