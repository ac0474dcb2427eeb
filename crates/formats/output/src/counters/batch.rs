//! Batches: several dispatches in one window that were launched at once, as HIP launches the
//! kernels of a graph. The window's values belong to all of them together, and to none of them
//! alone.

use midair_record::event::{CounterWindow, Kernel};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

/// The most dispatches that are remembered for the batches of all windows together. Further ones
/// are counted in their batch, but not named.
const MOST_MEMBERS: usize = 1 << 22;

/// The most kernels in a batch's name. The others are only counted.
const MOST_NAMES: usize = 8;

/// A dispatch of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Member {
    /// Which of the batch's packets it was, from 0.
    pub(crate) at: u32,
    pub(crate) dispatch_id: u64,
    pub(crate) kernel_id: u64,
}

/// The dispatches in a window, as far as they are known.
#[derive(Debug, Clone, Default)]
pub(crate) struct Batch {
    /// The dispatches, in the order of their packets once all have come.
    pub(crate) members: Vec<Member>,
    /// How many dispatches there are.
    pub(crate) count: u64,
    /// The time from the first start to the last end, or 0 where one has no times.
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Whether one of them has no times.
    untimed: bool,
    /// How many of them overlap their window.
    pub(super) inside: u64,
    /// Whether at least one of them is chosen.
    pub(super) is_chosen: bool,
    /// The sort of batch. It is the same for batches with the same kernels, grids, workgroups and
    /// sizes of LDS in the same order.
    pub(crate) sort: u64,
}

impl Batch {
    /// Adds one of its dispatches, with its times if it has any.
    pub(super) fn add(
        &mut self,
        window: &CounterWindow,
        kernel: &Kernel,
        times: Option<(u64, u64)>,
        room: &mut usize,
    ) {
        self.count += 1;
        // A window's packets number fewer than 2^32, so 32 bits hold the position.
        let at = kernel.packet_index.wrapping_sub(window.first_index) as u32;
        // The sum is the same in whichever order the dispatches come.
        self.sort = self.sort.wrapping_add(sort_of(at, kernel));
        match times {
            Some((start, end)) if !self.untimed => {
                self.start = if self.start == 0 {
                    start
                } else {
                    self.start.min(start)
                };
                self.end = self.end.max(end);
            }
            _ => (self.untimed, self.start, self.end) = (true, 0, 0),
        }
        if *room > 0 {
            *room -= 1;
            self.members.push(Member {
                at,
                dispatch_id: kernel.dispatch_id,
                kernel_id: kernel.kernel_id,
            });
        }
    }
}

impl Batch {
    /// Returns its kernels, named by their ids, each once with how often it occurs, in the order of their first
    /// occurrence: "vadd x2, scale".
    pub(crate) fn kernels<'n>(&self, name: impl Fn(u64) -> Cow<'n, str>) -> String {
        let mut counts: Vec<(u64, u64)> = Vec::new();
        let mut others = self.count - self.members.len() as u64;
        for member in &self.members {
            let is_full = counts.len() >= MOST_NAMES;
            if let Some((_, count)) = counts.iter_mut().find(|(id, _)| *id == member.kernel_id) {
                *count += 1;
            } else if is_full {
                others += 1;
            } else {
                counts.push((member.kernel_id, 1));
            }
        }
        let mut text = String::new();
        for (id, count) in counts {
            let comma = if text.is_empty() { "" } else { ", " };
            // Writing to a String cannot fail.
            let _ = write!(text, "{comma}{}", name(id));
            if count > 1 {
                let _ = write!(text, " x{count}");
            }
        }
        if others > 0 {
            let _ = write!(text, " and {others} others");
        }
        text
    }

    /// Returns the numbers of its dispatches, with consecutive ones as ranges: "3-7 9".
    pub(crate) fn dispatch_ids(&self) -> String {
        let mut text = String::new();
        let mut ids = self
            .members
            .iter()
            .map(|member| member.dispatch_id)
            .peekable();
        while let Some(first) = ids.next() {
            let mut last = first;
            while let Some(next) = ids.next_if(|id| Some(*id) == last.checked_add(1)) {
                last = next;
            }
            let space = if text.is_empty() { "" } else { " " };
            let _ = match last == first {
                true => write!(text, "{space}{first}"),
                false => write!(text, "{space}{first}-{last}"),
            };
        }
        text
    }
}

/// Returns a number that dispatches of the same class at the same place of their batches have.
pub(super) fn sort_of(at: u32, kernel: &Kernel) -> u64 {
    let mut hash = u64::from(at) + 1;
    let words = [
        kernel.kernel_id,
        u64::from(kernel.group_segment),
        u64::from(kernel.node),
    ];
    let sizes = kernel.grid.into_iter().chain(kernel.workgroup);
    for word in words.into_iter().chain(sizes.map(u64::from)) {
        hash = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash ^= hash >> 29;
    }
    hash
}

/// Tells which window a dispatch is in, by queue and packet.
#[derive(Debug)]
pub(super) struct ByPacket {
    of_queue: HashMap<u32, BTreeMap<u64, (u64, usize)>>,
    /// How many more dispatches may be remembered.
    pub(super) room: usize,
}

impl Default for ByPacket {
    fn default() -> ByPacket {
        ByPacket {
            of_queue: HashMap::new(),
            room: MOST_MEMBERS,
        }
    }
}

impl ByPacket {
    /// Adds a window with its number. Returns false if another window has the same packets.
    pub(super) fn add(&mut self, window: &CounterWindow, number: usize) -> bool {
        let first = window.first_index;
        let end = first.saturating_add(u64::from(window.packets));
        let of_queue = self.of_queue.entry(window.queue_id).or_default();
        of_queue.insert(first, (end, number)).is_none()
    }

    /// Returns the window that a dispatch is in.
    pub(super) fn of(&self, kernel: &Kernel) -> Option<usize> {
        let of_queue = self.of_queue.get(&kernel.queue_id)?;
        let (_, (end, number)) = of_queue.range(..=kernel.packet_index).next_back()?;
        (kernel.packet_index < *end).then_some(*number)
    }
}
