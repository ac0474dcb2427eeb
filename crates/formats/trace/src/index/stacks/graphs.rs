//! Which stacks captured the kernels of graphs.
//!
//! A launch into a stream that is captured has no dispatch. When the graph is launched later, its
//! dispatches have the correlation id of that call, and say nothing about their nodes. They are matched
//! with the captured launches by their sizes: of those with the same sizes, captured on one stream, each
//! depends on the one before, so that HIP puts them into a queue in that order. Whatever could be
//! matched in two ways is not matched.
//!
//! Kernel nodes that the program adds are like captured launches. They have an order as far as each depends
//! on the one before.
//!
//! Kernels of CUDA's graphs name their nodes, which are copies of those that were captured.

mod capture;
mod live;
mod matching;

use foldhash::fast::RandomState;
pub use live::{LATE, LiveGraphs};
pub(crate) use matching::Matching;
use midair_record::event::{GraphBuild, graph_build};
use std::collections::HashMap;

/// The most steps and launches of graphs that are kept. With more steps no kernel is matched.
const MOST_STEPS: usize = 1 << 19;
const MOST_REPLAYS: usize = 1 << 20;
/// How many copies of copies of a node are followed: a graph within a graph is copied with it.
const MOST_COPIES: usize = 16;

/// What the records say about graphs.
#[derive(Debug, Clone, Default)]
pub struct Graphs {
    steps: Vec<GraphBuild>,
    /// Executable graph and time of each launch of a graph, by correlation id.
    replays: HashMap<u64, (u64, u64), RandomState>,
    /// Stacks of nodes, for kernels that name their nodes, and the nodes of which others are copies.
    nodes: HashMap<u64, u32, RandomState>,
    copies: HashMap<u64, u64, RandomState>,
    has_more: bool,
    /// Whether a kernel names its node, and whether some nodes are not known for want of room.
    has_nodes: bool,
    misses_nodes: bool,
}

impl Graphs {
    /// Takes a step.
    pub(super) fn add(&mut self, step: &GraphBuild) {
        match step.header.operation {
            graph_build::REPLAY if self.replays.len() < MOST_REPLAYS => {
                self.replays
                    .insert(step.correlation, (step.subject, step.start));
            }
            graph_build::NODE if self.nodes.len() < MOST_STEPS => {
                self.nodes.insert(step.subject, step.stack);
            }
            graph_build::NODE_COPY if self.copies.len() < MOST_STEPS => {
                self.copies.insert(step.made, step.subject);
            }
            graph_build::REPLAY => {}
            graph_build::NODE | graph_build::NODE_COPY => self.misses_nodes = true,
            _ if self.steps.len() < MOST_STEPS => {
                self.misses_nodes |=
                    step.header.operation == graph_build::CHANGE && step.subject == 0;
                self.steps.push(*step);
            }
            _ => self.has_more = true,
        }
    }

    /// Takes the node of a kernel, or 0.
    pub(super) fn add_node_of_kernel(&mut self, node: u64) {
        self.has_nodes |= node != 0;
    }

    /// Whether kernels may belong to graphs.
    pub fn is_empty(&self) -> bool {
        self.replays.is_empty() && !self.has_nodes
    }

    /// Returns where the node that a kernel names was captured.
    pub(super) fn of_node(&self, mut node: u64) -> Captured {
        for _ in 0..MOST_COPIES {
            // CUPTI reports a copy as a new node first, made by the call that copies.
            if let Some(original) = self.copies.get(&node) {
                node = *original;
                continue;
            }
            match self.nodes.get(&node) {
                Some(stack) => return Captured::At(*stack),
                None if self.misses_nodes => break,
                None => return Captured::Unseen,
            }
        }
        Captured::At(0)
    }
}

/// Where a kernel of a graph was captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Captured {
    /// At a stack; 0 where it is not known.
    At(u32),
    /// The session has not seen it.
    Unseen,
}

#[cfg(test)]
mod tests;
