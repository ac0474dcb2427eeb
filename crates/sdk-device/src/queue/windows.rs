//! Windows of hardware counters: the second subscriber of the queue service.
//!
//! When the application reserves packets, the hook reserves two more: in the first it puts commands
//! that start the counters, in the last commands that read and stop them, and the application gets
//! those between them. All are reserved by one compare-and-exchange, after a look at the room in the
//! ring, so there is always room for them. A reservation is one packet for most launches. HIP reserves
//! several at once for a graph: such a window counts the batch, and nobody can tell what each of its
//! kernels has counted. Both packets of ours are valid
//! before the reservation returns: whatever happens to this process's hooks, to the worker thread or
//! to the attacher, the queue goes on. Nothing of ours that lies in a ring waits for us.
//!
//! The packets have the barrier bit, so the first begins when all work before it has ended, and the
//! second when the application's has. They have no fences, which would empty the caches whose use
//! is counted. The application's packet is not changed.
//!
//! The application's threads take windows that [`keeper`] has made ready; it also reads what the
//! device has written. What is counted, in which order, is up to the attacher's plan.
//!
//! Decisions: AMD-120 to AMD-122 (`docs/deviations/amd.md`).

mod beside;
#[cfg(test)]
mod cases;
mod choice;
pub mod chosen;
pub(crate) mod exclusive;
pub mod guard;
pub mod keeper;
pub(super) mod memory;
#[cfg(test)]
mod tests;

use super::flight::Launch;
use super::points::{Point, reached};
use super::queue_state::{Life, QueueState, RESERVATIONS};
use super::subscriber::Enqueued;
use super::window::{Inside, MOST_PACKETS, OURS, Stage, Window};
use crate::layout::{QueuePointer, Signal};
use crate::packet::{self, Dispatch, Packet};
use crate::state::STATE;
use exclusive::Turn;
use midair_record::counter_plan::Plan;
use midair_record::event::kind;
use midair_rotation::{Class, ClassKey};
use midair_sdk_hot::clock::now;
use midair_sdk_hot::probe::Busy;
use midair_sdk_hot::wrappers::original;
use std::ffi::c_void;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{MutexGuard, PoisonError};

/// Whose packets a batch has is remembered for all of them.
const _: () = assert!(MOST_PACKETS < RESERVATIONS as u64 / 2);

fn plan() -> MutexGuard<'static, Option<Box<Plan>>> {
    STATE
        .windows
        .plan
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
}

/// What the session is to count. Only while no session collects.
pub fn set_plan(wanted: Plan) {
    *plan() = (!wanted.groups.is_empty()).then(|| Box::new(wanted));
}

/// How often the session reads the counters of whole devices, if it does.
pub(super) fn is_of_devices() -> bool {
    plan().as_ref().is_some_and(|plan| plan.interval != 0)
}

/// The session's plan.
pub(super) fn session_plan() -> Option<Box<Plan>> {
    plan().clone()
}

/// Whether the session counts anything.
pub fn has_plan() -> bool {
    plan().is_some()
}

/// Recording is about to end: call it before anything is launched that has no record.
pub fn recording_ends() {
    STATE.windows.until.store(now(), Release);
}

/// Whether windows are taken. One load: all that a session without counters costs.
#[inline]
pub fn are_taken() -> bool {
    STATE.windows.on.load(Relaxed)
}

/// The application looks whether there is room in this queue's ring. One that never does keeps its
/// own books, in which packets of ours have no place.
pub(crate) fn watches_room(queue: u64) {
    // Nearly always it is known: a look without more.
    if (are_taken() || STATE.windows.switches.load(Relaxed))
        && super::state::find(queue).is_none_or(|state| state.watches_room.load(Relaxed) == 0)
        && let Some(_busy) = Busy::enter()
        && let Some(state) = super::state::find(queue)
        && state.watches_room.load(Relaxed) == 0
    {
        state.watches_room.store(1, Relaxed);
    }
}

/// A reservation of `count` packets becomes one with a window around it, if one is to be had:
/// returns the index of the application's first packet, which the application has reserved by that.
///
/// # Safety
/// `queue` is a live queue that the application is about to reserve packets on; its table was
/// adopted.
pub(crate) unsafe fn reserve(
    busy: &mut Busy,
    queue: *mut c_void,
    count: u64,
    launch: impl FnOnce(&mut Busy) -> Launch,
) -> Option<u64> {
    if !are_taken() || !busy.accepts() || !busy.wants(kind::COUNTER_COLLECTION) {
        return None;
    }
    let state = super::state::find(queue.addr() as u64)?;
    let agent = (state.windows_of.load(Acquire) as usize).checked_sub(1)?;
    if state.is_direct()
        || state.intercept.load(Relaxed) != 0
        || state.late.load(Relaxed) != 0
        || state.watches_room.load(Relaxed) == 0
        || state.life.load(Relaxed) != Life::Alive
        // HIP reserves barriers in the same way, in other calls.
        || busy.is_launching() == Some(false)
    {
        return None;
    }
    let windows = &STATE.windows;
    let rotation = windows.rotation(agent)?;
    let pointer = QueuePointer(queue.addr() as u64);
    // SAFETY: the caller's promise.
    let (ring, size, written, read) = unsafe {
        (
            pointer.ring(),
            u64::from(pointer.size()),
            original::hsa_queue_load_write_index_relaxed(queue),
            original::hsa_queue_load_read_index_scacquire(queue),
        )
    };
    if guard::is_wanted(state, count) {
        // SAFETY: the caller's promise.
        match unsafe { guard::claim(state, queue, (written, read), count, rotation) } {
            Ok(first) => {
                let launch = launch(busy);
                // SAFETY: as above.
                unsafe { guard::shut(state, queue, launch) };
                return Some(first.wrapping_add(1));
            }
            Err(guard::No::Window) => return None,
            Err(guard::No::Room) => {}
        }
    }
    let all = count.saturating_add(2);
    // What is left is the application's: it may have looked at the room for more packets than these.
    if written.wrapping_sub(read).saturating_add(all) > size / 2 || count > MOST_PACKETS {
        windows.no_room.fetch_add(1, Relaxed);
        return None;
    }
    reached(Point::Choosing);
    let id = state.id.load(Relaxed);
    // A batch may have others behind the first one.
    if count == 1 && !windows.choices.is_wanted(|| rotation.expected(id)) {
        return None;
    }
    let group = rotation.next_group(id, now())?;
    let ready = windows.pool(agent, group)?;
    let mut turn = None;
    let mut written = written;
    if exclusive::is_on() {
        turn = Turn::take(agent, state);
        if turn.is_none() {
            windows.not_alone.fetch_add(1, Relaxed);
            rotation.untaken();
            return None;
        }
        // SAFETY: the caller's promise.
        written = unsafe { original::hsa_queue_load_write_index_relaxed(queue) };
        // The read index only grows: what was read of it is on the safe side.
        if written.wrapping_sub(read).saturating_add(all) > size / 2 {
            windows.no_room.fetch_add(1, Relaxed);
            rotation.untaken();
            return None;
        }
    }
    let Some(number) = ready.take() else {
        windows.none_ready.fetch_add(1, Relaxed);
        rotation.untaken();
        return None;
    };
    let number = number as u16;
    let window = windows.numbered(number)?;
    reached(Point::Taken);
    // SAFETY: the caller's promise. The read index only grows, so where this succeeds there is room.
    let old = unsafe {
        original::hsa_queue_cas_write_index_scacq_screl(queue, written, written.wrapping_add(all))
    };
    if old != written {
        // Another producer was faster. Nobody else holds this number, so there is room for it.
        let _ = ready.put(u64::from(number));
        rotation.untaken();
        return None;
    }
    reached(Point::Reserved);
    let launch = Launch {
        window: number,
        ..launch(busy)
    };
    place(state, window, (ring, size, old), count, launch);
    if let Some(turn) = turn {
        turn.opened(number);
    }
    Some(old.wrapping_add(1))
}

/// Writes both packets around the `count` packets from `first + 1` on.
fn place(
    state: &QueueState,
    window: &Window,
    (ring, size, first): (u64, u64, u64),
    count: u64,
    launch: Launch,
) {
    let ours = Launch {
        window: OURS,
        ..Launch::default()
    };
    let middle = first.wrapping_add(1);
    let last = middle.wrapping_add(count);
    // Before they are valid: who looks at the ring meanwhile must know whose they are.
    state.reserve(first, 1, ours);
    state.reserve(middle, count, launch);
    state.reserve(last, 1, ours);
    window.queue.store(state.id.load(Relaxed), Relaxed);
    window.dispatch.store(0, Relaxed);
    window.packets.0.store(middle, Relaxed);
    window.packets.1.store(count as u32, Relaxed);
    window.looked.0.store(0, Relaxed);
    window.looked.1.store(0, Relaxed);
    window.stage.store(Stage::Reserved, Release);
    reached(Point::Noted);
    let [started, was_read] = window.signals.each_ref().map(|s| Signal(s.load(Relaxed)));
    let commands = |of: &(AtomicU64, AtomicU32)| (of.0.load(Relaxed), of.1.load(Relaxed));
    let packets = [
        (first, commands(&window.start), started),
        (last, commands(&window.read), was_read),
    ];
    for (index, (address, words), signal) in packets {
        // SAFETY: a packet of a live ring that was reserved for us, and is free: its slot was passed
        // by the device before it was reserved.
        unsafe { Packet::at(ring, size, index).set_body(address, words, signal) };
    }
    reached(Point::Written);
    // Device memory may take stores in another order. The host's does not take a packet's first
    // word, which is released, before the others; and nobody waits until it has left this processor.
    let is_ordered = state.host_ring.load(Relaxed) != 0;
    if !is_ordered {
        packet::flush();
    }
    for (index, ..) in packets {
        // SAFETY: as above; its body is written.
        unsafe { Packet::at(ring, size, index).set_commands_header() };
    }
    if !is_ordered {
        packet::flush();
    }
    reached(Point::Valid);
    for (index, ..) in packets {
        state.ours_is_valid(index);
    }
}

/// A dispatch was looked at: the next one of its queue is predicted by that.
#[inline]
pub(super) fn enqueued(state: &QueueState, dispatch: &Enqueued) {
    let key = class_of(&dispatch.dispatch);
    let (kernel, number) = (dispatch.dispatch.kernel_object, dispatch.dispatch_id);
    STATE.windows.choices.saw(key, kernel, number != 0);
    let Some(agent) = (state.windows_of.load(Relaxed) as usize).checked_sub(1) else {
        return;
    };
    if let Some(rotation) = STATE.windows.rotation(agent) {
        rotation.saw(state.id.load(Relaxed), key);
    }
    let number = dispatch.launch.window;
    if let Some(window) = STATE.windows.numbered(number) {
        window.class.store(key.number(), Relaxed);
        // A pause that began between the choice of the window and the packet: it has no number.
        window.saw(match dispatch.dispatch_id {
            0 => Inside::Unrecorded,
            number => Inside::Dispatch(number),
        });
    }
}

/// What dispatches have in common whose counts may be compared.
fn class_of(dispatch: &Dispatch) -> ClassKey {
    let class = Class {
        kernel_object: dispatch.kernel_object,
        grid: dispatch.grid,
        // A dispatch packet has halves of words for it.
        workgroup: dispatch.workgroup.map(|size| size as u16),
        lds: dispatch.group_segment,
    };
    class.key()
}

/// A packet with a window around it was looked at, and is no dispatch that anybody is told of.
#[inline]
pub(super) fn seen(number: u16, inside: Inside) {
    if number != 0
        && number != OURS
        && let Some(window) = STATE.windows.numbered(number)
    {
        window.saw(inside);
    }
}
