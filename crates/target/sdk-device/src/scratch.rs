//! Scratch memory: a queue's memory for private variables and spilled registers. The runtime
//! allocates it when a dispatch needs more than the queue has, and takes it back later.
//!
//! The runtime reports such changes through its table for tools
//! (`midair_sdk_control::tables::tools`): one call when a change starts and one when it is done, on
//! the runtime's thread that does it. The entries of this table are empty as long as no tool wants
//! to know. These calls are rare (each comes with an allocation on the device), so the hook can ask
//! the runtime for the queue's agent.

pub(crate) mod tables;

use crate::domain::{self, Domain};
use crate::layout::QueuePointer;
use crate::queue::queue_state::MOST;
use crate::queue::state;
use crate::state::STATE;
use crate::symbols;
use midair_abi::layout::rocprofiler_callback_tracing_scratch_memory_data_t as theirs;
use midair_domain::KindSet;
use midair_record::event::{Header, Plain, Queue, Scratch, kind};
use midair_sdk_hot::callbacks::requests::mixed;
use midair_sdk_hot::callbacks::work::{self, Work, agent_id};
use midair_sdk_hot::clock::now;
use midair_sdk_hot::probe::Busy;
use std::ffi::c_void;
use std::mem::transmute;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use tables::{Change, ENTRIES, OPEN, QUEUES};

type Status = u32;
type Handler = unsafe extern "C-unwind" fn(*const c_void) -> Status;

/// `rocprofiler_scratch_memory_operation_t`, which is also half of `hsa_amd_tool_event_kind_t`
/// (source: api/hsa_types.json): starts are odd, ends follow.
const OPERATIONS: [u32; 3] = [1, 2, 3];

/// The domain of changes of scratch memory.
#[derive(Debug, Clone, Copy)]
pub struct ScratchMemory;

impl Domain for ScratchMemory {
    fn kind(&self) -> u8 {
        kind::SCRATCH_MEMORY
    }
    fn entries(&self) -> Vec<domain::Entry> {
        STATE
            .scratches
            .originals
            .iter()
            .zip(HOOKS)
            .map(|(original, hook)| (original, hook as *mut ()))
            .collect()
    }
    fn begin(&mut self, wanted: KindSet) {
        STATE.scratches.changes.clear();
        STATE.scratches.known.clear();
        // The dispatches' side also numbers queues, from 1.
        let kernels = wanted.contains(kind::KERNEL_DISPATCH);
        let last = if kernels { MOST } else { 0 };
        STATE.scratches.last_number.store(last as u32, Relaxed);
    }
}

/// Returns our number for a queue, and its agent's node. `alive` says that the queue is in use and
/// not about to be destroyed.
fn queue_of(busy: &mut Busy, queue: u64, alive: bool) -> (u32, u32) {
    // SAFETY: the runtime names the queue in a call about it, so the queue exists.
    let id = unsafe { QueuePointer(queue).id() }.wrapping_add(1);
    let counted = state::find(queue).or_else(|| {
        // SAFETY: as above, and the runtime is about to go on with its packets.
        (alive && busy.accepts() && busy.wants(kind::KERNEL_DISPATCH))
            .then(|| unsafe { state::learn(QueuePointer(queue), state::Hint::default()) })
            .flatten()
    });
    if let Some(entry) = STATE.scratches.known.find(id, QUEUES) {
        let known = entry.shared();
        return (known.number.load(Relaxed), known.node.load(Relaxed));
    }
    // SAFETY: as above.
    let agent = unsafe { symbols::queue_agent(queue) };
    let node = symbols::agent_node(agent);
    let number = match counted {
        Some(state) => state.id.load(Relaxed),
        None => {
            let number = STATE.scratches.last_number.fetch_add(1, Relaxed) + 1;
            let record = Queue {
                header: Header {
                    size: size_of::<Queue>() as u16,
                    kind: kind::QUEUE,
                    ..Header::default()
                },
                handle: queue,
                queue_id: number,
                node,
                // SAFETY: as above.
                size: unsafe { QueuePointer(queue).size() },
                intercept: 0,
            };
            busy.store(kind::QUEUE, [record.bytes(), &[]]);
            number
        }
    };
    // Changes of one queue come one after another, under the runtime's lock, so no other thread
    // makes this entry.
    if let Some(entry) = STATE.scratches.known.claim_key(id, QUEUES) {
        entry.shared().number.store(number, Relaxed);
        entry.shared().node.store(node, Relaxed);
        entry.publish(id);
    }
    (number, node)
}

/// An event of the runtime (`hsa_amd_event_scratch_*_t`, source: api/hsa_types.json). All events
/// start with kind, queue and flags.
#[derive(Debug, Clone, Copy)]
struct Event {
    queue: u64,
    flags: u32,
    bytes: u64,
    /// `hsa_amd_tool_event_kind_t`.
    kind: u32,
    /// The words behind the flags: the dispatch of an allocation, and at its end also bytes and
    /// slots.
    rest: [u64; 3],
}

impl Event {
    /// # Safety
    /// `event` must be what the runtime passes to an entry of its table for tools. `words` must be
    /// the number of words that follow the flags there: 3 at the end of an allocation, 1 at its
    /// start, and 0 otherwise.
    unsafe fn read(event: *const c_void, words: usize) -> Event {
        let event = event.cast::<u8>();
        let mut rest = [0; 3];
        for (index, word) in rest.iter_mut().enumerate().take(words) {
            // SAFETY: the caller promises an event with this many words, and these are the offsets
            // of the structs.
            *word = unsafe { event.add(24 + 8 * index).cast::<u64>().read() };
        }
        // SAFETY: as above.
        unsafe {
            Event {
                queue: event.add(8).cast::<u64>().read(),
                flags: event.add(16).cast::<u32>().read(),
                bytes: rest[1],
                kind: event.cast::<u32>().read(),
                rest,
            }
        }
    }
}

impl Event {
    /// Returns the payload of a tool's callback.
    fn payload(&self, agent: u64, queue_id: u32) -> [u64; theirs::SIZE / 8] {
        let [first, second, third] = self.rest;
        [
            theirs::SIZE as u64,
            agent,
            u64::from(queue_id),
            u64::from(self.flags) | u64::from(self.kind) << 32,
            first,
            second,
            third,
        ]
    }
}

const _: () = {
    assert!(theirs::SIZE == 56 && theirs::agent_id == 8 && theirs::queue_id == 16);
    assert!(theirs::flags == 24 && theirs::args_kind == 28 && theirs::args == 32);
};

fn begins(event: Event, operation: u32) {
    let Some(mut busy) = Busy::enter() else {
        return;
    };
    if !busy.accepts() || !busy.wants(kind::SCRATCH_MEMORY) {
        busy.is_left_out(kind::SCRATCH_MEMORY);
        return;
    }
    let (start, flags) = (now(), busy.flags_now());
    let mut told = None;
    if busy.tells(kind::SCRATCH_MEMORY) {
        let (queue_id, node) = queue_of(&mut busy, event.queue, operation == 1);
        let (correlation, ancestor) = busy
            .enclosing()
            .unwrap_or_else(|| (busy.fresh_correlation(), 0));
        let work = Work {
            kind: kind::SCRATCH_MEMORY,
            operation,
            correlation,
            ancestor,
            tid: busy.tid(),
            id: mixed(start, u64::from(busy.tid())),
        };
        drop(busy);
        told = work::begin(&work, &event.payload(agent_id(node), queue_id));
        let Some(again) = Busy::enter() else { return };
        busy = again;
    }
    let key = event.queue | u64::from(operation);
    // A change whose end never came is replaced by this one.
    let entry = STATE
        .scratches
        .changes
        .hold_key(key, OPEN)
        .or_else(|| STATE.scratches.changes.claim_key(key, OPEN));
    match entry {
        Some(mut entry) => {
            let change = Change {
                generation: busy.generation(),
                start,
                flags,
                told,
            };
            entry.with(|entry| *entry = change);
            entry.publish(key);
        }
        None => busy.dropped(kind::SCRATCH_MEMORY),
    }
}

fn ends(event: Event, operation: u32) {
    let end = now();
    let Some(mut busy) = Busy::enter() else {
        return;
    };
    let key = event.queue | u64::from(operation);
    let Some(mut entry) = STATE.scratches.changes.hold_key(key, OPEN) else {
        return;
    };
    let Change {
        generation,
        start,
        flags,
        told,
    } = entry.with(|change| *change);
    entry.free();
    if let Some(told) = told {
        drop(busy);
        work::end(told, |payload| {
            let words = [u64::from(event.flags) | u64::from(event.kind) << 32];
            for (to, word) in payload
                .iter_mut()
                .skip(3)
                .zip(words.into_iter().chain(event.rest))
            {
                *to = word;
            }
        });
        let Some(again) = Busy::enter() else { return };
        busy = again;
    }
    if generation != busy.generation() {
        return;
    }
    let (queue_id, node) = queue_of(&mut busy, event.queue, operation == 1);
    let (correlation, ancestor) = busy
        .enclosing()
        .unwrap_or_else(|| (busy.fresh_correlation(), 0));
    let record = Scratch {
        header: Header {
            size: size_of::<Scratch>() as u16,
            kind: kind::SCRATCH_MEMORY,
            flags,
            operation,
        },
        start,
        end,
        correlation,
        ancestor,
        bytes: event.bytes,
        queue_id,
        node,
        tid: busy.tid(),
        flags: event.flags,
    };
    busy.store(kind::SCRATCH_MEMORY, [record.bytes(), &[]]);
}

/// Calls the function that the entry held before ours. If there was none, that counts as success.
unsafe fn pass_on(index: usize, event: *const c_void) -> Status {
    let before = STATE
        .scratches
        .originals
        .get(index)
        .map_or(std::ptr::null_mut(), |entry| entry.load(Acquire));
    if before.is_null() {
        return 0;
    }
    // SAFETY: an entry of this table holds a function of this type, and the runtime's own call is
    // passed on.
    unsafe { transmute::<*mut (), Handler>(before)(event) }
}

/// The hook of entry `INDEX`: 0 and 1 are the start and the end of an allocation, 2 and 3 of a
/// release, 4 and 5 of a reclaim.
unsafe extern "C-unwind" fn hook<const INDEX: usize>(event: *const c_void) -> Status {
    if midair_sdk_hot::probe::generation() != 0 && !event.is_null() {
        let words = match INDEX {
            0 => 1,
            1 => 3,
            _ => 0,
        };
        // SAFETY: this is the runtime's call of this entry, with the words that such a call has.
        let read = unsafe { Event::read(event, words) };
        let operation = OPERATIONS.get(INDEX / 2).copied().unwrap_or(0);
        if INDEX.is_multiple_of(2) {
            begins(read, operation);
        } else {
            ends(read, operation);
        }
    }
    // SAFETY: the runtime's own call, passed on.
    unsafe { pass_on(INDEX, event) }
}

static HOOKS: [Handler; ENTRIES] = [
    hook::<0>, hook::<1>, hook::<2>, hook::<3>, hook::<4>, hook::<5>,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_queues_are_numbered_behind_those_of_the_dispatches() {
        let mut scratch = ScratchMemory;
        let last = || STATE.scratches.last_number.load(Relaxed);
        scratch.begin(KindSet::EMPTY.with(kind::SCRATCH_MEMORY));
        assert_eq!(last(), 0);
        scratch.begin(KindSet::EMPTY.with(kind::KERNEL_DISPATCH));
        assert_eq!(last() as usize, MOST);
        // One entry of the runtime's table for each event: start and end of three operations.
        assert_eq!(scratch.entries().len(), 2 * OPERATIONS.len());
    }
}
