//! The table from which the application's threads choose groups.

use crate::accounts::{ACCOUNTS, Accounts};
use crate::budget::Budget;
use crate::class::ClassKey;
use crate::random::{chance, mix, permuted};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

/// How many classes of an agent have their own schedules. A power of two. Further classes follow
/// the schedule of unknown classes.
pub const CLASSES: usize = 512;
/// The number of entries of a class's schedule.
pub const ENTRIES: usize = 64;
/// The most groups of an agent.
pub const MAX_GROUPS: u32 = 1 << 16;
/// The number of entries in a word.
const PACKED: usize = 4;
/// How many slots may hold a class.
const PROBES: usize = 8;
/// The number of distinct histories. A power of two.
const HISTORIES: usize = 2048;
/// The number of distinct queues. A power of two.
const QUEUES: usize = 64;
/// How often a thread tries again when another thread took a turn in the meantime.
const TRIES: u32 = 4;
/// The assumed cost of a window before any was measured, in nanoseconds: reading takes 10 to 100
/// us.
pub(crate) const FIRST_COST: u64 = 50_000;

/// How a class is counted.
#[derive(Debug)]
struct Schedule {
    /// [`ClassKey::number`]; 0 = none. Set once, after the other fields.
    key: AtomicU64,
    /// How many of 2^32 reservations get a window.
    probability: AtomicU32,
    /// The number of windows so far.
    turns: AtomicU32,
    /// How many entries there are; 0 = each group once.
    len: AtomicU32,
    /// Groups, four to a word.
    entries: [AtomicU64; ENTRIES / PACKED],
}

impl Schedule {
    const fn new() -> Schedule {
        Schedule {
            key: AtomicU64::new(0),
            probability: AtomicU32::new(0),
            turns: AtomicU32::new(0),
            len: AtomicU32::new(0),
            entries: [const { AtomicU64::new(0) }; ENTRIES / PACKED],
        }
    }

    fn entry(&self, at: u32) -> Option<u32> {
        let word = self.entries.get(at as usize / PACKED)?.load(Relaxed);
        Some((word >> (16 * (at as usize % PACKED)) & 0xffff) as u32)
    }

    /// Takes the next turn, and returns its group.
    fn turn(&self, groups: u32, seed: u64) -> u32 {
        self.group(self.turns.fetch_add(1, Relaxed), groups, seed)
    }

    /// Takes the next turn if its group may be counted. Otherwise it stays the next one.
    fn turn_if(&self, groups: u32, seed: u64, may: impl Fn(u32) -> bool) -> Option<u32> {
        for _ in 0..TRIES {
            let turn = self.turns.load(Relaxed);
            let group = self.group(turn, groups, seed);
            if !may(group) {
                return None;
            }
            let next = turn.wrapping_add(1);
            let taken = self
                .turns
                .compare_exchange_weak(turn, next, Relaxed, Relaxed);
            if taken.is_ok() {
                return Some(group);
            }
        }
        None
    }

    /// Returns the group of a turn. While the worker thread renews the entries, a turn may see some
    /// old and some new ones. Each of them is a valid choice.
    fn group(&self, turn: u32, groups: u32, seed: u64) -> u32 {
        let len = self.len.load(Acquire).min(ENTRIES as u32);
        let size = if len == 0 { groups } else { len };
        // Each round has another permutation.
        let round = mix(seed ^ self.key.load(Relaxed) ^ u64::from(turn / size));
        let at = permuted(turn % size, size, round);
        let group = if len == 0 { Some(at) } else { self.entry(at) };
        group.filter(|group| *group < groups).unwrap_or(at % groups)
    }
}

/// What is known about a queue.
#[derive(Debug)]
struct Queue {
    /// Its last two classes, shortened.
    history: AtomicU64,
    /// Decisions so far.
    draws: AtomicU64,
}

/// The choice of groups for one agent. A new table has no groups and chooses none; so does one of
/// all zero bytes. It has 130 KiB and so belongs into a static or into its own memory.
///
/// Memory orders: each word is meaningful by itself, and a key is published after its schedule.
#[derive(Debug)]
pub struct Rotation {
    groups: AtomicU32,
    /// The probability of a window for classes without a schedule.
    probability: AtomicU32,
    seed: AtomicU64,
    /// The average cost of a window, in nanoseconds: what a group's window is assumed to cost before
    /// one was measured.
    cost: AtomicU64,
    accounts: Accounts,
    /// The number of windows that the budget refused.
    refused: AtomicU64,
    /// The share of time.
    pub budget: Budget,
    queues: [Queue; QUEUES],
    /// By history: the class that came next.
    next: [AtomicU64; HISTORIES],
    unknown: Schedule,
    classes: [Schedule; CLASSES],
}

impl Default for Rotation {
    fn default() -> Rotation {
        Rotation::new()
    }
}

impl Rotation {
    /// Returns a table without groups.
    pub const fn new() -> Rotation {
        Rotation {
            groups: AtomicU32::new(0),
            probability: AtomicU32::new(0),
            seed: AtomicU64::new(0),
            cost: AtomicU64::new(0),
            accounts: Accounts::new(),
            refused: AtomicU64::new(0),
            budget: Budget::new(),
            queues: [const {
                Queue {
                    history: AtomicU64::new(0),
                    draws: AtomicU64::new(0),
                }
            }; QUEUES],
            next: [const { AtomicU64::new(0) }; HISTORIES],
            unknown: Schedule::new(),
            classes: [const { Schedule::new() }; CLASSES],
        }
    }

    /// Starts a session with this many groups (at most [`MAX_GROUPS`]), and forgets what was
    /// learned. `percent` is the share of elapsed time that windows may take. `now` is in
    /// nanoseconds of the clock that [`Rotation::next_group`] is given. With 0 groups it chooses
    /// none.
    ///
    /// Only the worker thread calls this, while no thread chooses (before the hooks go in, or with
    /// 0 groups).
    pub fn begin(&self, groups: u32, percent: f64, seed: u64, now: u64) {
        for schedule in self.classes.iter().chain([&self.unknown]) {
            schedule.key.store(0, Relaxed);
            schedule.turns.store(0, Relaxed);
            schedule.len.store(0, Relaxed);
        }
        for queue in &self.queues {
            queue.history.store(0, Relaxed);
            queue.draws.store(0, Relaxed);
        }
        for next in &self.next {
            next.store(0, Relaxed);
        }
        self.refused.store(0, Relaxed);
        self.accounts.begin();
        self.cost.store(FIRST_COST, Relaxed);
        self.probability.store(u32::MAX, Relaxed);
        self.seed.store(seed, Relaxed);
        self.budget.set(percent, now);
        self.groups.store(groups.min(MAX_GROUPS), Release);
    }

    /// Returns the group to count with the next dispatch of this queue; None if it is not to be
    /// counted. `queue` is any number that does not change for the queue; `now` is the clock in
    /// nanoseconds.
    #[inline]
    pub fn next_group(&self, queue: u32, now: u64) -> Option<u32> {
        let groups = self.groups.load(Acquire);
        if groups == 0 {
            return None;
        }
        let at = self.queue(queue)?;
        let known = self
            .predicted(at.history.load(Relaxed))
            .and_then(|class| self.schedule(class));
        let probability = known.map_or(&self.probability, |schedule| &schedule.probability);
        let draw = at.draws.fetch_add(1, Relaxed);
        let seed = self.seed.load(Relaxed);
        let probability = probability.load(Relaxed);
        let random = || mix(mix(seed ^ u64::from(queue)) ^ draw);
        if probability != u32::MAX && !chance(random(), probability) {
            return None;
        }
        let schedule = known.unwrap_or(&self.unknown);
        let group = match self.budget.is_limited() {
            true => self.affordable(schedule, groups, seed, now),
            false => Some(schedule.turn(groups, seed)),
        };
        match group {
            Some(group) => self.accounts.opened(group, self.cost_of(group)),
            None => {
                self.refused.fetch_add(1, Relaxed);
            }
        }
        group
    }

    /// Returns the group of the next turn, if the budget has room for its window, and takes what the
    /// window is assumed to cost.
    fn affordable(&self, schedule: &Schedule, groups: u32, seed: u64, now: u64) -> Option<u32> {
        if !self.budget.is_paid(now) {
            return None;
        }
        let may = |group| self.accounts.may_open(group, now);
        let group = schedule.turn_if(groups, seed, may)?;
        // Another thread may have been faster; then the turn is gone.
        if !self.accounts.enter(group, now) {
            return None;
        }
        if !self.budget.take(now, self.cost_of(group)) {
            self.accounts.leave(group);
            return None;
        }
        Some(group)
    }

    /// Returns what a window of a group is assumed to cost.
    fn cost_of(&self, group: u32) -> u64 {
        let known = self.accounts.cost(group);
        known.unwrap_or_else(|| self.cost.load(Relaxed))
    }

    /// Gives back the cost of what [`Rotation::next_group`] has just chosen, because there was no
    /// window after all. (Its turn is gone.)
    #[inline]
    pub fn untaken(&self, group: u32) {
        let cost = self.cost_of(group);
        self.accounts.untaken(group, cost);
        self.budget.correct(cost, 0);
    }

    /// Notes a dispatch of this class on the queue, when its doorbell rings, with or without a
    /// window.
    #[inline]
    pub fn saw(&self, queue: u32, class: ClassKey) {
        let Some(at) = self.queue(queue) else { return };
        let history = at.history.load(Relaxed);
        if let Some(next) = self.next.get(Self::place(history)) {
            next.store(class.number(), Relaxed);
        }
        let class = class.number() >> 32;
        at.history.store(history << 32 | class, Relaxed);
    }

    /// Returns the class that is expected next on a queue.
    pub fn expected(&self, queue: u32) -> Option<ClassKey> {
        self.predicted(self.queue(queue)?.history.load(Relaxed))
    }

    fn queue(&self, number: u32) -> Option<&Queue> {
        self.queues.get(number as usize % QUEUES)
    }

    fn place(history: u64) -> usize {
        (mix(history) >> 40) as usize % HISTORIES
    }

    fn predicted(&self, history: u64) -> Option<ClassKey> {
        ClassKey::of(self.next.get(Self::place(history))?.load(Relaxed))
    }

    /// Returns the slots that may hold a class.
    fn slots(&self, class: ClassKey) -> impl Iterator<Item = &Schedule> {
        let home = class.number() as usize;
        (0..PROBES).filter_map(move |step| self.classes.get(home.wrapping_add(step) % CLASSES))
    }

    fn schedule(&self, class: ClassKey) -> Option<&Schedule> {
        self.slots(class)
            .find(|schedule| schedule.key.load(Acquire) == class.number())
    }

    /// Renews the schedule of a class: `probability` of 2^32 reservations get a window. Each window
    /// counts one of `entries` (at most [`ENTRIES`]; an empty list means each group once). Returns
    /// false when there is no room for the class. Only the worker thread calls this.
    pub fn renew(&self, class: ClassKey, probability: u32, entries: &[u32]) -> bool {
        let free = || {
            self.slots(class)
                .find(|schedule| schedule.key.load(Relaxed) == 0)
        };
        let Some(schedule) = self.schedule(class).or_else(free) else {
            return false;
        };
        for (word, packed) in schedule.entries.iter().zip(entries.chunks(PACKED)) {
            let value = packed
                .iter()
                .rev()
                .fold(0, |value, group| value << 16 | u64::from(group & 0xffff));
            word.store(value, Relaxed);
        }
        schedule.probability.store(probability, Relaxed);
        schedule
            .len
            .store(entries.len().min(ENTRIES) as u32, Release);
        schedule.key.store(class.number(), Release);
        true
    }

    /// Sets the probability for classes that have no schedule. Only the worker thread calls this.
    pub fn renew_unknown(&self, probability: u32) {
        self.probability.store(probability, Relaxed);
    }

    /// Sets the average cost of a window in nanoseconds. Only the worker thread calls this.
    pub fn renew_cost(&self, cost: u64) {
        self.cost.store(cost, Relaxed);
    }

    /// Sets the cost of a group's windows in nanoseconds. Only the worker thread calls this.
    pub fn renew_cost_of(&self, group: u32, cost: u64) {
        self.accounts.renew(group, cost);
    }

    /// Returns how many windows were allowed so far for the groups of an account, and what they were
    /// assumed to cost together.
    pub(crate) fn taken(&self, account: usize) -> (u64, u64) {
        self.accounts.taken(account)
    }

    /// Returns how many windows were allowed so far, what they were assumed to cost together in
    /// nanoseconds, and how many the budget refused.
    pub fn counts(&self) -> (u64, u64, u64) {
        let all = (0..ACCOUNTS).map(|account| self.accounts.taken(account));
        let (windows, charged) = all.fold((0, 0), |sum, (windows, charged)| {
            (sum.0 + windows, sum.1 + charged)
        });
        (windows, charged, self.refused.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class::Class;
    use std::collections::BTreeMap;

    fn class(n: u64) -> ClassKey {
        let class = Class {
            kernel_object: n,
            ..Class::default()
        };
        class.key()
    }

    fn rotation(groups: u32) -> Box<Rotation> {
        let rotation = Box::new(Rotation::new());
        rotation.begin(groups, 100.0, 7, 0);
        rotation
    }

    #[test]
    fn nothing_is_chosen_before_the_session_and_after_it() {
        let rotation = Rotation::new();
        assert_eq!(rotation.next_group(1, 0), None);
        rotation.begin(3, 100.0, 1, 0);
        assert!(rotation.next_group(1, 0).is_some());
        rotation.begin(0, 100.0, 1, 0);
        assert_eq!(rotation.next_group(1, 0), None);
        assert_eq!(rotation.counts(), (0, 0, 0));
    }

    #[test]
    fn each_round_has_each_group_once_and_another_order() {
        let rotation = rotation(12);
        let rounds: Vec<Vec<u32>> = (0..20)
            .map(|_| (0..12).filter_map(|_| rotation.next_group(1, 0)).collect())
            .collect();
        for round in &rounds {
            let mut sorted = round.clone();
            sorted.sort_unstable();
            assert!(sorted.into_iter().eq(0..12), "{round:?}");
        }
        assert!(rounds.windows(2).all(|pair| pair[0] != pair[1]));
        assert_eq!(rotation.counts().0, 240);
    }

    #[test]
    fn a_class_has_turns_of_its_own_once_it_is_expected() {
        let rotation = rotation(4);
        let (a, b) = (class(1), class(2));
        assert!(rotation.renew(a, u32::MAX, &[0, 0, 0, 1, 2, 3]));
        assert!(rotation.renew(b, 0, &[]));
        let mut groups: BTreeMap<u32, u32> = BTreeMap::new();
        // A A B A A B ...: the next class follows from the two before.
        for n in 0..606 {
            let here = if n % 3 == 2 { b } else { a };
            let chosen = rotation.next_group(5, 0);
            if n >= 6 {
                assert_eq!(chosen.is_some(), here == a, "{n}");
                *groups.entry(chosen.unwrap_or(9)).or_default() += 1;
            }
            rotation.saw(5, here);
        }
        assert_eq!(rotation.expected(5), Some(a));
        assert_eq!(groups[&9], 200);
        assert!((195..=201).contains(&groups[&0]), "{groups:?}");
        assert!((65..=68).contains(&groups[&3]), "{groups:?}");
    }

    #[test]
    fn queues_are_predicted_apart() {
        let rotation = rotation(2);
        for _ in 0..4 {
            rotation.saw(1, class(1));
            rotation.saw(2, class(2));
        }
        assert_eq!(rotation.expected(1), Some(class(1)));
        assert_eq!(rotation.expected(2), Some(class(2)));
    }

    #[test]
    fn more_classes_than_there_is_room_for_do_no_harm() {
        let rotation = rotation(3);
        let kept: Vec<bool> = (0..2000)
            .map(|n| rotation.renew(class(n), u32::MAX, &[2]))
            .collect();
        let count = kept.iter().filter(|k| **k).count();
        assert!((400..=CLASSES).contains(&count), "{count}");
        for (n, kept) in kept.iter().enumerate() {
            for _ in 0..3 {
                rotation.saw(1, class(n as u64));
            }
            let chosen = rotation.next_group(1, 0).unwrap();
            assert!(chosen < 3 && (chosen == 2 || !kept), "{n}");
        }
    }

    #[test]
    fn entries_are_kept_apart_and_checked() {
        let rotation = rotation(40_000);
        let entries: Vec<u32> = (0..80).map(|n| 39_000 + n).collect();
        assert!(rotation.renew(class(1), u32::MAX, &entries));
        for _ in 0..3 {
            rotation.saw(1, class(1));
        }
        let mut seen: Vec<u32> = (0..64).filter_map(|_| rotation.next_group(1, 0)).collect();
        seen.sort_unstable();
        assert_eq!(seen, entries[..64]);
        // The schedule names groups that do not exist.
        assert!(rotation.renew(class(1), u32::MAX, &[60_000; 8]));
        assert!((0..64).all(|_| rotation.next_group(1, 0).is_some_and(|g| g < 40_000)));
    }

    #[test]
    fn the_budget_bounds_the_windows() {
        let rotation = Rotation::new();
        let start = 10_000_000_000;
        rotation.begin(4, 2.0, 3, start);
        (0..4).for_each(|group| rotation.renew_cost_of(group, 10_000));
        let mut chosen = 0;
        for now in (start..start + 2_000_000_000).step_by(2_000) {
            chosen += u64::from(rotation.next_group(1, now).is_some());
        }
        // 3.8 ms at once, and then 19 ms of each second, at 10 us for each window.
        assert!((4_178..=4_183).contains(&chosen), "{chosen}");
        let (windows, charged, refused) = rotation.counts();
        assert_eq!((windows, charged), (chosen, chosen * 10_000));
        assert_eq!(windows + refused, 1_000_000);
    }

    #[test]
    fn what_is_not_taken_is_not_paid_for() {
        let rotation = Rotation::new();
        let start = 10_000_000_000;
        rotation.begin(4, 2.0, 3, start);
        for _ in 0..10_000 {
            let group = rotation.next_group(1, start).unwrap();
            rotation.untaken(group);
        }
        assert_eq!(rotation.counts(), (0, 0, 0));
        // The cost of a window rose in between.
        rotation.renew_cost(10);
        let group = rotation.next_group(1, start).unwrap();
        rotation.renew_cost_of(group, 1000);
        rotation.untaken(group);
        assert_eq!(rotation.counts(), (0, 0, 0));
    }

    #[test]
    fn few_windows_are_open_before_a_cost_is_known() {
        let rotation = Rotation::new();
        let start = 10_000_000_000;
        rotation.begin(6, 2.0, 3, start);
        let take = |now: u64| -> Vec<u32> {
            (0..100)
                .filter_map(|_| rotation.next_group(1, now))
                .collect()
        };
        let first = take(start);
        assert_eq!(first.len(), 2, "{first:?}");
        assert_eq!(take(start + 99_000_000), []);
        // One of them is known: it is counted again in its turn, and two others find out theirs.
        rotation.renew_cost_of(first[0], 1000);
        let next = take(start + 99_000_000);
        assert_eq!(next.len(), 2, "{next:?}");
        let mut all = [first, next].concat();
        // A window that is not read for long blocks no other group for ever.
        all.extend(take(start + 200_000_000));
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2, 3, 4, 5], "each of the round, once");
        // When all are known, the budget alone is the limit.
        (0..6).for_each(|group| rotation.renew_cost_of(group, 1000));
        assert_eq!(take(start + 300_000_000).len(), 100);
    }

    #[test]
    fn half_of_the_reservations_are_chosen_at_random() {
        let rotation = rotation(2);
        rotation.renew_unknown(1 << 31);
        let drawn: Vec<bool> = (0..10_000)
            .map(|_| rotation.next_group(1, 0).is_some())
            .collect();
        let count = drawn.iter().filter(|d| **d).count();
        assert!((4_800..5_200).contains(&count), "{count}");
        // A window is as likely after a window as after none, at any distance up to 16.
        for lag in 1..16 {
            let both = drawn.iter().zip(&drawn[lag..]).filter(|(a, b)| **a && **b);
            let both = both.count();
            assert!((2_300..2_700).contains(&both), "{lag}: {both}");
        }
    }

    #[test]
    fn threads_share_the_rounds() {
        let rotation = rotation(5);
        let mut counts = [0; 5];
        let chosen: Vec<Vec<u32>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|n| {
                    let rotation = &rotation;
                    scope.spawn(move || {
                        let own = (0..1000).filter_map(|_| rotation.next_group(n, 0));
                        own.collect::<Vec<u32>>()
                    })
                })
                .collect();
            let joined = threads.into_iter().map(|t| t.join().unwrap());
            joined.collect()
        });
        chosen
            .iter()
            .flatten()
            .for_each(|group| counts[*group as usize] += 1);
        assert_eq!(counts, [800; 5]);
    }
}
