//! What stacks cost: one walk in 64 is timed. The estimate from these also keeps native walks within a
//! budget.

use crate::common::mix;
use midair_record::event::StackCost;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// One walk in so many is timed.
const ONE_IN: u64 = 64;
/// The time for which a budget is, ns.
const WINDOW: u64 = 1_000_000_000;
/// Python stacks whose last whole stack is kept.
const LATEST: usize = 1 << 12;

/// The cost of a session. All of it is valid when zeroed. Threads count at the same time; what one of them
/// misses at the start of a second does not matter.
#[derive(Debug)]
pub(crate) struct Cost {
    timed: AtomicU64,
    time: AtomicU64,
    reused: AtomicU64,
    python_only: AtomicU64,
    without: AtomicU64,
    /// Nanoseconds of a second; 0 for no budget.
    budget: AtomicU64,
    /// When the second started, and what walks have taken since.
    since: AtomicU64,
    spent: AtomicU64,
    is_over: AtomicBool,
    /// The number of the last whole stack in the lower half, by the keys of Python stacks, whose upper half
    /// is in the upper half.
    latest: [AtomicU64; LATEST],
}

/// A walk that is timed.
#[derive(Debug)]
pub(crate) struct Timed(u64);

/// What a launch over the budget has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Instead {
    /// The stack of an earlier launch.
    Reused(u32),
    /// Its Python stack.
    PythonOnly,
    /// None.
    Without,
}

impl Cost {
    /// Starts a session, while no thread counts.
    pub(crate) fn begin(&self, percent: u64) {
        for number in [
            &self.timed,
            &self.time,
            &self.reused,
            &self.python_only,
            &self.without,
            &self.since,
            &self.spent,
        ] {
            number.store(0, Relaxed);
        }
        self.is_over.store(false, Relaxed);
        self.budget.store(percent * (WINDOW / 100), Relaxed);
        self.latest.iter().for_each(|place| place.store(0, Relaxed));
    }

    /// Returns the time of a walk's start, if it is one of those that are timed.
    pub(crate) fn start(&self, correlation: u64, now: impl Fn() -> u64) -> Option<Timed> {
        // Loops may launch in steps of 64.
        if !mix(5, correlation).is_multiple_of(ONE_IN) {
            return None;
        }
        let now = now();
        let is_new = now.saturating_sub(self.since.load(Relaxed)) >= WINDOW;
        if self.budget.load(Relaxed) != 0 && is_new {
            self.since.store(now, Relaxed);
            self.spent.store(0, Relaxed);
            self.is_over.store(false, Relaxed);
        }
        Some(Timed(now))
    }

    /// Takes the time of a walk's end.
    pub(crate) fn end(&self, timed: &Timed, now: u64) {
        let time = now.saturating_sub(timed.0);
        self.timed.fetch_add(1, Relaxed);
        self.time.fetch_add(time, Relaxed);
        let budget = self.budget.load(Relaxed);
        if budget != 0 {
            let spent = self.spent.fetch_add(ONE_IN * time, Relaxed) + ONE_IN * time;
            if spent > budget {
                self.is_over.store(true, Relaxed);
            }
        }
    }

    /// Whether native walks have taken their budget of this second.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Relaxed)
    }

    /// Returns what a launch has instead of native frames, from the key of its Python stack, and counts it.
    pub(crate) fn instead(&self, python: Option<u64>) -> Instead {
        let (counter, instead) = match python.map(|key| self.latest_of(key)) {
            Some(0) => (&self.python_only, Instead::PythonOnly),
            Some(number) => (&self.reused, Instead::Reused(number)),
            None => (&self.without, Instead::Without),
        };
        counter.fetch_add(1, Relaxed);
        instead
    }

    fn place(&self, key: u64) -> Option<&AtomicU64> {
        self.latest.get(key as usize % LATEST)
    }

    fn latest_of(&self, key: u64) -> u32 {
        let known = self.place(key).map_or(0, |place| place.load(Relaxed));
        match known >> 32 == key >> 32 {
            true => known as u32,
            false => 0,
        }
    }

    /// Notes the whole stack of a launch at a Python stack. Only a budget makes use of it.
    pub(crate) fn note(&self, key: u64, number: u32) {
        if self.budget.load(Relaxed) == 0 || self.latest_of(key) == number {
            return;
        }
        if let Some(place) = self.place(key) {
            place.store(key >> 32 << 32 | u64::from(number), Relaxed);
        }
    }

    /// Returns the cost so far.
    pub(crate) fn so_far(&self) -> StackCost {
        StackCost {
            timed: self.timed.load(Relaxed),
            time: self.time.load(Relaxed),
            reused: self.reused.load(Relaxed),
            python_only: self.python_only.load(Relaxed),
            without: self.without.load(Relaxed),
        }
    }
}

/// Returns the time in nanoseconds, of a clock that the kernel maps into processes.
pub(crate) fn now() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the clock writes one `timespec`.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    (time.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(time.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(percent: u64) -> Cost {
        let zero = || AtomicU64::new(0);
        let cost = Cost {
            timed: zero(),
            time: zero(),
            reused: zero(),
            python_only: zero(),
            without: zero(),
            budget: zero(),
            since: zero(),
            spent: zero(),
            is_over: AtomicBool::new(false),
            latest: std::array::from_fn(|_| zero()),
        };
        cost.begin(percent);
        cost
    }

    /// Makes launches with walks of 10 us, and returns how many were not over the budget.
    fn walked(cost: &Cost, from: u64, launches: u64) -> u64 {
        let mut walked = 0;
        for at in 0..launches {
            let clock = from + at * 20_000;
            let timed = cost.start(at, || clock);
            let is_over = cost.is_over();
            walked += u64::from(!is_over);
            if let Some(timed) = timed {
                cost.end(&timed, clock + if is_over { 0 } else { 10_000 });
            }
        }
        walked
    }

    #[test]
    fn one_walk_in_64_is_timed_whatever_the_step() {
        let free = cost(0);
        assert_eq!(walked(&free, WINDOW, 64_000), 64_000);
        let so_far = free.so_far();
        assert!((900..1100).contains(&so_far.timed), "{so_far:?}");
        assert_eq!(so_far.time, 10_000 * so_far.timed);
        let timed = |id: &u64| free.start(64 * id, || 0).is_some();
        assert!((900..1100).contains(&(0..64_000).filter(timed).count()));
    }

    #[test]
    fn walks_over_the_budget_end_until_the_next_second() {
        // 10 % of a second are 10,000 walks of 10 us; 50,000 launches take a second.
        let limited = cost(10);
        let first = walked(&limited, WINDOW, 40_000);
        assert!((9_000..11_500).contains(&first), "{first}");
        assert!(limited.is_over());
        let second = walked(&limited, 2 * WINDOW, 40_000);
        assert!((9_000..11_500).contains(&second), "{second}");
    }

    #[test]
    fn a_launch_over_the_budget_has_the_stack_of_one_before() {
        let limited = cost(10);
        let key = 7 << 40 | 5;
        assert_eq!(limited.instead(Some(key)), Instead::PythonOnly);
        limited.note(key, 9);
        assert_eq!(limited.instead(Some(key)), Instead::Reused(9));
        // Another stack at the same place.
        assert_eq!(limited.instead(Some(key ^ 1 << 50)), Instead::PythonOnly);
        assert_eq!(limited.instead(None), Instead::Without);
        let so_far = limited.so_far();
        let counts = [so_far.reused, so_far.python_only, so_far.without];
        assert_eq!(counts, [1, 2, 1]);
    }
}
