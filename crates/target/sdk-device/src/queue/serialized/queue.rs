//! Makes intercept queues, and puts packets around their dispatches.

use super::gate::{Gate, Pending, Selection, Signals};
use super::turns;
use super::user::Dispatch;
use super::users::choose;
use crate::layout::{QueuePointer, Signal};
use crate::packet::{
    Image, PACKET_BARRIER, PACKET_DISPATCH, PACKET_VENDOR, VendorFormat, barrier, commands,
};
use crate::queue::queue_state::QueueState;
use crate::queue::{scan, state};
use crate::state::STATE;
use midair_record::event::kind;
use midair_sdk_hot::probe::Busy;
use midair_sdk_hot::wrappers::original;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};

/// The type `hsa_amd_queue_intercept_packet_writer`.
type Writer = unsafe extern "C" fn(*const c_void, u64);
/// A packet, as 64-bit words.
type Words = [u64; 8];

/// The largest number of packets that a dispatch becomes.
const AROUND: usize = 5;

/// The smallest size of an intercept queue, in packets. If several threads write to a queue of 128
/// packets or fewer, and each packet becomes five, the runtime (7.2.4) loses count of the packets
/// that wait for room, and ends the process (AMD-133).
const LEAST: u32 = 1024;

/// The arguments that the application passes to `hsa_queue_create` after the agent.
#[derive(Debug, Clone, Copy)]
pub struct Arguments {
    /// The size in packets.
    pub size: u32,
    /// `hsa_queue_type32_t`.
    pub kind: u32,
    /// The function that is called when an error occurs on the queue.
    pub callback: *mut c_void,
    /// The argument of `callback`.
    pub data: *mut c_void,
    /// The bytes of private memory.
    pub private_segment: u32,
    /// The bytes of group memory.
    pub group_segment: u32,
    /// Where the pointer to the queue is stored.
    pub queue: *mut c_void,
}

/// Makes a queue whose dispatches can be counted, and returns the runtime's status. Returns `None`
/// if that is not possible: then no queue was made, and the caller makes an ordinary one.
///
/// # Safety
/// The same as for `hsa_queue_create`, whose arguments these are.
pub unsafe fn create_queue(agent: u64, arguments: Arguments) -> Option<u32> {
    let made = turns::is_there().then(Signals::make).flatten();
    let number = made.and_then(|_| STATE.serialized.number());
    let (Some(signals), Some(number)) = (made, number) else {
        if let Some(signals) = made {
            signals.destroy();
        }
        STATE.serialized.refused.fetch_add(1, Relaxed);
        return None;
    };
    // SAFETY: the caller promises valid arguments of `hsa_queue_create`, and this function takes
    // the same.
    let status = unsafe {
        original::hsa_amd_queue_intercept_create(
            agent,
            arguments.size.max(LEAST),
            arguments.kind,
            arguments.callback,
            arguments.data,
            arguments.private_segment,
            arguments.group_segment,
            arguments.queue,
        )
    };
    if status != 0 {
        // An ordinary queue might fail in the same way; the caller tries that.
        signals.destroy();
        STATE.serialized.refused.fetch_add(1, Relaxed);
        return None;
    }
    // SAFETY: the call succeeded, so the runtime has stored a pointer to a live queue there.
    let queue = unsafe { arguments.queue.cast::<u64>().read() };
    // SAFETY: the queue was made above and is alive.
    let size = unsafe { QueuePointer(queue).size() };
    let gate = STATE
        .serialized
        .keep(Box::new(Gate::new(number, agent, size, signals)));
    gate.queue.store(queue, Release);
    let data = std::ptr::from_ref(gate).cast_mut().cast::<c_void>();
    // SAFETY: the queue was made by `hsa_amd_queue_intercept_create`, as this function requires.
    // The gate is never freed, and nothing has used the queue yet.
    let registered = unsafe {
        original::hsa_amd_queue_intercept_register(queue as *mut _, intercept as *mut c_void, data)
    };
    if registered != 0 {
        // Without an interceptor, the queue works like any other.
        gate.is_gone.store(true, SeqCst);
        STATE.serialized.refused.fetch_add(1, Relaxed);
    }
    Some(0)
}

/// Receives packets for which the application has rung the doorbell. The runtime calls it under the
/// queue's lock, and passes what is given to `writer` on to the device.
unsafe extern "C" fn intercept(
    packets: *const c_void,
    count: u64,
    first: u64,
    data: *mut c_void,
    writer: Writer,
) {
    // SAFETY: `data` is the gate that this function was registered with, and gates are never freed.
    let gate: &'static Gate = unsafe { &*data.cast::<Gate>() };
    let gate = gate.current();
    gate.inside.fetch_add(1, SeqCst);
    // Write all packets in one call: when the ring is full, the runtime keeps the packets of one
    // call only.
    let mut out: Vec<Words> = Vec::with_capacity(count as usize * AROUND);
    for number in 0..count {
        let at = packets.cast::<Words>().wrapping_add(number as usize);
        let before = out.len();
        let put = catch_unwind(AssertUnwindSafe(|| {
            // SAFETY: `at` is one of the packets that the runtime passes.
            unsafe { put(gate, at, first.wrapping_add(number), &mut out) };
        }));
        if put.is_err() && out.len() == before {
            // SAFETY: as above. The device gets the packet as it is.
            out.push(unsafe { at.read_volatile() });
        }
    }
    // SAFETY: `writer` is called during the runtime's own call, as it requires, with the real
    // number of packets.
    unsafe { writer(out.as_ptr().cast(), out.len() as u64) };
    turns::wake();
    gate.inside.fetch_sub(1, SeqCst);
}

/// Appends a packet to `out`, together with the packets that belong around it.
///
/// # Safety
/// `at` must be a packet that the runtime hands over.
unsafe fn put(gate: &'static Gate, at: *const Words, index: u64, out: &mut Vec<Words>) {
    // SAFETY: the caller promises that `at` is a packet. It may be in the application's ring, where
    // a probe may still have stored a completion signal, which is one word, before this call.
    let image = Image::of(unsafe { at.read_volatile() });
    let what = match image.kind() {
        PACKET_DISPATCH => Some(image.dispatch()),
        PACKET_VENDOR if image.vendor_format() == VendorFormat::Dispatch => {
            Some(image.vendor_dispatch())
        }
        _ => None,
    };
    let known = what.and_then(|what| Some((what, noted(gate, index)?)));
    let Some((packet, (queue, dispatch_id, launch))) = known else {
        if what.is_some() {
            STATE.serialized.passed.fetch_add(1, Relaxed);
        }
        // SAFETY: the caller's promise.
        out.push(unsafe { at.read_volatile() });
        return;
    };
    let dispatch = Dispatch {
        dispatch_id,
        queue_id: queue.id.load(Relaxed),
        queue: gate.queue.load(Relaxed),
        agent: gate.agent,
        index,
        launch,
        packet,
    };
    let chosen = if dispatch_id == 0 {
        None
    } else {
        choose(&dispatch).map(|(user, counters, data)| Selection {
            user,
            counters,
            data,
        })
    };
    // Read the packet again: the code that looked at it may have stored a completion signal in it.
    // SAFETY: the caller's promise.
    let words = unsafe { at.read_volatile() };
    let turn = gate.taken.fetch_add(1, Relaxed);
    let (packets, count) = around(gate, turn, words, chosen.as_ref());
    gate.pending().push_back(Pending { dispatch, chosen });
    gate.open.fetch_add(1, SeqCst);
    out.extend(packets.into_iter().take(count));
}

/// Returns what is known about a dispatch, or `None` if no session records it.
fn noted(
    gate: &Gate,
    index: u64,
) -> Option<(&'static QueueState, u64, crate::queue::flight::Launch)> {
    if gate.is_gone.load(SeqCst) {
        return None;
    }
    let mut busy = Busy::enter()?;
    if !busy.accepts() || !busy.wants(kind::COUNTER_COLLECTION) {
        return None;
    }
    let queue = state::find(gate.queue.load(Relaxed))?;
    if gate.noted(index).is_none() {
        // The runtime takes valid packets whether or not their producer has rung the doorbell, so
        // this dispatch may not have been looked at yet. If it were not looked at now, it would not
        // be counted. We therefore wait for the holder of the queue's spin word, which may be
        // preempted. The holder itself waits for nothing of the runtime, so this cannot deadlock.
        let mut inner = queue.lock_patiently()?;
        scan::look(queue, &mut inner, Some(&mut busy), index.wrapping_add(1));
    }
    let (dispatch_id, launch) = gate.noted(index)?;
    Some((queue, dispatch_id, launch))
}

/// Returns a dispatch together with the packets around it, and how many they are. `turn` is the
/// number of the dispatch on its queue.
fn around(
    gate: &Gate,
    turn: u64,
    mut kernel: Words,
    chosen: Option<&Selection>,
) -> ([Words; AROUND], usize) {
    let signals = &gate.signals;
    let open = signals.open[(turn % 2) as usize];
    kernel[0] |= u64::from(PACKET_BARRIER);
    let reached = barrier(None, signals.reached);
    let held = barrier(Some(open), Signal(0));
    match chosen {
        Some(Selection { counters, .. }) => {
            let (start, started) = (counters.start(), signals.started);
            let (read, done) = (counters.read(), signals.done);
            let start = commands(start.0, start.1, started);
            let read = commands(read.0, read.1, done);
            ([reached, held, start, kernel, read], 5)
        }
        None => {
            let done = barrier(None, signals.done);
            ([reached, held, kernel, done, [0; 8]], 4)
        }
    }
}
