//! Thread traces of chosen dispatches, also on queues that are older than the attach.
//!
//! As for windows of counters, the hook of a reservation reserves two packets more, one before and one
//! behind the application's. Their commands start with one that skips the rest. When the doorbell is
//! about to be rung, the application's packet is there, so it is known which kernel it is. Only for a
//! chosen dispatch, two stores to the commands ([`Head`]) make them start and stop a trace. For all other
//! dispatches the device skips both, and neither packet has the barrier bit: nothing waits. The commands
//! that start and stop wait for the queue's waves themselves.
//!
//! A packet of ours is valid before the reservation returns, and nothing in a ring waits for us, as in
//! [`super::windows`]. A device that took the packet before the doorbell has skipped it: such a dispatch
//! is not traced, which the trace's control block tells.
//!
//! A GPU has one trace at a time, in one memory ([`keeper`]).
//!
//! Decisions: AMD-184 (`docs/deviations/amd.md`).

mod commands;
mod domain;
mod keeper;
pub(crate) mod shared;

pub use domain::ThreadTraces;

use super::flight::Launch;
use super::points::{Point, reached};
use super::queue_state::{Life, QueueState};
use super::state::Hint;
use super::subscriber::Enqueued;
use super::window::MOST_PACKETS;
use super::windows;
use crate::layout::QueuePointer;
use crate::packet;
use crate::state::STATE;
use crate::symbols::kernel_filter;
use commands::Head;
use midair_record::event::kind;
use midair_record::trace_plan::Trace;
use midair_sdk_hot::probe::Busy;
use midair_sdk_hot::wrappers::original;
use shared::STUCK;
use std::ffi::c_void;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// Sets what the session traces. Call it only while no session collects.
pub fn set_plan(wanted: Vec<Trace>) {
    let mut plan = STATE
        .traces
        .plan
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    *plan = (!wanted.is_empty()).then(|| wanted.into_boxed_slice());
}

/// Returns whether the session traces.
pub fn has_plan() -> bool {
    let plan = STATE
        .traces
        .plan
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    plan.is_some()
}

/// Returns whether packets are reserved for traces. A session without traces costs only this load.
#[inline]
pub fn are_taken() -> bool {
    STATE.traces.on.load(Relaxed)
}

/// Reserves `count` packets with one of ours on both sides, if a pair is available. Returns the index of
/// the application's first packet; the packets are then reserved for the application.
///
/// # Safety
/// `queue` must be a live queue on which the application is about to reserve packets, and the
/// runtime's table must have been adopted.
pub(crate) unsafe fn reserve(
    busy: &mut Busy,
    queue: *mut c_void,
    count: u64,
    launch: impl FnOnce(&mut Busy) -> Launch,
) -> Option<u64> {
    if !are_taken() || !busy.accepts() || !busy.wants(kind::THREAD_TRACE) {
        return None;
    }
    let pointer = QueuePointer(queue.addr() as u64);
    // The first launch after the attach may be the chosen one, so the queue is learned here.
    // SAFETY: the caller promises a live queue.
    let state = unsafe { super::state::learn(pointer, Hint::default()) }?;
    if !state.is_compute() {
        return None;
    }
    if state.windows_of.load(Acquire) == 0 {
        let of = STATE.windows.of_agent(state.agent.load(Acquire));
        state.windows_of.store(of, Release);
    }
    let agent = (state.windows_of.load(Acquire) as usize).checked_sub(1)?;
    // HIP reserves barrier packets in the same way, but in calls that are not launches.
    let launches = busy.is_launching();
    if state.life.load(Relaxed) != Life::Alive || launches == Some(false) {
        return None;
    }
    let traces = &STATE.traces;
    // HIP checks for room, but only after it has reserved.
    let watches_room = launches == Some(true) || state.watches_room.load(Relaxed) != 0;
    if state.is_direct() || state.intercept.load(Relaxed) != 0 || !watches_room {
        traces.unfit.fetch_add(1, Relaxed);
        return None;
    }
    // SAFETY: the caller promises a live queue.
    let (ring, size, written, read) = unsafe {
        (
            pointer.ring(),
            u64::from(pointer.size()),
            original::hsa_queue_load_write_index_relaxed(queue),
            original::hsa_queue_load_read_index_scacquire(queue),
        )
    };
    let all = count.saturating_add(2);
    // Leave half of the ring to the application, as for windows.
    if written.wrapping_sub(read).saturating_add(all) > size / 2 || count > MOST_PACKETS {
        traces.no_room.fetch_add(1, Relaxed);
        return None;
    }
    let ready = STATE.windows.pool(agent, 0)?;
    let Some(number) = ready.take() else {
        traces.none_ready.fetch_add(1, Relaxed);
        return None;
    };
    let number = number as u16;
    let window = STATE.windows.numbered(number)?;
    reached(Point::Taken);
    // SAFETY: the caller promises a live queue. The read index only grows, so where this succeeds
    // there is room.
    let old = unsafe {
        original::hsa_queue_cas_write_index_scacq_screl(queue, written, written.wrapping_add(all))
    };
    if old != written {
        // Another producer was faster. The pool has room for the pair's number.
        let _ = ready.put(u64::from(number));
        return None;
    }
    reached(Point::Reserved);
    let launch = Launch {
        window: number,
        ..launch(busy)
    };
    // Neither packet has the barrier bit: nothing waits for a dispatch that is not chosen.
    windows::place(state, window, (ring, size, old), count, launch, false);
    Some(old.wrapping_add(1))
}

/// Has a dispatch traced if it is chosen. Called under the queue's spin word, before the doorbell is
/// rung, after the choices have noted the dispatch, as the one of its kernel with number `nth`. The
/// window notes it only afterwards, so the pair is not ready again before this has returned.
#[inline]
pub(super) fn enqueued(state: &QueueState, dispatch: &Enqueued, nth: Option<u64>) {
    if are_taken() && dispatch.dispatch_id != 0 {
        chosen(state, dispatch, nth);
    }
}

fn chosen(state: &QueueState, dispatch: &Enqueued, nth: Option<u64>) {
    let traces = &STATE.traces;
    let kernel = dispatch.dispatch.kernel_object;
    let known = || kernel_filter::is_chosen_now(kernel);
    match STATE.windows.choices.takes(kernel, nth, known) {
        Some(true) => {}
        Some(false) => return,
        None => {
            traces.unknown.fetch_add(1, Relaxed);
            return;
        }
    }
    let agent = (state.windows_of.load(Relaxed) as usize).checked_sub(1);
    let number = dispatch.launch.window;
    let (Some(window), Some(owner)) = (
        STATE.windows.numbered(number),
        agent.and_then(|agent| traces.owners.get(agent)),
    ) else {
        traces.without.fetch_add(1, Relaxed);
        return;
    };
    match owner.compare_exchange(0, u32::from(number), AcqRel, Relaxed) {
        Ok(_) => {}
        // Another kernel of the same batch.
        Err(other) if other == u32::from(number) => return,
        Err(other) => {
            let count = match other {
                STUCK => &traces.stuck,
                _ => &traces.busy,
            };
            count.fetch_add(1, Relaxed);
            return;
        }
    }
    reached(Point::Opening);
    // The stop comes first: a start must not be seen without it.
    for at in [&window.read.0, &window.start.0] {
        // SAFETY: these are the commands of a pair that is in the ring. They stay where they are until
        // the worker thread has the pair again, which needs that the window has noted this dispatch.
        unsafe { Head::at(at.load(Relaxed)).open() };
    }
    packet::flush();
}
