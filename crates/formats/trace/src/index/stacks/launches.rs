//! The stacks of launches by their correlation ids, which count up.

use std::collections::VecDeque;

/// The most ids between the first launch and the last one, 4 bytes each.
const MOST: usize = 1 << 25;
/// The same where only the latest records are kept: these are the launches of the last seconds.
const MOST_RECENT: usize = 1 << 22;

/// The stacks of the launches within a range of ids.
#[derive(Debug, Clone, Default)]
pub struct Launches {
    first: u64,
    /// The stack of each id from the first one; 0 where it has none.
    stacks: VecDeque<u32>,
    /// Whether the oldest launches make room for new ones.
    only_recent: bool,
}

impl Launches {
    /// Has the oldest launches make room for new ones from now on.
    pub fn keep_recent(&mut self) {
        self.only_recent = true;
    }

    /// Returns the stack of a launch; 0 where it has none.
    pub fn stack(&self, correlation: u64) -> u32 {
        let at = correlation.checked_sub(self.first);
        let at = at.and_then(|at| usize::try_from(at).ok());
        at.and_then(|at| self.stacks.get(at)).copied().unwrap_or(0)
    }

    /// Returns the first id of the range.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Adds a launch. Returns false if its id is too far from the others.
    pub fn add(&mut self, correlation: u64, stack: u32) -> bool {
        let most = if self.only_recent { MOST_RECENT } else { MOST };
        if self.stacks.is_empty() {
            self.first = correlation;
        }
        // Threads store their launches in any order.
        if let Some(before) = self.first.checked_sub(correlation).filter(|it| *it > 0) {
            if before.saturating_add(self.stacks.len() as u64) > most as u64 {
                return false;
            }
            for _ in 0..before {
                self.stacks.push_front(0);
            }
            self.first = correlation;
        }
        let mut at = correlation - self.first;
        if let Some(beyond) = at
            .saturating_add(1)
            .checked_sub(most as u64)
            .filter(|it| *it > 0)
        {
            if !self.only_recent {
                return false;
            }
            let gone = beyond.min(self.stacks.len() as u64);
            self.stacks.drain(..gone as usize);
            self.first = correlation - (most as u64 - 1);
            at = most as u64 - 1;
        }
        let at = at as usize;
        if self.stacks.len() <= at {
            self.stacks.resize(at + 1, 0);
        }
        if let Some(place) = self.stacks.get_mut(at) {
            *place = stack;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(launches: &Launches, ids: impl Iterator<Item = u64>) -> Vec<u32> {
        ids.map(|id| launches.stack(id)).collect()
    }

    #[test]
    fn ids_start_anywhere_and_come_in_any_order() {
        let mut launches = Launches::default();
        assert_eq!(launches.stack(0), 0);
        for (id, stack) in [
            (u64::MAX - 3, 1),
            (u64::MAX - 6, 2),
            (u64::MAX - 5, 3),
            (u64::MAX, 4),
        ] {
            assert!(launches.add(id, stack));
        }
        let found = all(&launches, u64::MAX - 7..=u64::MAX);
        assert_eq!(found, [0, 2, 3, 0, 1, 0, 0, 4]);
        assert!(
            !launches.add(7, 5),
            "it would take the memory of all ids between"
        );
    }

    #[test]
    fn the_number_of_launches_is_limited() {
        let mut launches = Launches::default();
        assert!(launches.add(10, 1) && launches.add(9 + MOST as u64, 2));
        assert!(!launches.add(10 + MOST as u64, 3) && !launches.add(9, 3));
        assert_eq!(all(&launches, [10, 9 + MOST as u64].into_iter()), [1, 2]);

        let most = MOST_RECENT as u64;
        let mut launches = Launches::default();
        launches.keep_recent();
        for (id, stack) in [(10, 1), (11, 2), (10 + most, 3)] {
            assert!(launches.add(id, stack));
        }
        assert_eq!(launches.first(), 11);
        assert_eq!(all(&launches, [10, 11, 10 + most].into_iter()), [0, 2, 3]);
        // A jump leaves nothing of what was there.
        for (id, stack) in [(50 * most, 4), (50 * most + 1, 5), (1 << 60, 6)] {
            assert!(launches.add(id, stack));
            assert_eq!(launches.stack(id), stack);
            assert!(launches.stacks.len() <= MOST_RECENT);
        }
        assert_eq!(launches.stack(50 * most), 0);
    }
}
