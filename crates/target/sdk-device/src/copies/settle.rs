//! Reads the times of a copy from its completion signal.

use super::entry::{Facts, Outcome, Stage};
use crate::layout::Signal;
use crate::state::STATE;
use midair_record::event::Untimed;
use midair_sdk_hot::wrappers::original;

/// Reads the times of copy `index` now, since its signal is about to be used for something else.
pub(crate) fn settle(index: usize) {
    let Some(slot) = STATE.copies.entries.get(index) else {
        return;
    };
    let Some(mut entry) = slot.hold(Stage::UnderWay) else {
        for _ in 0..100_000 {
            if slot.state() != Stage::Held {
                break;
            }
            std::hint::spin_loop();
        }
        return;
    };
    entry.with(|entry| {
        entry.outcome = times(&entry.facts).unwrap_or(Err(Untimed::SignalReused));
    });
    entry.publish(Stage::Ended);
}

/// How far the device's clock, as the runtime converts it, may be behind ours.
const CLOCKS_APART: u64 = 1_000_000;

/// Returns the times on the records' clock, or why there are none, if the copy has ended.
pub(super) fn times(facts: &Facts) -> Option<Outcome> {
    let signal = Signal(facts.signal);
    // SAFETY: the signal is alive: it is watched, and a hook settles the copy before it is destroyed.
    if unsafe { signal.value() } >= facts.value {
        return None;
    }
    let mut time = [0_u64; 2];
    // SAFETY: the runtime's own query with a buffer of the struct's size (start, end).
    let status = unsafe {
        original::hsa_amd_profiling_get_async_copy_time(facts.signal, time.as_mut_ptr().cast())
    };
    let [start, end] = time;
    // A copy by a kernel on a queue that is not profiled leaves the old ticks in the signal. The
    // runtime converts those, to a time before the copy was requested. (Copy engines leave the
    // ticks as well, and write their times elsewhere.)
    // SAFETY: as above.
    let ticks = unsafe { (signal.start_ticks(), signal.end_ticks()) };
    if ticks == facts.stale && (end == 0 || start < facts.asked.saturating_sub(CLOCKS_APART)) {
        return Some(Err(Untimed::NotProfiled));
    }
    Some(if status == 0 {
        Ok((start, end))
    } else {
        Err(Untimed::BadTimes)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::model::{Session, UserSignal};

    /// The signal of a copy is used for something else when the copy has not ended, has ended with
    /// times, and has ended without times.
    #[test]
    fn a_copy_has_its_own_times_or_none() {
        let _session = Session::begin();
        let asked = 10_000_000;
        let facts = |signal: UserSignal| Facts {
            signal: signal.0,
            value: 1,
            stale: (5, 6),
            asked,
            ..Facts::default()
        };
        let signal = UserSignal::new(1);
        signal.write_times(5, 6);
        assert_eq!(times(&facts(signal)), None);
        signal.fire(5, 6);
        let unprofiled = Some(Err(Untimed::NotProfiled));
        assert_eq!(times(&facts(signal)), unprofiled);
        signal.write_times(asked + 5, asked + 9);
        let timed = Some(Ok((asked + 5, asked + 9)));
        assert_eq!(times(&facts(signal)), timed);
    }
}
