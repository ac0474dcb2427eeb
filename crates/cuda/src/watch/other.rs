//! Architectures on which entry points are not watched.

/// No jump.
pub(super) fn jump(_from: usize, _to: usize, _before: u64) -> Option<u64> {
    None
}

/// No code.
pub(super) fn stub(_index: usize) -> Vec<u8> {
    Vec::new()
}

/// No code.
pub(super) fn own_stub(_index: usize) -> usize {
    0
}
