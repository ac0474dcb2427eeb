//! What went wrong with CUPTI's buffers in a session.

use super::{POOL, Session};
use midair_record::event::kind;

/// Counts since the session started.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Records that CUPTI dropped.
    pub(super) dropped: u64,
    /// Buffers that could not be read to their end.
    pub(super) broken: u64,
    /// Requests for a buffer that found none.
    refused: u64,
    /// Buffers of another profiler's that held records.
    foreign: u64,
}

impl Session {
    /// Adds what the pool counted since CUPTI was switched on.
    pub(super) fn count_buffers(&mut self) {
        let (refused, foreign, unread) = POOL.counts();
        self.counts.refused += refused;
        self.counts.foreign += foreign as u64;
        self.counts.broken += unread as u64;
        self.drain.sink.lost(kind::KERNEL_DISPATCH, unread as u64);
    }

    pub(super) fn note_counts(&mut self) {
        let Counts {
            dropped,
            broken,
            refused,
            foreign,
        } = self.counts;
        // After the end CUPTI may request buffers, and gets none.
        let refused = if dropped > 0 { refused } else { 0 };
        let notes = [
            (
                dropped,
                "records were dropped by CUPTI for lack of buffers; they may have any recorded kind",
            ),
            (refused, "times CUPTI requested a buffer and none was free"),
            (
                foreign,
                "buffers of another profiler had records of this session; midair read them",
            ),
            (
                broken,
                "CUPTI buffers could not be read completely: their number of records is unknown",
            ),
        ];
        for (count, text) in notes {
            if count > 0 {
                self.drain.sink.note(&format!("{count} {text}"));
            }
        }
    }
}
