//! Records of what the kernel driver reports.

use super::Header;

/// An event of the kernel driver, or a begin and its end.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KfdEvent {
    /// Common header; `operation` is AMD's of `tracing_kind`.
    pub header: Header,
    /// When it happened, or began.
    pub start: u64,
    /// When it ended; `start` of what takes no time.
    pub end: u64,
    /// First address, in bytes; 0 where it has none.
    pub address: u64,
    /// The address behind the last one; 0 where it has none.
    pub end_address: u64,
    /// AMD's `rocprofiler_buffer_tracing_kind_t`, of which a domain has several.
    pub tracing_kind: u32,
    /// The process.
    pub pid: u32,
    /// The driver's id of the GPU, or of where pages come from; 0 is the host.
    pub from: u32,
    /// Where pages go.
    pub to: u32,
    /// Where pages were to be prefetched to.
    pub prefetch: u32,
    /// Where pages are best.
    pub preferred: u32,
    /// Why pages did not move: a negative error number, or 0.
    pub error: i32,
    /// How many events were dropped.
    pub count: u32,
}

impl KfdEvent {
    /// Whether files have it: a begin and an end by themselves they have not, only both as one.
    pub fn is_in_files(&self) -> bool {
        self.tracing_kind >= 27
    }
}
