//! The flight recorder: which events of a running session become files.

use midair_live::Trigger;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// What a session does about events, while it keeps its latest records alone.
#[derive(Debug, Clone)]
pub struct Recorder {
    /// A window begins so much before its event.
    pub before: Duration,
    /// And ends so much after it.
    pub after: Duration,
    /// Windows of one process at most. Further events are not written.
    pub most: u32,
    /// Bytes of all windows of one process at most.
    pub bytes: u64,
    /// What is an event.
    pub triggers: Vec<Trigger>,
}

/// What the windows of a session have taken of the disk so far, and may take.
#[derive(Debug, Clone)]
pub(crate) struct Disk {
    pub(crate) taken: Arc<AtomicU64>,
    pub(crate) most: u64,
}

/// Share of the memory of the fullest GPU that is in use, of those with these render nodes, as AMD's driver
/// tells it below `/sys`; None where it does not.
#[expect(clippy::disallowed_methods, reason = "files of the kernel's")]
pub(crate) fn memory(minors: impl Iterator<Item = u32>) -> Option<f64> {
    let number = |minor: u32, name: &str| -> Option<u64> {
        let path = format!("/sys/class/drm/renderD{minor}/device/mem_info_vram_{name}");
        std::fs::read_to_string(path).ok()?.trim().parse().ok()
    };
    let share = |minor| {
        let total = number(minor, "total").filter(|total| *total > 0)?;
        Some(number(minor, "used")? as f64 / total as f64)
    };
    minors.filter_map(share).reduce(f64::max)
}
