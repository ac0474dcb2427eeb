//! Queues that are intercepted, and what is put around their dispatches.

use super::gate::{Chosen, Gate, Pending, Signals};
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

/// `hsa_amd_queue_intercept_packet_writer`.
type Writer = unsafe extern "C" fn(*const c_void, u64);
/// A packet.
type Words = [u64; 8];

/// Packets that a dispatch becomes, at most.
const AROUND: usize = 5;

/// Packets of an intercepted queue, at least. Where several threads write into one of 128 or fewer, each
/// packet of which becomes five, the runtime (7.2.4) loses its count of those that wait for room, and
/// ends the process (AMD-133).
const LEAST: u32 = 1024;

/// What the application passes to `hsa_queue_create` behind the agent.
#[derive(Debug, Clone, Copy)]
pub struct Arguments {
    /// Packets.
    pub size: u32,
    /// `hsa_queue_type32_t`.
    pub kind: u32,
    /// Called where something on the queue goes wrong.
    pub callback: *mut c_void,
    /// Its argument.
    pub data: *mut c_void,
    /// Bytes of private memory.
    pub private_segment: u32,
    /// Bytes of group memory.
    pub group_segment: u32,
    /// Where the queue goes.
    pub queue: *mut c_void,
}

/// Makes a queue whose dispatches can be counted. `None`: it could not be made so, and nothing was
/// made; the caller makes an ordinary one.
///
/// # Safety
/// As `hsa_queue_create`, whose arguments these are.
pub unsafe fn create_queue(agent: u64, arguments: Arguments) -> Option<u32> {
    let made = turns::is_there().then(Signals::make).flatten();
    let number = made.and_then(|_| STATE.alone.number());
    let (Some(signals), Some(number)) = (made, number) else {
        if let Some(signals) = made {
            signals.destroy();
        }
        STATE.alone.refused.fetch_add(1, Relaxed);
        return None;
    };
    // SAFETY: the caller's promise; this takes the same arguments.
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
        // It may be one that an ordinary queue would meet as well.
        signals.destroy();
        STATE.alone.refused.fetch_add(1, Relaxed);
        return None;
    }
    // SAFETY: the runtime has put a live queue there.
    let queue = unsafe { arguments.queue.cast::<u64>().read() };
    // SAFETY: a live queue.
    let size = unsafe { QueuePointer(queue).size() };
    let gate = STATE
        .alone
        .keep(Box::new(Gate::new(number, agent, size, signals)));
    gate.queue.store(queue, Release);
    let data = std::ptr::from_ref(gate).cast_mut().cast::<c_void>();
    // SAFETY: the queue was made by the function that this one is for; the gate is never freed, and
    // nobody has used the queue yet.
    let registered = unsafe {
        original::hsa_amd_queue_intercept_register(queue as *mut _, intercept as *mut c_void, data)
    };
    if registered != 0 {
        // Packets go through it as through any other.
        gate.is_gone.store(true, SeqCst);
        STATE.alone.refused.fetch_add(1, Relaxed);
    }
    Some(0)
}

/// The runtime hands packets over that the application has rung, under the queue's lock. They go to
/// the device through `writer`.
unsafe extern "C" fn intercept(
    packets: *const c_void,
    count: u64,
    first: u64,
    data: *mut c_void,
    writer: Writer,
) {
    // SAFETY: the gate that the function was registered with; gates are never freed.
    let gate: &'static Gate = unsafe { &*data.cast::<Gate>() };
    let gate = gate.current();
    gate.inside.fetch_add(1, SeqCst);
    // All in one call: where the ring is full the runtime keeps what one call brings, and no more.
    let mut out: Vec<Words> = Vec::with_capacity(count as usize * AROUND);
    for number in 0..count {
        let at = packets.cast::<Words>().wrapping_add(number as usize);
        let before = out.len();
        let put = catch_unwind(AssertUnwindSafe(|| {
            // SAFETY: one of the packets that the runtime passes.
            unsafe { put(gate, at, first.wrapping_add(number), &mut out) };
        }));
        if put.is_err() && out.len() == before {
            // SAFETY: as above. The device gets the packet as it is.
            out.push(unsafe { at.read_volatile() });
        }
    }
    // SAFETY: the runtime's function, during its own call; so many packets.
    unsafe { writer(out.as_ptr().cast(), out.len() as u64) };
    turns::wake();
    gate.inside.fetch_sub(1, SeqCst);
}

/// Puts a packet there, with what belongs around it.
///
/// # Safety
/// `at` is a packet that the runtime hands over.
unsafe fn put(gate: &'static Gate, at: *const Words, index: u64, out: &mut Vec<Words>) {
    // SAFETY: the caller's promise. The packet may be in the application's ring, where a thread of
    // ours may still put a completion signal in: one word, before this call.
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
            STATE.alone.passed.fetch_add(1, Relaxed);
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
        choose(&dispatch).map(|(user, counters, data)| Chosen {
            user,
            counters,
            data,
        })
    };
    // Read again: what looked at the packet may have put a signal in.
    // SAFETY: the caller's promise.
    let words = unsafe { at.read_volatile() };
    let turn = gate.taken.fetch_add(1, Relaxed);
    let (packets, count) = around(gate, turn, words, chosen.as_ref());
    gate.pending().push_back(Pending { dispatch, chosen });
    gate.open.fetch_add(1, SeqCst);
    out.extend(packets.into_iter().take(count));
}

/// What is known of a dispatch; none where no session takes it.
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
        // The runtime takes what is valid, whether or not its producer has rung.
        // Without a turn the dispatch would not be counted: its holder, which may be without a
        // processor, is waited for. It waits for nothing of the runtime's.
        let mut inner = queue.lock_patiently()?;
        scan::look(queue, &mut inner, Some(&mut busy), index.wrapping_add(1));
    }
    let (dispatch_id, launch) = gate.noted(index)?;
    Some((queue, dispatch_id, launch))
}

/// The packets around a dispatch that has this turn on its queue, with it, and how many they are.
fn around(
    gate: &Gate,
    turn: u64,
    mut kernel: Words,
    chosen: Option<&Chosen>,
) -> ([Words; AROUND], usize) {
    let signals = &gate.signals;
    let open = signals.open[(turn % 2) as usize];
    kernel[0] |= u64::from(PACKET_BARRIER);
    let reached = barrier(None, signals.reached);
    let held = barrier(Some(open), Signal(0));
    match chosen {
        Some(Chosen { counters, .. }) => {
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
