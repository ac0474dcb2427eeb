//! Which stacks captured the kernels of graphs.
//!
//! A launch into a stream that is captured has no dispatch. When the graph is launched later, its
//! dispatches have the correlation id of that call, and say nothing about their nodes. They are matched
//! with the captured launches by their sizes: of those with the same sizes, captured on one stream, each
//! depends on the one before, so that HIP puts them into a queue in that order. Whatever could be
//! matched in two ways is not matched.
//!
//! Kernels of CUDA's graphs name their nodes, which are copies of those that were captured.

use foldhash::fast::RandomState;
use midair_record::event::{CudaLaunch, GraphBuild, Kernel, graph_build};
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

/// Sizes of a launch: grid and workgroup.
type Sizes = ([u32; 3], [u32; 3]);

/// Captured launches of the same sizes.
#[derive(Debug, Default)]
struct Class {
    /// Their stacks, in their order.
    stacks: Vec<u32>,
    /// The stream of the first one, and whether all are of this stream.
    stream: u64,
    is_one_stream: bool,
}

impl Class {
    fn add(&mut self, step: &GraphBuild) {
        if self.stacks.is_empty() {
            (self.stream, self.is_one_stream) = (step.subject, true);
        }
        self.is_one_stream &= self.stream == step.subject;
        self.stacks.push(step.stack);
    }

    /// Returns the stack of the dispatch at this place among the dispatches of these sizes; 0 where it is
    /// not certain.
    fn stack(&self, at: usize, is_one_queue: bool) -> u32 {
        let mut stacks = self.stacks.iter();
        let first = stacks.next().copied().unwrap_or(0);
        if stacks.all(|stack| *stack == first) {
            return first;
        }
        let is_ordered = self.is_one_stream && is_one_queue;
        let stack = self.stacks.get(at).filter(|_| is_ordered);
        stack.copied().unwrap_or(0)
    }
}

/// The launches of one capture.
#[derive(Debug, Default)]
struct Capture {
    classes: HashMap<Sizes, Class, RandomState>,
    launches: usize,
    /// See [`Reading::unclear`], at its start.
    since: u64,
    /// Whether nodes came from elsewhere as well.
    is_unclear: bool,
}

/// Where a graph comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// Its capture was not seen.
    Before,
    /// It was made in another way, or changed later.
    Unclear,
    /// From a capture, by its place.
    Capture(usize),
}

/// A dispatch that waits for the others of its launch.
#[derive(Debug, Clone, Copy)]
struct Dispatch {
    id: u64,
    queue: u32,
    sizes: Sizes,
}

/// Where a kernel of a graph was captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Captured {
    /// At a stack; 0 where it is not known.
    At(u32),
    /// The session has not seen it.
    Unseen,
}

/// Matches the kernels of graphs with captured launches.
#[derive(Debug, Default)]
pub(crate) struct Matching {
    graphs: Graphs,
    captures: Vec<Capture>,
    /// What each executable graph comes from, since when.
    execs: HashMap<u64, Vec<(u64, Source)>, RandomState>,
    waiting: HashMap<u64, Vec<Dispatch>, RandomState>,
}

/// The state of the process's graphs while their steps are read in order.
#[derive(Default)]
struct Reading {
    open: HashMap<u64, Capture, RandomState>,
    graphs: HashMap<u64, (Source, u64), RandomState>,
    /// How often all captures that were open, and all graphs that there were, have become unclear. A
    /// process can do both often, and have many.
    unclear: (u64, u64),
}

/// When a step took effect. A handle is free for others as soon as its destruction starts, and there
/// only at the end of the call that makes it.
fn time(step: &GraphBuild) -> u64 {
    match step.header.operation {
        graph_build::DESTROY => step.start,
        _ => step.end,
    }
}

impl Matching {
    /// Reads the steps of a session.
    pub(super) fn new(mut graphs: Graphs) -> Matching {
        let mut matching = Matching::default();
        let mut steps = std::mem::take(&mut graphs.steps);
        steps.sort_by_key(time);
        let mut reading = Reading::default();
        for step in steps.iter().filter(|_| !graphs.has_more) {
            matching.read(&mut reading, step);
        }
        Matching { graphs, ..matching }
    }

    fn read(&mut self, reading: &mut Reading, step: &GraphBuild) {
        let Reading {
            open,
            graphs,
            unclear,
        } = reading;
        let source = |graph: u64| match graphs.get(&graph) {
            Some((_, since)) if *since != unclear.1 => Source::Unclear,
            Some((source, _)) => *source,
            None => Source::Before,
        };
        match step.header.operation {
            graph_build::BEGIN => {
                let capture = Capture {
                    is_unclear: step.made != 0,
                    since: unclear.0,
                    ..Capture::default()
                };
                open.insert(step.subject, capture);
            }
            graph_build::LAUNCH => {
                // Another stream can join a capture. Whose that is, only the number of captures says.
                let is_one = open.len() == 1;
                let capture = match open.contains_key(&step.subject) {
                    true => open.get_mut(&step.subject),
                    false if is_one => open.values_mut().next(),
                    false => None,
                };
                match capture {
                    Some(capture) => capture.add(step),
                    None => unclear.0 += 1,
                }
            }
            graph_build::END => {
                let source = match open.remove(&step.subject) {
                    Some(capture) if capture.is_unclear || capture.since != unclear.0 => {
                        Source::Unclear
                    }
                    Some(capture) => {
                        self.captures.push(capture);
                        Source::Capture(self.captures.len() - 1)
                    }
                    None => Source::Before,
                };
                graphs.insert(step.made, (source, unclear.1));
            }
            graph_build::INSTANTIATE => {
                let source = source(step.subject);
                self.exec(step.made, time(step), source);
            }
            graph_build::COPY => {
                let source = source(step.subject);
                graphs.insert(step.made, (source, unclear.1));
            }
            graph_build::CHANGE if step.subject == 0 => unclear.1 += 1,
            graph_build::CHANGE => {
                if let Some(capture) = open.get_mut(&step.subject) {
                    capture.is_unclear = true;
                } else if self.execs.contains_key(&step.subject) {
                    self.exec(step.subject, time(step), Source::Unclear);
                } else {
                    graphs.insert(step.subject, (Source::Unclear, unclear.1));
                }
            }
            graph_build::DESTROY => {
                graphs.remove(&step.subject);
                self.exec(step.subject, time(step), Source::Unclear);
            }
            _ => {}
        }
    }

    fn exec(&mut self, exec: u64, time: u64, source: Source) {
        self.execs.entry(exec).or_default().push((time, source));
    }

    fn source(&self, exec: u64, time: u64) -> Source {
        let all = self.execs.get(&exec).map(Vec::as_slice);
        let all = all.unwrap_or_default();
        let before = all.partition_point(|(since, _)| *since <= time);
        let last = before.checked_sub(1).and_then(|at| all.get(at));
        last.map_or(Source::Before, |(_, source)| *source)
    }

    /// Takes a kernel. `is_own` says whether it is the program's rather than a copy of the runtime's. Each
    /// dispatch of which it is known now where it was captured goes to `found`.
    pub(super) fn add(
        &mut self,
        kernel: &Kernel,
        cuda: Option<&CudaLaunch>,
        is_own: bool,
        mut found: impl FnMut(u64, Captured),
    ) {
        let node = cuda.map_or(0, |cuda| cuda.graph_node);
        if node != 0 {
            found(kernel.dispatch_id, self.graphs.of_node(node));
            return;
        }
        let Some((exec, at)) = self.graphs.replays.get(&kernel.correlation) else {
            return;
        };
        match self.source(*exec, *at) {
            Source::Before if !self.graphs.has_more => {
                found(kernel.dispatch_id, Captured::Unseen);
            }
            Source::Capture(number) if is_own => {
                let waiting = self.waiting.entry(kernel.correlation).or_default();
                waiting.push(Dispatch {
                    id: kernel.dispatch_id,
                    queue: kernel.queue_id,
                    sizes: (kernel.grid, kernel.workgroup),
                });
                let capture = self.captures.get(number);
                if let Some(capture) = capture.filter(|it| it.launches == waiting.len()) {
                    let dispatches = std::mem::take(waiting);
                    self.waiting.remove(&kernel.correlation);
                    capture.give(dispatches, found);
                }
            }
            _ => {}
        }
    }
}

impl Capture {
    fn add(&mut self, step: &GraphBuild) {
        self.launches += 1;
        let class = self.classes.entry((step.grid, step.workgroup));
        class.or_default().add(step);
    }

    /// Gives the dispatches of a launch their stacks.
    fn give(&self, mut dispatches: Vec<Dispatch>, mut found: impl FnMut(u64, Captured)) {
        dispatches.sort_unstable_by_key(|it| (it.sizes, it.id));
        for same in dispatches.chunk_by(|a, b| a.sizes == b.sizes) {
            let class = same.first().and_then(|it| self.classes.get(&it.sizes));
            let class = class.filter(|class| class.stacks.len() == same.len());
            let is_one_queue = same.windows(2).all(|two| match two {
                [a, b] => a.queue == b.queue,
                _ => true,
            });
            for (at, dispatch) in same.iter().enumerate() {
                let stack = class.map_or(0, |class| class.stack(at, is_one_queue));
                found(dispatch.id, Captured::At(stack));
            }
        }
    }
}

#[cfg(test)]
mod tests;
