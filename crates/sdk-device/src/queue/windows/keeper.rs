//! The worker thread's side of windows: makes them ready, reads what the device has counted, and
//! takes everything back at the end.

use super::memory::Memory;
use super::plan;
use crate::layout::Signal;
use crate::queue::queue_state::{Life, QueueState};
use crate::queue::state;
use crate::queue::timing::to_clock;
use crate::queue::window::{AGENTS, MOST, NO_DISPATCH, READY, Stage, Window};
use crate::sink::Sink;
use crate::state::STATE;
use crate::symbols;
use midair_record::counter_plan::Group;
use midair_record::event::{CounterWindow, Header, MAX_RECORD, Plain, WindowResult, kind, note};
use midair_sdk_hot::wrappers::original;
use std::collections::HashSet;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Windows of one group at most.
const OF_A_GROUP: usize = 32;
/// Windows of an agent that are wanted, whatever its groups.
const OF_AN_AGENT: usize = 64;
/// Where commands and outputs begin: at multiples of this.
const ALIGNMENT: usize = 256;
/// `HSA_AMD_SIGNAL_AMD_GPU_ONLY`: no interrupt, no event.
const GPU_ONLY: u64 = 1;
/// Words of one record.
const RECORD_WORDS: usize = (MAX_RECORD - size_of::<CounterWindow>()) / 8;

/// A group of an agent, and its windows that nobody uses.
#[derive(Debug)]
struct Counted {
    /// The plan's number of the group.
    number: u32,
    output_words: usize,
    idle: Vec<u16>,
}

/// An agent with counters.
#[derive(Debug)]
struct Agent {
    handle: u64,
    node: u32,
    groups: Vec<Counted>,
    memory: Memory,
    /// Which group comes next.
    next: usize,
}

/// What the worker thread knows of a window.
#[derive(Debug, Clone, Copy)]
struct Kept {
    /// Index of its agent.
    agent: usize,
    /// Index of its group there.
    group: usize,
    /// Address of its output.
    output: u64,
}

/// All windows of a collection.
#[derive(Debug, Default)]
pub struct Keeper {
    agents: Vec<Agent>,
    /// By number of the window, from 1.
    kept: Vec<Kept>,
    /// Windows whose records are written.
    written: u64,
    /// The words of a record, as they are read.
    record: Vec<u8>,
    /// What to tell the user.
    complaints: Vec<String>,
}

impl Keeper {
    /// Asks the runtime for memory and signals for the session's plan, and has windows taken from
    /// then on. The runtime is open.
    pub fn open() -> Keeper {
        let mut keeper = Keeper::default();
        let plan = plan();
        for (handle, _) in symbols::agents() {
            let node = symbols::agent_node(handle);
            let groups: Vec<&Group> = plan.iter().filter(|group| group.node == node).collect();
            if groups.is_empty() {
                continue;
            }
            if keeper.agents.len() == AGENTS {
                keeper
                    .complaints
                    .push(format!("counters are counted on {AGENTS} agents at most"));
                break;
            }
            if !symbols::agent_is_gpu(handle) {
                continue;
            }
            if let Err(why) = keeper.add(handle, node, &groups) {
                keeper
                    .complaints
                    .push(format!("no counters on the agent of node {node}: {why}"));
            }
        }
        STATE.windows.no_room.store(0, Relaxed);
        STATE.windows.none_ready.store(0, Relaxed);
        keeper.refill();
        STATE.windows.on.store(!keeper.agents.is_empty(), Release);
        keeper
    }

    fn add(&mut self, handle: u64, node: u32, groups: &[&Group]) -> Result<(), &'static str> {
        let each = (OF_AN_AGENT / groups.len()).clamp(2, OF_A_GROUP);
        let room = MOST - self.kept.len();
        if each * groups.len() > room {
            return Err("too many groups of counters");
        }
        let size = |bytes: usize| bytes.next_multiple_of(ALIGNMENT);
        let of_window =
            |group: &Group| size(4 * group.read_stop.len()) + size(group.output_bytes as usize);
        let bytes: usize = groups
            .iter()
            .map(|group| size(4 * group.start.len()) + each * of_window(group))
            .sum();
        let memory = Memory::allocate(handle, bytes.next_multiple_of(4096))
            .ok_or("the runtime gives no memory that the device can take commands from")?;
        let mut next = memory.at;
        let mut take = |bytes: usize| {
            let at = next;
            next += size(bytes) as u64;
            at
        };
        let agent = self.agents.len();
        let mut counted = Vec::new();
        let mut failed = false;
        for (index, group) in groups.iter().enumerate() {
            let start = take(4 * group.start.len());
            write(start, &group.start);
            let mut idle = Vec::new();
            for _ in 0..each {
                let commands = take(4 * group.read_stop.len());
                let output = take(group.output_bytes as usize);
                let mut words = group.read_stop.clone();
                group.patch(&mut words, output);
                write(commands, &words);
                let (Some(started), Some(was_read)) = (signal(), signal()) else {
                    failed = true;
                    break;
                };
                self.kept.push(Kept {
                    agent,
                    group: index,
                    output,
                });
                let number = self.kept.len() as u16;
                let Some(window) = STATE.windows.numbered(number) else {
                    break;
                };
                let set = |of: &(AtomicU64, _), at: u64| of.0.store(at, Relaxed);
                set(&window.start, start);
                set(&window.read, commands);
                window.start.1.store(group.start.len() as u32, Relaxed);
                window.read.1.store(group.read_stop.len() as u32, Relaxed);
                window.signals[0].store(started.0, Relaxed);
                window.signals[1].store(was_read.0, Relaxed);
                window.stage.store(Stage::Idle, Relaxed);
                idle.push(number);
            }
            counted.push(Counted {
                number: group.number,
                output_words: group.output_bytes as usize / 8,
                idle,
            });
        }
        self.agents.push(Agent {
            handle,
            node,
            groups: counted,
            memory,
            next: 0,
        });
        if failed {
            return Err("the runtime gives no signals");
        }
        Ok(())
    }

    /// One round. Returns how many windows were read.
    pub fn pass(&mut self, sink: &mut Sink) -> usize {
        for text in self.complaints.drain(..) {
            sink.put(kind::NOTE, &note(&text));
        }
        for queue in state::all() {
            self.assign(queue);
        }
        let read = self.harvest(sink, false);
        self.refill();
        read
    }

    /// Tells a queue whose windows are for it.
    fn assign(&self, queue: &QueueState) {
        let handle = queue.agent.load(Acquire);
        if handle == 0 || queue.windows_of.load(Relaxed) != 0 {
            return;
        }
        let found = self.agents.iter().position(|agent| agent.handle == handle);
        if let Some(agent) = found {
            queue.windows_of.store(agent as u32 + 1, Release);
        }
    }

    /// Makes windows ready, of one group after another.
    fn refill(&mut self) {
        for (agent, ready) in self.agents.iter_mut().zip(&STATE.windows.ready) {
            let groups = agent.groups.len();
            let mut without = 0;
            while ready.0.len() < READY / 2 && without < groups {
                let group = agent.next % groups;
                agent.next = group + 1;
                let Some(number) = agent.groups.get_mut(group).and_then(|g| g.idle.pop()) else {
                    without += 1;
                    continue;
                };
                without = 0;
                if ready.0.put(u64::from(number)).is_err() {
                    if let Some(group) = agent.groups.get_mut(group) {
                        group.idle.push(number);
                    }
                    break;
                }
            }
        }
    }

    /// Windows in rings.
    fn reserved(&self) -> impl Iterator<Item = (u16, &'static Window, Kept)> + '_ {
        (1..).zip(&self.kept).filter_map(|(number, kept)| {
            let window = STATE.windows.numbered(number)?;
            (window.stage.load(Acquire) == Stage::Reserved).then_some((number, window, *kept))
        })
    }

    /// How many windows the device has not read.
    pub fn under_way(&self) -> u64 {
        self.reserved().count() as u64
    }

    /// No window is taken from here on.
    pub fn close(&mut self) {
        STATE.windows.on.store(false, Release);
    }

    /// Reads what the device has written, and ends windows whose queue is gone. With `all`, what has
    /// not been read is written, too.
    fn harvest(&mut self, sink: &mut Sink, all: bool) -> usize {
        let gone: HashSet<u32> = state::all()
            .filter(|queue| queue.life.load(Acquire) == Life::Gone)
            .map(|queue| queue.id.load(Relaxed))
            .collect();
        let mut ended = Vec::new();
        for (number, window, kept) in self.reserved() {
            let fired = has_fired(window);
            let looked_at = window.dispatch.load(Acquire) != 0;
            let destroyed = gone.contains(&window.queue.load(Relaxed));
            let why = match (fired && looked_at, destroyed) {
                (true, _) => None,
                (false, true) => Some(WindowResult::QueueDestroyed),
                (false, false) if all => Some(WindowResult::Open),
                _ => continue,
            };
            ended.push((number, window, kept, why, fired || destroyed));
        }
        for &(number, window, kept, why, is_free) in &ended {
            self.write(sink, window, kept, why);
            if !is_free {
                continue;
            }
            for signal in &window.signals {
                // SAFETY: ours, and its packet has completed, or its queue is no more.
                unsafe { Signal(signal.load(Relaxed)).rearm() };
            }
            window.stage.store(Stage::Idle, Release);
            let agent = self.agents.get_mut(kept.agent);
            if let Some(group) = agent.and_then(|agent| agent.groups.get_mut(kept.group)) {
                group.idle.insert(0, number);
            }
        }
        ended.len()
    }

    /// Writes a window's records.
    fn write(&mut self, sink: &mut Sink, window: &Window, kept: Kept, why: Option<WindowResult>) {
        let Some(agent) = self.agents.get(kept.agent) else {
            return;
        };
        let Some(group) = agent.groups.get(kept.group) else {
            return;
        };
        self.written += 1;
        let dispatch = window.dispatch.load(Acquire);
        let [started, was_read] = window.signals.each_ref().map(|s| Signal(s.load(Relaxed)));
        // SAFETY: signals of ours, alive until they are given back.
        let ticks = unsafe {
            [
                started.end_ticks(),
                was_read.start_ticks(),
                was_read.end_ticks(),
            ]
        };
        let [start, end, read_end] = ticks.map(|ticks| to_clock(agent.handle, ticks));
        let plausible = start != 0 && end >= start && read_end >= end;
        let result = match why {
            Some(why) => why,
            None if dispatch == NO_DISPATCH => WindowResult::NoDispatch,
            None if !plausible => WindowResult::BadTimes,
            None => WindowResult::Counted,
        };
        let words = match result {
            WindowResult::Counted | WindowResult::BadTimes => group.output_words,
            _ => 0,
        };
        let mut record = CounterWindow {
            header: Header {
                size: 0,
                kind: kind::COUNTER_COLLECTION,
                ..Header::default()
            },
            start,
            end,
            read_end,
            window: self.written,
            dispatch_id: if dispatch == NO_DISPATCH { 0 } else { dispatch },
            queue_id: window.queue.load(Relaxed),
            node: agent.node,
            group: group.number,
            result: result as u32,
            total: words as u32,
            ..CounterWindow::default()
        };
        let mut first = 0;
        loop {
            let count = (words - first).min(RECORD_WORDS);
            record.first = first as u32;
            record.words = count as u32;
            record.header.size = (size_of::<CounterWindow>() + 8 * count) as u16;
            self.record.clear();
            self.record.extend_from_slice(record.bytes());
            for word in first..first + count {
                let at = kept.output as usize + 8 * word;
                // SAFETY: inside the window's output, an aligned word that the device has written.
                let value =
                    unsafe { (*std::ptr::with_exposed_provenance::<AtomicU64>(at)).load(Relaxed) };
                self.record.extend_from_slice(&value.to_ne_bytes());
            }
            sink.put(kind::COUNTER_COLLECTION, &self.record);
            first += count;
            if first >= words {
                break;
            }
        }
    }

    /// The hooks are out, and nobody is inside: writes what the device has not read as such.
    pub fn finish(&mut self, sink: &mut Sink) {
        self.harvest(sink, true);
        let count = |counter: &AtomicU64| counter.load(Relaxed);
        let none_ready = count(&STATE.windows.none_ready);
        if none_ready + count(&STATE.windows.no_room) > 0 {
            let text = format!(
                "counters: {} reservations had a window, {none_ready} had none since none was ready, {} since the ring was more than half full",
                self.written,
                count(&STATE.windows.no_room)
            );
            sink.put(kind::NOTE, &note(&text));
        }
    }

    /// Gives memory and signals back, but for those that a ring still refers to: nobody can tell
    /// when the device comes to them.
    pub fn release(mut self, sink: &mut Sink) {
        for ready in &STATE.windows.ready {
            while let Some(number) = ready.0.take() {
                let kept = self.kept.get(usize::from(number as u16).wrapping_sub(1));
                if let Some(kept) = kept
                    && let Some(agent) = self.agents.get_mut(kept.agent)
                    && let Some(group) = agent.groups.get_mut(kept.group)
                {
                    group.idle.push(number as u16);
                }
            }
        }
        let mut left = 0;
        for (index, agent) in self.agents.into_iter().enumerate() {
            let all = self.kept.iter().filter(|kept| kept.agent == index).count();
            let idle: Vec<u16> = agent.groups.into_iter().flat_map(|g| g.idle).collect();
            let windows = idle
                .iter()
                .filter_map(|number| STATE.windows.numbered(*number));
            for signal in windows.flat_map(|window| &window.signals) {
                // SAFETY: a signal of ours that no packet in a ring refers to.
                unsafe { original::hsa_signal_destroy(signal.swap(0, Relaxed)) };
            }
            if idle.len() == all {
                agent.memory.free();
            } else {
                left += 1;
            }
        }
        if left > 0 {
            let text = format!(
                "counters: the device has not come to all packets of ours on {left} agents: their memory is left to it"
            );
            sink.put(kind::NOTE, &note(&text));
        }
    }
}

/// Whether the device has carried out both packets.
fn has_fired(window: &Window) -> bool {
    window.signals.iter().all(|signal| {
        // SAFETY: a signal of ours, alive as long as its runtime.
        unsafe { Signal(signal.load(Relaxed)).value() < 1 }
    })
}

/// Writes commands into memory of ours.
fn write(at: u64, words: &[u32]) {
    let to = std::ptr::with_exposed_provenance_mut::<u32>(at as usize);
    // SAFETY: the caller has set so many words aside there, and the device does not use them yet.
    unsafe { to.copy_from_nonoverlapping(words.as_ptr(), words.len()) };
}

/// A signal of the value 1.
fn signal() -> Option<Signal> {
    let mut handle = 0_u64;
    // SAFETY: the runtime's own function with a valid out pointer; no consumers are named.
    let status = unsafe {
        original::hsa_amd_signal_create(
            1,
            0,
            std::ptr::null_mut(),
            GPU_ONLY,
            (&raw mut handle).cast(),
        )
    };
    (status == 0).then_some(Signal(handle))
}
