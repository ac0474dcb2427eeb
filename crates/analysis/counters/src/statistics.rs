//! What windows tell about the dispatches that had no window.
//!
//! A *class* is a set of dispatches that may be compared: one kernel on one agent, with one grid,
//! workgroup and size of LDS ([`Class`]). Some of its dispatches had a window, each with one
//! counter group ([`Windows`]). For each class we report:
//!
//! * the mean of a counter over **all** dispatches of the class ([`Windows::mean`]);
//! * the ratio of two counters of one group ([`Windows::ratio`]): sum by sum, with their
//!   covariance;
//! * the ratio of counters of two groups ([`Windows::ratio_across`]): each is divided by the
//!   reference counter of its own windows first;
//! * for each of these, the number of windows that it comes from, and the interval in which the
//!   value lies with 95 % confidence. Fewer than [`ENOUGH`] windows give no interval. A counter
//!   without a window has no value: nothing is made up;
//! * which part of the class's time on the GPU had windows ([`Windows::coverage`]), and whether the
//!   class changed while it was watched ([`Windows::drift`]).
//!
//! **How.** Windows are a random sample of the dispatches (crate `midair-rotation`), so the error
//! of a mean follows from the sample's spread, and is zero where every dispatch had a window: SE² =
//! (1 − n/N) s²/n. But windows are not spread evenly over time: there are more of them while a
//! program is slow, or a group is new. So the dispatches, in their order, are cut into parts of the
//! same length. Each part gets its own mean, and parts are weighted by their dispatches. A drift is
//! then neither weighted wrongly nor mistaken for noise. The quantiles are Student's, since parts
//! are small.
//!
//! In one case the error is a little larger than reported: when every dispatch has a window, and
//! values repeat with a period of exactly as many dispatches as there are groups. Then the true
//! error is 1/√(1 − n/N) times the reported one (4 % more with 12 groups).

mod estimate;
mod student;

pub use estimate::{Drift, Estimate};
pub use student::quantile;

use std::collections::BTreeMap;

/// With fewer windows than this there is no interval.
pub const ENOUGH: usize = 3;

/// What makes dispatches comparable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Class {
    /// KFD node id of the agent.
    pub node: u32,
    /// Id of the kernel.
    pub kernel: u64,
    /// Work-items in each dimension.
    pub grid: [u32; 3],
    /// Work-items of a workgroup in each dimension.
    pub workgroup: [u32; 3],
    /// Bytes of LDS of a workgroup.
    pub lds: u32,
}

/// A window that contains a single dispatch.
#[derive(Debug, Clone, PartialEq)]
pub struct Window {
    /// Which of the class's dispatches it was, from 0, in the order in which they started.
    pub ordinal: u64,
    /// How long the dispatch took, in nanoseconds.
    pub duration: u64,
    /// The counted values, in the order of the group's counters. NaN: a counter has no value here.
    pub values: Vec<f64>,
}

/// A counter: the group that counts it, and its index among the group's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counter {
    /// The group.
    pub group: u32,
    /// Index of the value.
    pub value: usize,
}

/// All that is known about a class.
#[derive(Debug, Clone, Default)]
pub struct Windows {
    dispatches: u64,
    gpu_time: u64,
    counted_time: u64,
    shared: u64,
    groups: BTreeMap<u32, Vec<Window>>,
}

impl Windows {
    /// Adds a dispatch of the class, with or without a window, that took this many nanoseconds.
    /// Returns its ordinal, if dispatches are added in their order.
    pub fn dispatched(&mut self, duration: u64) -> u64 {
        self.dispatches += 1;
        self.gpu_time = self.gpu_time.saturating_add(duration);
        self.dispatches - 1
    }

    /// Adds this many dispatches of the class about which nothing else is known.
    pub fn dispatched_more(&mut self, count: u64) {
        self.dispatches = self.dispatches.saturating_add(count);
    }

    /// Adds a group's window. Its dispatch must be added separately, by [`Windows::dispatched`].
    pub fn counted(&mut self, group: u32, window: Window) {
        self.counted_time = self.counted_time.saturating_add(window.duration);
        let windows = self.groups.entry(group).or_default();
        // The place is almost always the last one.
        let at = windows.partition_point(|w| w.ordinal <= window.ordinal);
        windows.insert(at, window);
    }

    /// Adds a window of the class that another dispatch overlapped; it tells nothing else.
    pub fn shared(&mut self) {
        self.shared += 1;
    }

    /// Returns the exact number of dispatches of the class.
    pub fn dispatches(&self) -> u64 {
        self.dispatches
    }

    /// Returns the number of windows with a single dispatch, in all groups.
    pub fn windows(&self) -> usize {
        self.groups.values().map(Vec::len).sum()
    }

    /// Returns the number of shared windows.
    pub fn shared_windows(&self) -> u64 {
        self.shared
    }

    /// Returns the windows of a group in the order of their dispatches.
    pub fn of_group(&self, group: u32) -> &[Window] {
        self.groups.get(&group).map_or(&[], Vec::as_slice)
    }

    /// Returns the groups that have windows.
    pub fn groups(&self) -> impl Iterator<Item = u32> {
        self.groups.keys().copied()
    }

    /// Returns the share of the class's time on the GPU that windows counted, from 0 to 1.
    pub fn coverage(&self) -> f64 {
        if self.gpu_time == 0 {
            return 0.0;
        }
        self.counted_time as f64 / self.gpu_time as f64
    }

    /// Returns the same share for the windows of one group.
    pub fn coverage_of(&self, group: u32) -> f64 {
        if self.gpu_time == 0 {
            return 0.0;
        }
        let counted: u64 = self.of_group(group).iter().map(|w| w.duration).sum();
        counted as f64 / self.gpu_time as f64
    }

    /// Returns ordinals and values of a group's windows where `value` gives a number.
    fn sample<T>(&self, group: u32, value: impl Fn(&Window) -> Option<T>) -> Vec<(u64, T)> {
        let windows = self.of_group(group).iter();
        windows
            .filter_map(|w| Some((w.ordinal, value(w)?)))
            .collect()
    }

    fn values(&self, counter: Counter) -> Vec<(u64, f64)> {
        self.sample(counter.group, |w| number(w, counter.value))
    }

    /// Returns the mean of a counter over all dispatches of the class. None without a window.
    pub fn mean(&self, counter: Counter) -> Option<Estimate> {
        estimate::mean(&self.values(counter), self.dispatches)
    }

    /// Returns minimum and maximum of a counter among its windows. They hold for all dispatches
    /// only if each dispatch had a window.
    pub fn range(&self, counter: Counter) -> Option<(f64, f64)> {
        let values = self.values(counter).into_iter().map(|(_, value)| value);
        values.fold(None, |range, value| match range {
            None => Some((value, value)),
            Some((least, most)) => Some((value.min(least), value.max(most))),
        })
    }

    /// Returns the ratio of two counters of one group over all dispatches: the sum of `counter` by
    /// the sum of `to`. None without a window, for counters of different groups, or when the
    /// divisor is 0.
    pub fn ratio(&self, counter: Counter, to: Counter) -> Option<Estimate> {
        if counter.group != to.group {
            return None;
        }
        let both = |w: &Window| Some((number(w, counter.value)?, number(w, to.value)?));
        estimate::ratio(&self.sample(counter.group, both), self.dispatches)
    }

    /// Returns the ratio of two counters of different groups. `reference` is a counter that both
    /// groups have, as each of them counted it. Both counters are divided by it first, so that it
    /// does not matter if one group met longer dispatches. None where one of these ratios does not
    /// exist.
    pub fn ratio_across(
        &self,
        counter: Counter,
        to: Counter,
        reference: [Counter; 2],
    ) -> Option<Estimate> {
        let [of_one, of_other] = reference;
        let one = self.ratio(counter, of_one)?;
        let other = self.ratio(to, of_other)?;
        estimate::quotient(&one, &other)
    }

    /// Returns how the class changed over time: a reference counter in the last third of the
    /// dispatches compared with the first third, over the windows of all groups that have it. None
    /// when one of these thirds has too few windows.
    pub fn drift(&self, reference: impl IntoIterator<Item = Counter>) -> Option<Drift> {
        let all: Vec<Vec<(u64, f64)>> = reference.into_iter().map(|c| self.values(c)).collect();
        let mut all: Vec<(u64, f64)> = all.into_iter().flatten().collect();
        all.sort_by_key(|(ordinal, _)| *ordinal);
        estimate::drift(&all, self.dispatches)
    }
}

fn number(window: &Window, at: usize) -> Option<f64> {
    let value = window.values.get(at).copied()?;
    value.is_finite().then_some(value)
}

#[cfg(test)]
mod tests;
