//! Does the work at a doorbell: looks at the packets since the last time, tells the subscribers of
//! dispatches, and decides how far to ring.

use super::callbacks::Seen;
use super::flight::Launch;
use super::queue_state::{Inner, Locked, QueueState};
use super::service::Subscribers;
use super::state::next_dispatch;
use super::subscriber::{Enqueued, Subscriber};
use super::timing::KernelTiming;
use super::window::{Inside, OURS};
use super::windows::{self, guard};
use crate::packet::{
    self, Dispatch, Image, PACKET_DISPATCH, PACKET_INVALID, PACKET_VENDOR, Packet, VendorFormat,
};
use crate::state::STATE;
use midair_record::event::flag;
use midair_sdk_hot::clock::now;
use midair_sdk_hot::pause;
use midair_sdk_hot::probe::Busy;
use midair_sdk_hot::wrappers::original;
use std::sync::atomic::Ordering::Relaxed;

/// The value to pass on to the doorbell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ring {
    /// This value.
    Value(i64),
    /// Nothing: another producer's packet is not written yet, and that producer (or the worker
    /// thread) will ring.
    Hold,
}

/// Looks at the packets for which a doorbell is about to be rung with `value` (the index of the
/// last packet). The caller still has to tell tools of the dispatches that it returns.
pub fn doorbell(state: &'static QueueState, busy: &mut Busy, value: i64) -> (Ring, Seen) {
    let Some(mut inner) = state.lock() else {
        // The thread that holds the spin word does not run, so ring without a look. The packets are
        // counted at the next look, at the latest by the worker thread.
        if busy.accepts() {
            state
                .passed
                .fetch_max((value as u64).wrapping_add(1), Relaxed);
        }
        return (Ring::Value(value), Seen::default());
    };
    inner.take_passed(state);
    if state.is_direct()
        && (value as u64).wrapping_add(1) >= inner.next
        && !STATE.queues.direct.load(Relaxed)
    {
        // A thread rings through our hook for all packets that were looked at, so it was only late.
        state.direct.store(0, Relaxed);
    }
    let asked = (value as u64).wrapping_add(1);
    let moved = if busy.accepts() {
        // SAFETY: the application rings, so the queue is alive, and its spin word is held.
        unsafe { guard::rung(state, asked) }
    } else {
        // SAFETY: as above.
        unsafe { guard::open_now(state) };
        None
    };
    let with_ours = moved.map_or_else(|| state.with_ours(asked), |moved| moved.end);
    inner.asked = inner.asked.max(with_ours);
    state.covered.store(inner.rung_by_us(), Relaxed);
    let asked = inner.asked;
    if !busy.accepts() {
        // The session closes, so pass the doorbell on, together with what was held back.
        inner.held_since = 0;
        inner.rung = asked;
        return (Ring::Value(asked.wrapping_sub(1) as i64), Seen::default());
    }
    let before = Seen::before(state);
    if let Some(moved) = moved {
        // The device must not take any packet behind the guard before we have looked at it.
        look(state, &mut inner, Some(busy), moved.guard);
        if inner.next == moved.guard {
            inner.ours += 1;
            inner.next += 1;
        }
    }
    look(state, &mut inner, Some(busy), asked);
    if let Some(moved) = moved {
        // SAFETY: as above.
        unsafe { guard::open(state, moved) };
    }
    let seen = before.until_now();
    let upto = inner.asked.min(inner.next.max(inner.rung));
    if upto < inner.asked {
        if inner.held_since == 0 {
            inner.held_since = now();
        }
    } else {
        inner.held_since = 0;
    }
    if upto == 0 || upto <= inner.rung && upto < (value as u64).wrapping_add(1) {
        return (Ring::Hold, seen);
    }
    inner.rung = inner.rung.max(upto);
    // A value that was rung already is passed on as it is, since some runtimes ring for the same
    // packet twice on purpose.
    (Ring::Value(upto.wrapping_sub(1) as i64), seen)
}

/// Looks at the packets before `first` on a queue whose doorbell is rung past our hooks. Called
/// when the calling thread has reserved packets from `first` on.
pub fn reserved(state: &'static QueueState, busy: &mut Busy, first: u64) -> Seen {
    let Some(mut inner) = state.lock() else {
        return Seen::default();
    };
    let before = Seen::before(state);
    look(state, &mut inner, Some(busy), first);
    before.until_now()
}

/// Looks at packets from `next` on. It stops at `limit` (up to which the application has rung, so
/// that the trace holds what was rung and no more), at the first packet that is not written yet, or
/// at the end of what is reserved.
pub fn look(
    state: &'static QueueState,
    inner: &mut Locked<'_>,
    mut busy: Option<&mut Busy>,
    limit: u64,
) {
    let queue = state.pointer();
    let begin = inner.next;
    let is_rung_later = busy.is_some() && !state.is_direct();
    let has_windows = state.has_windows();
    // SAFETY: the queue is alive: the application is ringing its doorbell right now, or the worker
    // thread is visiting it.
    let (written, mut read) = unsafe {
        (
            original::hsa_queue_load_write_index_scacquire(queue.0 as *mut _),
            original::hsa_queue_load_read_index_scacquire(queue.0 as *mut _),
        )
    };
    while inner.next < written.min(limit) {
        let index = inner.next;
        if index < read {
            let overwritten = written > index.wrapping_add(inner.size);
            passed_by(state, inner, index, overwritten);
            inner.next += 1;
            continue;
        }
        if index >= read.wrapping_add(inner.size) {
            // The ring is full, and this place still belongs to an earlier packet.
            break;
        }
        if has_windows && state.has_ours_at(index) {
            inner.ours += 1;
            inner.next += 1;
            continue;
        }
        let packet = Packet::at(inner.ring, inner.size, index);
        // SAFETY: the index is between the read and the write index of a live queue.
        let image = unsafe { packet.read() };
        if image.kind() == PACKET_INVALID {
            // The packet is not written yet, or the device has taken it already, which the read
            // index shows.
            // SAFETY: as above.
            let now_read =
                unsafe { original::hsa_queue_load_read_index_scacquire(queue.0 as *mut _) };
            if now_read > index {
                read = now_read;
                continue;
            }
            break;
        }
        let what = match image.kind() {
            PACKET_DISPATCH => Some(image.dispatch()),
            PACKET_VENDOR => match image.vendor_format() {
                VendorFormat::Dispatch => Some(image.vendor_dispatch()),
                VendorFormat::Barrier | VendorFormat::NoDispatch => None,
                VendorFormat::Unknown(format) => {
                    inner.unexplained.count(format);
                    None
                }
            },
            _ => None,
        };
        if let Some(what) = what {
            dispatch(
                state,
                inner,
                (packet, image, what),
                index,
                busy.as_deref_mut(),
            );
        } else {
            let has_events = state.has_events.load(Relaxed) != 0;
            let is_looked_up = has_windows || has_events && image.is_barrier();
            let launch = is_looked_up.then(|| state.reserver(index)).flatten();
            if let Some(launch) = launch.filter(|launch| launch.of_event)
                && image.is_barrier()
            {
                KernelTiming::follow_barrier(state, &image, index, launch);
            }
            no_dispatch(inner, launch.filter(|_| has_windows));
        }
        inner.next += 1;
    }
    if inner.next != begin && !is_rung_later {
        packet::flush();
    }
}

fn launch_of(state: &QueueState, inner: &Inner, index: u64, busy: Option<&mut Busy>) -> Launch {
    if let Some(launch) = state.reserver(index) {
        return launch;
    }
    let before_us = if index < inner.ours_from {
        flag::ORPHAN
    } else {
        0
    };
    match busy {
        Some(busy) => {
            let innermost = if before_us == 0 {
                busy.innermost()
            } else {
                None
            };
            let (correlation, stream, flags) = match innermost {
                Some((correlation, stream)) => {
                    busy.take_stack(correlation);
                    (correlation, stream, 0)
                }
                None => (busy.fresh_correlation(), 0, flag::NO_CALLER),
            };
            Launch {
                correlation,
                stream,
                tid: busy.tid(),
                flags: before_us | flags | busy.flags_now(),
                of_event: false,
                window: 0,
            }
        }
        None => Launch {
            flags: before_us | flag::NO_CALLER | pause::flags_now(),
            ..Launch::default()
        },
    }
}

fn dispatch(
    state: &'static QueueState,
    inner: &mut Locked<'_>,
    (packet, image, what): (Packet, Image, Dispatch),
    index: u64,
    mut busy: Option<&mut Busy>,
) {
    let launch = launch_of(state, inner, index, busy.as_deref_mut());
    if let Some(busy) = busy {
        busy.saw_dispatch_of(launch.correlation);
    }
    enqueue(
        state,
        inner,
        &Enqueued {
            index,
            dispatch_id: number_of(launch),
            launch,
            dispatch: what,
            after_all: image.is_after_all(),
            packet: Some((packet, image.completion())),
        },
    );
}

/// Returns a number in this session for a dispatch; 0 if it is not recorded.
fn number_of(launch: Launch) -> u64 {
    if pause::is_written(launch.flags) {
        next_dispatch()
    } else {
        0
    }
}

/// Counts a dispatch and tells the subscribers of it.
fn enqueue(state: &'static QueueState, inner: &mut Inner, dispatch: &Enqueued) {
    let is_full = Subscribers::enqueue(state, dispatch).is_full;
    if is_full {
        inner.lost += 1;
    } else if dispatch.launch.flags & flag::PAUSED != 0 {
        inner.paused += 1;
    } else {
        inner.dispatches += 1;
    }
}

/// Counts a packet that was consumed before we looked at it. Its header is gone, but its body may
/// still tell what it was.
fn passed_by(state: &'static QueueState, inner: &mut Locked<'_>, index: u64, overwritten: bool) {
    let launch = state.reserver(index);
    if launch.is_some_and(|launch| launch.window == OURS) {
        inner.ours += 1;
        return;
    }
    if launch.is_none() && index < inner.counted_from {
        // It was rung and consumed before we came.
        inner.others += 1;
        return;
    }
    if overwritten {
        // Another packet may be in its place by now.
        inner.lost += 1;
        in_window(launch, Inside::Unrecorded);
        return;
    }
    let packet = Packet::at(inner.ring, inner.size, index);
    // SAFETY: the ring stays mapped while the queue lives. The body may be stale, which the look-up
    // below finds out.
    let image = unsafe { packet.read() };
    let what = if image.was_vendor_dispatch() {
        image.vendor_dispatch()
    } else {
        image.dispatch()
    };
    // A barrier has zeros where a dispatch has its workgroup's size, which is never 0.
    if what.workgroup[0] == 0 || what.kernel_object == 0 {
        no_dispatch(inner, launch);
    } else if index < inner.size || crate::symbols::is_kernel(what.kernel_object) {
        // In its first round a ring holds no older packets, so the look-up is not needed there: a
        // kernel that was loaded just now may not be known yet.
        let launch = launch.unwrap_or(Launch {
            flags: flag::NO_CALLER | pause::flags_now(),
            ..Launch::default()
        });
        enqueue(
            state,
            inner,
            &Enqueued {
                index,
                dispatch_id: number_of(launch),
                launch,
                dispatch: what,
                after_all: false,
                packet: None,
            },
        );
    } else {
        inner.lost += 1;
        in_window(launch, Inside::Unrecorded);
    }
}

/// Counts a packet that is no dispatch, either the application's or ours.
fn no_dispatch(inner: &mut Inner, launch: Option<Launch>) {
    match launch {
        Some(Launch { window: OURS, .. }) => inner.ours += 1,
        _ => {
            inner.others += 1;
            in_window(launch, Inside::Other);
        }
    }
}

/// Tells the window around a packet, if there is one, what it was.
fn in_window(launch: Option<Launch>, inside: Inside) {
    if let Some(launch) = launch {
        windows::seen(launch.window, inside);
    }
}
