//! ROCTx: messages, and the two kinds of ranges, which become one record each when they end.
//!
//! A *thread range* (push, pop) is on its thread's own stack of ranges. Its message is copied while
//! the application's call keeps it alive. A *process range* (start, stop) may end on another
//! thread. Its entry in a table is claimed by one compare-and-exchange, and freed by another.
//! Stacks and table are mappings of fixed size that are touched lazily. If a stack is full, its
//! outermost ranges are left out; if the table is, the range that starts is. Both are counted.
//! [`legacy`] is for the old library, which has no dispatch tables.

pub mod legacy;
pub(crate) mod open;

pub use open::{MAX_LEVELS, MAX_MESSAGE, Range};
use open::{ProcessRanges, Stack, THREAD_TEXT};

use crate::lazy_memory::{InChild, map};
use crate::probe::{Busy, Call, Ended, leave};
use crate::state::STATE;
use crate::threads::MAX_THREADS;
use midair_domain::{KindSet, sets};
use midair_lockfree::{AtomicKey, SlotTable};
use midair_record::event::{Header, Marker, Plain, TOO_MANY_RANGES, flag, kind};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// How many slots are searched for a process range, starting with its id's slot. Ids count up, so
/// slots are used in turn.
const PROBES: usize = 64;

/// Operations of the core table and of the range kind (source: api/rocprofiler_sdk.json).
pub mod operation {
    #![expect(missing_docs, reason = "the names are AMD's operations")]
    pub const MARK: u32 = 0;
    pub const PUSH: u32 = 1;
    pub const POP: u32 = 2;
    pub const START: u32 = 3;
    pub const STOP: u32 = 4;
    pub const GET_THREAD_ID: u32 = 5;
    pub const RANGE_THREAD: u32 = 1;
    pub const RANGE_PROCESS: u32 = 2;
    pub const RANGE_GET_THREAD_ID: u32 = 3;
}

/// The kinds whose records are [`Marker`]s.
pub const KINDS: KindSet = sets::MARKERS;

/// Whether records of a kind are [`Marker`]s.
#[inline]
pub fn is_marker(record_kind: u8) -> bool {
    KINDS.contains(record_kind)
}

/// Maps the memory. Called on the worker thread, before a session that records markers. Returns
/// false when the system refuses.
pub fn prepare() -> bool {
    map(&STATE.stacks, MAX_THREADS, InChild::Copied)
        && map(&STATE.process_ranges, 1, InChild::Copied)
}

/// Starts a session.
pub fn begin() {
    for count in [
        &STATE.ranges_begun_before,
        &STATE.ranges_over_capacity,
        &STATE.ranges_not_popped,
        &STATE.messages_truncated,
    ] {
        count.store(0, Relaxed);
    }
}

/// Returns notes for the user at the end of a session.
pub fn notes() -> Vec<String> {
    let say = |count: &AtomicU64, text: &str| {
        let count = count.load(Relaxed);
        (count > 0).then(|| format!("{count} {text}"))
    };
    [
        say(
            &STATE.ranges_begun_before,
            "ROCTx ranges ended that had started before the recording: they are not in the trace",
        ),
        say(
            &STATE.ranges_over_capacity,
            TOO_MANY_RANGES,
        ),
        say(
            &STATE.ranges_not_popped,
            "ROCTx ranges were pushed beyond the limit of 128 open ranges per thread: they are not in the trace, but nested ranges are",
        ),
        say(&STATE.messages_truncated, "ROCTx messages were truncated"),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn process_ranges() -> Option<&'static ProcessRanges> {
    // SAFETY: it is null, or the mapping made by `prepare`, which is never unmapped; zeroed memory
    // is an empty table.
    unsafe { STATE.process_ranges.load(Acquire).as_ref() }
}

fn stack_at(thread: usize) -> Option<*mut Stack> {
    let base = STATE.stacks.load(Acquire);
    if base.is_null() || thread >= MAX_THREADS {
        return None;
    }
    // SAFETY: the index is inside the mapping made by `prepare`.
    Some(unsafe { (*base.add(thread)).get() })
}

/// Returns the calling thread's stack, emptied if it belongs to another session.
fn stack(busy: &mut Busy) -> Option<&mut Stack> {
    let generation = busy.generation();
    let at = stack_at(busy.thread())?;
    // SAFETY: only the slot's owner calls this, while it is busy, and the result does not live
    // longer.
    let stack = unsafe { &mut *at };
    if stack.generation != generation {
        (stack.generation, stack.depth, stack.left_out, stack.used) = (generation, 0, 0, 0);
    }
    Some(stack)
}

/// Copies a C string up to its end or the end of `into`, and zeroes the rest of its last word.
/// Returns its length.
///
/// # Safety
/// `message` must be null or a C string.
pub(crate) unsafe fn copy_message(message: *const u8, into: &mut [u8]) -> usize {
    let mut len = 0;
    if !message.is_null() {
        for byte in into.iter_mut() {
            // SAFETY: no byte before this one was the end of the string.
            *byte = unsafe { message.add(len).read() };
            if *byte == 0 {
                break;
            }
            len += 1;
        }
        // SAFETY: the byte after the last one that was read belongs to the string, since that one
        // was not its end.
        if len == into.len() && unsafe { message.add(len).read() } != 0 {
            STATE.messages_truncated.fetch_add(1, Relaxed);
        }
    }
    if let Some(rest) = into.get_mut(len..len.next_multiple_of(8).min(into.len())) {
        rest.fill(0);
    }
    len
}

/// A call of the application into ROCTx.
#[derive(Debug, Clone, Copy)]
struct Event {
    kind: u8,
    operation: u32,
    start: u64,
    end: u64,
    correlation: u64,
    ancestor: u64,
    retval: u64,
    /// Bits of [`flag`] for what starts with it.
    flags: u8,
    /// First argument: a message's address, or a process range's id.
    first: u64,
}

impl Event {
    fn has_message(&self) -> bool {
        match self.kind {
            kind::MARKER_CORE_API => matches!(
                self.operation,
                operation::MARK | operation::PUSH | operation::START
            ),
            kind::MARKER_NAME_API => true,
            _ => false,
        }
    }

    /// # Safety
    /// If the event has a message, its address must be valid.
    unsafe fn message(&self, into: &mut [u8]) -> usize {
        let message = if self.has_message() {
            std::ptr::with_exposed_provenance(self.first as usize)
        } else {
            std::ptr::null()
        };
        // SAFETY: the caller promises that the address is valid.
        unsafe { copy_message(message, into) }
    }

    /// Whether the message has more bytes than that.
    ///
    /// # Safety
    /// As [`Event::message`].
    unsafe fn is_longer_than(&self, bytes: usize) -> bool {
        let message: *const u8 = std::ptr::with_exposed_provenance(self.first as usize);
        // SAFETY: the caller promises that the address is valid, and no byte before was the end.
        let ends = |at| unsafe { message.add(at).read() } == 0;
        !message.is_null() && !(0..=bytes).any(ends)
    }

    fn range(&self, tid: u32, range_operation: u32) -> Range {
        Range {
            start: self.start,
            correlation: self.correlation,
            ancestor: self.ancestor,
            retval: self.retval,
            tid,
            len: 0,
            operation: range_operation,
            text: 0,
            flags: self.flags,
        }
    }
}

/// Called after a wrapped call of ROCTx.
#[inline]
pub fn exit<const N: usize>(call: Call, arguments: impl FnOnce() -> [u64; N], retval: u64) {
    if !call.live() {
        return;
    }
    let Some(Ended {
        mut busy,
        open,
        ancestor,
        end,
        recorded,
    }) = leave(call)
    else {
        return;
    };
    let event = Event {
        kind: open.kind,
        operation: open.operation,
        start: open.start,
        end,
        // The range that the call starts may be recorded even if the call itself is not.
        correlation: if open.correlation == 0 && takes_id(recorded, open.kind, open.operation) {
            busy.fresh_correlation()
        } else {
            open.correlation
        },
        ancestor,
        retval,
        flags: open.flags,
        first: arguments().first().copied().unwrap_or(0),
    };
    // SAFETY: the application passed the message to the call that is returning now.
    unsafe { record(&mut busy, &event, recorded) };
}

/// Whether the record of a call needs a correlation id: the record of the call itself, or of the
/// range that it starts. A call that ends a range does not need one.
fn takes_id(recorded: KindSet, call_kind: u8, call_operation: u32) -> bool {
    let ends = matches!(call_operation, operation::POP | operation::STOP);
    recorded.contains(call_kind)
        || call_kind == kind::MARKER_CORE_API
            && recorded.contains(kind::MARKER_CORE_RANGE_API)
            && !ends
}

/// # Safety
/// If the event has a message, its address must be valid.
unsafe fn record(busy: &mut Busy, event: &Event, recorded: KindSet) {
    if recorded.contains(event.kind) {
        let mut text = [0; MAX_MESSAGE];
        // SAFETY: the caller promises that the address is valid.
        let len = unsafe { event.message(&mut text) };
        store(
            busy,
            event,
            event.kind,
            event.operation,
            event.end,
            &text,
            len,
        );
    }
    if recorded.contains(kind::MARKER_CORE_RANGE_API) && event.kind == kind::MARKER_CORE_API {
        // SAFETY: the caller promises that the address is valid.
        unsafe { range(busy, event) };
    }
}

fn store(
    busy: &mut Busy,
    event: &Event,
    record_kind: u8,
    record_operation: u32,
    end: u64,
    text: &[u8],
    len: usize,
) {
    let tail = text.get(..len.next_multiple_of(8)).unwrap_or_default();
    let record = Marker {
        header: Header {
            size: (size_of::<Marker>() + tail.len()) as u16,
            kind: record_kind,
            flags: event.flags,
            operation: record_operation,
        },
        start: event.start,
        end,
        correlation: event.correlation,
        ancestor: event.ancestor,
        retval: event.retval,
        tid: busy.tid(),
        len: len as u32,
    };
    busy.store(record_kind, [record.bytes(), tail]);
}

/// # Safety
/// If the event has a message, its address must be valid.
unsafe fn range(busy: &mut Busy, event: &Event) {
    const KIND: u8 = kind::MARKER_CORE_RANGE_API;
    match event.operation {
        operation::MARK => {
            let mut text = [0; MAX_MESSAGE];
            // SAFETY: the caller promises that the address is valid.
            let len = unsafe { event.message(&mut text) };
            // A mark has no duration.
            store(busy, event, KIND, operation::MARK, event.start, &text, len);
        }
        operation::GET_THREAD_ID => {
            store(
                busy,
                event,
                KIND,
                operation::RANGE_GET_THREAD_ID,
                event.end,
                &[],
                0,
            );
        }
        operation::PUSH | operation::START => {
            // SAFETY: the caller promises that the address is valid.
            let begun = unsafe {
                if event.operation == operation::PUSH {
                    push(busy, event)
                } else {
                    start(busy, event)
                }
            };
            if !begun {
                STATE.ranges_over_capacity.fetch_add(1, Relaxed);
                busy.dropped(KIND);
            }
        }
        operation::POP => pop(busy, event),
        operation::STOP => stop(busy, event),
        _ => {}
    }
}

/// # Safety
/// The message's address must be valid.
unsafe fn push(busy: &mut Busy, event: &Event) -> bool {
    let tid = busy.tid();
    let Some(stack) = stack(busy) else {
        return false;
    };
    if stack.depth >= MAX_LEVELS {
        leave_out(stack);
    }
    while stack.depth > 0 {
        let rest = THREAD_TEXT.saturating_sub(stack.used);
        // SAFETY: the caller promises that the address is valid.
        if rest >= MAX_MESSAGE || !unsafe { event.is_longer_than(rest) } {
            break;
        }
        leave_out(stack);
    }
    let (depth, used) = (stack.depth, stack.used);
    let Some(entry) = stack.ranges.get_mut(depth) else {
        return false;
    };
    let capacity = MAX_MESSAGE.min(THREAD_TEXT - used);
    // SAFETY: the caller promises that the address is valid.
    let len = unsafe {
        event.message(
            stack
                .text
                .get_mut(used..used + capacity)
                .unwrap_or_default(),
        )
    };
    *entry = Range {
        len: len as u32,
        text: used as u32,
        ..event.range(tid, operation::RANGE_THREAD)
    };
    stack.used = used + len.next_multiple_of(8);
    stack.depth = depth + 1;
    true
}

/// Leaves out the outer ranges of a thread. They count as not popped until they are.
fn leave_out(stack: &mut Stack) {
    let gone = stack.make_room();
    STATE.ranges_not_popped.fetch_add(gone as u64, Relaxed);
}

fn pop(busy: &mut Busy, event: &Event) {
    let Some(at) = stack(busy) else { return };
    if at.depth == 0 && at.left_out > 0 && event.retval as i32 >= 0 {
        at.left_out -= 1;
        STATE.ranges_not_popped.fetch_sub(1, Relaxed);
        STATE.ranges_over_capacity.fetch_add(1, Relaxed);
        busy.dropped(kind::MARKER_CORE_RANGE_API);
        return;
    }
    let Some(depth) = at.depth.checked_sub(1) else {
        // A pop that ROCTx refuses does not end a range.
        if event.retval as i32 >= 0 {
            STATE.ranges_begun_before.fetch_add(1, Relaxed);
        }
        return;
    };
    at.depth = depth;
    let Some(range) = at.ranges.get(depth).copied() else {
        return;
    };
    at.used = range.text as usize;
    let Some(at) = stack_at(busy.thread()) else {
        return;
    };
    // SAFETY: this is the thread's own stack, which nothing writes before this function returns.
    let text = unsafe { &(*at).text };
    let message = message_of(&range, text);
    let record = range.record(event.start, 0, message);
    busy.store(kind::MARKER_CORE_RANGE_API, [record.bytes(), message]);
}

/// Returns a range's message in its thread's text, padded to words.
fn message_of<'a>(range: &Range, text: &'a [u8]) -> &'a [u8] {
    let from = range.text as usize;
    text.get(from..from + (range.len as usize).next_multiple_of(8))
        .unwrap_or_default()
}

/// # Safety
/// The message's address must be valid.
unsafe fn start(busy: &mut Busy, event: &Event) -> bool {
    let id = event.retval;
    if !AtomicKey::is_key(id) {
        return false;
    }
    let generation = busy.generation();
    // An entry of an earlier session counts as free.
    let stale = |of: &AtomicU64| of.load(Acquire) != generation;
    let Some(mut entry) =
        process_ranges().and_then(|all| all.claim_where(id as usize, PROBES, stale))
    else {
        return false;
    };
    let range = event.range(busy.tid(), operation::RANGE_PROCESS);
    entry.with(|entry| {
        // SAFETY: the caller promises that the address is valid.
        let len = unsafe { event.message(&mut entry.text) } as u32;
        entry.range = Range { len, ..range };
    });
    entry.shared().store(generation, Release);
    entry.publish(id);
    true
}

fn stop(busy: &mut Busy, event: &Event) {
    let id = event.first;
    let generation = busy.generation();
    let ours = |of: &AtomicU64| of.load(Acquire) == generation;
    let Some(mut entry) =
        process_ranges().and_then(|all| all.hold_where(id, id as usize, PROBES, ours))
    else {
        STATE.ranges_begun_before.fetch_add(1, Relaxed);
        return;
    };
    entry.with(|entry| {
        let message = message_of(&entry.range, &entry.text);
        let record = entry.range.record(event.start, 0, message);
        busy.store(kind::MARKER_CORE_RANGE_API, [record.bytes(), message]);
    });
    entry.free();
}

/// Ends the ranges that an ending thread has not popped.
pub(crate) fn thread_ends(busy: &mut Busy) {
    let (thread, generation, end) = (busy.thread(), busy.generation(), crate::clock::now());
    open_thread_ranges(thread, generation, |range, message| {
        let record = range.record(end, flag::OPEN_AT_DETACH, message);
        busy.store(kind::MARKER_CORE_RANGE_API, [record.bytes(), message]);
    });
}

/// Takes the ranges that are still open in a thread, outermost first. Called by the thread itself,
/// or by the worker thread after every thread was seen outside.
pub(crate) fn open_thread_ranges(
    thread: usize,
    generation: u64,
    mut take: impl FnMut(&Range, &[u8]),
) {
    let Some(at) = stack_at(thread) else { return };
    // SAFETY: the rule in the description above makes this the only reference.
    let stack = unsafe { &mut *at };
    if stack.generation != generation {
        return;
    }
    for range in stack.ranges.get(..stack.depth).unwrap_or_default() {
        take(range, message_of(range, &stack.text));
    }
    (stack.depth, stack.left_out, stack.used) = (0, 0, 0);
}

/// Takes the process ranges that are still open. Called by the worker thread after every thread was
/// seen outside.
pub(crate) fn open_process_ranges(generation: u64, mut take: impl FnMut(&Range, &[u8])) {
    for slot in process_ranges().map_or(&[][..], SlotTable::slots) {
        let id = slot.state();
        if !AtomicKey::is_key(id) || slot.shared().load(Acquire) != generation {
            continue;
        }
        if let Some(mut entry) = slot.hold(id) {
            entry.with(|entry| take(&entry.range, message_of(&entry.range, &entry.text)));
            entry.free();
        }
    }
}
