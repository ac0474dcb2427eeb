//! What a session counts: groups with their packets, by agent.

use crate::architecture::Architecture;
use crate::expression::Accumulate;
use crate::group::Group;
use crate::template::Template;
use std::collections::{BTreeMap, BTreeSet};

/// A group of counters for a GPU, ready to be counted.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// The GPU.
    pub architecture: &'static Architecture,
    /// The counters, and the events that are counted for them.
    /// [`crate::template::Slot::event`] counts in its order.
    pub group: Group,
    /// The packets.
    pub template: Template,
}

/// The counters by which the windows of a class are compared with each other over time, the better
/// one first: both count cycles.
const OVER_TIME: [&str; 2] = ["GRBM_GUI_ACTIVE", "GRBM_COUNT"];

impl Prepared {
    /// Returns the index of a plain event of this name among the group's events.
    pub fn event(&self, name: &str) -> Option<u32> {
        let mut events = self.group.events.iter();
        let at = events.position(|e| e.name == name && e.accumulate == Accumulate::None)?;
        u32::try_from(at).ok()
    }
}

impl CounterPlan {
    /// Returns the counter by which an agent's windows are compared with each other over time: the
    /// one that most of its groups count. The other groups may lack it.
    pub fn over_time(&self, node: u32) -> Option<&'static str> {
        let groups = self.agents.get(&node)?;
        let counted = |name: &str| groups.iter().filter(|g| g.event(name).is_some()).count();
        // Of equal ones, the last.
        let best = OVER_TIME.into_iter().rev().max_by_key(|name| counted(name));
        best.filter(|name| counted(name) > 0)
    }
}

/// The value in [`CounterPlan::locks`] where the lock is held.
pub const HELD: &str = "held";

/// Groups by agent. The attacher passes them to the target, and interprets what comes back by them.
#[derive(Debug, Clone, Default)]
pub struct CounterPlan {
    /// The groups by KFD node id; a group's number is its index.
    pub agents: BTreeMap<u32, Vec<Prepared>>,
    /// How often the counters of whole devices are read, in nanoseconds. 0: counters are counted
    /// per dispatch.
    pub interval: u64,
    /// By KFD node id, the state of the kernel driver's profiler lock: [`HELD`], or why it is not
    /// held.
    pub locks: BTreeMap<u32, String>,
    /// By KFD node id, the other processes that had memory or queues on the agent when the session
    /// started or ended. An agent for which this is not known is missing.
    pub others: BTreeMap<u32, BTreeSet<u32>>,
}
