//! Converts a GPU's clock to the system's. Both are read together, often, so a tick between two
//! readings lies between their times.

use midair_ptrace::kfd::Clocks;

/// The most readings that are kept besides the first.
const KEPT: usize = 1024;

/// The readings, oldest first.
#[derive(Debug, Default)]
pub(super) struct Clock {
    readings: Vec<Clocks>,
}

impl Clock {
    /// Adds a reading. Returns false when it is of no use: a clock stood still or went back.
    pub fn add(&mut self, reading: Clocks) -> bool {
        if let Some(last) = self.readings.last()
            && (reading.gpu <= last.gpu || reading.system <= last.system)
        {
            return false;
        }
        if self.readings.len() > KEPT {
            // The first reading is kept for kernels that run long.
            self.readings.drain(1..KEPT / 2);
        }
        self.readings.push(reading);
        true
    }

    /// Whether the clock runs, that is, whether two readings differ.
    pub fn runs(&self) -> bool {
        self.readings.len() > 1
    }

    /// Returns the time of a tick, CLOCK_BOOTTIME ns. A tick outside of all readings is
    /// extrapolated from the two nearest. `None` where there are not two readings, or where the
    /// result is impossible.
    pub fn time(&self, ticks: u64) -> Option<u64> {
        let after = self.readings.partition_point(|reading| reading.gpu < ticks);
        let second = after.clamp(1, self.readings.len().max(2) - 1);
        let [a, b] = [self.readings.get(second - 1)?, self.readings.get(second)?];
        let [ticks, from, to] = [ticks, a.gpu, b.gpu].map(i128::from);
        let [begin, end] = [a.system, b.system].map(i128::from);
        // The ticks come from the log, so their distance may be any number.
        let since = (ticks - from).checked_mul(end - begin)? / (to - from);
        u64::try_from(begin + since).ok().filter(|time| *time != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_that_is_far_away_has_no_time() {
        let clock = clock(&[(0, 0), (1, u64::MAX)]);
        assert_eq!(clock.time(u64::MAX), None);
        assert_eq!(clock.time(1), Some(u64::MAX));
    }

    fn clock(readings: &[(u64, u64)]) -> Clock {
        let mut clock = Clock::default();
        for (gpu, system) in readings {
            let (gpu, system) = (*gpu, *system);
            assert!(clock.add(Clocks { gpu, system }));
        }
        clock
    }

    #[test]
    fn ticks_are_between_the_readings_around_them() {
        // 100 MHz at first, then a little faster.
        let clock = clock(&[(1_000, 50_000), (2_000, 60_000), (3_100, 70_000)]);
        assert_eq!(clock.time(1_500), Some(55_000));
        assert_eq!(clock.time(2_000), Some(60_000));
        assert_eq!(clock.time(2_550), Some(65_000));
        assert_eq!(clock.time(900), Some(49_000), "before the first");
        assert_eq!(clock.time(4_200), Some(80_000), "after the last");
    }

    #[test]
    fn a_clock_that_stands_still_tells_nothing() {
        let mut clock = clock(&[(5, 10)]);
        assert!(!clock.runs());
        assert_eq!(clock.time(5), None);
        assert!(!clock.add(Clocks { gpu: 5, system: 20 }));
        assert!(!clock.add(Clocks { gpu: 6, system: 10 }));
        assert!(clock.add(Clocks { gpu: 6, system: 20 }));
        assert!(clock.runs());
        assert_eq!(clock.time(0), None, "before the system's begin");
    }

    #[test]
    fn old_readings_go_and_the_first_stays() {
        let mut clock = Clock::default();
        for n in 1..=5_000 {
            assert!(clock.add(Clocks {
                gpu: n,
                system: 10 * n
            }));
        }
        assert!(clock.readings.len() <= KEPT + 1);
        assert_eq!(
            [1, 2_500, 5_000].map(|tick| clock.time(tick)),
            [Some(10), Some(25_000), Some(50_000)]
        );
    }
}
