//! How far the writing of results has got, for a display. It is one number for the whole process,
//! since a command writes one set of results at a time.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

static DONE: AtomicU64 = AtomicU64::new(0);
static TOTAL: AtomicU64 = AtomicU64::new(0);

/// The number of records between two updates. An update for each record would slow the writing
/// down.
const STEP: u64 = 4096;

/// Returns how many records were given to the writers, and how many there are, or `None` before the
/// first.
pub fn written() -> Option<(u64, u64)> {
    let total = TOTAL.load(Relaxed);
    (total > 0).then(|| (DONE.load(Relaxed).min(total), total))
}

/// Announces that more records are to be written.
pub(crate) fn expect(records: u64) {
    TOTAL.fetch_add(records, Relaxed);
}

/// Counts the records of one walk.
#[derive(Debug, Default)]
pub(crate) struct Walked(u64);

impl Walked {
    /// Counts one more record.
    pub(crate) fn add(&mut self) {
        self.0 += 1;
        if self.0 == STEP {
            self.tell();
        }
    }

    fn tell(&mut self) {
        DONE.fetch_add(std::mem::take(&mut self.0), Relaxed);
    }
}

impl Drop for Walked {
    fn drop(&mut self) {
        self.tell();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_walked_is_told_in_steps_and_at_the_end() {
        expect(2 * STEP);
        // Other tests of this process may be writing as well.
        let before = DONE.load(Relaxed);
        let mut walked = Walked::default();
        for _ in 0..=STEP {
            walked.add();
        }
        assert!(DONE.load(Relaxed) >= before + STEP);
        drop(walked);
        assert!(DONE.load(Relaxed) > before + STEP);
        assert!(written().is_some_and(|(done, total)| done <= total));
    }
}
