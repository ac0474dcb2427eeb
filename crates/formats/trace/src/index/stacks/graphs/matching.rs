//! Matches the kernels of graphs with the launches and nodes that they come from.

use super::capture::{Capture, Dispatch};
use super::{Captured, Graphs, MOST_STEPS};
use foldhash::fast::RandomState;
use midair_record::event::{CudaLaunch, GraphBuild, Kernel, graph_build};
use std::collections::HashMap;
use std::sync::Arc;

/// The most launches that are copied because a graph is changed after it was made executable, or copied.
const MOST_COPIED: usize = 1 << 22;
/// How long a state of an executable graph is kept after the next one where only recent ones matter, ns,
/// and the most of them.
const RECENT: u64 = 10_000_000_000;
const MOST_RECENT: usize = 64;

/// Where a graph comes from.
#[derive(Debug, Clone)]
enum Source {
    /// The session has not seen how it was made.
    Before,
    /// Its nodes are not known.
    Unclear,
    /// From these launches.
    Capture(Arc<Capture>),
}

/// A capture that has not ended.
#[derive(Debug, Default)]
struct Open {
    capture: Capture,
    /// See [`Reading::unclear`], at its start.
    since: u64,
    /// Whether nodes came from elsewhere as well.
    is_unclear: bool,
}

/// The state of the process's graphs while their steps are read in order.
#[derive(Debug, Default)]
struct Reading {
    open: HashMap<u64, Open, RandomState>,
    graphs: HashMap<u64, (Source, u64), RandomState>,
    /// How often all captures that were open, and all graphs that there were, have become unclear. A
    /// process can do both often, and have many.
    unclear: (u64, u64),
    /// How many launches were copied.
    copied: usize,
    /// At least how many launches are held.
    held: usize,
}

impl Reading {
    fn source(&self, graph: u64) -> Source {
        match self.graphs.get(&graph) {
            Some((_, since)) if *since != self.unclear.1 => Source::Unclear,
            Some((source, _)) => source.clone(),
            None => Source::Before,
        }
    }

    fn set(&mut self, graph: u64, source: Source) {
        self.graphs.insert(graph, (source, self.unclear.1));
    }

    fn copy(&mut self, capture: &Capture) {
        self.copied += capture.len();
        self.held += capture.len();
    }

    /// Changes the launches of a graph, if they are known. An executable graph of it keeps those that it has.
    fn change(&mut self, graph: u64, change: impl FnOnce(&mut Capture)) {
        let mut changed = Source::Unclear;
        if let Some((source, since)) = self.graphs.remove(&graph)
            && since == self.unclear.1
            && let Source::Capture(mut capture) = source
        {
            if Arc::get_mut(&mut capture).is_none() {
                self.copy(&capture);
            }
            if self.copied <= MOST_COPIED {
                change(Arc::make_mut(&mut capture));
                changed = Source::Capture(capture);
            }
        }
        self.set(graph, changed);
    }
}

/// Matches the kernels of graphs with captured launches.
#[derive(Debug, Default)]
pub(crate) struct Matching {
    pub(super) graphs: Graphs,
    reading: Reading,
    /// What each executable graph comes from, since when.
    execs: HashMap<u64, Vec<(u64, Source)>, RandomState>,
    waiting: HashMap<u64, Vec<Dispatch>, RandomState>,
    /// Whether only recent states of executable graphs are kept.
    only_recent: bool,
}

/// When a step took effect. A handle is free for others as soon as its destruction starts, and there
/// only at the end of the call that makes it.
pub(super) fn time(step: &GraphBuild) -> u64 {
    match step.header.operation {
        graph_build::DESTROY => step.start,
        _ => step.end,
    }
}

impl Matching {
    /// Reads the steps of a session.
    pub(in super::super) fn new(mut graphs: Graphs) -> Matching {
        let mut steps = std::mem::take(&mut graphs.steps);
        steps.sort_by_key(time);
        let mut matching = Matching {
            graphs,
            ..Matching::default()
        };
        let has_more = matching.graphs.has_more;
        for step in steps.iter().filter(|_| !has_more) {
            matching.read(step);
        }
        matching.reading = Reading::default();
        matching
    }

    /// Returns one that reads the steps as they come.
    pub(super) fn recent() -> Matching {
        Matching {
            only_recent: true,
            ..Matching::default()
        }
    }

    /// Forgets launches of which a kernel is missing, if `is_late` says so by their ids.
    pub(super) fn forget_waiting(&mut self, is_late: impl Fn(u64) -> bool) {
        self.waiting.retain(|correlation, _| !is_late(*correlation));
    }

    /// Whether there are more graphs and launches of them than are kept. It counts them only where there
    /// may be more.
    pub(super) fn is_full(&mut self) -> bool {
        let Reading { open, graphs, .. } = &self.reading;
        if open.len().max(graphs.len()).max(self.execs.len()) >= MOST_STEPS {
            return true;
        }
        if self.reading.held >= MOST_STEPS {
            let open = open.values().map(|it| it.capture.len());
            let graphs = graphs.values().map(|(source, _)| source);
            let execs = self.execs.values().flatten().map(|(_, source)| source);
            let captures: HashMap<_, _> = graphs
                .chain(execs)
                .filter_map(|source| match source {
                    Source::Capture(capture) => Some((Arc::as_ptr(capture), capture.len())),
                    _ => None,
                })
                .collect();
            let held = open.sum::<usize>() + captures.values().sum::<usize>();
            self.reading.held = held;
            return held >= MOST_STEPS / 2;
        }
        false
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.reading.held + self.execs.len()
    }

    /// Reads the next step.
    pub(super) fn read(&mut self, step: &GraphBuild) {
        let reading = &mut self.reading;
        let now = reading.unclear.0;
        reading.held += 1;
        match step.header.operation {
            graph_build::BEGIN => {
                let open = Open {
                    is_unclear: step.made != 0,
                    since: now,
                    ..Open::default()
                };
                reading.open.insert(step.subject, open);
            }
            graph_build::LAUNCH => {
                // Another stream can join a capture. Whose that is, only the number of captures says.
                let open = &mut reading.open;
                let is_one = open.len() == 1;
                let open = match open.contains_key(&step.subject) {
                    true => open.get_mut(&step.subject),
                    false if is_one => open.values_mut().next(),
                    false => None,
                };
                match open {
                    Some(open) => open.capture.add(step),
                    None => reading.unclear.0 += 1,
                }
            }
            graph_build::END => {
                let source = match reading.open.remove(&step.subject) {
                    Some(open) if open.is_unclear || open.since != now => Source::Unclear,
                    Some(open) => Source::Capture(Arc::new(open.capture)),
                    None => Source::Before,
                };
                reading.set(step.made, source);
            }
            graph_build::CREATE => reading.set(step.made, Source::Capture(Arc::default())),
            graph_build::ADD => reading.change(step.subject, |capture| capture.add_node(step)),
            graph_build::ADD_CHILD => match reading.source(step.made) {
                Source::Capture(child) => {
                    reading.copy(&child);
                    reading.change(step.subject, |capture| capture.add_child(&child));
                }
                _ => reading.set(step.subject, Source::Unclear),
            },
            graph_build::INSTANTIATE => {
                let source = reading.source(step.subject);
                self.exec(step.made, time(step), source);
            }
            graph_build::COPY => {
                let source = match reading.source(step.subject) {
                    Source::Capture(capture) if reading.copied <= MOST_COPIED => {
                        reading.copy(&capture);
                        Source::Capture(Arc::new(capture.copy()))
                    }
                    Source::Capture(_) => Source::Unclear,
                    source => source,
                };
                reading.set(step.made, source);
            }
            graph_build::SET => {
                let sizes = (step.grid, step.workgroup);
                let is_same = match self.source(step.subject, time(step)) {
                    Source::Capture(capture) => capture.has(step.made, sizes),
                    _ => false,
                };
                if !is_same {
                    self.exec(step.subject, time(step), Source::Unclear);
                }
            }
            graph_build::CHANGE if step.subject == 0 => reading.unclear.1 += 1,
            graph_build::CHANGE => {
                if let Some(open) = reading.open.get_mut(&step.subject) {
                    open.is_unclear = true;
                } else if self.execs.contains_key(&step.subject) {
                    self.exec(step.subject, time(step), Source::Unclear);
                } else {
                    reading.set(step.subject, Source::Unclear);
                }
            }
            graph_build::DESTROY => {
                reading.graphs.remove(&step.subject);
                self.exec(step.subject, time(step), Source::Unclear);
            }
            _ => {}
        }
    }

    fn exec(&mut self, exec: u64, time: u64, source: Source) {
        let all = self.execs.entry(exec).or_default();
        all.push((time, source));
        if self.only_recent {
            // What was before the time that matters is not asked for.
            let is_old = |(since, _): &&(u64, Source)| since.saturating_add(RECENT) < time;
            let old = all.iter().take_while(is_old).count();
            all.drain(..old.saturating_sub(1));
            let more = all.len().saturating_sub(MOST_RECENT);
            all.drain(..more);
            if let Some(first) = all.first_mut().filter(|_| more > 0) {
                *first = (0, Source::Unclear);
            }
        }
    }

    fn source(&self, exec: u64, time: u64) -> Source {
        let all = self.execs.get(&exec).map(Vec::as_slice);
        let all = all.unwrap_or_default();
        let before = all.partition_point(|(since, _)| *since <= time);
        let last = before.checked_sub(1).and_then(|at| all.get(at));
        last.map_or(Source::Before, |(_, source)| source.clone())
    }

    /// Takes a kernel. `is_own` says whether it is the program's rather than a copy of the runtime's. Each
    /// dispatch of which it is known now where it was captured goes to `found`. Returns whether the kernel's
    /// own has gone there, or may do so later.
    pub(in super::super) fn add(
        &mut self,
        kernel: &Kernel,
        cuda: Option<&CudaLaunch>,
        is_own: bool,
        mut found: impl FnMut(u64, Captured),
    ) -> bool {
        let node = cuda.map_or(0, |cuda| cuda.graph_node);
        if node != 0 {
            found(kernel.dispatch_id, self.graphs.of_node(node));
            return true;
        }
        let Some((exec, at)) = self.graphs.replays.get(&kernel.correlation) else {
            return false;
        };
        match self.source(*exec, *at) {
            Source::Before if !self.graphs.has_more => {
                found(kernel.dispatch_id, Captured::Unseen);
            }
            Source::Capture(capture) if is_own => {
                let waiting = self.waiting.entry(kernel.correlation).or_default();
                waiting.push(Dispatch {
                    id: kernel.dispatch_id,
                    queue: kernel.queue_id,
                    sizes: (kernel.grid, kernel.workgroup),
                });
                if capture.len() == waiting.len() {
                    let dispatches = std::mem::take(waiting);
                    self.waiting.remove(&kernel.correlation);
                    capture.give(dispatches, found);
                }
            }
            _ => return false,
        }
        true
    }
}
