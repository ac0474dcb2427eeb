//! The worker thread's side of traces: makes pairs of packets ready, reads what the device has written,
//! and frees everything at the end.

mod drain;
#[cfg(test)]
mod tests;

use super::commands::{self, Head};
use super::shared::STUCK;
use crate::layout::Signal;
use crate::queue::state;
use crate::queue::window::{OF_A_GROUP, Stage, Window};
use crate::queue::windows::keeper::{ALIGNMENT, assign, has_fired, signal, write};
use crate::queue::windows::kernel_filter;
use crate::queue::windows::memory::Memory;
use crate::sink::Sink;
use crate::state::STATE;
use crate::symbols;
use drain::{Drain, Memo};
use midair_record::event::{kind, note};
use midair_record::trace_plan::{CONTROL, Trace};
use midair_sdk_hot::wrappers::original;
use std::collections::HashSet;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU64, fence};

/// The number of pairs of an agent.
const PAIRS: usize = OF_A_GROUP;
/// The most words of a start for code objects.
const MARKERS: usize = 6 << 10;

/// An agent whose dispatches are traced.
#[derive(Debug)]
struct Agent {
    handle: u64,
    trace: Trace,
    /// The pairs' commands.
    commands: Memory,
    /// The control block and the buffers.
    memory: Memory,
    /// The commands for code objects that the starts have.
    markers: Vec<u32>,
    /// The trace that is being read.
    drain: Option<Drain>,
    /// The first of its pairs.
    first: usize,
}

/// What the worker thread knows about a pair.
#[derive(Debug, Clone, Copy)]
struct Pair {
    agent: usize,
    /// Whether its start has the code objects of now.
    is_new: bool,
    /// Whether it was not executed when collecting ended.
    is_given_up: bool,
}

/// All pairs of a collection.
#[derive(Debug, Default)]
pub(super) struct Keeper {
    agents: Vec<Agent>,
    pairs: Vec<Pair>,
    complaints: Vec<String>,
    memo: Memo,
    /// How many code objects the markers have.
    objects: u64,
}

/// Stops collecting: no pair is taken from here on.
pub(super) fn close() {
    STATE.traces.on.store(false, SeqCst);
    fence(SeqCst);
}

impl Keeper {
    /// Asks the runtime, which is open, for memory and signals. From then on pairs are taken.
    pub(super) fn open() -> Keeper {
        let mut keeper = Keeper::default();
        let traces = &STATE.traces;
        let plan = traces.plan.lock().unwrap_or_else(PoisonError::into_inner);
        let plan: Vec<Trace> = plan.as_deref().map(<[Trace]>::to_vec).unwrap_or_default();
        for (handle, _) in symbols::agents() {
            let node = symbols::agent_node(handle);
            let trace = plan.iter().find(|trace| trace.node == node);
            let Some(trace) = trace.filter(|_| symbols::agent_is_gpu(handle)) else {
                continue;
            };
            if let Err(why) = keeper.add(handle, trace) {
                let text = format!("cannot trace threads on the GPU of node {node}: {why}");
                keeper.complaints.push(text);
            }
        }
        for count in [
            &traces.without,
            &traces.busy,
            &traces.stuck,
            &traces.unknown,
            &traces.none_ready,
            &traces.no_room,
            &traces.unfit,
        ] {
            count.store(0, Relaxed);
        }
        kernel_filter::begin();
        traces.on.store(!keeper.agents.is_empty(), Release);
        keeper
    }

    fn add(&mut self, handle: u64, trace: &Trace) -> Result<(), &'static str> {
        let agent = self.agents.len();
        let (Some(known), Some(pool)) = (
            STATE.windows.agents.get(agent),
            STATE.windows.pools.get(agent),
        ) else {
            return Err("there are too many GPUs");
        };
        let size = |words: usize| (4 * commands::words_of(words)).next_multiple_of(ALIGNMENT);
        let start = (trace.start.len() + MARKERS).min(commands::MOST);
        let of_pair = size(start) + size(trace.stop.len());
        let control = control_of(trace);
        let memory = usize::try_from(trace.memory)
            .ok()
            .and_then(|bytes| Memory::allocate_some(handle, bytes, control as usize))
            .ok_or("the runtime provides no memory for the trace: lower --att-buffer-size")?;
        let Some(commands) = Memory::allocate(handle, (PAIRS * of_pair).next_multiple_of(4096))
        else {
            memory.free();
            return Err("the runtime provides no memory for device commands");
        };
        let signals: Vec<Signal> = (0..2 * PAIRS).map_while(|_| signal()).collect();
        if signals.len() < 2 * PAIRS {
            for signal in signals {
                // SAFETY: the signal was created above, and nothing uses it.
                unsafe { original::hsa_signal_destroy(signal.0) };
            }
            memory.free();
            commands.free();
            return Err("the runtime provides no signals");
        }
        let first = self.pairs.len();
        let stop = commands::closed(&trace.stop_at(memory.at));
        for (pair, signals) in signals.chunks_exact(2).enumerate() {
            let at = commands.at + (pair * of_pair) as u64;
            let number = first + pair;
            let (Some(window), [started, stopped]) = (STATE.windows.all.get(number), signals)
            else {
                break;
            };
            let stop_at = at + size(start) as u64;
            write(stop_at, &stop);
            window.start.0.store(at, Relaxed);
            window.read.0.store(stop_at, Relaxed);
            window.read.1.store(stop.len() as u32, Relaxed);
            window.signals[0].store(started.0, Relaxed);
            window.signals[1].store(stopped.0, Relaxed);
            window.stage.store(Stage::Idle, Relaxed);
            self.pairs.push(Pair {
                agent,
                is_new: false,
                is_given_up: false,
            });
        }
        known.first_pool.store(agent as u32, Relaxed);
        // Threads of an earlier session took what was left in it.
        while pool.0.take().is_some() {}
        if let Some(owner) = STATE.traces.owners.get(agent) {
            owner.store(0, Relaxed);
        }
        self.agents.push(Agent {
            handle,
            trace: trace.clone(),
            commands,
            memory,
            markers: Vec::new(),
            drain: None,
            first,
        });
        self.renew(agent);
        // From here on a thread that learns a queue of this agent knows which pairs the queue uses.
        known.handle.store(handle, Release);
        for number in first..self.pairs.len() {
            self.make_ready(number);
        }
        Ok(())
    }

    /// Looks which code objects an agent has, for the starts of its traces.
    fn renew(&mut self, agent: usize) {
        let (objects, count) = symbols::code_objects();
        let Some(of) = self.agents.get_mut(agent) else {
            return;
        };
        let most = commands::MOST.min(of.trace.start.len() + MARKERS) - of.trace.start.len();
        let mut markers = Vec::new();
        for (number, base, size) in objects {
            let marker = of.trace.marker_of(number, base, size);
            if markers.len() + marker.len() > most {
                let text = "thread traces know not all code objects: there are too many";
                self.complaints.push(text.to_owned());
                break;
            }
            markers.extend(marker);
        }
        self.objects = count;
        if of.markers != markers {
            of.markers = markers;
            let pairs = self.pairs.iter_mut().filter(|pair| pair.agent == agent);
            pairs.for_each(|pair| pair.is_new = false);
        }
    }

    /// Gives a pair that nothing uses to threads, with the code objects of now.
    fn make_ready(&mut self, number: usize) {
        let (Some(pair), Some(window)) =
            (self.pairs.get_mut(number), STATE.windows.all.get(number))
        else {
            return;
        };
        let Some(agent) = self.agents.get(pair.agent) else {
            return;
        };
        let at = window.start.0.load(Relaxed);
        if !pair.is_new {
            let mut start = agent.trace.start_at(agent.memory.at);
            start.extend(&agent.markers);
            let start = commands::closed(&start);
            write(at, &start);
            window.start.1.store(start.len() as u32, Relaxed);
            pair.is_new = true;
        }
        if let Some(pool) = STATE.windows.pool(pair.agent, 0) {
            // The pool has room for all pairs of an agent.
            let _ = pool.put(number as u64 + 1);
        }
    }

    /// Does one round. Returns whether there was anything to do.
    pub(super) fn pass(&mut self, sink: &mut Sink) -> bool {
        for text in self.complaints.drain(..) {
            sink.put(kind::NOTE, &note(&text));
        }
        kernel_filter::pass();
        for queue in state::all() {
            assign(queue);
        }
        if symbols::count_of_code_objects() != self.objects {
            for agent in 0..self.agents.len() {
                self.renew(agent);
                self.make_new(agent);
            }
        }
        let did = self.harvest(false);
        self.drain(sink, false) || did
    }

    /// Reads on in the traces that have ended. Returns whether there are any.
    fn drain(&mut self, sink: &mut Sink, all: bool) -> bool {
        let mut did = false;
        let mut ended = Vec::new();
        for agent in &mut self.agents {
            let Some(drain) = &mut agent.drain else {
                continue;
            };
            did = true;
            if drain.go_on(&agent.trace, agent.memory.at, sink, all) {
                let number = drain.pair;
                self.memo.drained(drain);
                agent.drain = None;
                free_memory(agent, number);
                ended.push(number);
            }
        }
        // The pair's number is the memory's owner until here, so no thread may have it earlier.
        for number in ended {
            self.make_ready(number);
        }
        did
    }

    /// Writes the starts of an agent's idle pairs.
    fn make_new(&mut self, agent: usize) {
        let Some(pool) = STATE.windows.pool(agent, 0) else {
            return;
        };
        let taken: Vec<u64> = std::iter::from_fn(|| pool.take()).take(PAIRS).collect();
        for number in taken {
            self.make_ready((number as usize).wrapping_sub(1));
        }
    }

    fn reserved(&self) -> impl Iterator<Item = (usize, &'static Window, Pair)> + '_ {
        self.pairs.iter().enumerate().filter_map(|(index, pair)| {
            let window = STATE.windows.all.get(index)?;
            let is_out = !pair.is_given_up && window.stage.load(Acquire) != Stage::Idle;
            is_out.then_some((index, window, *pair))
        })
    }

    /// Returns how many pairs the device has not executed, and traces that are not read.
    pub(super) fn under_way(&self) -> u64 {
        let drains = self.agents.iter().filter(|agent| agent.drain.is_some());
        (self.reserved().count() + drains.count()) as u64
    }

    /// Looks for pairs that the device has executed, or whose queue is gone.
    fn harvest(&mut self, all: bool) -> bool {
        let gone: HashSet<u32> = state::all()
            .filter(|queue| queue.is_left())
            .map(|queue| queue.id.load(Relaxed))
            .collect();
        let mut ended = Vec::new();
        for (index, window, pair) in self.reserved() {
            let fired = has_fired(window) && window.is_known();
            let destroyed = gone.contains(&window.queue.load(Relaxed));
            if fired || destroyed || all {
                ended.push((index, window, pair, fired, fired || destroyed));
            }
        }
        for &(index, window, pair, fired, is_free) in &ended {
            let owner = STATE.traces.owners.get(pair.agent);
            let is_open = owner.is_some_and(|owner| owner.load(Acquire) == index as u32 + 1);
            if !is_free {
                if is_open {
                    self.memo.unfinished(window);
                }
                self.give_up(index);
            } else if is_open {
                self.end_trace(index, window, fired);
            } else {
                rearm(window);
                self.make_ready(index);
            }
        }
        !ended.is_empty()
    }

    /// Keeps a pair and all that it uses for good.
    fn give_up(&mut self, number: usize) {
        if let Some(pair) = self.pairs.get_mut(number) {
            pair.is_given_up = true;
        }
    }

    /// Ends the trace of a pair that the device has executed, or whose queue is gone. The pair is ready
    /// again when the trace is read.
    fn end_trace(&mut self, number: usize, window: &Window, fired: bool) {
        let agent = self.pairs.get(number).map(|pair| pair.agent);
        let Some(agent) = agent.and_then(|agent| self.agents.get_mut(agent)) else {
            return;
        };
        if !fired && has_started(agent, window) {
            // The device may write into the memory for as long as the process lives.
            let owners = STATE.traces.owners.iter();
            for owner in owners.filter(|owner| owner.load(Relaxed) == number as u32 + 1) {
                owner.store(STUCK, Release);
            }
            self.memo.stuck(agent.trace.node, window);
            self.give_up(number);
            return;
        }
        let signals = window.signals.each_ref().map(|s| Signal(s.load(Relaxed)));
        // SAFETY: these are midair's signals, which are alive until `release` destroys them.
        let times = unsafe { [signals[0].start_ticks(), signals[1].end_ticks()] };
        let drain = self
            .memo
            .ended(agent.handle, (number, window), times, fired);
        for (at, words) in [
            (&window.start.0, &window.start.1),
            (&window.read.0, &window.read.1),
        ] {
            let commands = words.load(Relaxed).saturating_sub(2);
            // SAFETY: the pair's own commands, which the device has executed, or never will.
            unsafe { Head::at(at.load(Relaxed)).close(commands) };
        }
        rearm(window);
        match drain {
            // The memory has one owner until its trace is read, so there is no other.
            Some(drain) => {
                agent.drain.get_or_insert(drain);
            }
            None => {
                free_memory(agent, number);
                self.make_ready(number);
            }
        }
    }

    /// Ends the collection, after the hooks were removed and no thread is inside them.
    pub(super) fn finish(&mut self, sink: &mut Sink) {
        // A trace that is being read goes first: its pair is no longer in a ring.
        self.drain(sink, true);
        self.harvest(true);
        self.drain(sink, true);
        self.memo.finish(sink);
    }

    /// Gives memory and signals back, except those that a ring still refers to.
    pub(super) fn release(self, sink: &mut Sink) {
        let mut free = vec![false; self.pairs.len()];
        for pool in STATE.windows.pools.iter().take(self.agents.len()) {
            while let Some(number) = pool.0.take() {
                if let Some(free) = free.get_mut((number as usize).wrapping_sub(1)) {
                    *free = true;
                }
            }
        }
        for (window, _) in STATE
            .windows
            .all
            .iter()
            .zip(&free)
            .filter(|(_, free)| **free)
        {
            for signal in &window.signals {
                // SAFETY: the signal is ours, and no packet in a ring refers to it.
                unsafe { original::hsa_signal_destroy(signal.swap(0, Relaxed)) };
            }
        }
        let mut left = 0;
        for (index, agent) in self.agents.into_iter().enumerate() {
            if let Some(known) = STATE.windows.agents.get(index) {
                known.handle.store(0, Release);
            }
            let pairs = free.iter().skip(agent.first).take(PAIRS);
            if pairs.copied().all(|free| free) {
                agent.memory.free();
                agent.commands.free();
            } else {
                left += 1;
            }
        }
        if left > 0 {
            let text = format!(
                "thread traces: the device has not processed all of midair's packets on {left} GPUs: their memory stays allocated"
            );
            sink.put(kind::NOTE, &note(&text));
        }
    }
}

/// Returns whether the device may have started the trace of a pair.
fn has_started(agent: &Agent, window: &Window) -> bool {
    let [started, _] = &window.signals;
    // SAFETY: the signal is midair's, and is alive until `release` destroys it.
    let value = unsafe { Signal(started.load(Relaxed)).value() };
    let at = agent.memory.at + drain::time_at(&agent.trace);
    // SAFETY: a word of the control block.
    let time: &AtomicU64 = unsafe { &*std::ptr::with_exposed_provenance(at as usize) };
    value < 1 || time.load(Relaxed) != 0
}

/// Makes a pair's signals ready for its next use.
fn rearm(window: &Window) {
    for signal in &window.signals {
        // SAFETY: the signal is ours, and its packet has completed or is in no queue.
        unsafe { Signal(signal.load(Relaxed)).rearm() };
    }
    window.stage.store(Stage::Idle, Release);
}

/// Lets the next trace have an agent's memory.
fn free_memory(agent: &Agent, pair: usize) {
    // The start's time is in the first block, whichever engines are traced.
    for offset in (0..control_of(&agent.trace)).step_by(8) {
        let at = (agent.memory.at + offset) as usize;
        // SAFETY: a word of the control block, which the device does not use now.
        let word: &AtomicU64 = unsafe { &*std::ptr::with_exposed_provenance(at) };
        word.store(0, Relaxed);
    }
    for owner in &STATE.traces.owners {
        let _ = owner.compare_exchange(pair as u32 + 1, 0, Release, Relaxed);
    }
}

/// Returns the bytes of a trace's control block.
fn control_of(trace: &Trace) -> u64 {
    let engines = trace
        .engines
        .iter()
        .map(|engine| u64::from(engine.number) + 1);
    CONTROL * engines.max().unwrap_or(1)
}
