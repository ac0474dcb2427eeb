//! The worker thread's side of windows: makes them ready, reads what the device has counted, and
//! takes everything back at the end.

mod serving;

use super::beside::{Beside, Read, Span};
use super::chosen::{self, Chooser, Fate};
use super::memory::{Memory, is_of_the_host};
use super::{choice, class_of, enqueued, guard, plan};
use crate::layout::Signal;
use crate::queue::choosing::LISTS;
use crate::queue::queue_state::{Life, QueueState};
use crate::queue::state;
use crate::queue::subscriber::{Answer, Completed, Enqueued, Subscriber};
use crate::queue::timing::to_clock;
use crate::queue::window::{MOST, NO_DISPATCH, OF_A_GROUP, POOLS, Stage, Window};
use crate::queue::window_records::{Writer, is_plausible};
use crate::sink::Sink;
use crate::state::STATE;
use crate::symbols;
use midair_record::counter_plan::{Group, Plan};
use midair_record::event::{CounterWindow, WindowResult, kind, note};
use midair_rotation::{ClassKey, Rotation, Scheduler};
use midair_sdk_hot::clock::now;
use midair_sdk_hot::wrappers::original;
use serving::span_of;
use std::collections::HashSet;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU64, fence};

/// Windows of an agent that are wanted, whatever its groups.
const OF_AN_AGENT: usize = 64;
/// Where commands and outputs begin: at multiples of this.
pub(in crate::queue) const ALIGNMENT: usize = 256;
/// `HSA_AMD_SIGNAL_AMD_GPU_ONLY`: no interrupt, no event.
const GPU_ONLY: u64 = 1;
/// How much times of the device may differ on the records' clock, in ns, with a margin.
const CLOCKS: u64 = 20_000;

/// An agent with counters.
#[derive(Debug)]
struct Agent {
    handle: u64,
    node: u32,
    /// Of each group: the plan's number, and the words of an output.
    groups: Vec<(u32, usize)>,
    memory: Vec<Memory>,
    /// Where a tool chooses: by group, the list, and what ran beside its windows.
    lists: Vec<u64>,
    beside: Beside,
    /// What decides which group comes next.
    scheduler: Scheduler,
    /// Percent of the time that its windows may take.
    percent: f64,
    rotation: &'static Rotation,
}

/// What the worker thread knows of a window.
#[derive(Debug, Clone, Copy)]
struct Kept {
    /// Index of its agent.
    agent: usize,
    /// Index of its group there.
    group: u32,
    /// Address of its output.
    output: u64,
    /// It was not read when the collecting ended, and its records are written.
    is_given_up: bool,
}

/// All windows of a collection.
#[derive(Debug, Default)]
pub struct Keeper {
    agents: Vec<Agent>,
    /// By number of the window, from 1.
    kept: Vec<Kept>,
    /// Pools that groups have.
    pools: usize,
    records: Writer,
    /// What to tell the user.
    complaints: Vec<String>,
    /// A tool in the process chooses: values go to it, and not into the records.
    chooser: Option<&'static dyn Chooser>,
}

impl Keeper {
    /// Asks the runtime for memory and signals for the session's plan, and has windows taken from
    /// then on. The runtime is open.
    pub fn open() -> Keeper {
        let mut keeper = Keeper::default();
        let plan = plan().clone();
        if plan.is_none() {
            keeper.chooser = chosen::open();
        } else if chosen::is_wanted() {
            keeper.complaints.push(
                "tools in the process have no counters of dispatches beside those that the session counts"
                    .to_owned(),
            );
        }
        for (handle, _) in symbols::agents() {
            let node = symbols::agent_node(handle);
            if keeper.chooser.is_some() && symbols::agent_is_gpu(handle) {
                // Its lists come when they are chosen.
                let first_pool = LISTS * keeper.agents.len();
                if let Err(why) = keeper.add_agent((handle, node), 100.0, first_pool) {
                    keeper
                        .complaints
                        .push(format!("no counters on the agent of node {node}: {why}"));
                }
                continue;
            }
            let Some(plan) = plan.as_deref() else {
                continue;
            };
            let groups: Vec<&Group> = plan.groups.iter().filter(|g| g.node == node).collect();
            if groups.is_empty() || !symbols::agent_is_gpu(handle) {
                continue;
            }
            if let Err(why) = keeper.add(handle, node, plan, &groups) {
                keeper
                    .complaints
                    .push(format!("no counters on the agent of node {node}: {why}"));
            }
        }
        STATE.windows.no_room.store(0, Relaxed);
        STATE.windows.none_ready.store(0, Relaxed);
        STATE.windows.not_alone.store(0, Relaxed);
        let exclusive = plan.as_deref().is_some_and(|plan| plan.exclusive);
        STATE.windows.exclusive.store(exclusive, Relaxed);
        STATE.windows.shut.store(0, Relaxed);
        STATE.windows.moved.store(0, Relaxed);
        let guards = plan.as_deref().is_some_and(|plan| plan.graph_kernels);
        STATE.windows.guards.store(guards, Relaxed);
        STATE.windows.until.store(0, Relaxed);
        choice::begin();
        STATE.windows.on.store(!keeper.agents.is_empty(), Release);
        keeper
    }

    fn add(
        &mut self,
        handle: u64,
        node: u32,
        plan: &Plan,
        groups: &[&Group],
    ) -> Result<(), &'static str> {
        let each = (OF_AN_AGENT / groups.len()).clamp(2, OF_A_GROUP);
        if each * groups.len() > MOST - self.kept.len() || self.pools + groups.len() > POOLS {
            return Err("there are too many groups of counters");
        }
        self.add_agent((handle, node), f64::from(plan.max_overhead), self.pools)?;
        let added = self.add_groups(self.agents.len() - 1, groups, each);
        if added.is_err() {
            self.agents.pop();
        } else {
            self.pools += groups.len();
        }
        added
    }

    /// Adds an agent without groups, whose windows may take so much of the time. Its pools follow on
    /// `first_pool`.
    fn add_agent(
        &mut self,
        (handle, node): (u64, u32),
        percent: f64,
        first_pool: usize,
    ) -> Result<(), &'static str> {
        let agent = self.agents.len();
        let Some(known) = STATE.windows.agents.get(agent) else {
            return Err("there are too many agents");
        };
        let rotation = rotation(agent).ok_or("no memory for the choice of groups")?;
        known.first_pool.store(first_pool as u32, Relaxed);
        rotation.begin(0, 0.0, 0, 0);
        self.agents.push(Agent {
            handle,
            node,
            groups: Vec::new(),
            memory: Vec::new(),
            lists: Vec::new(),
            beside: Beside::default(),
            scheduler: Scheduler::new(0, percent, now()),
            percent,
            rotation,
        });
        Ok(())
    }

    /// Adds groups to an agent, with so many windows each, and has windows of all its groups taken.
    fn add_groups(
        &mut self,
        agent: usize,
        groups: &[&Group],
        each: usize,
    ) -> Result<(), &'static str> {
        let Some(of) = self.agents.get_mut(agent) else {
            return Err("there is no such agent");
        };
        if each * groups.len() > MOST - self.kept.len() {
            return Err("there are too many groups of counters");
        }
        let size = |bytes: usize| bytes.next_multiple_of(ALIGNMENT);
        let of_window =
            |group: &Group| size(4 * group.read_stop.len()) + size(group.output_bytes as usize);
        let bytes: usize = groups
            .iter()
            .map(|group| size(4 * group.start.len()) + each * of_window(group))
            .sum();
        let signals: Vec<Signal> = (0..2 * each * groups.len())
            .map_while(|_| signal())
            .collect();
        let give_back = |signals: Vec<Signal>| {
            for signal in signals {
                // SAFETY: made above, and used by nobody.
                unsafe { original::hsa_signal_destroy(signal.0) };
            }
        };
        if signals.len() < 2 * each * groups.len() {
            give_back(signals);
            return Err("the runtime gives no signals");
        }
        let Some(memory) = Memory::allocate(of.handle, bytes.next_multiple_of(4096)) else {
            give_back(signals);
            return Err("the runtime gives no memory that the device can take commands from");
        };
        let mut next = memory.at;
        of.memory.push(memory);
        let mut take = |bytes: usize| {
            let at = next;
            next += size(bytes) as u64;
            at
        };
        let mut pairs = signals.chunks_exact(2);
        for (index, group) in (of.groups.len() as u32..).zip(groups) {
            let start = take(4 * group.start.len());
            write(start, &group.start);
            for _ in 0..each {
                let commands = take(4 * group.read_stop.len());
                let output = take(group.output_bytes as usize);
                let mut words = group.read_stop.clone();
                group.patch(&mut words, output);
                write(commands, &words);
                self.kept.push(Kept {
                    agent,
                    group: index,
                    output,
                    is_given_up: false,
                });
                let number = self.kept.len() as u16;
                let window = STATE.windows.numbered(number);
                let pool = STATE.windows.pool(agent, index);
                let (Some(window), Some(pool), Some([started, was_read])) =
                    (window, pool, pairs.next())
                else {
                    break;
                };
                window.start.0.store(start, Relaxed);
                window.start.1.store(group.start.len() as u32, Relaxed);
                window.read.0.store(commands, Relaxed);
                window.read.1.store(group.read_stop.len() as u32, Relaxed);
                window.signals[0].store(started.0, Relaxed);
                window.signals[1].store(was_read.0, Relaxed);
                window.stage.store(Stage::Idle, Relaxed);
                // The pool has room for all of a group's.
                let _ = pool.put(u64::from(number));
            }
            of.groups
                .push((group.number, group.output_bytes as usize / 8));
        }
        let (count, time) = (of.groups.len() as u32, now());
        of.scheduler = Scheduler::new(count, of.percent, time);
        of.rotation.begin(count, of.percent, time, time);
        Ok(())
    }

    /// One round. Returns how many windows were read.
    pub fn pass(&mut self, sink: &mut Sink) -> usize {
        for text in self.complaints.drain(..) {
            sink.put(kind::NOTE, &note(&text));
        }
        choice::pass();
        let time = now();
        for queue in state::all() {
            self.assign(queue);
            guard::watch(queue, time, false);
        }
        if let Some(chooser) = self.chooser {
            self.make_ready(chooser);
            self.judge(chooser, false);
            return self.harvest(sink, false);
        }
        let read = self.harvest(sink, false);
        let time = now();
        for agent in &mut self.agents {
            agent.scheduler.renew(agent.rotation, time);
        }
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
            // SAFETY: a live queue (visit).
            let ring = queue.visit(|pointer| unsafe { pointer.ring() });
            let is_host = ring.is_some_and(is_of_the_host);
            queue.host_ring.store(u32::from(is_host), Relaxed);
            queue.windows_of.store(agent as u32 + 1, Release);
        }
    }

    /// Windows in rings, and those that were to be: index, window, and what is known of it.
    fn reserved(&self) -> impl Iterator<Item = (usize, &'static Window, Kept)> + '_ {
        self.kept.iter().enumerate().filter_map(|(index, kept)| {
            let window = STATE.windows.all.get(index)?;
            let is_out = !kept.is_given_up && window.stage.load(Acquire) != Stage::Idle;
            is_out.then_some((index, window, *kept))
        })
    }

    /// How many windows the device has not read.
    pub fn under_way(&self) -> u64 {
        self.reserved().count() as u64
    }

    /// No window is taken from here on.
    pub fn close() {
        STATE.windows.on.store(false, SeqCst);
        STATE.windows.exclusive.store(false, Release);
        chosen::close();
        fence(SeqCst);
        for queue in state::all() {
            guard::watch(queue, now(), true);
        }
    }

    /// Reads what the device has written, and ends windows whose queue is gone. With `all`, what has
    /// not been read is written, too.
    fn harvest(&mut self, sink: &mut Sink, all: bool) -> usize {
        let gone: HashSet<u32> = state::all()
            .filter(|queue| queue.life.load(Acquire) == Life::Gone)
            .map(|queue| queue.id.load(Relaxed))
            .collect();
        let mut ended = Vec::new();
        for (index, window, kept) in self.reserved() {
            let fired = has_fired(window);
            let looked_at = window.is_known();
            let destroyed = gone.contains(&window.queue.load(Relaxed));
            let late = window.stage.load(Relaxed) == Stage::Late;
            let why = match (fired && looked_at, destroyed) {
                _ if late => Some(WindowResult::TooLate),
                (true, _) => None,
                (false, true) => Some(WindowResult::QueueDestroyed),
                (false, false) if all => Some(WindowResult::Open),
                _ => continue,
            };
            ended.push((index, window, kept, why, fired || destroyed || late));
        }
        for &(index, window, kept, why, is_free) in &ended {
            self.write(sink, window, kept, why);
            if !is_free {
                if let Some(kept) = self.kept.get_mut(index) {
                    kept.is_given_up = true;
                }
                continue;
            }
            if let Some(agent) = STATE.windows.agents.get(kept.agent) {
                agent.turn.was_read(index as u16 + 1);
            }
            for signal in &window.signals {
                // SAFETY: ours, and its packet has completed, or is in no queue.
                unsafe { Signal(signal.load(Relaxed)).rearm() };
            }
            window.stage.store(Stage::Idle, Release);
            if let Some(pool) = STATE.windows.pool(kept.agent, kept.group) {
                // A thread that stands in the middle of taking one makes the pool look full: this
                // one then waits for the next session.
                let _ = pool.put(index as u64 + 1);
            }
        }
        ended.len()
    }

    /// Writes a window's records.
    fn write(&mut self, sink: &mut Sink, window: &Window, kept: Kept, why: Option<WindowResult>) {
        let Some(agent) = self.agents.get_mut(kept.agent) else {
            return;
        };
        let Some(&(group, output_words)) = agent.groups.get(kept.group as usize) else {
            return;
        };
        let dispatch = window.dispatch.load(Acquire);
        let dispatches = window.looked.1.load(Relaxed);
        let [started, was_read] = window.signals.each_ref().map(|s| Signal(s.load(Relaxed)));
        let was_used = why != Some(WindowResult::TooLate);
        // SAFETY: signals of ours, alive until they are given back.
        let ticks = unsafe {
            [
                started.start_ticks(),
                started.end_ticks(),
                was_read.start_ticks(),
                was_read.end_ticks(),
            ]
        };
        let clock = |ticks| {
            if was_used {
                to_clock(agent.handle, ticks)
            } else {
                0
            }
        };
        let times = ticks.map(clock);
        let [begin, start, end, read_end] = times;
        let plausible = is_plausible(times);
        let result = match why {
            Some(why) => why,
            None if dispatch == NO_DISPATCH => WindowResult::NoDispatch,
            None if !plausible => WindowResult::BadTimes,
            None if was_open_at_the_end(read_end) => WindowResult::Open,
            None => WindowResult::Counted,
        };
        let words = match result {
            WindowResult::Counted | WindowResult::BadTimes => output_words,
            _ => 0,
        };
        let value = |word: usize| {
            let at = kept.output as usize + 8 * word;
            // SAFETY: inside the window's output, an aligned word that the device has written.
            unsafe { (*std::ptr::with_exposed_provenance::<AtomicU64>(at)).load(Relaxed) }
        };
        if let Some(chooser) = self.chooser {
            let queue = window.queue.load(Relaxed);
            // One that was not read may have begun.
            let end = if read_end == 0 { u64::MAX } else { read_end };
            let span = Span {
                queue,
                dispatch,
                start: begin,
                end,
            };
            if was_used && (begin != 0 || result == WindowResult::BadTimes) {
                agent.beside.ended(Span {
                    dispatch: 0,
                    ..span
                });
            }
            let list = agent.lists.get(kept.group as usize);
            match list {
                Some(&list) if result == WindowResult::Counted && dispatches == 1 => {
                    let words = (0..words).map(value).collect();
                    agent.beside.read(Read { span, list, words });
                }
                _ if dispatch != NO_DISPATCH => chooser.ended(dispatch, Fate::NotAlone),
                _ => {}
            }
            return;
        }
        let record = CounterWindow {
            begin,
            start,
            end,
            read_end,
            dispatch_id: if dispatch == NO_DISPATCH { 0 } else { dispatch },
            first_index: window.packets.0.load(Relaxed),
            packets: window.packets.1.load(Relaxed),
            dispatches,
            queue_id: window.queue.load(Relaxed),
            node: agent.node,
            group,
            result: result as u32,
            ..CounterWindow::default()
        };
        self.records.put(sink, record, (0..words).map(value));
        let cost = (start - begin.min(start)) + (read_end - end.min(read_end));
        match (result, ClassKey::of(window.class.load(Relaxed))) {
            // What a batch counted says nothing of one class.
            (WindowResult::Counted, Some(class)) if dispatches == 1 => {
                let words = (0..words).map(value);
                agent
                    .scheduler
                    .measured_words(class, kept.group, words, cost);
            }
            _ if plausible => agent.scheduler.spent(cost),
            _ => {}
        }
    }

    /// The hooks are out, and nobody is inside: writes what the device has not read as such.
    pub fn finish(&mut self, sink: &mut Sink) {
        self.harvest(sink, true);
        if let Some(chooser) = self.chooser {
            self.judge(chooser, true);
            return;
        }
        let count = |counter: &AtomicU64| counter.load(Relaxed);
        let refused: u64 = self.agents.iter().map(|a| a.rotation.counts().2).sum();
        let text = format!(
            "counters: {} launches had a window around them; {refused} had none because of --max-overhead, {} since none was ready, {} since the ring was more than half full",
            self.records.written(),
            count(&STATE.windows.none_ready),
            count(&STATE.windows.no_room)
        );
        sink.put(kind::NOTE, &note(&text));
        let (shut, moved) = (count(&STATE.windows.shut), count(&STATE.windows.moved));
        if shut > 0 {
            let text = format!(
                "counters: the kernels of {moved} launches of graphs were counted one by one; {} launches were let go on as they were, since they were not rung within 50 ms or recording ended",
                shut.saturating_sub(moved)
            );
            sink.put(kind::NOTE, &note(&text));
        }
        let not_alone = count(&STATE.windows.not_alone);
        if not_alone > 0 {
            let text = format!(
                "counters: {not_alone} launches had no window because of --exclusive: other queues did not come to an end in time"
            );
            sink.put(kind::NOTE, &note(&text));
        }
    }

    /// Gives memory and signals back, but for those that a ring still refers to, since nobody can
    /// tell when the device comes to them, and for those that a thread has taken and not used yet.
    pub fn release(self, sink: &mut Sink) {
        let mut free = vec![false; self.kept.len()];
        for pool in &STATE.windows.pools {
            while let Some(number) = pool.0.take() {
                if let Some(free) = free.get_mut((number as usize).wrapping_sub(1)) {
                    *free = true;
                }
            }
        }
        let windows = STATE.windows.all.iter().zip(&free);
        for (window, _) in windows.filter(|(_, free)| **free) {
            for signal in &window.signals {
                // SAFETY: a signal of ours that no packet in a ring refers to.
                unsafe { original::hsa_signal_destroy(signal.swap(0, Relaxed)) };
            }
        }
        let mut left = 0;
        for (index, agent) in self.agents.into_iter().enumerate() {
            agent.rotation.begin(0, 0.0, 0, 0);
            let mut windows = self.kept.iter().zip(&free);
            if windows.all(|(kept, free)| kept.agent != index || *free) {
                agent.memory.into_iter().for_each(Memory::free);
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

impl Subscriber for Keeper {
    #[inline]
    fn enqueue(queue: &'static QueueState, dispatch: &Enqueued) -> Answer {
        enqueued(queue, dispatch);
        Answer::default()
    }

    fn complete(&mut self, queue: &QueueState, dispatch: &Completed<'_>, _sink: &mut Sink) {
        if let Some(chooser) = self.chooser {
            let handle = queue.agent.load(Acquire);
            let mut agents = self.agents.iter_mut();
            if let Some(agent) = agents.find(|agent| agent.handle == handle) {
                agent.beside.ended(span_of(queue, dispatch));
            }
            let number = dispatch.facts.launch.window;
            let window = STATE.windows.numbered(number);
            if window.is_none_or(|window| window.packets.1.load(Relaxed) > 1) {
                chooser.ended(dispatch.facts.dispatch_id, Fate::NoWindow);
            }
            return;
        }
        let agent = (queue.windows_of.load(Relaxed) as usize).checked_sub(1);
        let agent = agent.and_then(|agent| self.agents.get_mut(agent));
        if let (Some(agent), Ok((start, end))) = (agent, dispatch.outcome) {
            let class = class_of(&dispatch.facts.dispatch);
            agent.scheduler.dispatched(class, end - start);
            let kernel = dispatch.facts.dispatch.kernel_object;
            if let Some(may_come) = STATE.windows.choices.may_come(kernel) {
                agent.scheduler.exclude(class, !may_come);
            }
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

/// Whether it was read after recording had begun to end, or so near to that that the device's clock
/// cannot tell.
fn was_open_at_the_end(read_end: u64) -> bool {
    let until = STATE.windows.until.load(Acquire);
    until != 0 && read_end.saturating_add(CLOCKS) > until
}

/// Writes commands into memory of ours.
pub(in crate::queue) fn write(at: u64, words: &[u32]) {
    let to = std::ptr::with_exposed_provenance_mut::<u32>(at as usize);
    // SAFETY: the caller has set so many words aside there, and the device does not use them yet.
    unsafe { to.copy_from_nonoverlapping(words.as_ptr(), words.len()) };
}

/// A signal of the value 1.
pub(in crate::queue) fn signal() -> Option<Signal> {
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

/// The table by which threads of the application choose, mapped at its first use.
fn rotation(agent: usize) -> Option<&'static Rotation> {
    if let Some(known) = STATE.windows.rotation(agent) {
        return Some(known);
    }
    let place = STATE.windows.agents.get(agent)?;
    // SAFETY: a fresh private mapping at an address of the kernel's choice.
    let memory = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            size_of::<Rotation>(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if memory == libc::MAP_FAILED {
        return None;
    }
    // All zero bytes are one that chooses nothing.
    place.rotation.store(memory.cast(), Release);
    STATE.windows.rotation(agent)
}
