//! Whether the intervals contain the true value as often as they claim, with the scheduler that
//! chooses the windows.

use super::*;

const GROUPS: u32 = 12;
const RUNS: u64 = 1000;
/// In 6,000 runs with other seeds, 94.2 to 95.1 % of the intervals contained it.
const SEED: u64 = 0x18 << 32;
const GAP: u64 = 20_000;
/// The cost of a window: with a budget of 2 %, one dispatch in ten has one.
const COST: u64 = 4_000;

/// How the counts of a dispatch vary.
#[derive(Clone, Copy, Default)]
struct Kernel {
    /// The random spread, relative to the mean.
    noise: f64,
    /// How much more is counted at the end than at the start.
    drift: f64,
    /// How much more is counted in one part of the period than in another.
    period: f64,
    /// The number of dispatches in a period.
    length: u64,
}

impl Kernel {
    /// Returns the factor of dispatch `n` of `all`, which is the same in all groups.
    fn factor(&self, n: u64, all: u64) -> f64 {
        let phase = if self.length == 0 {
            0.0
        } else {
            // The parts of a period are unrelated.
            (mix(n % self.length + 77) % 1000) as f64 / 999.0
        };
        (1.0 + self.drift * n as f64 / all as f64) * (1.0 + self.period * phase)
    }
}

/// Returns a nearly normal number, of mean 0 and deviation 1.
fn noise(seed: u64) -> f64 {
    let uniform = |n: u64| (mix(seed ^ n << 60) >> 11) as f64 / (1_u64 << 53) as f64;
    (0..4).map(uniform).sum::<f64>() * 3.0_f64.sqrt() - 2.0 * 3.0_f64.sqrt()
}

enum Order {
    Scheduler { percent: f64 },
    RoundRobin,
}

/// Returns in which share of 1,000 runs the interval of a group's counter contained the true mean,
/// and in which share the interval of a ratio across two groups contained the true ratio.
fn held(kernel: Kernel, order: &Order, dispatches: u64) -> (f64, f64) {
    let (mut means, mut ratios, mut runs) = (0, 0, 0);
    let table = Box::new(Rotation::new());
    let key = ClassKey::of(1).unwrap();
    for run in 0..RUNS {
        let start = 1_000_000_000_000;
        let percent = match order {
            Order::Scheduler { percent } => *percent,
            Order::RoundRobin => 100.0,
        };
        table.begin(GROUPS, percent, mix(run ^ SEED), start);
        (0..GROUPS).for_each(|group| table.renew_cost_of(group, COST));
        let mut scheduler = Scheduler::new(GROUPS, percent, start);
        let mut class = Windows::default();
        // Look at two of the groups. Counter 0 is the group's own, counter 1 is the reference.
        let groups = [(run % 12) as u32, ((run + 5) % 12) as u32];
        let mut truth = [[0.0; 2]; 2];
        for n in 0..dispatches {
            let now = start + n * GAP;
            let ordinal = class.dispatched(GAP / 2);
            let factor = kernel.factor(n, dispatches);
            let value = |group: u32| {
                let seed = mix(run ^ SEED) ^ mix(n << 8 | u64::from(group));
                let time = 1.0 + 0.5 * kernel.noise * noise(mix(run ^ SEED) ^ mix(n << 8 | 99));
                let own = 1.0 + kernel.noise * noise(seed);
                [
                    100.0 * f64::from(group + 1) * factor * time * own,
                    1e6 * factor * time,
                ]
            };
            for (truth, group) in truth.iter_mut().zip(groups) {
                let [own, reference] = value(group);
                truth[0] += own / dispatches as f64;
                truth[1] += reference / dispatches as f64;
            }
            let group = match order {
                Order::Scheduler { .. } => table.next_group(1, now),
                Order::RoundRobin => Some((n % u64::from(GROUPS)) as u32),
            };
            table.saw(1, key);
            scheduler.dispatched(key, GAP / 2);
            if let Some(group) = group {
                let values = value(group);
                scheduler.measured(key, group, values, COST);
                if groups.contains(&group) {
                    class.counted(group, window(ordinal, &values));
                }
            }
            scheduler.renew(&table, now);
        }
        let [a, b] = groups;
        let mean = class.mean(counter(a, 0)).unwrap();
        let across = class
            .ratio_across(counter(a, 0), counter(b, 0), [counter(a, 1), counter(b, 1)])
            .unwrap();
        let holds = |estimate: &Estimate, truth: f64| {
            let (low, high) = estimate.interval().unwrap();
            u32::from((low..=high).contains(&truth))
        };
        runs += 1;
        means += holds(&mean, truth[0][0]);
        ratios += holds(&across, truth[0][0] / truth[1][0]);
    }
    (
        f64::from(means) / f64::from(runs),
        f64::from(ratios) / f64::from(runs),
    )
}

const BAND: std::ops::RangeInclusive<f64> = 0.93..=0.97;
const ALL: Order = Order::Scheduler { percent: 100.0 };
const BUDGET: Order = Order::Scheduler { percent: 2.0 };

fn check(kernel: Kernel, order: &Order, dispatches: u64) {
    let (means, ratios) = held(kernel, order, dispatches);
    assert!(BAND.contains(&means), "means: {means}");
    assert!(BAND.contains(&ratios), "ratios: {ratios}");
}

const NOISY: Kernel = Kernel {
    noise: 0.2,
    drift: 0.0,
    period: 0.0,
    length: 0,
};
const DRIFTING: Kernel = Kernel {
    drift: 0.8,
    ..NOISY
};
/// A kernel whose period is as long as the number of groups.
const PERIODIC: Kernel = Kernel {
    noise: 0.1,
    drift: 0.0,
    period: 1.0,
    length: GROUPS as u64,
};

#[test]
fn intervals_hold_with_noise() {
    check(NOISY, &ALL, 600);
    check(NOISY, &BUDGET, 6000);
}

#[test]
fn intervals_hold_with_drift() {
    check(DRIFTING, &ALL, 600);
    check(DRIFTING, &BUDGET, 6000);
}

#[test]
fn intervals_hold_where_the_period_is_the_number_of_groups() {
    check(PERIODIC, &ALL, 1200);
    let both = Kernel {
        drift: 0.5,
        ..PERIODIC
    };
    check(both, &BUDGET, 6000);
}

#[test]
fn choosing_in_turns_fails_there() {
    let (fair, _) = held(NOISY, &Order::RoundRobin, 600);
    assert!(BAND.contains(&fair), "{fair}");
    let (means, _) = held(PERIODIC, &Order::RoundRobin, 1200);
    assert!(means < 0.3, "{means}");
}
