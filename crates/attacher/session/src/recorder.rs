//! The flight recorder: which events of a running session are written to files.

use midair_live::Trigger;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// What a session does about events while it keeps only its latest records.
#[derive(Debug, Clone)]
pub struct Recorder {
    /// How long before its event a window starts.
    pub before: Duration,
    /// How long after its event a window ends.
    pub after: Duration,
    /// The most windows of one process. Further events are not written.
    pub most: u32,
    /// The most bytes of all windows of one process.
    pub bytes: u64,
    /// What counts as an event.
    pub triggers: Vec<Trigger>,
}

/// How much of the disk the windows of a session have taken so far, and how much they may take.
#[derive(Debug, Clone)]
pub(crate) struct Disk {
    pub(crate) taken: Arc<AtomicU64>,
    pub(crate) most: u64,
}

/// Returns the share of memory in use on the fullest of the GPUs with these render nodes. AMD's
/// driver reports it below `/sys`. None where it does not.
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
