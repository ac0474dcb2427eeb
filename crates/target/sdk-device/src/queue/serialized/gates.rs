//! Finds the gate of a queue, and makes new gates when a session starts.

use super::gate::{Gate, Signals};
use super::turns;
use super::users::is_asked;
use crate::queue::flight::Launch;
use crate::queue::queue_state::QueueState;
use crate::state::STATE;
use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};
use std::time::{Duration, Instant};

/// How long a thread that destroys a queue waits at most for the values of its last dispatches. A
/// program may do so when its kernel has ended, which is before the device has read the counters
/// and before our thread has had a processor to look at them.
const LAST_VALUES: Duration = Duration::from_millis(100);
/// How long it sleeps between two looks.
const NAP: Duration = Duration::from_micros(100);

/// Returns the number of a queue's gate, for a queue that is being learned; 0 if it has none.
pub(in crate::queue) fn gate_of(queue: u64) -> u32 {
    if !is_asked() {
        return 0;
    }
    // Take the newest gate: a queue may have the address of an earlier one.
    let here = |gate: &&Gate| gate.queue.load(Relaxed) == queue && !gate.is_gone.load(Relaxed);
    let found = STATE.serialized.gates().filter(here).last();
    found.map_or(0, |gate| gate.number)
}

/// Makes new gates, at the start of a session, for queues whose gates were parked.
pub(super) fn renew() {
    let parked: Vec<&Gate> = STATE
        .serialized
        .gates()
        .filter(|gate| gate.is_parked.swap(false, SeqCst))
        .collect();
    for gate in parked {
        if let Some(signals) = Signals::make()
            && let Some(number) = STATE.serialized.number()
        {
            let new = Gate::new(number, gate.agent, gate.size, signals);
            new.queue.store(gate.queue.load(Relaxed), Relaxed);
            let new = STATE.serialized.keep(Box::new(new));
            gate.next.store(std::ptr::from_ref(new).cast_mut(), Release);
        }
    }
}

/// Counts a queue that the application has made in a way in which it cannot be intercepted.
pub(crate) fn is_made_otherwise() {
    if is_asked() {
        STATE.serialized.refused.fetch_add(1, Relaxed);
    }
}

/// A queue that the application is about to destroy.
#[derive(Debug)]
pub(crate) struct Leaving(Option<&'static Gate>);

/// Notes the gate of a queue that the application is about to destroy, and waits briefly for the
/// values of its last dispatches.
pub(crate) fn destroys(queue: u64) -> Leaving {
    let gate = STATE.serialized.gate(gate_of(queue));
    if let Some(gate) = gate {
        await_values(gate, LAST_VALUES);
    }
    Leaving(gate)
}

/// Waits until no dispatch of a gate is on its way, or until the limit. A queue may well be
/// destroyed while it holds work that never ends.
pub(super) fn await_values(gate: &Gate, limit: Duration) {
    let end = Instant::now() + limit;
    while gate.open.load(SeqCst) != 0
        && !gate.is_gone.load(SeqCst)
        && !STATE.serialized.is_over.load(SeqCst)
        && Instant::now() < end
    {
        std::thread::sleep(NAP);
    }
}

impl Leaving {
    /// The queue is destroyed now: nothing on it will get a turn any more.
    pub(crate) fn has_left(self) {
        if let Some(gate) = self.0 {
            gate.is_gone.store(true, SeqCst);
            turns::wake();
        }
    }
}

/// Keeps the number and the launch of a dispatch until the runtime hands its packet over. Called
/// when the dispatch was looked at, under its queue's spin word.
#[inline]
pub(in crate::queue) fn enqueued(
    queue: &QueueState,
    (index, dispatch_id): (u64, u64),
    launch: Launch,
) {
    let number = queue.serialized.load(Relaxed);
    if number != 0
        && let Some(gate) = STATE.serialized.gate(number)
    {
        gate.note(index, dispatch_id, launch);
    }
}
