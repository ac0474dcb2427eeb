//! Windows whose costs differ: the budget holds from the start, and costly groups hold no cheap one
//! back.
#![allow(clippy::unwrap_used)]

use midair_rotation::{Class, ClassKey, Rotation, Scheduler};
use std::collections::VecDeque;

const MS: u64 = 1_000_000;
const START: u64 = 100_000 * MS;

/// A program that dispatches a kernel every `GAP`; each window is read `delay` after it was opened.
struct Program {
    table: Box<Rotation>,
    scheduler: Scheduler,
    key: ClassKey,
    /// By group, in nanoseconds.
    costs: Vec<u64>,
    delay: u64,
    /// When windows are read, and their groups.
    open: VecDeque<(u64, u32)>,
}

const GAP: u64 = 50_000;

impl Program {
    fn new(percent: f64, costs: &[u64], delay: u64) -> Program {
        let table = Box::new(Rotation::new());
        let groups = costs.len() as u32;
        table.begin(groups, percent, 11, START);
        Program {
            table,
            scheduler: Scheduler::new(groups, percent, START),
            key: Class {
                kernel_object: 7,
                ..Class::default()
            }
            .key(),
            costs: costs.to_vec(),
            delay,
            open: VecDeque::new(),
        }
    }

    /// Runs from one millisecond to another. Returns the windows of each group.
    fn run(&mut self, from: u64, to: u64) -> Vec<u64> {
        let mut windows = vec![0; self.costs.len()];
        for now in (START + from * MS..START + to * MS).step_by(GAP as usize) {
            while self.open.front().is_some_and(|(read, _)| *read <= now) {
                let (_, group) = self.open.pop_front().unwrap();
                let cost = self.costs[group as usize];
                let value = 100.0 + (now / GAP % 7) as f64;
                self.scheduler.measured(self.key, group, [value], cost);
            }
            let group = self.table.next_group(1, now);
            self.table.saw(1, self.key);
            self.scheduler.dispatched(self.key, GAP / 2);
            if let Some(group) = group {
                windows[group as usize] += 1;
                self.open.push_back((now + self.delay, group));
            }
            self.scheduler.renew(&self.table, now);
        }
        windows
    }

    fn percent(&self, windows: &[u64], ms: u64) -> f64 {
        let cost: u64 = windows.iter().zip(&self.costs).map(|(n, c)| n * c).sum();
        100.0 * cost as f64 / (ms * MS) as f64
    }
}

/// Windows that cost 20 ms each, which is what a budget of 2 % has for a second. Reading one takes
/// 60 ms.
#[test]
fn the_budget_holds_from_the_start_with_costly_windows() {
    for costs in [
        vec![20 * MS; 4],
        vec![30_000, 30_000, 20 * MS, 20 * MS],
        vec![20 * MS],
    ] {
        let mut program = Program::new(2.0, &costs, 60 * MS);
        let first = program.run(0, 3000);
        let dear: u64 = first
            .iter()
            .zip(&costs)
            .map(|(n, cost)| n * u64::from(*cost > MS))
            .sum();
        // The first two are not known to be costly. What they cost is paid for by the time after
        // them, so that there are no more than in 3 s of the budget.
        assert!((1..=3).contains(&dear), "{costs:?}: {first:?}");
        let share = program.percent(&first, 3000);
        assert!(share <= 2.05, "{costs:?}: {share} %, {first:?}");
        let later = program.run(3000, 23_000);
        let share = program.percent(&later, 20_000);
        assert!((1.0..=2.05).contains(&share), "{costs:?}: {share} %");
    }
}

#[test]
fn costly_groups_hold_no_cheap_ones_back() {
    // A window of the last group takes as long as 100 of the others.
    let costs = [50_000, 50_000, 50_000, 5 * MS];
    let mut program = Program::new(2.0, &costs, 2 * MS);
    program.run(0, 3000);
    let windows = program.run(3000, 13_000);
    let share = program.percent(&windows, 10_000);
    assert!((1.4..=2.05).contains(&share), "{share} %: {windows:?}");
    let [a, b, c, dear] = windows[..] else {
        panic!("{windows:?}")
    };
    // With turns for each, every group would have about 38: 10 s * 2 % / 5.15 ms.
    assert!(dear >= 15, "none goes without: {windows:?}");
    for cheap in [a, b, c] {
        assert!(cheap > 10 * dear, "{windows:?}");
        assert!(cheap > 4 * 38, "{windows:?}");
    }
}

#[test]
fn costs_that_differ_little_leave_the_turns_alone() {
    let mut program = Program::new(2.0, &[50_000, 60_000, 150_000], 2 * MS);
    program.run(0, 2000);
    let windows = program.run(2000, 12_000);
    let [a, b, c] = windows[..] else {
        panic!("{windows:?}")
    };
    let (least, most) = (a.min(b).min(c), a.max(b).max(c));
    assert!(most < 2 * least, "{windows:?}");
}

#[test]
fn without_a_limit_dispatches_are_what_is_scarce() {
    let mut program = Program::new(100.0, &[50_000, 5 * MS], 2 * MS);
    let windows = program.run(0, 2000);
    assert_eq!(windows.iter().sum::<u64>(), 2000 * MS / GAP, "{windows:?}");
    assert!(windows[0].abs_diff(windows[1]) < 4000, "{windows:?}");
}
