//! The worker thread's side of the queues: follows dispatches until they have ended, and writes the
//! counts of queues.

use super::bus::SlowRings;
use super::direct;
use super::flight::Stage;
use super::heads::Heads;
use super::queue_state::{Life, Locked, QueueState};
use super::remap::{Owner, Remap};
use super::scan;
use super::serialized::collector::Collector;
use super::service::Subscribers;
use super::state;
use super::windows::keeper::Keeper;
use crate::sampling::dispatches::Dispatches;
use crate::sink::Sink;
use crate::symbols;
use midair_record::event::{Header, Plain, Queue, QueueCounts, Untimed, kind, note};
use midair_sdk_hot::clock::now;
use midair_sdk_hot::wrappers::original;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// After how many nanoseconds we look at a gap that holds a doorbell back. Usually the thread that
/// fills the gap rings before that.
const LOOK_AFTER: u64 = 2_000_000;
/// After how many nanoseconds we ring a doorbell that a gap holds back, as the application asked.
/// Until then nothing is lost by waiting, since no device goes past a packet that is not valid. If
/// we rang earlier, the device could take the packet in the gap before we had looked at it: on a
/// busy machine its producer may be preempted for longer than a few rounds.
const HOLD_LIMIT: u64 = 1_000_000_000;
/// How many unfinished flights one pass looks at per queue. The device works in order, so those
/// behind them have not ended either.
const LOOK_AHEAD: usize = 512;
/// What the worker thread keeps between passes.
#[derive(Debug, Default)]
pub struct Harvester {
    /// The subscribers, which are notified of dispatches.
    subscribers: Subscribers,
    /// Agent handles and their KFD nodes.
    nodes: HashMap<u64, u32>,
    /// Agent handles and whether they are GPUs.
    gpus: HashMap<u64, bool>,
    /// Queues whose profiling was switched on too late.
    remap: Remap,
    /// The number of packets that were rung past the hooks, and the number of queues that they were
    /// on.
    past: (u64, u64),
    /// Queues whose packets take long to read.
    slow_rings: SlowRings,
    /// The correlation ids of the copies under way at the last pass; `None` if one was in use and
    /// could not be read.
    pub(crate) copies: Option<HashSet<u64>>,
}

impl Harvester {
    /// Makes signals, before the hooks are installed. Returns false if the runtime gives none.
    pub fn prepare(&mut self) -> bool {
        self.remap = Remap::default();
        self.past = (0, 0);
        self.slow_rings = SlowRings::default();
        self.subscribers.timing.prepare()
    }

    /// Gives the runtime its signals back, after the hooks were removed. The runtime may be shut
    /// down and opened again before the next session, and at the end of a process it complains
    /// about signals that were kept. A signal that was put into a packet and not seen to fire is
    /// left to the device forever.
    pub fn give_back(&mut self) {
        self.subscribers.timing.release_signals();
        self.nodes.clear();
        self.gpus.clear();
    }

    /// Does one pass over all queues. Returns how many flights ended.
    pub fn pass(&mut self, sink: &mut Sink) -> usize {
        self.subscribers.timing.refill();
        state::provide();
        let mut ended = 0;
        let mut heads = Heads::new(sink.area);
        for queue in state::all() {
            self.announce(queue, sink);
            self.look_at_passed(queue);
            direct::watch(queue);
            self.release_held(queue);
            ended += self.follow(queue, sink, None);
            heads.tell(queue);
            self.bury(queue, sink);
        }
        heads.end();
        self.map_anew();
        ended
    }

    /// Remaps the queues that need it, at the end of a round.
    pub fn map_anew(&mut self) {
        self.remap.run();
    }

    /// Stops remapping queues.
    pub fn keep_mappings(&mut self) {
        self.remap.close();
    }

    /// Notes a copy between these agents that was requested at `since` and has ended without times.
    pub fn copy_not_profiled(&mut self, agents: [u64; 2], since: u64) {
        for agent in agents {
            if self.is_gpu(agent) {
                self.remap.untimed(agent, Owner::Copies, since);
            }
        }
    }

    fn is_gpu(&mut self, agent: u64) -> bool {
        *self
            .gpus
            .entry(agent)
            .or_insert_with(|| symbols::agent_is_gpu(agent))
    }

    /// Writes the queue's own record, once.
    fn announce(&mut self, queue: &QueueState, sink: &mut Sink) {
        if queue.announced.load(Relaxed) != 0 {
            return;
        }
        if queue.agent.load(Acquire) == 0 {
            // SAFETY: `visit` calls this only with a live queue.
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

    /// Returns the keeper of windows of counters, if the session counts.
    pub(super) fn counters(&mut self) -> &mut Option<Keeper> {
        &mut self.subscribers.counters
    }

    /// Returns the dispatches that samples of program counters may be of.
    pub(crate) fn dispatches(&mut self) -> &mut Dispatches {
        &mut self.subscribers.sampled
    }

    /// Returns the collector, which matches values of dispatches with their times.
    pub(super) fn serialized(&mut self) -> &mut Collector {
        &mut self.subscribers.serialized
    }

    /// Returns the KFD node of an agent.
    pub fn node_of(&mut self, agent: u64) -> u32 {
        *self
            .nodes
            .entry(agent)
            .or_insert_with(|| symbols::agent_node(agent))
    }

    /// Returns the correlation ids of these packets and of the copies that have not ended, or `None` if
    /// that is not known for all copies.
    pub fn ids_under_way(&self, packets: &HashSet<u64>) -> Option<HashSet<u64>> {
        let copies = self.copies.as_ref()?;
        Some(packets.union(copies).copied().collect())
    }

    /// Returns the correlation ids of the packets that have not ended, or `None` if some queue has
    /// packets that were rung without a look, or a thread may be looking at them.
    pub fn packets_under_way(&self) -> Option<HashSet<u64>> {
        let mut ids = HashSet::new();
        for queue in state::all() {
            if !queue.is_looked_at() {
                return None;
            }
            let open = queue.flights.range().map(|at| queue.flights.at(at));
            ids.extend(
                open.filter(|flight| flight.stage.load(Acquire) != Stage::Written)
                    .map(|flight| flight.facts().launch.correlation),
            );
        }
        Some(ids)
    }

    /// Returns AMD's memory-copy operation for the agents' types: 1 host to host, 2 host to device,
    /// 3 device to host, 4 device to device.
    pub fn direction(&mut self, src_agent: u64, dst_agent: u64) -> u32 {
        match (self.is_gpu(src_agent), self.is_gpu(dst_agent)) {
            (false, false) => 1,
            (false, true) => 2,
            (true, false) => 3,
            (true, true) => 4,
        }
    }

    /// Looks at packets that were rung without a look, since no later ring may come. Packets that
    /// cannot be looked at are counted as lost.
    fn look_at_passed(&self, queue: &'static QueueState) {
        if queue.passed.load(Relaxed) != 0
            && let Some(mut inner) = queue.lock()
        {
            Self::catch_up(queue, &mut inner);
            if inner.held_since == 0 && inner.rung < inner.asked && inner.asked <= inner.next {
                // There is a midair packet behind it, for which no other thread has a reason to
                // ring.
                inner.rung = inner.asked;
                let value = inner.asked.wrapping_sub(1) as i64;
                drop(inner);
                queue.visit(|_| {
                    // SAFETY: `visit` calls this only while the queue, and with it its doorbell, is
                    // alive.
                    unsafe {
                        original::hsa_signal_store_screlease(queue.doorbell.load(Relaxed), value);
                    };
                });
            }
        }
    }

    fn catch_up(queue: &'static QueueState, inner: &mut Locked<'_>) {
        if !inner.take_passed(queue) {
            return;
        }
        inner.asked = queue.with_ours(inner.asked);
        let asked = inner.asked;
        if queue
            .visit(|_| scan::look(queue, inner, None, asked))
            .is_none()
        {
            // The queue was destroyed meanwhile, so it cannot be determined any more what the packets
            // were.
            inner.lost += asked - inner.next;
            inner.next = asked;
        }
    }

    /// Rings a doorbell that a gap holds back, as far as the packets are written by now. If the
    /// producer of the gap does not come back, the doorbell is rung past the gap in the end.
    fn release_held(&self, queue: &'static QueueState) {
        let Some(mut inner) = queue.lock() else {
            return;
        };
        let held = match inner.held_since {
            0 => return,
            since => now().saturating_sub(since),
        };
        if held < LOOK_AFTER {
            return;
        }
        let asked = inner.asked;
        queue.visit(|_| scan::look(queue, &mut inner, None, asked));
        let upto = match held < HOLD_LIMIT {
            true => asked.min(inner.next),
            false => asked,
        };
        if upto >= asked {
            inner.held_since = 0;
        } else if upto > inner.rung {
            // This gap is closed; the time of the next gap starts now.
            inner.held_since = now();
        }
        if upto <= inner.rung {
            return;
        }
        inner.rung = upto;
        drop(inner);
        queue.visit(|_| {
            let value = upto.wrapping_sub(1) as i64;
            // SAFETY: `visit` calls this only while the queue is alive, and the application asked
            // for this value or a later one.
            unsafe { original::hsa_signal_store_screlease(queue.doorbell.load(Relaxed), value) };
        });
    }

    /// Follows the flights of a queue. With `last`, when the hooks are removed, flights that have not
    /// ended are ended for that reason. Returns how many ended.
    fn follow(
        &mut self,
        queue: &'static QueueState,
        sink: &mut Sink,
        last: Option<Untimed>,
    ) -> usize {
        // Read this before the signals: a signal that has not fired on a queue that is already gone
        // never will.
        let gone = queue.life.load(Acquire) == Life::Gone;
        let otherwise = last.or(gone.then_some(Untimed::QueueDestroyed));
        let hooked = last.is_none();
        let limit = if otherwise.is_some() {
            usize::MAX
        } else {
            LOOK_AHEAD
        };
        let mut ended = self.look_at_flights(queue, sink, (None, hooked), limit);
        if otherwise.is_some() {
            // Only now: that a later dispatch has ended tells of those before it that they had, and
            // why they have no times.
            ended += self.look_at_flights(queue, sink, (otherwise, hooked), limit);
        }
        queue.flights.retire();
        ended
    }

    /// Looks at no more than `limit` flights of a queue that have not ended. `how` is what
    /// [`KernelTiming::ended`](super::timing::KernelTiming::ended) takes. Returns how many ended.
    fn look_at_flights(
        &mut self,
        queue: &'static QueueState,
        sink: &mut Sink,
        how: (Option<Untimed>, bool),
        limit: usize,
    ) -> usize {
        let mut ended = 0;
        let mut open = 0;
        for position in queue.flights.range() {
            let flight = queue.flights.at(position);
            match self.subscribers.timing.ended(queue, flight, how.0, how.1) {
                Some(outcome) => {
                    let facts = flight.facts();
                    if outcome == Err(Untimed::NotProfiled) && !facts.is_barrier {
                        let agent = queue.agent.load(Acquire);
                        let owner = Owner::Queue(queue.id.load(Relaxed));
                        self.remap.untimed(agent, owner, facts.rung);
                    }
                    self.subscribers.ended(queue, facts, outcome, sink);
                    flight.stage.store(Stage::Written, Release);
                    ended += 1;
                }
                None if flight.stage.load(Relaxed) == Stage::Written => {}
                None => {
                    open += 1;
                    if open > limit {
                        break;
                    }
                }
            }
        }
        ended
    }

    /// Closes the queues at the end of a session, when nothing new is accepted. Looks at packets
    /// that were rung for but not looked at (behind a gap), and rings their doorbell.
    pub fn close(&mut self, sink: &mut Sink) {
        self.keep_mappings();
        for queue in state::all() {
            self.announce(queue, sink);
            let Some(mut inner) = queue.lock_patiently() else {
                continue;
            };
            Self::catch_up(queue, &mut inner);
            direct::close(queue, &mut inner);
            if inner.asked <= inner.rung {
                continue;
            }
            let asked = inner.asked;
            queue.visit(|_| scan::look(queue, &mut inner, None, asked));
            inner.rung = asked;
            inner.held_since = 0;
            drop(inner);
            queue.visit(|_| {
                // SAFETY: `visit` calls this only while the queue is alive, and the application
                // asked for this value.
                unsafe {
                    original::hsa_signal_store_screlease(
                        queue.doorbell.load(Relaxed),
                        asked.wrapping_sub(1) as i64,
                    );
                };
            });
        }
    }

    /// Switches profiling back, which is the last thing that is done to queues. The hooks must
    /// still be installed, since the application may destroy a queue at any moment, and only the
    /// hook of that call waits for us.
    pub fn put_back(&mut self) {
        for queue in state::all().filter(|queue| queue.profiling_ours.load(Relaxed) != 0) {
            queue.visit(|pointer| {
                // SAFETY: `visit` calls this only with a live queue; we switched its profiling on
                // and now switch it back.
                unsafe { original::hsa_amd_profiling_set_profiler_enabled(pointer.0 as *mut _, 0) };
            });
        }
    }

    /// Writes records of dispatches that still run, marked as such, and the counts. Called after
    /// the hooks were removed and every thread was seen outside of them. Touches no queue.
    pub fn finish(&mut self, sink: &mut Sink) {
        for queue in state::all() {
            let why = if queue.life.load(Acquire) != Life::Alive {
                Untimed::QueueDestroyed
            } else {
                Untimed::RunningAtDetach
            };
            self.follow(queue, sink, Some(why));
            self.write_counts(queue, sink);
            self.slow_rings.add(queue.read_ns.load(Relaxed));
        }
        if let Some(text) = direct::note(self.past.0, self.past.1) {
            sink.put(kind::NOTE, &note(&text));
        }
        if let Some(text) = self.slow_rings.note() {
            sink.put(kind::NOTE, &note(&text));
        }
    }

    /// Writes the counts of a queue that is gone, once none of its dispatches is under way, and frees
    /// its state. Where counters are read the queue is remembered, as windows may refer to it.
    fn bury(&mut self, queue: &'static QueueState, sink: &mut Sink) {
        if queue.life.load(Acquire) != Life::Gone
            || !queue.flights.range().is_empty()
            || queue.passed.load(Relaxed) != 0
            || queue.has_windows()
            || queue.serialized.load(Relaxed) != 0
            || self.subscribers.counters.is_some()
        {
            return;
        }
        let Some(inner) = queue.lock() else {
            return;
        };
        self.put_counts(queue, &inner, sink);
        self.slow_rings.add(queue.read_ns.load(Relaxed));
        state::bury(queue, inner);
    }

    fn write_counts(&mut self, queue: &QueueState, sink: &mut Sink) {
        match queue.lock_patiently() {
            Some(inner) => self.put_counts(queue, &inner, sink),
            // Without these counts it is not known whether all of a queue's dispatches are there.
            None => sink.area.drop_record(kind::QUEUE_COUNTS),
        }
    }

    fn put_counts(&mut self, queue: &QueueState, inner: &Locked<'_>, sink: &mut Sink) {
        if let Some(words) = inner.unexplained.words() {
            let id = queue.id.load(Relaxed);
            let text = format!(
                "queue {id}: unknown vendor packets, {words}: kernels that they launched are not in the trace"
            );
            sink.put(kind::NOTE, &note(&text));
        }
        let past = direct::past(queue, inner);
        self.past.0 += past;
        self.past.1 += u64::from(past > 0);
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
            dispatches: inner.dispatches,
            other_packets: inner.others,
            ours: inner.ours,
            timed: queue.timed.load(Relaxed),
            untimed: std::array::from_fn(|i| {
                queue.untimed.get(i).map_or(0, |count| count.load(Relaxed))
            }),
            lost: inner.lost,
            paused: inner.paused,
        };
        sink.put(kind::QUEUE_COUNTS, record.bytes());
    }
}
