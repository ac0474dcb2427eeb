//! What a session counts: groups with their packets, by agent.

use crate::architecture::Architecture;
use crate::group::Group;
use crate::template::Template;
use std::collections::BTreeMap;

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
}
