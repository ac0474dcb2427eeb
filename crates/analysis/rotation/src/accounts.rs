//! What windows of each group cost, and what was taken from the budget for them.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// How many groups are distinguished. Further ones share the last account.
pub(crate) const ACCOUNTS: usize = 64;
/// How many windows of unknown cost may be open at once: a single one can take longer
/// than all windows of a second may.
const FIRST: usize = 2;
/// How long such a window is waited for, in nanoseconds. A kernel may run for longer.
const PATIENCE: u64 = 100_000_000;

/// The windows of one group.
#[derive(Debug)]
struct Account {
    /// What a window costs, in nanoseconds; 0 = not known.
    cost: AtomicU64,
    /// The costs that were taken from the budget.
    charged: AtomicU64,
    /// The number of windows that they were taken for.
    windows: AtomicU64,
}

/// The windows of all groups. If all words are zero, no cost is known and nothing was taken.
#[derive(Debug)]
pub(crate) struct Accounts {
    each: [Account; ACCOUNTS],
    /// Until when windows without a known cost are waited for; past or 0 = for none.
    first: [AtomicU64; FIRST],
}

impl Accounts {
    pub(crate) const fn new() -> Accounts {
        Accounts {
            each: [const {
                Account {
                    cost: AtomicU64::new(0),
                    charged: AtomicU64::new(0),
                    windows: AtomicU64::new(0),
                }
            }; ACCOUNTS],
            first: [const { AtomicU64::new(0) }; FIRST],
        }
    }

    /// Forgets everything.
    pub(crate) fn begin(&self) {
        for account in &self.each {
            for word in [&account.cost, &account.charged, &account.windows] {
                word.store(0, Relaxed);
            }
        }
        for first in &self.first {
            first.store(0, Relaxed);
        }
    }

    fn of(&self, group: u32) -> &Account {
        &self.each[(group as usize).min(ACCOUNTS - 1)]
    }

    /// Returns what a window of a group costs, if that is known.
    pub(crate) fn cost(&self, group: u32) -> Option<u64> {
        Some(self.of(group).cost.load(Relaxed)).filter(|cost| *cost > 0)
    }

    /// Sets what a window of a group costs. Then others may find out theirs.
    pub(crate) fn renew(&self, group: u32, cost: u64) {
        if self.of(group).cost.swap(cost.max(1), Relaxed) == 0 {
            self.free();
        }
    }

    /// Returns whether a window of a group may be opened: its cost is known, or few windows are
    /// open whose cost is not.
    pub(crate) fn may_open(&self, group: u32, now: u64) -> bool {
        self.cost(group).is_some() || self.first.iter().any(|until| until.load(Relaxed) <= now)
    }

    /// Takes the place of a window whose cost is not known. Returns false where there is none.
    pub(crate) fn enter(&self, group: u32, now: u64) -> bool {
        let take = |first: &AtomicU64| {
            let until = first.load(Relaxed);
            let next = now.saturating_add(PATIENCE);
            until <= now
                && first
                    .compare_exchange(until, next, Relaxed, Relaxed)
                    .is_ok()
        };
        self.cost(group).is_some() || self.first.iter().any(take)
    }

    /// Frees the place of one window that is not opened after all.
    pub(crate) fn leave(&self, group: u32) {
        if self.cost(group).is_none()
            && let Some(taken) = self.first.iter().find(|until| until.load(Relaxed) != 0)
        {
            taken.store(0, Relaxed);
        }
    }

    fn free(&self) {
        for first in &self.first {
            first.store(0, Relaxed);
        }
    }

    /// Notes a window and what was taken for it.
    pub(crate) fn opened(&self, group: u32, cost: u64) {
        let account = self.of(group);
        account.charged.fetch_add(cost, Relaxed);
        account.windows.fetch_add(1, Relaxed);
    }

    /// Takes back what was noted for one window. Its cost may have been renewed since.
    pub(crate) fn untaken(&self, group: u32, cost: u64) {
        let account = self.of(group);
        for (word, less) in [(&account.windows, 1), (&account.charged, cost)] {
            let fewer = |count: u64| Some(count.saturating_sub(less));
            // The closure always returns Some, so this cannot fail.
            let _ = word.fetch_update(Relaxed, Relaxed, fewer);
        }
        self.leave(group);
    }

    /// Returns how many windows of an account there were, and what was taken for them.
    pub(crate) fn taken(&self, account: usize) -> (u64, u64) {
        self.each.get(account).map_or((0, 0), |account| {
            (account.windows.load(Relaxed), account.charged.load(Relaxed))
        })
    }
}
