//! Windows of hardware counters: the second subscriber of the queue service.
//!
//! When the application reserves packets, the hook reserves two more. It fills the first one with
//! commands that start the counters and the last one with commands that read and stop them, and the
//! application gets those in between. All are reserved by one compare-and-exchange, after a check
//! of the room in the ring, so there is always room for them. Most launches reserve one packet. HIP
//! reserves several at once for a graph: such a window counts the batch, and the counts of its
//! single kernels cannot be distinguished. Both of our packets are valid before the reservation
//! returns. Whatever happens to the hooks of this process, to the worker thread or to the attacher,
//! the queue therefore goes on. None of our packets in a ring waits for our code.
//!
//! Both packets have the barrier bit, so the first starts when all work before it has ended, and
//! the second when the application's packets have ended. They have no fences, since fences would
//! empty the caches whose use is counted. The application's packet is not changed.
//!
//! The application's threads take windows that [`keeper`] has made ready. The keeper also reads
//! what the device has written. The attacher's plan says what is counted, and in which order.
//!
//! Decisions: AMD-120 to AMD-122 (`docs/deviations/amd.md`).

#[cfg(test)]
mod cases;
mod concurrency;
pub(crate) mod exclusive;
pub mod guard;
pub mod keeper;
pub(super) mod kernel_filter;
pub(super) mod memory;
#[cfg(test)]
mod tests;
pub mod tool_requests;

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

/// The owner of every packet of a batch is remembered, so a batch must fit into the reservations.
const _: () = assert!(MOST_PACKETS < RESERVATIONS as u64 / 2);

fn plan() -> MutexGuard<'static, Option<Box<Plan>>> {
    STATE
        .windows
        .plan
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
}

/// Sets what the session is to count. Call it only while no session collects.
pub fn set_plan(wanted: Plan) {
    *plan() = (!wanted.groups.is_empty()).then(|| Box::new(wanted));
}

/// Returns whether the session reads the counters of whole devices at an interval.
pub(super) fn is_of_devices() -> bool {
    plan().as_ref().is_some_and(|plan| plan.interval != 0)
}

/// Returns a copy of the session's plan.
pub(super) fn session_plan() -> Option<Box<Plan>> {
    plan().clone()
}

/// Returns whether the session counts anything.
pub fn has_plan() -> bool {
    plan().is_some()
}

/// Notes that recording is about to end. Call it before anything is launched that has no record.
pub fn recording_ends() {
    STATE.windows.until.store(now(), Release);
}

/// Returns whether windows are taken. A session without counters costs only this load.
#[inline]
pub fn are_taken() -> bool {
    STATE.windows.on.load(Relaxed)
}

/// Notes that the application checks for room in this queue's ring. An application that never does
/// so keeps its own count of packets, and our packets would break it.
pub(crate) fn watches_room(queue: u64) {
    // It is nearly always known already, so look first without entering the session.
    if (are_taken() || STATE.traces.on.load(Relaxed) || STATE.windows.switches.load(Relaxed))
        && super::state::find(queue).is_none_or(|state| state.watches_room.load(Relaxed) == 0)
        && let Some(_busy) = Busy::enter()
        && let Some(state) = super::state::find(queue)
        && state.watches_room.load(Relaxed) == 0
    {
        state.watches_room.store(1, Relaxed);
    }
}

/// Stores the agent of a queue that is being learned, where the runtime tells it, so that the worker
/// thread's next round can give its packets windows.
///
/// They get none before that round. A kernel that was launched before the attach, on a queue that has
/// not been used since, is in no record. A window alongside it would look as if it had been alone. The
/// round comes milliseconds later, when most such kernels have ended.
///
/// # Safety
/// `queue` is live, and no other thread uses its `state`.
pub(super) unsafe fn learned(state: &QueueState, queue: QueuePointer) {
    if (are_taken() || STATE.traces.on.load(Relaxed)) && state.agent.load(Relaxed) == 0 {
        // SAFETY: the caller's promise.
        let agent = unsafe { crate::symbols::queue_agent(queue.0) };
        state.agent.store(agent, Relaxed);
    }
}

/// Counts a reservation by which the program leaves no room for a window, since it chose the index
/// itself.
pub(crate) fn reserved_otherwise(busy: &Busy) {
    if are_taken() && busy.accepts() && busy.wants(kind::COUNTER_COLLECTION) {
        STATE.windows.other_ways.fetch_add(1, Relaxed);
    }
}

/// Reserves `count` packets with a window around them, if a window is available. Returns the index
/// of the application's first packet; the packets are then reserved for the application.
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
    if !are_taken() || !busy.accepts() || !busy.wants(kind::COUNTER_COLLECTION) {
        return None;
    }
    let state = super::state::find(queue.addr() as u64)?;
    let agent = (state.windows_of.load(Acquire) as usize).checked_sub(1)?;
    // HIP reserves barrier packets in the same way, but in calls that are not launches.
    if state.life.load(Relaxed) != Life::Alive || busy.is_launching() == Some(false) {
        return None;
    }
    let windows = &STATE.windows;
    if state.is_direct()
        || state.intercept.load(Relaxed) != 0
        || state.late.load(Relaxed) != 0
        || state.watches_room.load(Relaxed) == 0
    {
        windows.unfit.fetch_add(1, Relaxed);
        return None;
    }
    let rotation = windows.rotation(agent)?;
    let pointer = QueuePointer(queue.addr() as u64);
    // SAFETY: the caller promises a live queue.
    let (ring, size, written, read) = unsafe {
        (
            pointer.ring(),
            u64::from(pointer.size()),
            original::hsa_queue_load_write_index_relaxed(queue),
            original::hsa_queue_load_read_index_scacquire(queue),
        )
    };
    if guard::is_wanted(state, count) {
        // SAFETY: the caller promises a live queue.
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
    // Leave half of the ring to the application, which may have checked the room for more packets
    // than these.
    if written.wrapping_sub(read).saturating_add(all) > size / 2 || count > MOST_PACKETS {
        windows.no_room.fetch_add(1, Relaxed);
        return None;
    }
    reached(Point::Choosing);
    let id = state.id.load(Relaxed);
    // This is not asked for a batch, which may contain other kernels behind the first one.
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
            rotation.untaken(group);
            return None;
        }
        // SAFETY: the caller promises a live queue.
        written = unsafe { original::hsa_queue_load_write_index_relaxed(queue) };
        // The read index only grows, so the value that was read before is a safe one.
        if written.wrapping_sub(read).saturating_add(all) > size / 2 {
            windows.no_room.fetch_add(1, Relaxed);
            rotation.untaken(group);
            return None;
        }
    }
    let Some(number) = ready.take() else {
        windows.none_ready.fetch_add(1, Relaxed);
        rotation.untaken(group);
        return None;
    };
    let number = number as u16;
    let window = windows.numbered(number)?;
    reached(Point::Taken);
    // SAFETY: the caller promises a live queue. The read index only grows, so where this succeeds
    // there is room.
    let old = unsafe {
        original::hsa_queue_cas_write_index_scacq_screl(queue, written, written.wrapping_add(all))
    };
    if old != written {
        // Another producer was faster. No other thread holds this window's number, so the pool has
        // room for it.
        let _ = ready.put(u64::from(number));
        rotation.untaken(group);
        return None;
    }
    reached(Point::Reserved);
    let launch = Launch {
        window: number,
        ..launch(busy)
    };
    place(state, window, (ring, size, old), count, launch, true);
    if let Some(turn) = turn {
        turn.opened(number);
    }
    Some(old.wrapping_add(1))
}

/// Writes our two packets around the `count` packets from `first + 1` on. With `waits` each has the barrier
/// bit.
pub(super) fn place(
    state: &QueueState,
    window: &Window,
    (ring, size, first): (u64, u64, u64),
    count: u64,
    launch: Launch,
    waits: bool,
) {
    let ours = Launch {
        window: OURS,
        ..Launch::default()
    };
    let middle = first.wrapping_add(1);
    let last = middle.wrapping_add(count);
    // Note the owners before the packets are valid: a thread that looks at the ring meanwhile must
    // know whose packets they are.
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
        // SAFETY: this is a packet in the ring of a live queue. It was reserved for us, and it is
        // free: the device had passed its place before it was reserved.
        unsafe { Packet::at(ring, size, index).set_body(address, words, signal) };
    }
    reached(Point::Written);
    // Stores to device memory may arrive in another order. In host memory a packet's first word,
    // which is stored with release, does not arrive before the others, and no one waits until the
    // store has left this processor.
    let is_ordered = state.host_ring.load(Relaxed) == 1;
    if !is_ordered {
        packet::flush();
    }
    for (index, ..) in packets {
        // SAFETY: as above, and the packet's body is written.
        unsafe {
            let packet = Packet::at(ring, size, index);
            match waits {
                true => packet.set_commands_header(),
                false => packet.set_commands_header_at_once(),
            }
        }
    }
    if !is_ordered {
        packet::flush();
    }
    reached(Point::Valid);
    for (index, ..) in packets {
        state.ours_is_valid(index);
    }
}

/// Notes a dispatch that was looked at. The next dispatch of its queue is predicted from it. Returns
/// its number among the recorded dispatches of its kernel, if these are chosen.
#[inline]
pub(super) fn note(state: &QueueState, dispatch: &Enqueued) -> Option<u64> {
    let key = class_of(&dispatch.dispatch);
    let (kernel, number) = (dispatch.dispatch.kernel_object, dispatch.dispatch_id);
    let nth = STATE.windows.choices.saw(key, kernel, number != 0);
    if let Some(agent) = (state.windows_of.load(Relaxed) as usize).checked_sub(1)
        && let Some(rotation) = STATE.windows.rotation(agent)
    {
        rotation.saw(state.id.load(Relaxed), key);
    }
    nth
}

/// Notes a dispatch in its window.
#[inline]
pub(super) fn enqueued(state: &QueueState, dispatch: &Enqueued) {
    if state.windows_of.load(Relaxed) == 0 {
        return;
    }
    let number = dispatch.launch.window;
    if let Some(window) = STATE.windows.numbered(number) {
        window
            .class
            .store(class_of(&dispatch.dispatch).number(), Relaxed);
        // The dispatch has no number if a pause started between the choice of the window and the
        // packet.
        window.saw(match dispatch.dispatch_id {
            0 => Inside::Unrecorded,
            number => Inside::Dispatch(number),
        });
    }
}

/// Returns the class of a dispatch: what dispatches have in common if their counts may be compared.
fn class_of(dispatch: &Dispatch) -> ClassKey {
    let class = Class {
        kernel_object: dispatch.kernel_object,
        grid: dispatch.grid,
        // A dispatch packet has 16 bits for each size.
        workgroup: dispatch.workgroup.map(|size| size as u16),
        lds: dispatch.group_segment,
    };
    class.key()
}

/// Notes a packet with a window around it that was looked at, and that is no dispatch of which
/// subscribers are notified.
#[inline]
pub(super) fn seen(number: u16, inside: Inside) {
    if number != 0
        && number != OURS
        && let Some(window) = STATE.windows.numbered(number)
    {
        window.saw(inside);
    }
}
