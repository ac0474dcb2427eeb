//! Windows around dispatches that a tool in the process chooses, if the queues were made before the
//! tool came.
//!
//! The tool is asked at the doorbell, when the dispatch is known. Its window was taken before that,
//! when the packet was reserved. So a window counts one of the lists of counters that the tool has
//! chosen on that agent so far, and its values count for the dispatch only if the tool then chooses
//! the same list. The worker thread makes a list ready when it is chosen for the first time.
//! Dispatches without a window have no values, and neither have those alongside which something else
//! ran ([`super::concurrency`]).
//!
//! Decisions: AMD-153 (`docs/deviations/amd.md`).

use crate::packet;
use crate::queue::choosing::ListOn;
use crate::queue::queue_state::QueueState;
use crate::queue::serialized::Dispatch;
use crate::state::STATE;
use crate::symbols;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

pub use crate::queue::choosing::{Chooser, Fate};

/// Sets the code that chooses in the session, if any. Called on the worker thread.
pub fn set_chooser(user: Option<&'static dyn Chooser>) {
    let mut known = STATE
        .windows
        .choosing
        .user
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    *known = user;
}

/// Returns whether a tool wants to choose.
pub fn is_wanted() -> bool {
    STATE.windows.choosing.user().is_some()
}

/// Starts to ask the chooser, if there is one, and returns it.
pub(super) fn open() -> Option<&'static dyn Chooser> {
    let choosing = &STATE.windows.choosing;
    let user = choosing.user()?;
    choosing.wishes().take();
    choosing.is_on.store(true, Release);
    Some(user)
}

/// Stops asking the chooser.
pub(super) fn close() {
    STATE.windows.choosing.is_on.store(false, Release);
}

/// Returns whether the chooser is to be asked about dispatches. This is a single load.
#[inline]
pub(in crate::queue) fn is_on() -> bool {
    STATE.windows.choosing.is_on.load(Acquire)
}

/// Takes the lists that were chosen and are to be made ready.
pub(super) fn wishes() -> Vec<ListOn> {
    let mut wishes = STATE.windows.choosing.wishes();
    let fresh = wishes
        .as_mut()
        .map(|wishes| std::mem::take(&mut wishes.fresh));
    fresh.unwrap_or_default()
}

/// Asks the chooser about dispatches of a queue that were seen and whose doorbell is not rung yet.
/// The caller holds no lock, and is not marked busy while a tool's function runs.
#[cold]
pub(in crate::queue) fn ask(queue: &'static QueueState, begin: u64, end: u64) {
    let choosing = &STATE.windows.choosing;
    let Some(user) = choosing.user() else {
        return;
    };
    let agent = match queue.agent.load(Acquire) {
        0 => {
            // The worker thread has not asked for the queue's agent yet.
            // SAFETY: the application is ringing this queue's doorbell, so the queue exists.
            let agent = queue.visit(|pointer| unsafe { symbols::queue_agent(pointer.0) });
            agent.unwrap_or(0)
        }
        agent => agent,
    };
    for facts in (begin..end).filter_map(|position| queue.flights.still(position)) {
        if facts.dispatch_id == 0 || facts.is_barrier {
            continue;
        }
        let dispatch: packet::Dispatch = facts.dispatch;
        let list = user.choose(&Dispatch {
            dispatch_id: facts.dispatch_id,
            queue_id: queue.id.load(Relaxed),
            queue: queue.queue.load(Relaxed),
            agent,
            index: facts.index,
            launch: facts.launch,
            packet: dispatch,
        });
        let Some(list) = list else {
            continue;
        };
        let mut wishes = choosing.wishes();
        let wishes = wishes.get_or_insert_default();
        if !wishes.known.contains(&(list, agent)) {
            wishes.known.push((list, agent));
            wishes.fresh.push((list, agent));
        }
    }
}
