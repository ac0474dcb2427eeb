//! The worker thread's side: matches the values of each dispatch with its times, and hands both to
//! the user that chose it.

use super::gate::{Ended, Selection};
use super::user::Counted;
use super::{gates, planned, turns};
use crate::queue::queue_state::QueueState;
use crate::sink::Sink;
use crate::state::STATE;
use midair_record::event::{Untimed, WindowResult, kind, note};
use std::collections::{HashMap, HashSet};
use std::sync::PoisonError;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

/// The start and end of a dispatch, or why there are none.
type Times = Result<(u64, u64), Untimed>;

/// Converts an agent's ticks (agent, ticks) to the records' clock; returns 0 if the time is not
/// known.
type Clock = fn(u64, u64) -> u64;

/// The dispatches that have ended and are not yet delivered.
#[derive(Debug, Default)]
pub struct Collector {
    /// Whether a session that counts every dispatch is on.
    is_open: bool,
    clock: Option<Clock>,
    /// The times of dispatches whose values have not arrived, by dispatch number.
    times: HashMap<u64, Times>,
    /// The dispatches that no user has chosen, and whose times have not arrived.
    unchosen: HashSet<u64>,
    /// The values of dispatches whose times have not arrived.
    values: HashMap<u64, Ended>,
    /// The number of dispatches that were delivered with values; `void` is the number without.
    counted: u64,
    void: u64,
}

impl Collector {
    /// Starts a session: the runtime is open, and a user wants to count. `clock` converts an
    /// agent's ticks to the records' clock.
    pub fn open(&mut self, sink: &mut Sink, clock: Clock) {
        self.clock = Some(clock);
        if !std::mem::replace(&mut self.is_open, true) {
            STATE.serialized.is_over.store(false, SeqCst);
            STATE.serialized.passed.store(0, Relaxed);
            STATE.serialized.refused.store(0, Relaxed);
            gates::renew();
            for complaint in planned::open() {
                sink.put(kind::NOTE, &note(&complaint));
            }
        }
    }

    /// Takes the times of a dispatch that has ended.
    pub(in crate::queue) fn complete(&mut self, queue: &QueueState, id: u64, times: Times) {
        if self.is_open
            && queue.serialized.load(Relaxed) != 0
            && id != 0
            && !self.unchosen.remove(&id)
        {
            self.times.insert(id, times);
        }
    }

    /// Does one round. Returns how many dispatches were delivered.
    pub fn pass(&mut self, sink: &mut Sink) -> usize {
        let ended = STATE.serialized.take_ended();
        for ended in ended {
            let id = ended.pending.dispatch.dispatch_id;
            if ended.pending.chosen.is_none() {
                if id != 0 && self.times.remove(&id).is_none() {
                    self.unchosen.insert(id);
                }
            } else {
                self.values.insert(id, ended);
            }
        }
        let times = &self.times;
        let whole: Vec<u64> = self
            .values
            .keys()
            .filter(|id| times.contains_key(id))
            .copied()
            .collect();
        for id in &whole {
            if let (Some(ended), Some(times)) = (self.values.remove(id), self.times.remove(id)) {
                self.deliver(&ended, times, WindowResult::Open, sink);
            }
        }
        whole.len()
    }

    /// Returns the number of dispatches on their way, plus the values that wait for their times.
    pub fn under_way(&self) -> u64 {
        if !self.is_open {
            return 0;
        }
        let open = STATE.serialized.gates().map(|gate| gate.open.load(SeqCst));
        open.sum::<u64>() + self.values.len() as u64
    }

    /// Ends the session: nothing new comes, and the time to wait for unfinished dispatches is over.
    /// Everything that was chosen is delivered now, with values or without.
    pub fn finish(&mut self, sink: &mut Sink) {
        if !std::mem::take(&mut self.is_open) {
            return;
        }
        self.pass(sink);
        planned::close();
        STATE.serialized.is_over.store(true, SeqCst);
        for (_, ended) in std::mem::take(&mut self.values) {
            self.deliver(
                &ended,
                Err(Untimed::RunningAtDetach),
                WindowResult::QueueDestroyed,
                sink,
            );
        }
        // Dispatches that are still in a ring continue to take their turns, but their values are no
        // longer read.
        for gate in STATE.serialized.gates() {
            let mut pending = gate.pending();
            for pending in pending.iter_mut() {
                let Some(chosen) = pending.chosen.take() else {
                    continue;
                };
                let ended = Ended {
                    pending: super::gate::Pending {
                        dispatch: pending.dispatch,
                        chosen: Some(chosen),
                    },
                    words: None,
                    ticks: [0; 4],
                };
                self.deliver(
                    &ended,
                    Err(Untimed::RunningAtDetach),
                    WindowResult::Open,
                    sink,
                );
                // Keep the counters' memory: the device may still write to it.
                pending.chosen = ended.pending.chosen;
            }
        }
        self.times.clear();
        self.unchosen.clear();
        let serialized = &STATE.serialized;
        let (passed, refused) = (
            serialized.passed.load(Relaxed),
            serialized.refused.load(Relaxed),
        );
        if passed > 0 || refused > 0 || self.void > 0 {
            let text = format!(
                "counters: {} dispatches were counted, {} were selected and not read; {passed} ran uncounted, and {refused} queues could not be set up for counting",
                self.counted, self.void
            );
            sink.put(kind::NOTE, &note(&text));
        }
        (self.counted, self.void) = (0, 0);
        turns::park();
    }

    fn deliver(&mut self, ended: &Ended, kernel: Times, otherwise: WindowResult, sink: &mut Sink) {
        let dispatch = &ended.pending.dispatch;
        let Some(Selection {
            user,
            counters,
            data,
        }) = &ended.pending.chosen
        else {
            return;
        };
        let result = match ended.words {
            Some(_) => WindowResult::Counted,
            None => otherwise,
        };
        match result {
            WindowResult::Counted => self.counted += 1,
            _ => self.void += 1,
        }
        let users = *STATE
            .serialized
            .users
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(Some(user)) = users.get(*user) {
            let counted = Counted {
                dispatch,
                counters,
                data: *data,
                result,
                words: ended.words.as_deref().unwrap_or_default(),
                kernel,
                window: ended
                    .ticks
                    .map(|ticks| self.clock.map_or(0, |clock| clock(dispatch.agent, ticks))),
            };
            user.deliver(&counted, sink);
        }
    }
}
