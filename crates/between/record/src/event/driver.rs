//! Records of what the kernel driver reports.

use super::Header;

/// An event of the kernel driver, or a pair of start and end.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KfdEvent {
    /// Common header; `operation` is AMD's operation of `tracing_kind`.
    pub header: Header,
    /// When it happened, or started.
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
    /// Whether it is written to files. A start or an end alone is not, only the pair.
    pub fn is_in_files(&self) -> bool {
        self.tracing_kind >= 27
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::kind;

    /// In files, a domain has its pairs' number, or its events' number if they are no pairs.
    #[test]
    fn pairs_are_in_files_and_their_halves_are_not() {
        let mut in_files = Vec::new();
        for kind in [
            kind::KFD_PAGE_MIGRATE,
            kind::KFD_PAGE_FAULT,
            kind::KFD_QUEUE,
            kind::KFD_EVENT_UNMAP_FROM_GPU,
            kind::KFD_EVENT_DROPPED_EVENTS,
        ] {
            let domain = midair_domain::domain(kind).unwrap();
            for theirs in domain.buffer_kinds {
                let tracing_kind = u32::try_from(*theirs).unwrap();
                let event = KfdEvent {
                    tracing_kind,
                    ..Default::default()
                };
                let is_numbered = domain.number.map(u32::from) == Some(tracing_kind);
                assert_eq!(event.is_in_files(), is_numbered, "{tracing_kind}");
                in_files.extend(is_numbered.then_some(tracing_kind));
            }
        }
        in_files.sort_unstable();
        assert_eq!(in_files, [27, 28, 29, 30, 31]);
    }
}
