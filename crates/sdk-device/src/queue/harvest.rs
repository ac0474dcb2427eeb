//! The worker thread's side of the queues: keeps the pool filled, reads times, writes records, closes the books.

use super::flight::{Flight, Stage};
use super::queue_state::{Life, Locked, QueueState};
use super::scan;
use super::state;
use super::watch::Watcher;
use crate::layout::Signal;
use crate::sink::Sink;
use crate::state::STATE;
use crate::symbols;
use midair_record::event::{Header, Kernel, Plain, Queue, QueueCounts, Untimed, flag, kind};
use midair_sdk_hot::clock::now;
use midair_sdk_hot::wrappers::original;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// Free signals that are kept ready: what eight threads launch in a few milliseconds.
const READY_SIGNALS: usize = 4096;
/// Those that are made before the hooks go in; the first round of the session makes the rest.
const FIRST_SIGNALS: usize = 1024;
/// Signals that we make at most, ever.
const MOST_SIGNALS: usize = 60_000;
/// A doorbell held back by a gap is rung by us after this.
const HOLD_LIMIT: u64 = 2_000_000;
/// Unfinished flights that one pass looks at per queue: the device works in order, so those behind them have not ended either.
const LOOK_AHEAD: usize = 512;
/// `HSA_AMD_SIGNAL_AMD_GPU_ONLY`: no interrupt, no event.
const GPU_ONLY: u64 = 1;

/// What the worker thread keeps between passes.
#[derive(Debug, Default)]
pub struct Harvester {
    /// Signals made so far.
    made: usize,
    /// Agent handles and their KFD nodes.
    nodes: HashMap<u64, u32>,
    /// Agent handles and whether they are GPUs.
    gpus: HashMap<u64, bool>,
    /// Kernels that were launched and not known: each is looked for once.
    looked_for: HashSet<u64>,
}

impl Harvester {
    /// Before the hooks go in: signals ready. False when the runtime gives none.
    pub fn prepare(&mut self) -> bool {
        self.fill(FIRST_SIGNALS)
    }

    /// After the hooks are out: gives the runtime its signals back. It may be shut down and opened again before the next session, and
    /// at the end of a process it complains of those that were kept. A signal that was put into a packet and not seen to fire is left
    /// to the device for ever.
    pub fn give_back(&mut self) {
        while let Some(signal) = STATE.signals.take() {
            // SAFETY: a signal of ours that nothing in flight refers to; its runtime is open (a shut-down waits for the session's end).
            unsafe { original::hsa_signal_destroy(signal.0) };
        }
        self.made = 0;
        self.nodes.clear();
        self.looked_for.clear();
        self.gpus.clear();
    }

    fn fill(&mut self, wanted: usize) -> bool {
        while STATE.signals.len() < wanted && self.made < MOST_SIGNALS {
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
            if status != 0 {
                return !STATE.signals.is_empty();
            }
            self.made += 1;
            if STATE.signals.put(Signal(handle)).is_err() {
                break;
            }
        }
        true
    }

    fn recycle(&mut self, signal: Signal) {
        // SAFETY: ours, and nothing in flight refers to it (its packet has completed).
        unsafe { signal.rearm() };
        if let Err(signal) = STATE.signals.put(signal) {
            // SAFETY: as above.
            unsafe { original::hsa_signal_destroy(signal.0) };
            self.made = self.made.saturating_sub(1);
        }
    }

    /// One pass over all queues. Returns how many flights ended.
    pub fn pass(&mut self, sink: &mut Sink) -> usize {
        self.fill(READY_SIGNALS);
        state::provide();
        let mut ended = 0;
        for queue in state::all() {
            self.announce(queue, sink);
            self.look_at_passed(queue);
            self.release_held(queue);
            ended += self.follow(queue, sink, None);
        }
        ended
    }

    /// Writes the queue's own record once.
    fn announce(&mut self, queue: &QueueState, sink: &mut Sink) {
        if queue.announced.load(Relaxed) != 0 {
            return;
        }
        if queue.agent.load(Acquire) == 0 {
            // SAFETY: a live queue (visit).
            let agent = queue.visit(|pointer| unsafe { symbols::queue_agent(pointer.0) });
            queue.agent.store(agent.unwrap_or(0), Release);
        }
        let agent = queue.agent.load(Acquire);
        let node = self.node_of(agent);
        queue.node.store(node, Relaxed);
        queue.announced.store(1, Relaxed);
        let size = queue.lock().map_or(0, |inner| inner.size as u32);
        let record = Queue {
            header: Header {
                size: size_of::<Queue>() as u16,
                kind: kind::QUEUE,
                ..Header::default()
            },
            handle: queue.queue.load(Relaxed),
            queue_id: queue.id.load(Relaxed),
            node,
            size,
            intercept: queue.intercept.load(Relaxed),
        };
        sink.put(kind::QUEUE, record.bytes());
    }

    /// KFD node of an agent.
    pub fn node_of(&mut self, agent: u64) -> u32 {
        *self
            .nodes
            .entry(agent)
            .or_insert_with(|| symbols::agent_node(agent))
    }

    /// AMD's memory-copy operation by the agents' types: 1 host to host, 2 host to device, 3 device to host, 4 device to device.
    pub fn direction(&mut self, src_agent: u64, dst_agent: u64) -> u32 {
        let mut is_gpu = |agent: u64| {
            *self
                .gpus
                .entry(agent)
                .or_insert_with(|| symbols::agent_is_gpu(agent))
        };
        match (is_gpu(src_agent), is_gpu(dst_agent)) {
            (false, false) => 1,
            (false, true) => 2,
            (true, false) => 3,
            (true, true) => 4,
        }
    }

    /// Somebody rang without a look, and nobody may ring after it: the packets are looked at here, or counted where they cannot be.
    fn look_at_passed(&self, queue: &'static QueueState) {
        if queue.passed.load(Relaxed) != 0
            && let Some(mut inner) = queue.lock()
        {
            Self::catch_up(queue, &mut inner);
        }
    }

    fn catch_up(queue: &'static QueueState, inner: &mut Locked<'_>) {
        if !inner.take_passed(queue) {
            return;
        }
        let asked = inner.asked;
        if queue
            .visit(|_| scan::look(queue, inner, None, asked))
            .is_none()
        {
            // Destroyed meanwhile: nobody can tell any more what they were.
            inner.lost += asked - inner.next;
            inner.next = asked;
        }
    }

    /// A producer left a gap and does not come back: ring for the others.
    fn release_held(&self, queue: &'static QueueState) {
        let Some(mut inner) = queue.lock() else {
            return;
        };
        if inner.held_since == 0 || now() - inner.held_since < HOLD_LIMIT {
            return;
        }
        let value = inner.asked.wrapping_sub(1);
        inner.rung = inner.asked;
        inner.held_since = 0;
        drop(inner);
        queue.visit(|_| {
            // SAFETY: the doorbell of a live queue (visit); the application asked for this value.
            unsafe {
                original::hsa_signal_store_screlease(queue.doorbell.load(Relaxed), value as i64)
            };
        });
    }

    /// Follows the flights of a queue; with `last`, ends what has not ended, for that reason. Returns how many ended.
    fn follow(
        &mut self,
        queue: &'static QueueState,
        sink: &mut Sink,
        last: Option<Untimed>,
    ) -> usize {
        let mut ended = 0;
        let mut open = 0;
        for position in queue.flights.range() {
            let flight = queue.flights.at(position);
            match self.ended(queue, flight, last) {
                Some(outcome) => {
                    self.write(queue, flight, outcome, sink);
                    ended += 1;
                }
                None if flight.stage.load(Relaxed) == Stage::Written => {}
                None => {
                    open += 1;
                    if open > LOOK_AHEAD {
                        break;
                    }
                }
            }
        }
        queue.flights.retire();
        ended
    }

    /// Ticks or reason, if the flight has ended.
    fn ended(
        &mut self,
        queue: &QueueState,
        flight: &Flight,
        last: Option<Untimed>,
    ) -> Option<Result<(u64, u64), Untimed>> {
        match flight.stage.load(Acquire) {
            Stage::Seen => return Some(Ok((flight.start.load(Relaxed), flight.end.load(Relaxed)))),
            Stage::Untimed => return Some(Err(untimed(flight.reason.load(Relaxed)))),
            Stage::UnderWay => {}
            _ => return None,
        }
        let facts = flight.facts();
        let signal = Signal(facts.signal);
        // Before the look at the signal: what has not fired on a queue that is gone never will.
        let gone = queue.life.load(Acquire) == Life::Gone;
        let has_ended = facts.index < queue.ended_below.load(Relaxed);
        if facts.ours {
            // SAFETY: a signal of ours, alive as long as its runtime.
            let (value, start, end) =
                unsafe { (signal.value(), signal.start_ticks(), signal.end_ticks()) };
            if value < 1 {
                self.recycle(signal);
                return Some(Ok((start, end)));
            }
            if has_ended {
                // The packet processor had read the packet when our signal was put in: it never fires, and nobody waits for it.
                return Some(Err(Untimed::PacketTakenFirst));
            }
            if let Some(why) = last {
                return Some(Err(why));
            }
            if gone {
                return Some(Err(Untimed::QueueDestroyed));
            }
            return None;
        }
        // Its own signal: the application may be about to change it; whoever gets the flight reads it.
        if flight
            .stage
            .compare_exchange(Stage::UnderWay, Stage::Reading, AcqRel, Acquire)
            .is_err()
        {
            return None;
        }
        let watcher = Watcher::Flight(std::ptr::from_ref(flight).addr());
        if let Some(why) = last {
            // The hooks are out: the application may have destroyed the signal, or used it for something else.
            STATE.watchers.release(facts.signal, watcher);
            return Some(Err(why));
        }
        // SAFETY: the signal is watched: before the application stores to it or destroys it, a hook takes the flight out of
        // UNDER_WAY, and waits for us while it is READING.
        let (start, end) = unsafe { (signal.start_ticks(), signal.end_ticks()) };
        if end != 0 && end != facts.stale_end {
            STATE.watchers.release(facts.signal, watcher);
            return Some(Ok((start, end)));
        }
        if gone {
            STATE.watchers.release(facts.signal, watcher);
            return Some(Err(Untimed::QueueDestroyed));
        }
        flight.stage.store(Stage::UnderWay, Release);
        None
    }

    fn write(
        &mut self,
        queue: &QueueState,
        flight: &Flight,
        outcome: Result<(u64, u64), Untimed>,
        sink: &mut Sink,
    ) {
        let facts = flight.facts();
        let agent = queue.agent.load(Acquire);
        let times = outcome.and_then(|(start, end)| {
            let (start, end) = (to_clock(agent, start), to_clock(agent, end));
            if start != 0 && end >= start {
                Ok((start, end))
            } else {
                Err(Untimed::BadTimes)
            }
        });
        let (start, end, untimed) = match times {
            Ok((start, end)) => (start, end, Untimed::Timed),
            Err(why) => (0, 0, why),
        };
        let mut flags = facts.launch.flags;
        match untimed {
            Untimed::Timed => {
                queue.timed.fetch_add(1, Relaxed);
                if facts.after_all {
                    queue.ended_below.fetch_max(facts.index, Relaxed);
                }
            }
            why => {
                flags |= flag::UNTIMED;
                if why == Untimed::RunningAtDetach {
                    flags |= flag::OPEN_AT_DETACH;
                }
                if let Some(count) = queue.untimed.get(why as usize) {
                    count.fetch_add(1, Relaxed);
                }
            }
        }
        let kernel = facts.dispatch.kernel_object;
        let mut kernel_id = symbols::kernel_id(kernel);
        if kernel_id == 0 && (STATE.symbols.changed.load(Relaxed) || self.looked_for.insert(kernel))
        {
            // Loaded a moment ago, or in a way that no hook sees: it is looked for among all that is loaded.
            symbols::set_changed();
            symbols::refresh(sink);
            kernel_id = symbols::kernel_id(kernel);
        }
        if kernel_id == 0 {
            kernel_id = symbols::retired_kernel_id(kernel);
        }
        let record = Kernel {
            header: Header {
                size: size_of::<Kernel>() as u16,
                kind: kind::KERNEL_DISPATCH,
                flags,
                operation: 2,
            },
            start,
            end,
            correlation: facts.launch.correlation,
            rung: facts.rung,
            dispatch_id: facts.dispatch_id,
            kernel_id,
            kernel_object: kernel,
            packet_index: facts.index,
            stream: facts.launch.stream,
            queue_id: queue.id.load(Relaxed),
            node: queue.node.load(Relaxed),
            tid: facts.launch.tid,
            untimed: untimed as u32,
            private_segment: facts.dispatch.private_segment,
            group_segment: facts.dispatch.group_segment,
            workgroup: facts.dispatch.workgroup,
            grid: facts.dispatch.grid,
        };
        sink.put(kind::KERNEL_DISPATCH, record.bytes());
        flight.stage.store(Stage::Written, Release);
    }

    /// The session closes: nothing new is taken on. Looks at what was rung and not looked at (behind a gap), and rings it.
    pub fn close(&mut self, sink: &mut Sink) {
        for queue in state::all() {
            self.announce(queue, sink);
            let Some(mut inner) = queue.lock_patiently() else {
                continue;
            };
            Self::catch_up(queue, &mut inner);
            if inner.asked <= inner.rung {
                continue;
            }
            let asked = inner.asked;
            queue.visit(|_| scan::look(queue, &mut inner, None, asked));
            inner.rung = asked;
            inner.held_since = 0;
            drop(inner);
            queue.visit(|_| {
                // SAFETY: the doorbell of a live queue (visit); the application asked for this value.
                unsafe {
                    original::hsa_signal_store_screlease(
                        queue.doorbell.load(Relaxed),
                        asked.wrapping_sub(1) as i64,
                    );
                };
            });
        }
    }

    /// Flights that have not ended.
    pub fn under_way(&self) -> u64 {
        state::all()
            .map(|queue| queue.flights.range())
            .map(|range| range.end - range.start)
            .sum()
    }

    /// Switches profiling back, the last thing that is done to queues: the hooks must still be in, since the application may destroy
    /// a queue at any moment and only its hook waits for us.
    pub fn put_back(&mut self) {
        for queue in state::all().filter(|queue| queue.profiling_ours.load(Relaxed) != 0) {
            queue.visit(|pointer| {
                // SAFETY: a live queue (visit); we switched profiling on and now put it back.
                unsafe { original::hsa_amd_profiling_set_profiler_enabled(pointer.0 as *mut _, 0) };
            });
        }
    }

    /// After the hooks are out and everyone was seen outside: writes what still runs as such, and the books. Touches no queue.
    pub fn finish(&mut self, sink: &mut Sink) {
        for queue in state::all() {
            let why = if queue.life.load(Acquire) != Life::Alive {
                Untimed::QueueDestroyed
            } else {
                Untimed::RunningAtDetach
            };
            // LOOK_AHEAD bounds one pass; each pass ends what it sees.
            while self.follow(queue, sink, Some(why)) > 0 {}
            self.books(queue, sink);
        }
    }

    fn books(&self, queue: &QueueState, sink: &mut Sink) {
        let Some(inner) = queue.lock_patiently() else {
            // Without its books nobody knows whether a queue's dispatches are all there.
            sink.area.drop_record(kind::QUEUE_COUNTS);
            return;
        };
        let record = QueueCounts {
            header: Header {
                size: size_of::<QueueCounts>() as u16,
                kind: kind::QUEUE_COUNTS,
                ..Header::default()
            },
            queue_id: queue.id.load(Relaxed),
            reserved: 0,
            first_index: inner.first,
            last_index: inner.next,
            dispatches: inner.dispatches - inner.overflown,
            other_packets: inner.others,
            timed: queue.timed.load(Relaxed),
            untimed: std::array::from_fn(|i| {
                queue.untimed.get(i).map_or(0, |count| count.load(Relaxed))
            }),
            lost: inner.lost + inner.overflown,
        };
        sink.put(kind::QUEUE_COUNTS, record.bytes());
    }
}

fn untimed(number: u32) -> Untimed {
    Untimed::ALL
        .get(number as usize)
        .copied()
        .filter(|why| *why != Untimed::Timed)
        .unwrap_or(Untimed::BadTimes)
}

/// Device ticks to the record clock, by the runtime's own calibration.
fn to_clock(agent: u64, ticks: u64) -> u64 {
    if ticks == 0 {
        return 0;
    }
    let mut time = 0_u64;
    // SAFETY: the runtime's own function with a valid out pointer; an unknown agent is answered with an error.
    let status = unsafe {
        original::hsa_amd_profiling_convert_tick_to_system_domain(
            agent,
            ticks,
            (&raw mut time).cast(),
        )
    };
    if status == 0 { time } else { 0 }
}
