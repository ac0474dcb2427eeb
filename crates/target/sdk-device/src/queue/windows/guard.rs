//! Guards: windows around each kernel of a batch, on request (`--pmc-graph-kernels`).
//!
//! There is no room between the packets of a batch. So the hook reserves one packet before the
//! batch, the guard, and room behind the batch. The guard stays invalid until the application rings
//! the doorbell for its packets, so the device cannot take any of them. Then the packets are moved,
//! in their order and with their signals, into the room behind them, and each kernel gets a window
//! around it. The application's original packets become barriers that wait for nothing, and the
//! guard is made valid.
//!
//! This is the only case in which the device waits for our code. It waits no longer than [`LIMIT`]
//! plus one round of the worker thread: after that the worker thread opens the guard, and the
//! application's packets stay where they are. A queue on which this has happened [`MOST_LATE`]
//! times gets no more guards. When recording ends, the worker thread opens all guards while the
//! hooks are still installed. A thread that is about to shut a guard at that moment sees that
//! recording has ended, and opens the guard itself. So the hooks are removed only when no guard is
//! shut.
//!
//! A guard is opened by the thread that changes its stage from [`GuardStage::Shut`](Stage::Shut).
//!
//! Decisions: AMD-126 (`docs/deviations/amd.md`).

#[cfg(test)]
mod tests;

use super::exclusive::{self, Turn};
use super::place;
use crate::layout::QueuePointer;
use crate::packet::{self, Image, Packet, VendorFormat};
use crate::packet::{PACKET_BARRIER_AND, PACKET_DISPATCH, PACKET_INVALID, PACKET_VENDOR};
use crate::queue::flight::Launch;
use crate::queue::points::{Point, reached};
use crate::queue::queue_state::{Life, QueueState};
use crate::queue::window::{self, GUARDED, GuardStage as Stage, MOST_GUARDED, OF_A_GROUP, OURS};
use crate::state::STATE;
use midair_lockfree::WordQueue;
use midair_rotation::Rotation;
use midair_sdk_hot::clock::now;
use midair_sdk_hot::wrappers::original;
use std::ffi::c_void;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::fence;

/// The longest time for which a guard may be shut, in nanoseconds.
pub(crate) const LIMIT: u64 = 50_000_000;
/// How many guards of a queue may be opened because of that limit before the queue gets no more
/// guards.
const MOST_LATE: u32 = 3;
/// The largest number of packets in a batch.
const MOST_PACKETS: u64 = 512;

/// Why there is no guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum No {
    /// There is no room for a guard, but there may be for another kind of window.
    Room,
    /// No window of any kind is available now.
    Window,
}

/// A batch that was moved.
#[derive(Debug, Clone, Copy)]
pub(in crate::queue) struct Moved {
    /// The index of the guard, which is still shut.
    pub guard: u64,
    /// The index one past the last packet that was reserved with the guard.
    pub end: u64,
}

/// A queue's ring.
#[derive(Debug, Clone, Copy)]
struct Ring {
    at: u64,
    size: u64,
}

impl Ring {
    /// # Safety
    /// `queue` must be alive.
    unsafe fn of(queue: QueuePointer) -> Ring {
        // SAFETY: the caller promises a live queue.
        unsafe {
            Ring {
                at: queue.ring(),
                size: u64::from(queue.size()),
            }
        }
    }

    fn packet(self, index: u64) -> Packet {
        Packet::at(self.at, self.size, index)
    }
}

const OF_OURS: Launch = Launch {
    correlation: 0,
    stream: 0,
    tid: 0,
    flags: 0,
    of_event: false,
    window: OURS,
};

/// Returns whether a batch of this many packets is to have a guard.
pub(super) fn is_wanted(state: &QueueState, count: u64) -> bool {
    count > 1
        && count <= MOST_PACKETS
        && STATE.windows.guards.load(Relaxed)
        && state.guard.late.load(Relaxed) < MOST_LATE
}

/// Reserves `count` packets with a guard before them and room behind them. Returns the guard's
/// index; the caller calls [`shut`] at once.
///
/// # Safety
/// The same as for [`super::reserve`].
pub(super) unsafe fn claim(
    state: &QueueState,
    queue: *mut c_void,
    (written, read): (u64, u64),
    count: u64,
    rotation: &Rotation,
) -> Result<u64, No> {
    let guard = &state.guard;
    // SAFETY: the caller promises a live queue.
    let ring = unsafe { Ring::of(QueuePointer(queue.addr() as u64)) };
    let most = 1 + 2 * count + 2 * count.min(MOST_GUARDED as u64);
    let is_idle = |to| {
        guard
            .stage
            .compare_exchange(Stage::Idle, to, AcqRel, Relaxed)
    };
    if written.wrapping_sub(read).saturating_add(most) > ring.size / 2
        || is_idle(Stage::Claimed).is_err()
    {
        return Err(No::Room);
    }
    let (now, id) = (now(), state.id.load(Relaxed));
    let mut places = guard.windows.iter();
    let mut taken = 0;
    for _ in 0..count.min(MOST_GUARDED as u64) {
        let Some(group) = rotation.next_group(id, now) else {
            continue;
        };
        let Some(number) = pool(state, group).and_then(WordQueue::take) else {
            STATE.windows.none_ready.fetch_add(1, Relaxed);
            rotation.untaken(group);
            continue;
        };
        if let Some((place, of)) = places.next() {
            place.store(number as u16, Relaxed);
            of.store(group, Relaxed);
            taken += 1;
        }
    }
    guard.count.store(count as u32, Relaxed);
    guard.taken.store(taken, Relaxed);
    guard.first.store(written, Relaxed);
    let old = match taken {
        0 => !written,
        // SAFETY: the caller promises a live queue. The read index only grows, so if this succeeds,
        // there is room.
        _ => unsafe {
            original::hsa_queue_cas_write_index_scacq_screl(queue, written, guard.end())
        },
    };
    if old != written {
        give_back(state);
        guard.stage.store(Stage::Idle, Release);
        return Err(No::Window);
    }
    reached(Point::Reserved);
    Ok(written)
}

/// Shuts the guard that the calling thread has reserved.
///
/// # Safety
/// The same as for [`claim`], which must have just returned.
pub(super) unsafe fn shut(state: &QueueState, queue: *mut c_void, launch: Launch) {
    let guard = &state.guard;
    let first = guard.first.load(Relaxed);
    let count = u64::from(guard.count.load(Relaxed));
    let launch = Launch {
        window: GUARDED,
        ..launch
    };
    // SAFETY: the caller promises a live queue. The device had passed this place in the ring before
    // it was reserved, so the packet there is not valid, and the device does not read it.
    unsafe {
        let ring = Ring::of(QueuePointer(queue.addr() as u64));
        ring.packet(first).set_rest([0; 7]);
    }
    let behind = first.wrapping_add(1 + count);
    state.reserve(first, 1, OF_OURS);
    state.reserve(first.wrapping_add(1), count, launch);
    state.reserve(behind, guard.end().wrapping_sub(behind), OF_OURS);
    guard.since.store(now(), Relaxed);
    guard.stage.store(Stage::Shut, SeqCst);
    STATE.windows.shut.fetch_add(1, Relaxed);
    // Either the thread that ends the recording sees this guard, or this thread sees that recording
    // has ended.
    fence(SeqCst);
    if !STATE.windows.on.load(SeqCst) {
        // SAFETY: the caller promises a live queue.
        unsafe { open_unmoved(state, QueuePointer(queue.addr() as u64), false) };
    }
}

/// Moves the batch behind the guard, if all of it is written. Called when the application rings for
/// all packets below `asked`. The guard stays shut; the caller opens it with [`open`].
///
/// # Safety
/// The queue must be alive, and its spin word held.
pub(in crate::queue) unsafe fn rung(state: &QueueState, asked: u64) -> Option<Moved> {
    let guard = &state.guard;
    if guard.stage.load(Acquire) != Stage::Shut {
        return None;
    }
    let first = guard.first.load(Relaxed);
    let count = u64::from(guard.count.load(Relaxed));
    let behind = first.wrapping_add(1 + count);
    if asked < behind {
        return None;
    }
    // SAFETY: the caller promises a live queue.
    let ring = unsafe { Ring::of(state.pointer()) };
    let batch = || (first.wrapping_add(1)..behind).map(|index| (index, ring.packet(index)));
    // SAFETY: these are packets in the ring of a live queue, which the application has reserved and
    // rung for.
    let image = |packet: Packet| unsafe { packet.read() };
    let mut kernels = 0_u64;
    for (_, packet) in batch() {
        let image = image(packet);
        if image.kind() == PACKET_INVALID {
            return None;
        }
        kernels += u64::from(is_counted(&image));
    }
    let mut serialized = None;
    if exclusive::is_on() {
        // Take the turn now, and not when the packets were reserved: a turn is short, and it is not
        // known in advance when the application rings. The work of other queues does not depend on
        // this thread, so waiting for it cannot deadlock.
        let agent = (state.windows_of.load(Relaxed) as usize).checked_sub(1);
        serialized = agent.and_then(|agent| Turn::take(agent, state));
        if serialized.is_none() {
            STATE.windows.not_alone.fetch_add(1, Relaxed);
            // SAFETY: the caller promises a live queue.
            unsafe { open_unmoved(state, state.pointer(), false) };
            return None;
        }
    }
    let to = Stage::Opening;
    let taken = guard
        .stage
        .compare_exchange(Stage::Shut, to, AcqRel, Relaxed);
    if taken.is_err() {
        return None;
    }
    let mut windows = guard.windows();
    let all = u64::from(guard.taken.load(Relaxed)).min(kernels);
    // Each kernel is equally likely to have a window.
    let mut turn = now() % kernels.max(1);
    let (mut to, mut used, mut last) = (behind, 0, 0);
    for (index, packet) in batch() {
        let image = image(packet);
        let launch = Launch {
            window: 0,
            ..state.reserver(index).unwrap_or_default()
        };
        let mut number = 0;
        if is_counted(&image) {
            turn = (turn + all) % kernels;
            if turn < all {
                number = windows.next().map_or(0, |(number, _)| number);
                used += usize::from(number != 0);
                last = if number == 0 { last } else { number };
            }
        }
        let launch = Launch {
            window: number,
            ..launch
        };
        match STATE.windows.numbered(number) {
            Some(window) => {
                place(state, window, (ring.at, ring.size, to), 1, launch, true);
                to = to.wrapping_add(1);
                // SAFETY: this packet was reserved for us, and the device stands before it, at the
                // guard.
                unsafe { ring.packet(to).put(image) };
                to = to.wrapping_add(2);
            }
            None => {
                state.reserve(to, 1, launch);
                // SAFETY: as above.
                unsafe { ring.packet(to).put(image) };
                to = to.wrapping_add(1);
            }
        }
        state.reserve(index, 1, OF_OURS);
        // SAFETY: as above, and the application's packet that was there has been moved.
        unsafe { packet.put(NOTHING) };
    }
    let end = guard.end();
    fill(ring, to..end);
    packet::flush();
    give_back_from(state, used);
    if let Some(turn) = serialized.filter(|_| last != 0) {
        // The turn lasts until the device has read the last window.
        turn.opened(last);
    }
    STATE.windows.moved.fetch_add(1, Relaxed);
    Some(Moved { guard: first, end })
}

/// Opens the guard, so that the device goes on to the packets that were moved.
///
/// # Safety
/// The same as for [`rung`], which must have returned `moved`.
pub(in crate::queue) unsafe fn open(state: &QueueState, moved: Moved) {
    // SAFETY: the caller promises a live queue.
    unsafe {
        packet::flush();
        Ring::of(state.pointer()).packet(moved.guard).put(NOTHING);
    }
    packet::flush();
    state.guard.stage.store(Stage::Idle, Release);
}

/// Opens a shut guard, and leaves the application's packets where they are. `late` says that the
/// reason is that the guard was shut for too long.
///
/// # Safety
/// The queue must stay alive until this returns.
unsafe fn open_unmoved(state: &QueueState, queue: QueuePointer, late: bool) {
    let guard = &state.guard;
    let to = Stage::Opening;
    if guard
        .stage
        .compare_exchange(Stage::Shut, to, AcqRel, Relaxed)
        .is_err()
    {
        return;
    }
    let first = guard.first.load(Relaxed);
    let count = u64::from(guard.count.load(Relaxed));
    // SAFETY: the caller promises a live queue.
    let ring = unsafe { Ring::of(queue) };
    fill(ring, first.wrapping_add(1 + count)..guard.end());
    packet::flush();
    // SAFETY: the caller promises a live queue, and the packet was reserved for us.
    unsafe { ring.packet(first).put(NOTHING) };
    packet::flush();
    if late {
        guard.late.fetch_add(1, Relaxed);
        for window in guard
            .windows()
            .filter_map(|(n, _)| STATE.windows.numbered(n))
        {
            window.queue.store(state.id.load(Relaxed), Relaxed);
            window.dispatch.store(0, Relaxed);
            window.packets.0.store(first.wrapping_add(1), Relaxed);
            window.packets.1.store(count as u32, Relaxed);
            window.looked.1.store(0, Relaxed);
            window.stage.store(window::Stage::Late, Release);
        }
    } else {
        give_back(state);
    }
    guard.stage.store(Stage::Idle, Release);
}

/// Does one round of the worker thread: opens a guard that was shut for too long, or with `all` any
/// guard.
pub(super) fn watch(state: &QueueState, time: u64, all: bool) {
    let guard = &state.guard;
    if guard.stage.load(SeqCst) != Stage::Shut {
        return;
    }
    let is_late = time.saturating_sub(guard.since.load(Relaxed)) > LIMIT;
    if state.life.load(Acquire) != Life::Alive {
        let to = Stage::Opening;
        if guard
            .stage
            .compare_exchange(Stage::Shut, to, AcqRel, Relaxed)
            .is_ok()
        {
            give_back(state);
        }
    } else if is_late || all {
        // SAFETY: `visit` calls this only with a live queue.
        state.visit(|queue| unsafe { open_unmoved(state, queue, !all) });
    }
}

/// Opens the guard without moving packets. Called when the application rings while the session
/// closes.
///
/// # Safety
/// The queue must stay alive until this returns.
pub(in crate::queue) unsafe fn open_now(state: &QueueState) {
    if state.guard.stage.load(Acquire) == Stage::Shut {
        // SAFETY: the caller promises a live queue.
        unsafe { open_unmoved(state, state.pointer(), false) };
    }
}

/// A barrier that waits for nothing.
const NOTHING: Image = Image::of([PACKET_BARRIER_AND as u64, 0, 0, 0, 0, 0, 0, 0]);

/// Writes empty barriers into midair's packets.
fn fill(ring: Ring, packets: std::ops::Range<u64>) {
    for index in packets {
        // SAFETY: the callers pass packets in the ring of a live queue that were reserved for us,
        // and the device stands before them, at the guard.
        unsafe { ring.packet(index).put(NOTHING) };
    }
}

fn is_kernel(image: &Image) -> bool {
    match image.kind() {
        PACKET_DISPATCH => true,
        PACKET_VENDOR => image.vendor_format() == VendorFormat::Dispatch,
        _ => false,
    }
}

/// Returns whether a packet is a kernel that may have a window.
fn is_counted(image: &Image) -> bool {
    let dispatch = match image.kind() {
        PACKET_DISPATCH => image.dispatch(),
        _ => image.vendor_dispatch(),
    };
    is_kernel(image) && !STATE.windows.choices.leaves_out(dispatch.kernel_object)
}

/// Returns the ready windows of a group of the queue's agent.
fn pool(state: &QueueState, group: u32) -> Option<&'static WordQueue<OF_A_GROUP>> {
    let agent = (state.windows_of.load(Relaxed) as usize).checked_sub(1)?;
    STATE.windows.pool(agent, group)
}

/// Gives all windows back that were taken for a guard. They must be in no ring.
fn give_back(state: &QueueState) {
    give_back_from(state, 0);
}

/// Gives the windows back except for the first `used`.
fn give_back_from(state: &QueueState, used: usize) {
    let agent = (state.windows_of.load(Relaxed) as usize).checked_sub(1);
    let rotation = agent.and_then(|agent| STATE.windows.rotation(agent));
    for (number, group) in state.guard.windows().skip(used) {
        if let Some(pool) = pool(state, group) {
            // No other thread holds this number, so the pool has room for it.
            let _ = pool.put(u64::from(number));
        }
        if let Some(rotation) = rotation {
            rotation.untaken(group);
        }
    }
}
