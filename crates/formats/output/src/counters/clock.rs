//! Whether another profiler restarted the counters during a window.
//!
//! There is one set of counters for a device. A profiler of another process, or on a queue that is
//! not followed, resets them when it starts its own. Everything in a window is then too little, and
//! nothing else tells of it. But `GRBM_COUNT` counts the device's clock while the counters run, and
//! is counted in every group that has room. So a window whose count is lower than its time times
//! the clock was disturbed.
//!
//! **The clock** is not constant, and no file has it. It is taken from the windows: the upper
//! quartile of count by time among the nearest windows of the same class, since kernels that draw
//! more power run at a lower clock. A reset only lowers a count, so that three quarters of the
//! windows may be disturbed. Where a class has few windows, the whole device's windows are
//! compared, with a lower limit.
//!
//! A count is divided by the longest time that it may have been counted in, and compared with the
//! shortest one. So it does not matter how long the packets of a window took.

use std::collections::HashMap;

/// With fewer windows to compare with, nothing is said.
const ENOUGH: usize = 4;
/// How many windows are compared on either side of a window.
const NEAR: usize = 16;
/// The part of the clock that a window of the same class must reach.
const OF_CLASS: f64 = 0.75;
/// The part of the clock that a window of another class must reach.
const OF_DEVICE: f64 = 0.5;

/// A window with its count.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ticks {
    /// Number of the window.
    pub(super) number: usize,
    /// KFD node id of the agent.
    pub(super) node: u32,
    /// The same for windows of one class.
    pub(super) class: u64,
    /// When it started.
    pub(super) begin: u64,
    /// The longest time in which the counters may have counted, in ns; 0: not known.
    pub(super) most: u64,
    /// The time in which they counted in any case, in ns.
    pub(super) least: u64,
    /// What `GRBM_COUNT` counted, at the place that counted least.
    pub(super) count: u64,
}

/// Returns the numbers of the windows that were disturbed.
pub(super) fn disturbed(mut all: Vec<Ticks>) -> Vec<usize> {
    all.sort_by_key(|ticks| (ticks.node, ticks.class, ticks.begin));
    let mut found = Vec::new();
    let mut few = HashMap::<u32, Vec<Ticks>>::new();
    for class in all.chunk_by(|a, b| (a.node, a.class) == (b.node, b.class)) {
        if class.len() >= ENOUGH {
            judge(class, |_| true, OF_CLASS, &mut found);
        } else if let Some(first) = class.first() {
            few.entry(first.node).or_default().extend(class);
        }
    }
    for (node, few) in few {
        let mut of_node: Vec<Ticks> = all.iter().filter(|t| t.node == node).copied().collect();
        of_node.sort_by_key(|ticks| ticks.begin);
        let few: std::collections::HashSet<usize> = few.iter().map(|t| t.number).collect();
        let is_of_few = |ticks: &Ticks| few.contains(&ticks.number);
        judge(&of_node, is_of_few, OF_DEVICE, &mut found);
    }
    found
}

/// Judges those windows of a list that `is_meant` returns true for.
fn judge(list: &[Ticks], is_meant: impl Fn(&Ticks) -> bool, limit: f64, found: &mut Vec<usize>) {
    let mut rates = Vec::with_capacity(2 * NEAR + 1);
    for (at, ticks) in list.iter().enumerate().filter(|(_, ticks)| is_meant(ticks)) {
        let near = at.saturating_sub(NEAR)..list.len().min(at + NEAR + 1);
        let known = list.get(near).unwrap_or_default().iter();
        rates.clear();
        rates.extend(
            known
                .filter(|ticks| ticks.most > 0)
                .map(|ticks| ticks.count as f64 / ticks.most as f64),
        );
        if rates.len() < ENOUGH {
            continue;
        }
        rates.sort_by(f64::total_cmp);
        let clock = rates.get(3 * rates.len() / 4).copied().unwrap_or(0.0);
        if (ticks.count as f64) < limit * clock * ticks.least as f64 {
            found.push(ticks.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: [usize; 0] = [];

    /// Returns windows of one class that take 1 us each, at 2 GHz.
    fn windows(count: usize) -> Vec<Ticks> {
        let one = |number| Ticks {
            number,
            node: 1,
            class: 7,
            begin: 10_000 * number as u64,
            most: 1_200,
            least: 1_000,
            count: 2_200,
        };
        (0..count).map(one).collect()
    }

    fn found(all: Vec<Ticks>) -> Vec<usize> {
        let mut found = disturbed(all);
        found.sort_unstable();
        found
    }

    #[test]
    fn a_count_that_is_too_low_for_its_time_is_found() {
        let mut all = windows(20);
        assert_eq!(found(all.clone()), NONE);
        all[3].count = 900;
        all[11].count = 0;
        assert_eq!(found(all.clone()), [3, 11]);
        // The order of the windows does not matter.
        all.reverse();
        assert_eq!(found(all), [3, 11]);
        // More than half of them were disturbed.
        let mut all = windows(20);
        all.iter_mut().take(11).for_each(|ticks| ticks.count = 300);
        assert_eq!(found(all), (0..11).collect::<Vec<usize>>());
    }

    #[test]
    fn a_clock_that_changes_disturbs_nothing() {
        // It falls to a half over 200 windows.
        let mut all = windows(200);
        for ticks in &mut all {
            ticks.count -= ticks.count * ticks.number as u64 / 400;
        }
        assert_eq!(found(all.clone()), NONE);
        all[150].count /= 2;
        assert_eq!(found(all), [150]);
        // Kernels of another class run at a lower clock.
        let mut all = windows(40);
        for ticks in all.iter_mut().filter(|ticks| ticks.number % 2 == 0) {
            (ticks.class, ticks.count) = (8, 1_100);
        }
        assert_eq!(found(all), NONE);
        // Packets took long in some windows.
        let mut all = windows(40);
        for ticks in all.iter_mut().filter(|ticks| ticks.number % 3 == 0) {
            (ticks.most, ticks.count) = (100_000, 50_000);
        }
        assert_eq!(found(all), NONE);
    }

    #[test]
    fn few_windows_are_compared_with_others_of_their_device_or_not_at_all() {
        let mut few = windows(3);
        few[1].count = 0;
        assert_eq!(found(few.clone()), NONE, "there are too few");
        let mut all = windows(20);
        few.iter_mut()
            .for_each(|ticks| (ticks.class, ticks.number) = (9, ticks.number + 50));
        all.extend(few);
        assert_eq!(found(all.clone()), [51]);
        // Windows of another device tell nothing.
        all.iter_mut()
            .filter(|ticks| ticks.class == 9)
            .for_each(|ticks| ticks.node = 2);
        assert_eq!(found(all), NONE);
        // The counters' clock stands still, or times are not known.
        let mut still = windows(20);
        still.iter_mut().for_each(|ticks| ticks.count = 0);
        assert_eq!(found(still), NONE);
        let mut unknown = windows(20);
        unknown.iter_mut().for_each(|ticks| ticks.most = 0);
        unknown[2].count = 0;
        assert_eq!(found(unknown), NONE);
    }
}
