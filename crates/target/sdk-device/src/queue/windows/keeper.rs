//! The worker thread's side of windows: makes windows ready, reads what the device has counted, and
//! frees everything at the end.

mod serving;

use super::concurrency::{Concurrency, Read, Span};
use super::memory::{Memory, is_of_the_host};
use super::tool_requests::{self, Chooser, Fate};
use super::{class_of, enqueued, guard, kernel_filter, plan};
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

/// The number of windows that are wanted for an agent, divided among its groups.
const OF_AN_AGENT: usize = 64;
/// The alignment of commands and outputs, in bytes.
pub(in crate::queue) const ALIGNMENT: usize = 256;
/// `HSA_AMD_SIGNAL_AMD_GPU_ONLY`: no interrupt, no event.
const GPU_ONLY: u64 = 1;
/// The largest error of the device's times on the records' clock in ns, with a margin.
const CLOCKS: u64 = 20_000;

/// An agent with counters.
#[derive(Debug)]
struct Agent {
    handle: u64,
    node: u32,
    /// For each group: its number in the plan, and the number of words of an output.
    groups: Vec<(u32, usize)>,
    memory: Vec<Memory>,
    /// If a tool chooses: the list of each group; `concurrency` has what ran alongside the agent's windows.
    lists: Vec<u64>,
    concurrency: Concurrency,
    /// Decides which group comes next.
    scheduler: Scheduler,
    /// The percentage of the time that its windows may take.
    percent: f64,
    rotation: &'static Rotation,
}

/// What the worker thread knows about a window.
#[derive(Debug, Clone, Copy)]
struct Kept {
    /// The index of its agent.
    agent: usize,
    /// The index of its group on this agent.
    group: u32,
    /// The address of its output.
    output: u64,
    /// Whether the device had not read it when collecting ended, so that it was recorded without
    /// values.
    is_given_up: bool,
}

/// All windows of a collection.
#[derive(Debug, Default)]
pub struct Keeper {
    agents: Vec<Agent>,
    /// The windows by number, from 1.
    kept: Vec<Kept>,
    /// The number of pools that groups have.
    pools: usize,
    records: Writer,
    /// Complaints for the person who profiles.
    complaints: Vec<String>,
    /// Set if a tool in the process chooses: then values go to the tool and not into the records.
    chooser: Option<&'static dyn Chooser>,
}

impl Keeper {
    /// Asks the runtime, which is open, for memory and signals for the session's plan. From then on
    /// windows are taken.
    pub fn open() -> Keeper {
        let mut keeper = Keeper::default();
        let plan = plan().clone();
        if plan.is_none() {
            keeper.chooser = tool_requests::open();
        } else if tool_requests::is_wanted() {
            keeper.complaints.push(
                "tools in the process get no dispatch counters while the session counts".to_owned(),
            );
        }
        for (handle, _) in symbols::agents() {
            let node = symbols::agent_node(handle);
            if keeper.chooser.is_some() && symbols::agent_is_gpu(handle) {
                // Its lists are added when a tool chooses them.
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
        STATE.windows.unfit.store(0, Relaxed);
        STATE.windows.other_ways.store(0, Relaxed);
        STATE.windows.not_alone.store(0, Relaxed);
        let exclusive = plan.as_deref().is_some_and(|plan| plan.exclusive);
        STATE.windows.exclusive.store(exclusive, Relaxed);
        STATE.windows.shut.store(0, Relaxed);
        STATE.windows.moved.store(0, Relaxed);
        let guards = plan.as_deref().is_some_and(|plan| plan.graph_kernels);
        STATE.windows.guards.store(guards, Relaxed);
        STATE.windows.until.store(0, Relaxed);
        kernel_filter::begin();
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
            if let Some(known) = STATE.windows.agents.get(self.agents.len()) {
                known.handle.store(0, Release);
            }
        } else {
            self.pools += groups.len();
        }
        added
    }

    /// Adds an agent without groups. Its windows may take `percent` of the time, and its pools
    /// start at `first_pool`.
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
        let rotation =
            rotation(agent).ok_or("cannot allocate memory for the selection of groups")?;
        known.first_pool.store(first_pool as u32, Relaxed);
        rotation.begin(0, 0.0, 0, 0);
        // From here on a thread that learns a queue of this agent knows which windows the queue
        // uses.
        known.handle.store(handle, Release);
        self.agents.push(Agent {
            handle,
            node,
            groups: Vec::new(),
            memory: Vec::new(),
            lists: Vec::new(),
            concurrency: Concurrency::default(),
            scheduler: Scheduler::new(0, percent, now()),
            percent,
            rotation,
        });
        Ok(())
    }

    /// Adds groups to an agent, with `each` windows for each group. From then on windows of all its
    /// groups are taken.
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
                // SAFETY: the signal was created above, and nothing uses it.
                unsafe { original::hsa_signal_destroy(signal.0) };
            }
        };
        if signals.len() < 2 * each * groups.len() {
            give_back(signals);
            return Err("the runtime provides no signals");
        }
        let Some(memory) = Memory::allocate(of.handle, bytes.next_multiple_of(4096)) else {
            give_back(signals);
            return Err("the runtime provides no memory for device commands");
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
                // The pool has room for all windows of a group.
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

    /// Does one round. Returns how many windows were read.
    pub fn pass(&mut self, sink: &mut Sink) -> usize {
        for text in self.complaints.drain(..) {
            sink.put(kind::NOTE, &note(&text));
        }
        kernel_filter::pass();
        let time = now();
        for queue in state::all() {
            assign(queue);
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

    /// Returns the windows that are in rings or were about to be: their index, the window, and what
    /// is known about it.
    fn reserved(&self) -> impl Iterator<Item = (usize, &'static Window, Kept)> + '_ {
        self.kept.iter().enumerate().filter_map(|(index, kept)| {
            let window = STATE.windows.all.get(index)?;
            let is_out = !kept.is_given_up && window.stage.load(Acquire) != Stage::Idle;
            is_out.then_some((index, window, *kept))
        })
    }

    /// Returns how many windows the device has not read.
    pub fn under_way(&self) -> u64 {
        self.reserved().count() as u64
    }

    /// Stops collecting: no window is taken from here on.
    pub fn close() {
        STATE.windows.on.store(false, SeqCst);
        STATE.windows.exclusive.store(false, Release);
        tool_requests::close();
        fence(SeqCst);
        for queue in state::all() {
            guard::watch(queue, now(), true);
        }
    }

    /// Reads what the device has written, and ends windows whose queue is gone. With `all`, windows
    /// that the device has not read get records, too.
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
                // SAFETY: the signal is ours, and its packet has completed or is in no queue.
                unsafe { Signal(signal.load(Relaxed)).rearm() };
            }
            window.stage.store(Stage::Idle, Release);
            if let Some(pool) = STATE.windows.pool(kept.agent, kept.group) {
                // A thread that is stopped in the middle of taking a window makes the pool look
                // full. This window is then not used again before the next session.
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
        // SAFETY: these are midair's signals, which are alive until `release` destroys them.
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
            // SAFETY: this is an aligned word inside the window's output, which the device has
            // written.
            unsafe { (*std::ptr::with_exposed_provenance::<AtomicU64>(at)).load(Relaxed) }
        };
        if let Some(chooser) = self.chooser {
            let queue = window.queue.load(Relaxed);
            // A window that was not read may have started.
            let end = if read_end == 0 { u64::MAX } else { read_end };
            let span = Span {
                queue,
                dispatch,
                start: begin,
                end,
            };
            if was_used && (begin != 0 || result == WindowResult::BadTimes) {
                agent.concurrency.ended(Span {
                    dispatch: 0,
                    ..span
                });
            }
            let list = agent.lists.get(kept.group as usize);
            match list {
                Some(&list) if result == WindowResult::Counted && dispatches == 1 => {
                    let words = (0..words).map(value).collect();
                    agent.concurrency.read(Read { span, list, words });
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
            // The counts of a batch say nothing about a single class.
            (WindowResult::Counted, Some(class)) if dispatches == 1 => {
                let words = (0..words).map(value);
                agent
                    .scheduler
                    .measured_words(class, kept.group, words, cost);
            }
            _ if plausible => agent.scheduler.spent(kept.group, cost),
            _ => {}
        }
    }

    /// Ends the collection, after the hooks were removed and no thread is inside them. Windows that
    /// the device has not read are recorded as such.
    pub fn finish(&mut self, sink: &mut Sink) {
        self.harvest(sink, true);
        if let Some(chooser) = self.chooser {
            self.judge(chooser, true);
            return;
        }
        let count = |counter: &AtomicU64| counter.load(Relaxed);
        let refused: u64 = self.agents.iter().map(|a| a.rotation.counts().2).sum();
        let text = format!(
            "counters: {} launches had a window; {refused} had none because of --max-overhead, {} since none was ready, {} since the ring was more than half full",
            self.records.written(),
            count(&STATE.windows.none_ready),
            count(&STATE.windows.no_room)
        );
        sink.put(kind::NOTE, &note(&text));
        let unfit = count(&STATE.windows.unfit);
        if unfit > 0 {
            let text = format!(
                "counters: {unfit} launches had no window, since another profiler intercepts their queue, the queue has no times, its doorbell bypasses midair, or the program does not check its free space"
            );
            sink.put(kind::NOTE, &note(&text));
        }
        let other_ways = count(&STATE.windows.other_ways);
        if other_ways > 0 {
            let text = format!(
                "counters: {other_ways} reservations had no window, since the program itself chose their packets (a store to or a compare-and-exchange of the queue's write index)"
            );
            sink.put(kind::NOTE, &note(&text));
        }
        let (shut, moved) = (count(&STATE.windows.shut), count(&STATE.windows.moved));
        if shut > 0 {
            let text = format!(
                "counters: the kernels of {moved} launches of graphs were counted one by one; {} launches were not, since they were not rung within 50 ms or recording ended",
                shut.saturating_sub(moved)
            );
            sink.put(kind::NOTE, &note(&text));
        }
        let not_alone = count(&STATE.windows.not_alone);
        if not_alone > 0 {
            let text = format!(
                "counters: {not_alone} launches had no window because of --exclusive: other queues did not become idle in time"
            );
            sink.put(kind::NOTE, &note(&text));
        }
    }

    /// Gives memory and signals back. It keeps those that a ring still refers to, since it is not
    /// known when the device reaches them, and those that a thread has taken and not used yet.
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
                // SAFETY: the signal is ours, and no packet in a ring refers to it.
                unsafe { original::hsa_signal_destroy(signal.swap(0, Relaxed)) };
            }
        }
        let mut left = 0;
        for (index, agent) in self.agents.into_iter().enumerate() {
            if let Some(known) = STATE.windows.agents.get(index) {
                known.handle.store(0, Release);
            }
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
                "counters: the device has not processed all of midair's packets on {left} agents: their memory stays allocated"
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
                agent.concurrency.ended(span_of(queue, dispatch));
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

/// Tells a queue which agent's windows it uses, if the thread that learned the queue could not,
/// and finds out where its ring is.
pub(in crate::queue) fn assign(queue: &QueueState) {
    if queue.windows_of.load(Relaxed) == 0 {
        let of = STATE.windows.of_agent(queue.agent.load(Acquire));
        queue.windows_of.store(of, Release);
    }
    if queue.windows_of.load(Relaxed) != 0 && queue.host_ring.load(Relaxed) == 0 {
        // SAFETY: `visit` calls this only with a live queue.
        let ring = queue.visit(|pointer| unsafe { pointer.ring() });
        let is_host = ring.is_some_and(is_of_the_host);
        queue.host_ring.store(if is_host { 1 } else { 2 }, Relaxed);
    }
}

/// Returns whether the device has executed both packets.
pub(in crate::queue) fn has_fired(window: &Window) -> bool {
    window.signals.iter().all(|signal| {
        // SAFETY: the signal is ours, and is alive as long as its runtime.
        unsafe { Signal(signal.load(Relaxed)).value() < 1 }
    })
}

/// Returns whether a window was read after recording had started to end, or so close to that moment
/// that the device's clock cannot tell.
fn was_open_at_the_end(read_end: u64) -> bool {
    let until = STATE.windows.until.load(Acquire);
    until != 0 && read_end.saturating_add(CLOCKS) > until
}

/// Writes commands into midair's memory.
pub(in crate::queue) fn write(at: u64, words: &[u32]) {
    let to = std::ptr::with_exposed_provenance_mut::<u32>(at as usize);
    // SAFETY: the caller has reserved this many words at `at`, and the device does not use them
    // yet.
    unsafe { to.copy_from_nonoverlapping(words.as_ptr(), words.len()) };
}

/// Creates a signal with the value 1.
pub(in crate::queue) fn signal() -> Option<Signal> {
    let mut handle = 0_u64;
    // SAFETY: this is the runtime's own function, the out pointer is valid, and no consumers are
    // named.
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

/// Returns the table by which the application's threads choose a group. It is mapped at its first
/// use.
fn rotation(agent: usize) -> Option<&'static Rotation> {
    if let Some(known) = STATE.windows.rotation(agent) {
        return Some(known);
    }
    let place = STATE.windows.agents.get(agent)?;
    // SAFETY: this makes a new private mapping at an address that the kernel chooses, so it
    // replaces nothing.
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
    // A table of zero bytes is valid, and chooses nothing.
    place.rotation.store(memory.cast(), Release);
    STATE.windows.rotation(agent)
}
