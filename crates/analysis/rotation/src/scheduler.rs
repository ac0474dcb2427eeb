//! The worker thread's side: what is known about the classes of an agent, and the schedules that
//! follow from it.

use crate::accounts::ACCOUNTS;
use crate::class::ClassKey;
use crate::table::{CLASSES, ENTRIES, FIRST_COST, MAX_GROUPS, Rotation};
use std::collections::HashMap;

/// The shortest time between two renewals of the table, in nanoseconds.
const PERIOD: u64 = 20_000_000;
/// How many classes are followed: more than the table holds, which fills up in the order of
/// arrival.
const TRACKED: usize = 2 * CLASSES;
/// How many values of a window are followed.
const VALUES: usize = 64;
/// How many windows a group needs before its spread counts in the choice among classes.
const FEW: u64 = 3;
/// How many windows each group needs before the groups of a class get different shares. Otherwise a
/// group that seems to vary little by chance would get fewer windows, and would go on to seem so.
const ENOUGH: u64 = 30;
/// How many windows' worth of the mean spread is added to a group's own, for the same reason.
const PRIOR: f64 = 30.0;
/// The least spread that is assumed, relative to the mean: a value that was constant so far may
/// change.
const LEAST_SPREAD: f64 = 0.02;
/// This share of the windows is spread evenly over all classes, so that none goes without.
const EVEN: f64 = 0.1;
/// The weight of the newest period in rates and costs.
const NEWEST: f64 = 0.5;
/// The part of the budget to aim for. The rest covers the time that it takes to notice a change in
/// the program.
const AIM: f64 = 0.9;
/// How many times as much the windows of one group must cost as another group's, before the groups
/// share the time instead of the windows.
const DIFFERENT: f64 = 4.0;

/// Mean and spread of a value.
#[derive(Debug, Clone, Copy, Default)]
struct Spread {
    n: u64,
    mean: f64,
    squares: f64,
}

impl Spread {
    fn add(&mut self, value: f64) {
        self.n += 1;
        let from = value - self.mean;
        self.mean += from / self.n as f64;
        self.squares += from * (value - self.mean);
    }

    /// Returns the squared standard deviation, in units of the mean.
    fn relative_variance(&self) -> f64 {
        if self.n < 2 || self.mean == 0.0 {
            return 0.0;
        }
        let variance = self.squares / (self.n - 1) as f64;
        variance / (self.mean * self.mean)
    }
}

/// The windows of one group in a class.
#[derive(Debug, Clone, Default)]
struct Windows {
    n: u64,
    values: Vec<Spread>,
}

impl Windows {
    /// Returns the squared spread of the value that varies most.
    fn relative_variance(&self) -> f64 {
        let all = self.values.iter().map(Spread::relative_variance);
        all.fold(LEAST_SPREAD * LEAST_SPREAD, f64::max)
    }
}

#[derive(Debug, Default)]
struct Known {
    /// Dispatches since the last renewal.
    recent: u64,
    /// Dispatches in a nanosecond.
    rate: f64,
    /// Time on the GPU, in nanoseconds.
    gpu_time: f64,
    excluded: bool,
    /// By group; empty before the first window.
    groups: Vec<Windows>,
}

impl Known {
    /// Returns the class's claim to windows: its GPU time, times how much of it is not known.
    fn claim(&self) -> f64 {
        let all = self.groups.iter();
        let worst = all
            .map(|group| {
                if group.n < FEW {
                    1.0
                } else {
                    group.relative_variance().min(1.0)
                }
            })
            .fold(0.0, f64::max);
        let spread = if self.groups.is_empty() { 1.0 } else { worst };
        self.gpu_time * spread.sqrt()
    }

    /// Returns the groups of a schedule: each group once, and the remaining entries for the groups
    /// with the largest relative error. Empty, which means each group once, while a group has too
    /// few windows.
    ///
    /// `costs` are what windows of the groups cost, in units of the cheapest; empty where that makes
    /// no difference. An entry of a costly group takes the time of many cheap ones, so its error is
    /// divided by its cost. While groups have too few windows, their errors count as equal.
    fn entries(&self, groups: u32, costs: &[f64]) -> Vec<u32> {
        let at_least = |n: u64| self.groups.iter().all(|group| group.n >= n);
        let known = at_least(ENOUGH);
        let by_cost = !costs.is_empty() && at_least(1);
        let counted = self.groups.len() == groups as usize && groups as usize <= ENTRIES;
        if !counted || !(known || by_cost) {
            return Vec::new();
        }
        let mut entries: Vec<u32> = (0..groups).collect();
        let own: Vec<f64> = self.groups.iter().map(Windows::relative_variance).collect();
        let mean = own.iter().sum::<f64>() / f64::from(groups);
        let drawn = |(variance, group): (&f64, &Windows)| {
            let n = group.n as f64;
            (n * variance + PRIOR * mean) / (n + PRIOR)
        };
        let variances: Vec<f64> = match known {
            true => own.iter().zip(&self.groups).map(drawn).collect(),
            false => vec![1.0; groups as usize],
        };
        // Plan as if this schedule doubled the number of windows. A plan for the nearest future
        // would give all entries to one group, and too many until the next renewal.
        let total: u64 = self.groups.iter().map(|group| group.n).sum();
        let step = (total / ENTRIES as u64).max(1);
        let mut counts: Vec<u64> = self.groups.iter().map(|g| g.n + step).collect();
        while entries.len() < ENTRIES {
            let error = |at: usize| match (variances.get(at), counts.get(at)) {
                (Some(variance), Some(n)) => {
                    variance / (*n as f64 * costs.get(at).copied().unwrap_or(1.0))
                }
                _ => 0.0,
            };
            let all = 0..groups as usize;
            let Some(worst) = all.max_by(|a, b| error(*a).total_cmp(&error(*b))) else {
                break;
            };
            entries.push(worst as u32);
            if let Some(n) = counts.get_mut(worst) {
                *n += step;
            }
        }
        entries
    }
}

/// The windows of the groups of an account whose cost is known.
#[derive(Debug, Clone, Default)]
struct Settled {
    /// How many there were since the table was last renewed, and what they cost.
    recent: (u64, f64),
    /// How many there were, and which cost was assumed for them.
    all: (u64, u64),
    /// What a window costs, in nanoseconds; None before the first.
    cost: Option<f64>,
}

/// What the worker thread knows about the classes of one agent.
#[derive(Debug)]
pub struct Scheduler {
    groups: u32,
    /// The share of the elapsed time that windows may take; None = all.
    share: Option<f64>,
    classes: HashMap<ClassKey, Known>,
    /// When the table was last renewed.
    renewed: u64,
    /// By account.
    settled: Vec<Settled>,
    /// What a window costs, in nanoseconds; None before the first.
    cost: Option<f64>,
}

impl Scheduler {
    /// Creates a scheduler for a table that starts at the same time ([`Rotation::begin`]) with the
    /// same numbers.
    pub fn new(groups: u32, percent: f64, now: u64) -> Scheduler {
        Scheduler {
            groups: groups.min(MAX_GROUPS),
            share: (percent < 100.0).then_some((percent / 100.0).max(0.0)),
            classes: HashMap::new(),
            renewed: now,
            settled: vec![Settled::default(); ACCOUNTS],
            cost: None,
        }
    }

    fn known(&mut self, class: ClassKey) -> Option<&mut Known> {
        if self.classes.len() >= TRACKED && !self.classes.contains_key(&class) {
            return None;
        }
        Some(self.classes.entry(class).or_default())
    }

    /// Notes a dispatch that has ended, with or without a window, and how long it took on the GPU.
    pub fn dispatched(&mut self, class: ClassKey, gpu_time: u64) {
        if let Some(known) = self.known(class) {
            known.recent += 1;
            known.gpu_time += gpu_time as f64;
        }
    }

    /// Notes a window that was read and contains one dispatch of this class. `values` are the
    /// counted values, in an order that is the same in all windows of the group. They are sums over
    /// the device, or as many words of it as are available: their spread decides what is counted
    /// more often. `cost` is the time that the window took on the GPU, in nanoseconds: the reading,
    /// and the gap before it.
    pub fn measured(
        &mut self,
        class: ClassKey,
        group: u32,
        values: impl IntoIterator<Item = f64>,
        cost: u64,
    ) {
        self.spent(group, cost);
        let groups = self.groups as usize;
        let Some(known) = self.known(class) else {
            return;
        };
        if known.groups.is_empty() {
            known.groups = vec![Windows::default(); groups];
        }
        let Some(windows) = known.groups.get_mut(group as usize) else {
            return;
        };
        windows.n += 1;
        for (at, value) in values.into_iter().take(VALUES).enumerate() {
            if at >= windows.values.len() {
                windows.values.push(Spread::default());
            }
            if let Some(spread) = windows.values.get_mut(at) {
                spread.add(value);
            }
        }
    }

    /// Does the same from the memory that the counters were read into, where the meaning of its
    /// words is not known. Neighbouring words, which mostly belong to one counter, are added up, so
    /// that every word counts.
    pub fn measured_words(
        &mut self,
        class: ClassKey,
        group: u32,
        words: impl ExactSizeIterator<Item = u64>,
        cost: u64,
    ) {
        let count = words.len();
        let parts = count.min(VALUES);
        let mut sums = [0.0; VALUES];
        for (at, word) in words.enumerate() {
            if let Some(sum) = sums.get_mut(at * parts / count.max(1)) {
                *sum += word as f64;
            }
        }
        self.measured(class, group, sums.into_iter().take(parts), cost);
    }

    /// Notes a window that tells nothing about a class: it contained no dispatch, or was shared.
    pub fn spent(&mut self, group: u32, cost: u64) {
        let account = (group as usize).min(ACCOUNTS - 1);
        if let Some(settled) = self.settled.get_mut(account) {
            settled.recent.0 += 1;
            settled.recent.1 += cost as f64;
        }
    }

    /// Sets whether dispatches of a class get windows (by default they do).
    pub fn exclude(&mut self, class: ClassKey, excluded: bool) {
        if let Some(known) = self.known(class) {
            known.excluded = excluded;
        }
    }

    /// Writes the resulting schedules into the table, at most every 20 ms; otherwise, nothing but the
    /// first cost of a group.
    pub fn renew(&mut self, table: &Rotation, now: u64) {
        let elapsed = now.saturating_sub(self.renewed);
        if elapsed < PERIOD {
            // Others wait for the first cost of a group.
            let mut settled = self.settled.iter();
            if settled.any(|group| group.cost.is_none() && group.recent.0 > 0) {
                self.renew_cost(table);
            }
            return;
        }
        self.renewed = now;
        self.renew_cost(table);
        for known in self.classes.values_mut() {
            let rate = known.recent as f64 / elapsed as f64;
            known.rate += NEWEST * (rate - known.rate);
            known.recent = 0;
        }
        let costs = self.costs();
        let (scale, all) = self.scale();
        let mut rates = (0.0, 0.0);
        for (class, known) in &self.classes {
            let wanted = self.wanted(known, scale, all);
            if !known.excluded {
                rates.0 += wanted;
                rates.1 += known.rate;
            }
            let probability = if known.excluded {
                0
            } else if self.share.is_none() || known.rate == 0.0 {
                // The class comes back after a pause; the budget limits it.
                u32::MAX
            } else {
                of_all(wanted / known.rate)
            };
            // A class that has no room in the table follows the schedule of unknown classes.
            let _ = table.renew(*class, probability, &known.entries(self.groups, &costs));
        }
        let unknown = if self.share.is_none() || rates.1 == 0.0 {
            u32::MAX
        } else {
            of_all(rates.0 / rates.1)
        };
        table.renew_unknown(unknown);
    }

    /// Renews the costs of windows from what windows really cost.
    fn renew_cost(&mut self, table: &Rotation) {
        let newest = |known: Option<f64>, mean: f64| match known {
            Some(known) => known + NEWEST * (mean - known),
            None => mean,
        };
        let mut all = (0, 0.0);
        for (account, settled) in self.settled.iter_mut().enumerate() {
            let (windows, cost) = std::mem::take(&mut settled.recent);
            if windows == 0 {
                continue;
            }
            // What was taken from the budget for these windows: their part of all open windows.
            let (allowed, charged) = table.taken(account);
            let open = allowed.saturating_sub(settled.all.0).max(1);
            let taken = charged.saturating_sub(settled.all.1);
            let assumed = (taken as f64 / open as f64 * windows.min(open) as f64).round();
            settled.all.0 += windows;
            settled.all.1 += assumed as u64;
            table.budget.correct(assumed as u64, cost as u64);
            let known = newest(settled.cost, cost / windows as f64);
            settled.cost = Some(known);
            table.renew_cost_of(account as u32, known as u64);
            all = (all.0 + windows, all.1 + cost);
        }
        if all.0 > 0 {
            let cost = newest(self.cost, all.1 / all.0 as f64);
            self.cost = Some(cost);
            table.renew_cost(cost as u64);
        }
    }

    /// Returns what windows of the groups cost, in units of the cheapest. Empty where they differ
    /// little, where some are not known, and where there is no limit on the time: then dispatches are
    /// what is scarce.
    fn costs(&self) -> Vec<f64> {
        let groups = self.groups as usize;
        if self.share.is_none() || groups > ACCOUNTS {
            return Vec::new();
        }
        let known = self.settled.iter().take(groups);
        let known: Option<Vec<f64>> = known.map(|s| s.cost.map(|cost| cost.max(1.0))).collect();
        let known = known.unwrap_or_default();
        let least = known.iter().copied().fold(f64::INFINITY, f64::min);
        match known.iter().any(|cost| *cost > DIFFERENT * least) {
            true => known.iter().map(|cost| cost / least).collect(),
            false => Vec::new(),
        }
    }

    /// Returns how many windows per nanosecond a class should have, where a claim is worth `scale`
    /// of them and the sum of all claims is `all`.
    fn wanted(&self, known: &Known, scale: f64, all: f64) -> f64 {
        let even = EVEN * all / self.classes.len().max(1) as f64;
        (scale * (known.claim() + even)).min(known.rate)
    }

    /// Returns what a claim is worth, so that all windows together take exactly the permitted
    /// share, and the sum of all claims.
    fn scale(&self) -> (f64, f64) {
        let counted = || self.classes.values().filter(|known| !known.excluded);
        let all: f64 = counted().map(Known::claim).sum();
        let Some(share) = self.share else {
            return (f64::INFINITY, all);
        };
        let limit = AIM * share / self.cost.unwrap_or(FIRST_COST as f64).max(1.0);
        let total = |scale| -> f64 { counted().map(|k| self.wanted(k, scale, all)).sum() };
        let rates: f64 = counted().map(|known| known.rate).sum();
        if rates <= limit || all <= 0.0 {
            return (f64::INFINITY, all);
        }
        // `total` grows with the scale. Find a scale that is too large, then approach the right
        // one.
        let mut most = limit / all;
        for _ in 0..64 {
            if total(most) >= limit {
                break;
            }
            most *= 2.0;
        }
        let mut least = 0.0;
        for _ in 0..40 {
            let middle = (least + most) / 2.0;
            if total(middle) > limit {
                most = middle;
            } else {
                least = middle;
            }
        }
        (least, all)
    }
}

/// Returns a share in units of 2^-32.
fn of_all(share: f64) -> u32 {
    // The conversion saturates, and turns a NaN into 0.
    (share * 4_294_967_296.0) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class::Class;
    use crate::random::mix;

    const MS: u64 = 1_000_000;
    const START: u64 = 100_000 * MS;

    fn class(n: u64) -> ClassKey {
        let class = Class {
            kernel_object: n,
            ..Class::default()
        };
        class.key()
    }

    /// A program with some kernels that are dispatched in turn, one every `gap` nanoseconds.
    struct Program {
        table: Box<Rotation>,
        scheduler: Scheduler,
        gap: u64,
        cost: u64,
        /// By kernel: its time; and its value in a window of a group.
        kernels: Vec<u64>,
        value: fn(kernel: usize, group: u32, random: f64) -> f64,
    }

    impl Program {
        fn new(percent: f64, groups: u32, kernels: &[u64]) -> Program {
            let table = Box::new(Rotation::new());
            table.begin(groups, percent, 11, START);
            Program {
                table,
                scheduler: Scheduler::new(groups, percent, START),
                gap: 20_000,
                cost: 20_000,
                kernels: kernels.to_vec(),
                value: |_, _, _| 5.0,
            }
        }

        /// Runs for `ms` milliseconds from `from` on. Returns the windows by kernel and group, and
        /// their cost.
        fn run(&mut self, from: u64, ms: u64) -> (Vec<Vec<u64>>, f64) {
            let groups = self.scheduler.groups as usize;
            let mut windows = vec![vec![0; groups]; self.kernels.len()];
            let begin = START + from * MS;
            let mut cost = 0;
            for n in 0..ms * MS / self.gap {
                let now = begin + n * self.gap;
                let kernel = (n % self.kernels.len() as u64) as usize;
                let key = class(kernel as u64);
                let group = self.table.next_group(1, now);
                self.table.saw(1, key);
                self.scheduler.dispatched(key, self.kernels[kernel]);
                if let Some(group) = group {
                    let random = (mix(now) >> 11) as f64 / (1_u64 << 53) as f64;
                    let value = (self.value)(kernel, group, random);
                    self.scheduler.measured(key, group, [value], self.cost);
                    windows[kernel][group as usize] += 1;
                    cost += self.cost;
                }
                self.scheduler.renew(&self.table, now);
            }
            (windows, cost as f64 / (ms * MS) as f64)
        }
    }

    #[test]
    fn windows_take_no_more_than_their_share_of_time() {
        for percent in [0.5, 2.0, 10.0] {
            let mut program = Program::new(percent, 4, &[10_000, 10_000, 10_000]);
            program.run(0, 3000);
            let (_, taken) = program.run(3000, 2000);
            let share = 10_000.0 * taken / percent;
            assert!((78.0..=101.0).contains(&share), "{percent}: {share}");
            // Windows become more expensive.
            program.cost = 80_000;
            program.run(5000, 1000);
            let (_, taken) = program.run(6000, 8000);
            let share = 10_000.0 * taken / percent;
            assert!((78.0..=101.0).contains(&share), "{percent}: {share}");
        }
    }

    #[test]
    fn without_a_limit_every_dispatch_is_counted() {
        let mut program = Program::new(100.0, 3, &[10_000, 20_000]);
        let (windows, _) = program.run(0, 100);
        let count: u64 = windows.iter().flatten().sum();
        assert_eq!(count, 100 * MS / program.gap);
        // They are spread evenly, since the values do not vary.
        let all = windows.iter().flatten();
        assert!(all.clone().all(|n| (800..870).contains(n)), "{windows:?}");
    }

    #[test]
    fn long_kernels_have_more_windows_and_short_ones_some() {
        let mut program = Program::new(2.0, 2, &[90_000, 10_000, 10]);
        program.value = |_, _, random| 1.0 + random;
        program.run(0, 2000);
        let (windows, _) = program.run(2000, 4000);
        let counts: Vec<u64> = windows.iter().map(|g| g.iter().sum()).collect();
        assert!(counts[0] > 4 * counts[1], "{counts:?}");
        assert!(counts[1] > counts[2] && counts[2] > 20, "{counts:?}");
    }

    #[test]
    fn groups_whose_error_is_largest_have_more_windows() {
        let mut program = Program::new(100.0, 4, &[10_000]);
        program.value = |_, group, random| {
            if group == 2 {
                100.0 * random
            } else {
                100.0 + random
            }
        };
        program.run(0, 100);
        let (windows, _) = program.run(100, 100);
        let [a, b, c, d] = windows[0][..] else {
            panic!("{windows:?}")
        };
        assert!(c > 5 * a && c > 5 * b && c > 5 * d, "{windows:?}");
        assert!(a > 50 && b > 50 && d > 50, "none goes without: {windows:?}");
    }

    #[test]
    fn what_varies_little_is_counted_less() {
        let mut program = Program::new(2.0, 2, &[10_000, 10_000]);
        program.value = |kernel, _, random| if kernel == 0 { 7.0 } else { random };
        program.run(0, 2000);
        let (windows, _) = program.run(2000, 3000);
        let counts: Vec<u64> = windows.iter().map(|g| g.iter().sum()).collect();
        assert!(counts[1] > 3 * counts[0] && counts[0] > 20, "{counts:?}");
    }

    #[test]
    fn excluded_classes_have_no_windows() {
        let mut program = Program::new(100.0, 2, &[10_000, 10_000]);
        program.scheduler.exclude(class(1), true);
        program.run(0, 40);
        let (windows, _) = program.run(40, 40);
        assert_eq!(windows[1], [0, 0]);
        assert_eq!(windows[0].iter().sum::<u64>(), 1000);
    }

    #[test]
    fn more_classes_than_are_followed_are_harmless() {
        let mut scheduler = Scheduler::new(2, 2.0, 0);
        for n in 0..3 * TRACKED as u64 {
            scheduler.dispatched(class(n), 1000);
            scheduler.measured(class(n), 7, [1.0], 10);
            scheduler.measured(class(n), 1, [1.0; 2 * VALUES], 10);
        }
        assert_eq!(scheduler.classes.len(), TRACKED);
        let known = &scheduler.classes[&class(3)];
        assert_eq!(known.groups[1].values.len(), VALUES);
        assert_eq!((known.groups[0].n, known.groups[1].n), (0, 1));
        let table = Box::new(Rotation::new());
        table.begin(2, 2.0, 1, 0);
        scheduler.renew(&table, PERIOD);
    }

    #[test]
    fn words_are_added_up_with_their_neighbours() {
        let mut scheduler = Scheduler::new(2, 2.0, 0);
        let means = |scheduler: &Scheduler, group: usize| -> Vec<f64> {
            let windows = &scheduler.classes[&class(1)].groups[group];
            windows.values.iter().map(|spread| spread.mean).collect()
        };
        scheduler.measured_words(class(1), 0, [1, 2, 3].into_iter(), 10);
        assert_eq!(means(&scheduler, 0), [1.0, 2.0, 3.0]);
        let many: Vec<u64> = (0..640).collect();
        scheduler.measured_words(class(1), 1, many.into_iter(), 10);
        let sums = means(&scheduler, 1);
        assert_eq!(sums.len(), VALUES);
        assert_eq!((sums[0], sums[63]), (45.0, 6345.0));
        assert_eq!(sums.iter().sum::<f64>(), 639.0 * 320.0);
        scheduler.measured_words(class(1), 0, [].into_iter(), 10);
    }

    #[test]
    fn spreads_are_those_of_the_textbook() {
        let mut spread = Spread::default();
        [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]
            .into_iter()
            .for_each(|v| spread.add(v));
        // The variance is 32/7 and the mean 5.
        assert!((spread.relative_variance() - 32.0 / 7.0 / 25.0).abs() < 1e-12);
        assert_eq!(of_all(1.0), u32::MAX);
        assert_eq!(of_all(0.5), 1 << 31);
        assert_eq!(of_all(f64::NAN), 0);
    }
}
