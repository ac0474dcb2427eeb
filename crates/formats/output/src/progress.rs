//! How far the writing of results has got, for a display. It is one number for the whole process,
//! since a command writes one set of results at a time.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

static DONE: AtomicU64 = AtomicU64::new(0);
static TOTAL: AtomicU64 = AtomicU64::new(0);
/// How many records there are. The numbers above are larger where several threads walk over them.
static RECORDS: AtomicU64 = AtomicU64::new(0);

/// The number of records between two updates. An update for each record would slow the writing
/// down.
const STEP: u64 = 4096;

/// Returns how many records were given to the writers, and how many there are, or `None` before the
/// first.
pub fn written() -> Option<(u64, u64)> {
    let (done, total) = (DONE.load(Relaxed), TOTAL.load(Relaxed));
    (total > 0).then(|| share(done, total, RECORDS.load(Relaxed)))
}

/// Returns how many records of all are done, where this much of a total is.
fn share(done: u64, total: u64, records: u64) -> (u64, u64) {
    let part = u128::from(done.min(total)) * u128::from(records) / u128::from(total.max(1));
    // It is at most the number of records.
    (u64::try_from(part).unwrap_or(records), records)
}

/// Announces that more records are to be written, in this many walks.
pub(crate) fn expect(records: u64, walks: u64) {
    RECORDS.fetch_add(records, Relaxed);
    TOTAL.fetch_add(records.saturating_mul(walks), Relaxed);
}

/// Announces another walk over records that were announced already.
pub(crate) fn expect_walk(records: u64) {
    TOTAL.fetch_add(records, Relaxed);
}

/// Counts the records of a walk for which there was no need.
pub(crate) fn pass_over(records: u64) {
    DONE.fetch_add(records, Relaxed);
}

/// Counts the records of one walk.
#[derive(Debug, Default)]
pub(crate) struct Walked(u64);

impl Walked {
    /// Counts one more record. Returns whether that completed a step.
    pub(crate) fn add(&mut self) -> bool {
        self.0 += 1;
        let told = self.0 == STEP;
        if told {
            self.tell();
        }
        told
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
    fn several_walks_over_the_records_are_one_share_of_them() {
        assert_eq!(share(0, 200, 100), (0, 100));
        assert_eq!(share(150, 200, 100), (75, 100));
        assert_eq!(share(250, 200, 100), (100, 100));
        assert_eq!(
            share(u64::MAX, u64::MAX, u64::MAX / 2),
            (u64::MAX / 2, u64::MAX / 2)
        );
    }

    #[test]
    fn what_was_walked_is_told_in_steps_and_at_the_end() {
        expect(2 * STEP, 1);
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

    #[test]
    fn records_that_are_passed_over_count_as_done() {
        expect(3 * STEP, 1);
        let before = DONE.load(Relaxed);
        pass_over(2 * STEP);
        assert!(DONE.load(Relaxed) >= before + 2 * STEP);
        let (_, records) = written().unwrap();
        assert!(records >= 3 * STEP, "{records}");
    }
}
