//! The counter tracks over time: bytes being copied and their speed, bytes allocated, and
//! dispatches that wait or run.
//!
//! Records come nearly in the order of time: only the records of each thread and each queue are
//! fully in order. A window of changes is sorted before it is summed up. A change that comes later
//! than the whole window still counts, from its own time on.

use super::packets::Packets;
use super::tracks::queue_index;
use crate::files::WriteError;
use crate::job::Job;
use foldhash::fast::RandomState;
use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};

/// The number of changes that are sorted before they are written.
const WINDOW: usize = 1 << 14;
/// The most live allocations that are remembered. The releases of further ones are not subtracted.
const MOST_LIVE: usize = 1 << 18;
/// The most nodes, and queues with scratch memory, that are counted. A target can name any number
/// of either.
const MOST_COUNTED: usize = 1 << 14;

/// Keeps the numbers of counter tracks different from other tracks' numbers.
const COUNTERS: u64 = u64::MAX;

/// What is counted on a node, in bytes unless the variant says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Level {
    /// Copies to the node that are in progress.
    CopyTo(u32),
    /// Memory that was allocated on the node in this session and not released.
    Allocated(u32),
    /// Scratch memory of the node's queues.
    Scratch(u32),
    /// The speed of copies to the node, in thousandths of gigabytes per second.
    Speed(u32),
    /// Dispatches in one of the node's queues that were launched and have not ended.
    Depth(u32, u32),
}

/// What changes a level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Change {
    Copying { node: u32, bytes: u64 },
    Copied { node: u32, bytes: u64 },
    Allocated { node: u32, address: u64, bytes: u64 },
    Released { address: u64 },
    Scratch { node: u32, queue: u32, bytes: u64 },
    Faster { node: u32, speed: u64 },
    Slower { node: u32, speed: u64 },
    Queued { node: u32, queue: u32 },
    Done { node: u32, queue: u32 },
}

/// A change at a time. The earliest is the greatest, as a heap has it on top.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Waiting(u64, Change);

impl Ord for Waiting {
    #[inline]
    fn cmp(&self, other: &Waiting) -> Ordering {
        // Hardly any two have the same time.
        other.0.cmp(&self.0).then_with(|| other.1.cmp(&self.1))
    }
}

impl PartialOrd for Waiting {
    #[inline]
    fn partial_cmp(&self, other: &Waiting) -> Option<Ordering> {
        Some(self.cmp(other))
    }
    #[inline]
    fn le(&self, other: &Waiting) -> bool {
        self.0 > other.0 || self.cmp(other) != Ordering::Greater
    }
}

/// The counter tracks of a trace.
#[derive(Debug, Default)]
pub(super) struct Levels {
    waiting: BinaryHeap<Waiting>,
    values: HashMap<Level, u64, RandomState>,
    /// Node and bytes of each live allocation, by address.
    live: HashMap<u64, (u32, u64)>,
    scratch: HashMap<(u32, u32), u64>,
    /// The levels that changed at one time.
    changed: Vec<Level>,
}

impl Levels {
    /// Records a change at a time.
    pub(super) fn change(
        &mut self,
        job: &Job<'_>,
        out: &mut Packets<'_>,
        time: u64,
        change: Change,
    ) -> Result<(), WriteError> {
        self.waiting.push(Waiting(time, change));
        if self.waiting.len() > WINDOW {
            self.settle(job, out)?;
        }
        Ok(())
    }

    /// Writes the changes that are still waiting.
    pub(super) fn finish(
        &mut self,
        job: &Job<'_>,
        out: &mut Packets<'_>,
    ) -> Result<(), WriteError> {
        while !self.waiting.is_empty() {
            self.settle(job, out)?;
        }
        Ok(())
    }

    /// Writes the levels after all changes of the earliest time.
    fn settle(&mut self, job: &Job<'_>, out: &mut Packets<'_>) -> Result<(), WriteError> {
        let Some(Waiting(now, first)) = self.waiting.pop() else {
            return Ok(());
        };
        let mut changed = std::mem::take(&mut self.changed);
        changed.clear();
        changed.extend(self.apply(first));
        while let Some(Waiting(time, _)) = self.waiting.peek()
            && *time == now
            && let Some(Waiting(_, change)) = self.waiting.pop()
        {
            changed.extend(self.apply(change));
        }
        changed.sort_unstable();
        changed.dedup();
        for level in changed.drain(..) {
            let uuid = uuid(out, level);
            let is_speed = matches!(level, Level::Speed(_));
            let is_bytes = !matches!(level, Level::Speed(_) | Level::Depth(..));
            if out.describe(uuid) {
                let name = name(job, level);
                let begin = job.trace.process.init_time.min(now);
                // Writes the level before the first change, so that the curve starts at 0.
                if is_bytes {
                    out.counter_track(uuid, &name)?;
                    out.counter(uuid, begin, 0)?;
                } else if is_speed {
                    out.number_track(uuid, &name)?;
                    out.number(uuid, begin, 0.0)?;
                } else {
                    out.number_track(uuid, &name)?;
                    out.counter(uuid, begin, 0)?;
                }
            }
            let value = self.values.get(&level).copied().unwrap_or(0);
            if is_speed {
                out.number(uuid, now, value as f64 / 1000.0)?;
            } else {
                out.counter(uuid, now, value)?;
            }
        }
        self.changed = changed;
        Ok(())
    }

    fn apply(&mut self, change: Change) -> Option<Level> {
        let (level, more, less) = match change {
            Change::Copying { node, bytes } => (Level::CopyTo(node), bytes, 0),
            Change::Copied { node, bytes } => (Level::CopyTo(node), 0, bytes),
            Change::Allocated {
                node,
                address,
                bytes,
            } => {
                if self.live.len() < MOST_LIVE {
                    self.live.insert(address, (node, bytes));
                }
                (Level::Allocated(node), bytes, 0)
            }
            // Memory that was allocated before the attach is in no level.
            Change::Released { address } => {
                let (node, bytes) = self.live.remove(&address)?;
                (Level::Allocated(node), 0, bytes)
            }
            Change::Scratch { node, queue, bytes } => {
                let known = self.scratch.contains_key(&(node, queue));
                if !known && self.scratch.len() >= MOST_COUNTED {
                    return None;
                }
                let before = self.scratch.insert((node, queue), bytes).unwrap_or(0);
                (Level::Scratch(node), bytes, before)
            }
            Change::Faster { node, speed } => (Level::Speed(node), speed, 0),
            Change::Slower { node, speed } => (Level::Speed(node), 0, speed),
            Change::Queued { node, queue } => (Level::Depth(node, queue), 1, 0),
            Change::Done { node, queue } => (Level::Depth(node, queue), 0, 1),
        };
        if !self.values.contains_key(&level) && self.values.len() >= MOST_COUNTED {
            return None;
        }
        let value = self.values.entry(level).or_default();
        *value = value.saturating_add(more).saturating_sub(less);
        Some(level)
    }
}

fn uuid(out: &Packets<'_>, level: Level) -> u64 {
    let (kind, node) = match level {
        Level::CopyTo(node) => (1, node),
        Level::Allocated(node) => (2, node),
        Level::Scratch(node) => (3, node),
        Level::Speed(node) => (4, node),
        Level::Depth(node, queue) => {
            return out.uuid(&[COUNTERS, 5, u64::from(node), u64::from(queue)]);
        }
    };
    out.uuid(&[COUNTERS, kind, u64::from(node)])
}

fn name(job: &Job<'_>, level: Level) -> String {
    let (what, node) = match level {
        Level::CopyTo(node) => ("COPY BYTES to", node),
        Level::Allocated(node) => ("ALLOCATE BYTES on", node),
        Level::Scratch(node) => ("SCRATCH MEMORY on", node),
        Level::Speed(node) => ("COPY GB/s to", node),
        Level::Depth(node, _) => ("QUEUE DEPTH of", node),
    };
    let agent = job.agent_index(node);
    if let Level::Depth(_, queue) = level {
        return format!(
            "{what} {} [{}] QUEUE [{}]",
            agent.label,
            agent.index,
            queue_index(queue)
        );
    }
    format!(
        "{what} {} [{}] ({})",
        agent.label, agent.index, agent.of_type
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_rise_and_fall_whatever_the_order_of_releases() {
        let mut levels = Levels::default();
        let allocated = |address, bytes| Change::Allocated {
            node: 1,
            address,
            bytes,
        };
        let mut values = Vec::new();
        for change in [
            allocated(0x10, 100),
            allocated(0x20, 50),
            Change::Released { address: 0x10 },
            // This was allocated before the attach.
            Change::Released { address: 0x77 },
            Change::Released { address: 0x10 },
            allocated(0x10, 7),
            Change::Released { address: 0x20 },
        ] {
            levels.apply(change);
            values.push(levels.values[&Level::Allocated(1)]);
        }
        assert_eq!(values, [100, 150, 50, 50, 50, 57, 7]);
    }

    #[test]
    fn scratch_is_the_sum_over_queues() {
        let mut levels = Levels::default();
        let mut values = Vec::new();
        for (queue, bytes) in [(1, 10), (2, 20), (1, 30), (2, 0), (2, 0), (1, 0)] {
            let change = Change::Scratch {
                node: 1,
                queue,
                bytes,
            };
            levels.apply(change);
            values.push(levels.values[&Level::Scratch(1)]);
        }
        assert_eq!(values, [10, 30, 50, 30, 30, 0]);
    }

    #[test]
    fn of_waiting_changes_the_earliest_is_the_greatest() {
        let at = |time, queue| Waiting(time, Change::Done { node: 1, queue });
        for (greater, less) in [
            (at(5, 1), at(6, 1)),
            (at(5, 9), at(6, 1)),
            (at(5, 1), at(5, 2)),
        ] {
            assert!(greater > less, "{greater:?} {less:?}");
            assert!(less <= greater, "{greater:?} {less:?}");
        }
    }
}
