use super::*;
use midair_record::event::Header;
use midair_rotation::{Bursts as Controller, Turn, mix};
use std::collections::HashMap;

const MS: u64 = 1_000_000;

/// A program that runs a loop of kernels over and over. The length of an iteration, what it
/// launches and how long that takes differ from one to the next.
struct Program {
    seed: u64,
    count: u64,
}

impl Program {
    fn random(&mut self) -> f64 {
        self.count += 1;
        (mix(self.seed ^ mix(self.count)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns the launches of some seconds: kernel, when it was launched, how long it took.
    fn run(&mut self, time: u64) -> Vec<(u64, u64, u64)> {
        let mut all = Vec::new();
        let mut at = 0;
        // A few hundred launches an iteration of some ms, in a fixed order.
        let pattern: Vec<(u64, f64)> = (0..120)
            .map(|place| match place {
                0..40 => (1, 6_000.0),
                40..44 => (2, 90_000.0),
                44..110 => (3 + place % 3, 9_000.0),
                _ => (6, 25_000.0),
            })
            .collect();
        while at < time {
            let speed = 0.7 + 0.6 * self.random();
            let rare = self.random() < 0.1;
            for (id, length) in &pattern {
                let took = (length * (0.8 + 0.4 * self.random())) as u64;
                all.push((*id, at, took));
                at += (20_000.0 * speed * (0.5 + self.random())) as u64;
            }
            if rare {
                all.push((7, at, 400_000));
                at += 100_000;
            }
        }
        all
    }
}

/// Returns each kernel, how often it was launched and how long that took in all.
fn truth(launches: &[(u64, u64, u64)]) -> Vec<(u64, f64, f64)> {
    let mut sums = [(0.0, 0.0); 8];
    for &(id, _, took) in launches {
        let (calls, time) = &mut sums[id as usize];
        *calls += 1.0;
        *time += took as f64;
    }
    let sums = (0..).zip(sums).map(|(id, (calls, time))| (id, calls, time));
    sums.filter(|(_, calls, _)| *calls > 0.0).collect()
}

/// Records a program in bursts, and returns what is estimated of it, with the number of its
/// launches and without.
fn recorded(launches: &[(u64, u64, u64)], seed: u64, time: u64) -> [HashMap<u64, Estimate>; 2] {
    let bursts = in_bursts(Controller::new(3, 0, seed, 0, 0), 0, launches);
    [
        bursts.estimates(Some(launches.len() as u64), time),
        bursts.estimates(None, time),
    ]
}

/// Records a program in bursts. To switch the recording on takes so many ns, and so does switching it
/// off.
fn in_bursts(mut controller: Controller, hold: u64, launches: &[(u64, u64, u64)]) -> Bursts {
    let mut bursts = Bursts::default();
    let (mut turn, mut due) = controller.next();
    for (seen, &(id, at, took)) in (0..).zip(launches) {
        while due <= at {
            match turn {
                Turn::Begin => {
                    controller.begin(due + hold, seen);
                    controller.switched(hold);
                    let (from, start) = controller.began();
                    bursts.add(&Burst {
                        from,
                        start,
                        switched: hold,
                        ..Burst::default()
                    });
                }
                Turn::End => {
                    controller.end(due, seen, 0);
                    controller.switched(hold);
                }
                Turn::Over => {
                    let period = controller.over(due, seen);
                    bursts.add(&Burst {
                        header: Header::default(),
                        from: period.from,
                        start: period.start,
                        end: period.end,
                        to: period.to,
                        inside: period.inside,
                        all: period.all,
                        cost: 0,
                        basis: basis::MEASURED,
                        switched: period.switched,
                    });
                }
            }
            (turn, due) = controller.next();
        }
        if controller.is_on() {
            let kernel = Kernel {
                rung: at,
                start: at + 50_000,
                end: at + 50_000 + took,
                ..Kernel::default()
            };
            bursts.add_kernel(id, &kernel);
        }
    }
    bursts
}

/// CUPTI takes its time to come and to go, and does not tell when a kernel was launched.
#[test]
fn shares_of_rare_bursts_hold_what_a_full_recording_has() {
    let (time, runs) = (40_000 * MS, 15);
    let (mut all, mut inside) = (0, 0);
    for seed in 0..runs {
        let launches = Program {
            seed: 5000 + seed,
            count: 0,
        }
        .run(time);
        let truth = truth(&launches);
        let total: f64 = truth.iter().map(|(_, _, time)| time).sum();
        let took = 10 * MS;
        let bursts = in_bursts(Controller::rare(3, 1_500, 0.45, seed, 0), took, &launches);
        let coverage = bursts.coverage().unwrap();
        // Some 40 ms each, with 20 ms of switching and 1.3 s between them.
        assert!((20..40).contains(&coverage.bursts), "{coverage:?}");
        assert_eq!(coverage.switched, coverage.bursts * 2 * took);
        assert!((0.02..0.04).contains(&coverage.part()), "{coverage:?}");
        let estimates = bursts.estimates(None, time);
        for (id, _, time) in truth.into_iter().filter(|(id, _, _)| *id != 7) {
            let (low, high) = estimates[&id].share.bounds();
            all += 1;
            inside += u32::from((low..=high).contains(&(time / total)));
        }
    }
    let part = f64::from(inside) / f64::from(all);
    assert!(part >= 0.9, "{part} of {all}");
}

/// A program that does the same again and again, each time in another order. What a burst has more of
/// a kernel, the rest of the time has less.
#[test]
fn shares_of_a_program_that_repeats_itself_are_held_where_much_is_recorded() {
    let (time, runs) = (9_000 * MS, 120);
    let (mut all, mut inside) = (0, 0);
    for seed in 0..runs {
        let mut source = Program {
            seed: 9000 + seed,
            count: 0,
        };
        let mut launches = Vec::new();
        let mut at = 0;
        while at < time {
            // Twelve blocks of 50 ms, three of each kernel.
            let mut blocks: Vec<(f64, u64)> = (0..12)
                .map(|block| (source.random(), 1 + block % 4))
                .collect();
            blocks.sort_by(|one, other| one.0.total_cmp(&other.0));
            for (_, id) in blocks {
                for _ in 0..50 {
                    launches.push((id, at, 900_000));
                    at += MS;
                }
            }
        }
        let bursts = in_bursts(
            Controller::rare(20, 1_000, 0.45, seed, 0),
            12 * MS,
            &launches,
        );
        let coverage = bursts.coverage().unwrap();
        assert!((0.3..0.5).contains(&coverage.part()), "{coverage:?}");
        for estimate in bursts.estimates(None, time).values() {
            let (low, high) = estimate.share.bounds();
            all += 1;
            inside += u32::from((low..=high).contains(&0.25));
        }
    }
    let part = f64::from(inside) / f64::from(all);
    assert!(part >= 0.93, "{part} of {all}");
}

#[test]
fn a_rest_counts_as_time_and_early_kernels_belong_to_their_burst() {
    let mut bursts = Bursts::default();
    // Two periods of 1,000 with a rest of 3,000 between them.
    for from in [1_000, 5_000] {
        let begin = Burst {
            from,
            start: from + 500,
            switched: 100,
            ..Burst::default()
        };
        bursts.add(&begin);
        // CUPTI records from some moment on while it is being switched on.
        let kernel = Kernel {
            start: from + 420,
            end: from + 430 + from,
            ..Kernel::default()
        };
        bursts.add_kernel(1, &kernel);
        bursts.add(&Burst {
            end: from + 600,
            to: from + 1_000,
            switched: 150,
            cost: 200_000,
            basis: basis::ASSUMED,
            ..begin
        });
    }
    let coverage = bursts.coverage().unwrap();
    assert_eq!((coverage.time, coverage.recorded), (5_000, 200));
    assert_eq!(coverage.switched, 300);
    // A fifth of 200, and 300 of 5,000.
    assert!(
        (coverage.lost() - 0.068).abs() < 1e-9,
        "{}",
        coverage.lost()
    );
    let kernels: Vec<f64> = bursts
        .open
        .iter()
        .map(|open| open.kernels.get(&1).map_or(0.0, |sum| sum.0))
        .collect();
    assert_eq!(kernels, [1.0, 1.0]);
}

#[test]
fn the_intervals_hold_what_a_full_recording_has() {
    let time = 4_000 * MS;
    let runs = 150;
    let mut held: HashMap<(u64, &str), u32> = HashMap::new();
    let (mut all, mut inside) = (0, 0);
    for seed in 0..runs {
        let launches = Program {
            seed: 1000 + seed,
            count: 0,
        }
        .run(time);
        let truth = truth(&launches);
        let total: f64 = truth.iter().map(|(_, _, time)| time).sum();
        let [counted, uncounted] = recorded(&launches, seed, time);
        for (id, calls, time) in truth {
            // The rare kernel is in few bursts, or in none: no interval of a few samples holds it.
            if id == 7 {
                continue;
            }
            let values = [
                ("calls", counted[&id].calls, calls),
                ("total", counted[&id].total, time),
                ("share", counted[&id].share, time / total),
                ("total, uncounted", uncounted[&id].total, time),
            ];
            for (what, interval, truth) in values {
                let (low, high) = interval.bounds();
                let holds = (low..=high).contains(&truth);
                *held.entry((id, what)).or_default() += u32::from(holds);
                if what == "share" {
                    all += 1;
                    inside += u32::from(holds);
                }
            }
        }
    }
    let part = f64::from(inside) / f64::from(all);
    // More than 95 %, since moments of this program do not depend on each other: what was recorded of
    // a period is known, and makes no interval narrower.
    assert!((0.93..=0.99).contains(&part), "{part} of {all}: {held:?}");
    // Each by itself, within the noise of so many runs (1.8 % each way).
    for (what, count) in &held {
        let part = f64::from(*count) / runs as f64;
        assert!((0.90..=1.0).contains(&part), "{what:?}: {part}");
    }
}

#[test]
fn all_of_the_time_has_no_uncertainty_and_nothing_makes_nothing_up() {
    let mut bursts = Bursts::default();
    assert!(bursts.is_empty() && bursts.coverage().is_none());
    for at in 0..10_u64 {
        let (start, end) = (at * 100 + 1, at * 100 + 101);
        let burst = Burst {
            from: start,
            start,
            to: end,
            ..Burst::default()
        };
        bursts.add(&burst);
        // It ends long after the burst, and belongs to it all the same.
        let kernel = |length| Kernel {
            rung: start + 5,
            start: start + 90,
            end: start + 90 + length,
            ..Kernel::default()
        };
        bursts.add_kernel(1, &kernel(30));
        bursts.add(&Burst { end, ..burst });
        bursts.add_kernel(2, &kernel(10 + at));
    }
    // A burst that is still on tells nothing.
    bursts.add(&Burst {
        from: 2_000,
        start: 2_000,
        ..Burst::default()
    });
    let coverage = bursts.coverage().unwrap();
    assert_eq!(
        (coverage.bursts, coverage.recorded, coverage.time),
        (10, 1_000, 1_000)
    );
    let all = bursts.estimates(None, 1_000);
    assert_eq!(all[&1].calls.estimate, 10.0);
    assert_eq!(
        all[&1].total,
        Interval {
            estimate: 300.0,
            half: 0.0
        }
    );
    assert!((all[&2].share.estimate - 145.0 / 445.0).abs() < 1e-12);
    assert!(!all.contains_key(&3));
}

#[test]
fn records_that_make_no_sense_are_left_out() {
    let mut bursts = Bursts::default();
    let kernel = Kernel {
        start: 1,
        end: u64::MAX,
        ..Kernel::default()
    };
    bursts.add_kernel(1, &kernel);
    for (from, start, end, to) in [
        (5, 4, 8, 9),
        (5, 6, 6, 9),
        (5, 6, 9, 8),
        (u64::MAX, u64::MAX, u64::MAX, u64::MAX),
    ] {
        bursts.add(&Burst {
            from,
            start,
            ..Burst::default()
        });
        bursts.add_kernel(1, &kernel);
        bursts.add(&Burst {
            from,
            start,
            end,
            to,
            ..Burst::default()
        });
    }
    // An end without a start.
    bursts.add(&Burst {
        start: 77,
        end: 80,
        to: 90,
        ..Burst::default()
    });
    assert_eq!(bursts.coverage().unwrap().bursts, 0);
    assert!(bursts.estimates(Some(u64::MAX), 1).is_empty());
    // Two bursts are too few for an interval.
    for start in [100, 200] {
        let burst = Burst {
            from: start,
            start,
            to: start + 50,
            ..Burst::default()
        };
        bursts.add(&burst);
        bursts.add_kernel(
            1,
            &Kernel {
                rung: start,
                start,
                end: start + 9,
                ..Kernel::default()
            },
        );
        bursts.add(&Burst {
            end: start + 10,
            ..burst
        });
    }
    let all = bursts.estimates(None, 100);
    assert!(all[&1].total.half.is_infinite());
    assert_eq!(all[&1].calls.bounds().0, 0.0);
}

/// Adds a burst with its kernels: the id, and how long each took.
fn put(bursts: &mut Bursts, burst: Burst, kernels: &[(u64, u64)]) {
    bursts.add(&Burst {
        end: 0,
        to: 0,
        ..burst
    });
    for (id, took) in kernels {
        let kernel = Kernel {
            rung: burst.start,
            start: burst.start + 1,
            end: burst.start + 1 + took,
            ..Kernel::default()
        };
        bursts.add_kernel(*id, &kernel);
    }
    bursts.add(&burst);
}

/// Four bursts of different lengths and weights (10, 5, 4 and 2.5), with two kernels.
fn four(basis: u32) -> Bursts {
    let mut bursts = Bursts::default();
    let burst = |from, start, end, to| Burst {
        from,
        start,
        end,
        to,
        cost: 200_000,
        basis,
        ..Burst::default()
    };
    let first = [(7, 3), (7, 3), (9, 4)];
    put(&mut bursts, burst(1000, 1010, 1020, 1100), &first);
    let second = [(7, 5), (7, 5), (7, 5), (9, 9)];
    put(&mut bursts, burst(1100, 1150, 1170, 1200), &second);
    let mut third = vec![(7, 2); 4];
    third.extend([(7, 3); 4]);
    third.extend([(9, 6); 5]);
    put(&mut bursts, burst(1200, 1200, 1250, 1400), &third);
    put(&mut bursts, burst(1400, 1460, 1500, 1500), &[(7, 5); 4]);
    bursts
}

fn is_near(found: Interval, estimate: f64, half: f64) -> bool {
    let near = |one: f64, other: f64| (one - other).abs() <= 1e-9 * other.abs();
    near(found.estimate, estimate) && near(found.half, half)
}

/// The numbers come from the formula for the variance of a ratio of sums, with the differences
/// between each burst's value and its share squared one by one. The halves are standard errors times
/// the quantile for as many degrees of freedom as the bursts' variances (900, 400, 600, 150) leave.
#[test]
fn estimates_are_ratios_of_weighted_sums_with_their_standard_errors() {
    let bursts = four(basis::MEASURED);
    let coverage = bursts.coverage().unwrap();
    assert_eq!(
        (coverage.bursts, coverage.recorded, coverage.time),
        (4, 120, 500)
    );
    assert_eq!(
        (coverage.cost, coverage.basis, coverage.part()),
        (200_000, basis::MEASURED, 0.24)
    );
    let t = quantile(1140.0 / 541.0);
    let counted = bursts.estimates(Some(1000), 600);
    let by_time = bursts.estimates(None, 600);
    let unknown = four(basis::UNKNOWN).estimates(None, 600);
    for (what, found, estimate, error) in [
        ("calls", counted[&7].calls, 687.5, 55.051_022_964_892_02),
        (
            "total",
            counted[&7].total,
            2_366.071_428_571_428_4,
            635.215_817_322_665_1,
        ),
        (
            "share",
            counted[&7].share,
            0.563_829_787_234_042_5,
            0.103_867_324_984_978_08,
        ),
        ("calls", counted[&9].calls, 312.5, 55.051_022_964_892_02),
        (
            "total",
            counted[&9].total,
            1_830.357_142_857_143,
            382.388_661_939_222_35,
        ),
        // In 600 ns with 19 % more launches than in as long a time with all of it recorded: the
        // application loses a fifth of its speed in 24 % of the time.
        (
            "calls by time",
            by_time[&7].calls,
            109.956,
            12.494_733_007_673_78,
        ),
        (
            "total by time",
            by_time[&7].total,
            378.42,
            60.517_821_025_232_76,
        ),
        (
            "share by time",
            by_time[&7].share,
            0.563_829_787_234_042_5,
            0.103_867_324_984_978_08,
        ),
        (
            "calls by time",
            by_time[&9].calls,
            49.98,
            17.166_141_035_863_532,
        ),
        (
            "total by time",
            by_time[&9].total,
            292.74,
            97.199_208_588_071_16,
        ),
        // Nothing is known about the cost, so the application counts as equally fast.
        ("calls", unknown[&7].calls, 92.4, 10.499_775_636_700_656),
        ("total", unknown[&9].total, 246.0, 81.680_007_216_866_51),
    ] {
        assert!(is_near(found, estimate, error * t), "{what}: {found:?}");
    }
}

/// Three bursts are enough, and equal ones leave no doubt.
#[test]
fn the_third_burst_makes_an_interval() {
    let mut bursts = Bursts::default();
    for from in [100, 200, 300] {
        let burst = Burst {
            from,
            start: from,
            end: from + 25,
            to: from + 50,
            ..Burst::default()
        };
        put(&mut bursts, burst, &[(1, 4), (2, 4)]);
        let all = bursts.estimates(Some(10), 0);
        let half = if from < 300 { f64::INFINITY } else { 0.0 };
        let estimate = 5.0;
        assert_eq!(all[&1].calls, Interval { estimate, half }, "{from}");
    }
}

/// A kernel may end while the third burst after its own is on. Later than that it counts for the
/// oldest burst that is still open.
#[test]
fn four_bursts_are_open_for_kernels_that_end_late() {
    let begun = |bursts: &mut Bursts, number: u64| {
        let burst = Burst {
            from: 1000 * number,
            start: 1000 * number,
            ..Burst::default()
        };
        bursts.add(&burst);
        // Each burst stands for ten times as much as the one before.
        bursts.add(&Burst {
            end: burst.start + 1000 / 10_u64.pow(number as u32 - 1),
            to: burst.start + 1000,
            ..burst
        });
    };
    let late = Kernel {
        rung: 1000,
        start: 1001,
        end: 1002,
        ..Kernel::default()
    };
    let other = Kernel {
        rung: 4000,
        start: 4001,
        end: 4002,
        ..Kernel::default()
    };
    for (behind, wanted) in [(4, 1.0), (5, 10.0)] {
        let mut bursts = Bursts::default();
        for number in 1..=4 {
            begun(&mut bursts, number);
        }
        if behind == 5 {
            let burst = Burst {
                from: 5000,
                start: 5000,
                ..Burst::default()
            };
            bursts.add(&burst);
        }
        bursts.add_kernel(1, &late);
        bursts.add_kernel(2, &other);
        // Of the time of both, each has as much as its burst stands for.
        let all = bursts.estimates(Some(1000), 0);
        let share = wanted / (wanted + 1000.0);
        let found = all[&1].share.estimate;
        assert!((found - share).abs() < 1e-12, "{behind}: {found}");
    }
}

#[test]
fn intervals_are_added_and_have_two_ends() {
    let one = Interval {
        estimate: 10.0,
        half: 4.0,
    };
    let other = Interval {
        estimate: 5.0,
        half: 3.0,
    };
    let sum = Interval {
        estimate: 15.0,
        half: 7.0,
    };
    assert_eq!(one.plus(other), sum);
    assert_eq!(sum.bounds(), (8.0, 22.0));
    assert_eq!(other.times(2.0).bounds(), (4.0, 16.0));
    assert_eq!(sum.times(0.5).plus(sum).bounds(), (12.0, 33.0));
}
