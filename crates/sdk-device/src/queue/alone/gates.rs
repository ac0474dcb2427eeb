//! Gates of queues: found by the queue, kept for as long as it lives.

use super::gate::{Gate, Signals};
use super::turns;
use super::users::is_asked;
use crate::queue::flight::Launch;
use crate::queue::queue_state::QueueState;
use crate::state::STATE;
use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};

/// A queue is learned: the number of its gate, 0 = it has none.
pub(in crate::queue) fn gate_of(queue: u64) -> u32 {
    if !is_asked() {
        return 0;
    }
    // The newest: a queue may be where another was.
    let here = |gate: &&Gate| gate.queue.load(Relaxed) == queue && !gate.is_gone.load(Relaxed);
    let found = STATE.alone.gates().filter(here).last();
    found.map_or(0, |gate| gate.number)
}

/// A session begins: queues that are older, and whose gates were parked, have new ones.
pub(super) fn renew() {
    let parked: Vec<&Gate> = STATE
        .alone
        .gates()
        .filter(|gate| gate.is_parked.swap(false, SeqCst))
        .collect();
    for gate in parked {
        if let Some(signals) = Signals::make()
            && let Some(number) = STATE.alone.number()
        {
            let new = Gate::new(number, gate.agent, gate.size, signals);
            new.queue.store(gate.queue.load(Relaxed), Relaxed);
            let new = STATE.alone.keep(Box::new(new));
            gate.next.store(std::ptr::from_ref(new).cast_mut(), Release);
        }
    }
}

/// The application has made a queue in a way in which it cannot be intercepted.
pub(crate) fn is_made_otherwise() {
    if is_asked() {
        STATE.alone.refused.fetch_add(1, Relaxed);
    }
}

/// A queue that the application is about to destroy.
#[derive(Debug)]
pub(crate) struct Leaving(Option<&'static Gate>);

/// The application is about to destroy a queue.
pub(crate) fn destroys(queue: u64) -> Leaving {
    Leaving(STATE.alone.gate(gate_of(queue)))
}

impl Leaving {
    /// It has: nothing on the queue will have its turn.
    pub(crate) fn has_left(self) {
        if let Some(gate) = self.0 {
            gate.is_gone.store(true, SeqCst);
            turns::wake();
        }
    }
}

/// A dispatch was looked at, under its queue's spin word: its number and its launch are kept for
/// when the runtime hands its packet over.
#[inline]
pub(in crate::queue) fn enqueued(
    queue: &QueueState,
    (index, dispatch_id): (u64, u64),
    launch: Launch,
) {
    let number = queue.alone.load(Relaxed);
    if number != 0
        && let Some(gate) = STATE.alone.gate(number)
    {
        gate.note(index, dispatch_id, launch);
    }
}
