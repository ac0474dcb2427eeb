//! The kernels of one graph, and where each was captured or added.

use super::Captured;
use foldhash::fast::RandomState;
use midair_record::event::GraphBuild;
use std::collections::HashMap;

/// Sizes of a launch: grid and workgroup.
pub(super) type Sizes = ([u32; 3], [u32; 3]);

/// What puts launches into an order: each depends on the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Order {
    /// Nothing that is known.
    #[default]
    None,
    /// The stream on which they were captured.
    Stream(u64),
    /// The dependencies of nodes that the program added: the first of these nodes.
    Chain(u64),
}

/// Launches of the same sizes.
#[derive(Debug, Clone, Default)]
struct Class {
    /// Their stacks, in their order.
    stacks: Vec<u32>,
    /// The order of all of them.
    order: Order,
    /// Whether it is the order of all.
    is_ordered: bool,
}

impl Class {
    fn add(&mut self, stack: u32, order: Order) {
        if self.stacks.is_empty() {
            (self.order, self.is_ordered) = (order, true);
        }
        self.is_ordered &= self.order == order && order != Order::None;
        self.stacks.push(stack);
    }

    /// Returns the stack of the dispatch at this place among the dispatches of these sizes; 0 where it is
    /// not certain.
    fn stack(&self, at: usize, is_one_queue: bool) -> u32 {
        let mut stacks = self.stacks.iter();
        let first = stacks.next().copied().unwrap_or(0);
        if stacks.all(|stack| *stack == first) {
            return first;
        }
        let is_ordered = self.is_ordered && is_one_queue;
        let stack = self.stacks.get(at).filter(|_| is_ordered);
        stack.copied().unwrap_or(0)
    }
}

/// A node that the program added.
#[derive(Debug, Clone, Copy)]
struct Node {
    sizes: Sizes,
    /// The first node of its chain.
    chain: u64,
    /// Whether no other node follows in its chain.
    is_last: bool,
}

/// The launches of one graph.
#[derive(Debug, Clone, Default)]
pub(super) struct Capture {
    classes: HashMap<Sizes, Class, RandomState>,
    nodes: HashMap<u64, Node, RandomState>,
    launches: usize,
}

/// A dispatch that waits for the others of its launch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Dispatch {
    pub(super) id: u64,
    pub(super) queue: u32,
    pub(super) sizes: Sizes,
}

impl Capture {
    /// Returns how many launches there are.
    pub(super) fn len(&self) -> usize {
        self.launches
    }

    /// Adds a launch that was captured.
    pub(super) fn add(&mut self, step: &GraphBuild) {
        self.launches += 1;
        let class = self.classes.entry((step.grid, step.workgroup));
        let order = Order::Stream(step.subject);
        class.or_default().add(step.stack, order);
    }

    /// Adds a kernel node of the program's.
    pub(super) fn add_node(&mut self, step: &GraphBuild) {
        let sizes = (step.grid, step.workgroup);
        let before = self.nodes.get_mut(&step.after).filter(|it| it.is_last);
        let chain = match before {
            Some(before) => {
                before.is_last = false;
                before.chain
            }
            None => step.made,
        };
        let node = Node {
            sizes,
            chain,
            is_last: true,
        };
        self.nodes.insert(step.made, node);
        self.launches += 1;
        let class = self.classes.entry(sizes).or_default();
        class.add(step.stack, Order::Chain(chain));
    }

    /// Adds the launches of a graph that is a node of this one. They keep their order among each other.
    pub(super) fn add_child(&mut self, child: &Capture) {
        self.launches += child.launches;
        for (sizes, class) in &child.classes {
            let own = self.classes.entry(*sizes).or_default();
            let is_ordered = own.stacks.is_empty() && class.is_ordered;
            own.stacks.extend(&class.stacks);
            (own.order, own.is_ordered) = (Order::None, is_ordered);
        }
    }

    /// Returns a copy whose nodes have other handles.
    pub(super) fn copy(&self) -> Capture {
        Capture {
            nodes: HashMap::default(),
            ..self.clone()
        }
    }

    /// Whether a node has these sizes.
    pub(super) fn has(&self, node: u64, sizes: Sizes) -> bool {
        self.nodes.get(&node).is_some_and(|it| it.sizes == sizes)
    }

    /// Gives the dispatches of a launch their stacks.
    pub(super) fn give(&self, mut dispatches: Vec<Dispatch>, mut found: impl FnMut(u64, Captured)) {
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
