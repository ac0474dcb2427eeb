//! Rings in device memory are modelled on x86-64 only.

/// Returns None, since no ring is watched.
pub(super) fn reads(_ring: u64) -> Option<u64> {
    None
}

/// Refuses to watch a ring.
pub(super) fn watch(_at: u64, _bytes: u64) -> Result<(), String> {
    Err("MODEL_RING=device: only on x86-64".into())
}

/// Does nothing, since no ring is watched.
pub(super) fn forget(_at: u64) {}
