//! Records of what the kernel driver reports.

use super::Header;

/// An event of the kernel driver, or a pair of begin and end.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KfdEvent {
    /// Common header; `operation` is AMD's operation of `tracing_kind`.
    pub header: Header,
    /// When it happened, or began.
    pub start: u64,
    /// When it ended; equal to `start` for an event without a duration.
    pub end: u64,
    /// First address, in bytes; 0 where the event has none.
    pub address: u64,
    /// The address after the last one; 0 where the event has none.
    pub end_address: u64,
    /// AMD's `rocprofiler_buffer_tracing_kind_t`; a domain has several of these.
    pub tracing_kind: u32,
    /// The process.
    pub pid: u32,
    /// The driver's id of the GPU, or of the place that pages come from; 0 is the host.
    pub from: u32,
    /// The driver's id of the place that pages go to.
    pub to: u32,
    /// The place that pages were to be prefetched to.
    pub prefetch: u32,
    /// The preferred place of the pages.
    pub preferred: u32,
    /// Why pages did not move: a negative error number, or 0.
    pub error: i32,
    /// How many events were dropped.
    pub count: u32,
}

impl KfdEvent {
    /// Whether it is written to files. A begin or an end alone is not, only the pair.
    pub fn is_in_files(&self) -> bool {
        self.tracing_kind >= 27
    }
}
