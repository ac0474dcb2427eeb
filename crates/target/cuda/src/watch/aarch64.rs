//! aarch64, on which entry points are not watched.

/// Says why not. Arm's architecture manual (B2.2.5) names the few instructions that may be replaced
/// while another thread executes them, and a function need not start with one of them.
pub(super) fn can_watch() -> Result<(), String> {
    Err("on aarch64 the first instruction of a function cannot be replaced while others run".into())
}

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
