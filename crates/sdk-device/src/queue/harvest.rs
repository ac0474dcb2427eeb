//! The worker thread's side of the queues: follows dispatches until they have ended, and writes the
//! counts of queues.

use super::alone::collector::Collector;
use super::direct;
use super::flight::Stage;
use super::heads::Heads;
use super::queue_state::{Life, Locked, QueueState};
use super::remap::{Remap, Whose};
use super::scan;
use super::service::Subscribers;
use super::state;
use super::windows::keeper::Keeper;
use crate::sink::Sink;
use crate::symbols;
use midair_record::event::{Header, Plain, Queue, QueueCounts, Untimed, kind, note};
use midair_sdk_hot::clock::now;
use midair_sdk_hot::wrappers::original;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// A gap that holds back a doorbell is looked at by us after this, in nanoseconds: whoever fills it
/// rings, as a rule.
const LOOK_AFTER: u64 = 2_000_000;
/// A doorbell held back by a gap for so long is rung by us as it was asked for. Until then nothing is
/// lost by waiting: no device goes past a packet that is not valid. Rung earlier, the device would
/// take the packet in the gap before anybody had looked at it, since its producer may be without a
/// processor for longer than a few rounds on a busy machine.
const HOLD_LIMIT: u64 = 1_000_000_000;
/// Unfinished flights that one pass looks at per queue: the device works in order, so those behind
/// them have not ended either.
const LOOK_AHEAD: usize = 512;
/// What the worker thread keeps between passes.
#[derive(Debug, Default)]
pub struct Harvester {
    /// Who is told of dispatches.
    subscribers: Subscribers,
    /// Agent handles and their KFD nodes.
    nodes: HashMap<u64, u32>,
    /// Agent handles and whether they are GPUs.
    gpus: HashMap<u64, bool>,
    /// Queues whose profiling was switched on too late.
    remap: Remap,
    /// Packets that were rung past the hooks, and on how many queues.
    past: (u64, u64),
    /// Correlation ids of the copies under way at the last pass; `None` when one was in use.
    pub(crate) copies: Option<HashSet<u64>>,
}

impl Harvester {
    /// Before the hooks go in: signals ready. False when the runtime gives none.
    pub fn prepare(&mut self) -> bool {
        self.remap = Remap::default();
        self.past = (0, 0);
        self.subscribers.timing.prepare()
    }

    /// After the hooks are out: gives the runtime its signals back. It may be shut down and opened
    /// again before the next session, and at the end of a process it complains of those that were
    /// kept. A signal that was put into a packet and not seen to fire is left to the device for
    /// ever.
    pub fn give_back(&mut self) {
        self.subscribers.timing.release_signals();
        self.nodes.clear();
        self.gpus.clear();
    }

    /// One pass over all queues. Returns how many flights ended.
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
        }
        heads.end();
        self.map_anew();
        ended
    }

    /// At the end of a round: has the queues mapped anew that need it.
    pub fn map_anew(&mut self) {
        self.remap.run();
    }

    /// No queue is mapped anew from here on.
    pub fn keep_mappings(&mut self) {
        self.remap.close();
    }

    /// A copy between these agents, which was asked for at `since`, has ended without times.
    pub fn copy_not_profiled(&mut self, agents: [u64; 2], since: u64) {
        for agent in agents {
            if self.is_gpu(agent) {
                self.remap.untimed(agent, Whose::Copies, since);
            }
        }
    }

    fn is_gpu(&mut self, agent: u64) -> bool {
        *self
            .gpus
            .entry(agent)
            .or_insert_with(|| symbols::agent_is_gpu(agent))
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

    /// The keeper of windows of counters, where the session counts.
    pub(super) fn counters(&mut self) -> &mut Option<Keeper> {
        &mut self.subscribers.counters
    }

    /// What brings values of dispatches and their times together.
    pub(super) fn alone(&mut self) -> &mut Collector {
        &mut self.subscribers.alone
    }

    /// KFD node of an agent.
    pub fn node_of(&mut self, agent: u64) -> u32 {
        *self
            .nodes
            .entry(agent)
            .or_insert_with(|| symbols::agent_node(agent))
    }

    /// Correlation ids of the dispatches and copies that have not ended; `None` when that could not
    /// be told of all.
    pub fn ids_under_way(&self) -> Option<HashSet<u64>> {
        let mut ids = self.copies.clone()?;
        for queue in state::all() {
            let open = queue.flights.range().map(|at| queue.flights.at(at));
            ids.extend(
                open.filter(|flight| flight.stage.load(Acquire) != Stage::Written)
                    .map(|flight| flight.facts().launch.correlation),
            );
        }
        Some(ids)
    }

    /// AMD's memory-copy operation by the agents' types: 1 host to host, 2 host to device, 3 device
    /// to host, 4 device to device.
    pub fn direction(&mut self, src_agent: u64, dst_agent: u64) -> u32 {
        match (self.is_gpu(src_agent), self.is_gpu(dst_agent)) {
            (false, false) => 1,
            (false, true) => 2,
            (true, false) => 3,
            (true, true) => 4,
        }
    }

    /// Somebody rang without a look, and nobody may ring after it: the packets are looked at here,
    /// or counted where they cannot be.
    fn look_at_passed(&self, queue: &'static QueueState) {
        if queue.passed.load(Relaxed) != 0
            && let Some(mut inner) = queue.lock()
        {
            Self::catch_up(queue, &mut inner);
            if inner.held_since == 0 && inner.rung < inner.asked && inner.asked <= inner.next {
                // A packet of ours behind it: nobody else has a reason to ring for that.
                inner.rung = inner.asked;
                let value = inner.asked.wrapping_sub(1) as i64;
                drop(inner);
                queue.visit(|_| {
                    // SAFETY: the doorbell of a live queue (visit).
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
            // Destroyed meanwhile: nobody can tell any more what they were.
            inner.lost += asked - inner.next;
            inner.next = asked;
        }
    }

    /// A gap holds back a doorbell: rings as far as it is closed by now. A gap whose producer does not
    /// come back is rung past in the end.
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
            // This gap is closed: the next one has its own time.
            inner.held_since = now();
        }
        if upto <= inner.rung {
            return;
        }
        inner.rung = upto;
        drop(inner);
        queue.visit(|_| {
            let value = upto.wrapping_sub(1) as i64;
            // SAFETY: the doorbell of a live queue (visit); the application asked for this value, or
            // for one behind it.
            unsafe { original::hsa_signal_store_screlease(queue.doorbell.load(Relaxed), value) };
        });
    }

    /// Follows the flights of a queue; with `last`, ends what has not ended, for that reason.
    /// Returns how many ended.
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
            match self.subscribers.timing.ended(queue, flight, last) {
                Some(outcome) => {
                    let facts = flight.facts();
                    if outcome == Err(Untimed::NotProfiled) {
                        let agent = queue.agent.load(Acquire);
                        let whose = Whose::Queue(queue.id.load(Relaxed));
                        self.remap.untimed(agent, whose, facts.rung);
                    }
                    self.subscribers.ended(queue, facts, outcome, sink);
                    flight.stage.store(Stage::Written, Release);
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

    /// The session closes: nothing new is taken on. Looks at what was rung and not looked at
    /// (behind a gap), and rings it.
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

    /// Switches profiling back, the last thing that is done to queues: the hooks must still be in,
    /// since the application may destroy a queue at any moment and only its hook waits for us.
    pub fn put_back(&mut self) {
        for queue in state::all().filter(|queue| queue.profiling_ours.load(Relaxed) != 0) {
            queue.visit(|pointer| {
                // SAFETY: a live queue (visit); we switched profiling on and now put it back.
                unsafe { original::hsa_amd_profiling_set_profiler_enabled(pointer.0 as *mut _, 0) };
            });
        }
    }

    /// After the hooks are out and everyone was seen outside: writes what still runs as such, and
    /// the counts. Touches no queue.
    pub fn finish(&mut self, sink: &mut Sink) {
        for queue in state::all() {
            let why = if queue.life.load(Acquire) != Life::Alive {
                Untimed::QueueDestroyed
            } else {
                Untimed::RunningAtDetach
            };
            // LOOK_AHEAD bounds one pass; each pass ends what it sees.
            while self.follow(queue, sink, Some(why)) > 0 {}
            self.write_counts(queue, sink);
        }
        if let Some(text) = direct::note(self.past.0, self.past.1) {
            sink.put(kind::NOTE, &note(&text));
        }
    }

    fn write_counts(&mut self, queue: &QueueState, sink: &mut Sink) {
        let Some(inner) = queue.lock_patiently() else {
            // Without its counts nobody knows whether a queue's dispatches are all there.
            sink.area.drop_record(kind::QUEUE_COUNTS);
            return;
        };
        if let Some(words) = inner.unexplained.words() {
            let id = queue.id.load(Relaxed);
            let text = format!(
                "queue {id}: vendor packets that are not understood, {words}: kernels that they launched are not in the trace"
            );
            sink.put(kind::NOTE, &note(&text));
        }
        let past = direct::past(queue, &inner);
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
