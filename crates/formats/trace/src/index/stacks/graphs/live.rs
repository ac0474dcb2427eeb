//! Kernels of HIP's graphs while the session continues: its records come by threads, not by time, and
//! without an end.

use super::matching::{self, Matching};
use super::{Captured, Graphs, MOST_REPLAYS, MOST_STEPS};
use foldhash::fast::RandomState;
use midair_record::event::{GraphBuild, Kernel, graph_build};
use std::collections::{HashMap, VecDeque};

/// How long kernels and steps wait for records of other threads from before, ns.
pub const LATE: u64 = 200_000_000;
/// How long a launch of a graph, and one of its kernels, are kept for the others, ns.
const PATIENCE: u64 = 5_000_000_000;
/// The most kernels that wait.
const MOST_WAITING: usize = 1 << 18;

/// Kernels that may be of graphs, and what is known of these.
#[derive(Debug)]
pub struct LiveGraphs {
    steps: Vec<GraphBuild>,
    kernels: VecDeque<(Kernel, bool)>,
    /// Kernels of which the others of their launch have not come.
    waiting: HashMap<u64, Kernel, RandomState>,
    matching: Matching,
    has_kernels: bool,
    /// When what is late was last forgotten.
    swept: u64,
}

impl Default for LiveGraphs {
    fn default() -> LiveGraphs {
        LiveGraphs {
            steps: Vec::new(),
            kernels: VecDeque::new(),
            waiting: HashMap::default(),
            matching: Matching::recent(),
            has_kernels: false,
            swept: 0,
        }
    }
}

impl LiveGraphs {
    /// Takes a step.
    pub fn add(&mut self, step: &GraphBuild) {
        let graphs = &mut self.matching.graphs;
        if step.header.operation == graph_build::REPLAY {
            graphs.add(step);
        } else if self.steps.len() < MOST_STEPS && !graphs.has_more {
            self.steps.push(*step);
        } else {
            graphs.has_more = true;
        }
    }

    /// Whether there were kernels.
    pub fn has_kernels(&self) -> bool {
        self.has_kernels
    }

    /// Takes a kernel: the records of its graph's launch may come later. `is_own` says whether it is the
    /// program's. Returns false if there is no room.
    pub fn take(&mut self, kernel: &Kernel, is_own: bool) -> bool {
        self.has_kernels = true;
        let has_room = self.kernels.len() + self.waiting.len() < MOST_WAITING;
        if has_room {
            self.kernels.push_back((*kernel, is_own));
        }
        has_room
    }

    /// Takes the present. Each kernel goes to `found` once, with the stack that captured it, or 0 if that is
    /// not known or it is of no graph.
    pub fn pulse(&mut self, now: u64, mut found: impl FnMut(&Kernel, u32)) {
        let horizon = now.saturating_sub(LATE);
        self.read(horizon);
        let mut given = Vec::new();
        let mut later = VecDeque::new();
        for (kernel, is_own) in std::mem::take(&mut self.kernels) {
            if kernel.end > horizon && kernel.end <= now {
                later.push_back((kernel, is_own));
                continue;
            }
            let id = kernel.dispatch_id;
            if let Some(same) = self.waiting.insert(id, kernel) {
                found(&same, 0);
            }
            let give = |id: u64, captured| given.push((id, captured));
            if !self.matching.add(&kernel, None, is_own, give) {
                given.push((id, Captured::At(0)));
            }
        }
        self.kernels = later;
        let stack = |captured| match captured {
            Captured::At(stack) => stack,
            Captured::Unseen => 0,
        };
        for (id, captured) in given {
            if let Some(kernel) = self.waiting.remove(&id) {
                found(&kernel, stack(captured));
            }
        }
        if now.saturating_sub(self.swept) >= PATIENCE {
            self.swept = now;
            self.sweep(horizon.saturating_sub(PATIENCE), found);
        }
    }

    fn read(&mut self, horizon: u64) {
        if self.steps.iter().all(|step| matching::time(step) > horizon) {
            return;
        }
        self.steps.sort_by_key(matching::time);
        let ready = self
            .steps
            .partition_point(|step| matching::time(step) <= horizon);
        for step in self.steps.drain(..ready) {
            self.matching.read(&step);
        }
        if self.matching.is_full() {
            let graphs = Graphs {
                has_more: true,
                ..Graphs::default()
            };
            self.matching = Matching::recent();
            self.matching.graphs = graphs;
        }
    }

    /// Returns how much it holds.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        let waiting = self.steps.len() + self.kernels.len() + self.waiting.len();
        waiting + self.matching.graphs.replays.len() + self.matching.held()
    }

    /// Forgets launches from before `since`, and gives their kernels without a stack.
    fn sweep(&mut self, since: u64, mut found: impl FnMut(&Kernel, u32)) {
        let replays = &mut self.matching.graphs.replays;
        replays.retain(|_, (_, at)| *at >= since);
        if replays.len() >= MOST_REPLAYS {
            replays.clear();
        }
        let late = |_: &u64, kernel: &mut Kernel| kernel.end < since;
        let mut gone = HashMap::<u64, (), RandomState>::default();
        for (_, kernel) in self.waiting.extract_if(late) {
            gone.insert(kernel.correlation, ());
            found(&kernel, 0);
        }
        self.matching
            .forget_waiting(|correlation| gone.contains_key(&correlation));
    }
}
