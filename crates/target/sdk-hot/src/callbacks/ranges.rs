//! Callbacks for ROCTx: for its calls as for all others, and for marks and ranges as such
//! (`MARKER_CORE_RANGE_API`). A push reports the start of a range, and its pop reports the end.
//! The message and the user data are kept in between. The same holds for start and stop, which may
//! be on different threads.

use super::frame::{Body, Frame, FrameState};
use super::open_ranges::{Anywhere, Open, ReportedRange, TEXT, Thread};
use super::{begin_frame, finish};
use crate::lazy_memory::{InChild, map};
use crate::markers::{copy_message, operation};
use crate::probe::{self, Call};
use crate::state::STATE;
use crate::threads::MAX_THREADS;
use midair_lockfree::{AtomicKey, SlotTable};
use midair_record::event::kind;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// How many slots are searched for such a range, starting with its id's slot.
const PROBES: usize = 64;

/// Maps the memory, which is zeroed in a forked child so that it does not report its parent's
/// ranges. Called on the worker thread. Returns false when the system refuses.
pub(super) fn prepare() -> bool {
    map(&STATE.reported_threads, MAX_THREADS, InChild::Zeroed)
        && map(&STATE.reported_anywhere, 1, InChild::Zeroed)
}

fn thread(index: usize) -> Option<&'static Thread> {
    let base = STATE.reported_threads.load(Acquire);
    // SAFETY: the index is inside the mapping made by `prepare`, which is never unmapped.
    (!base.is_null() && index < MAX_THREADS).then(|| unsafe { &*base.add(index) })
}

fn anywhere() -> Option<&'static Anywhere> {
    // SAFETY: it is null, or the mapping made by `prepare`, which is never unmapped; zeroed memory
    // is an empty table.
    unsafe { STATE.reported_anywhere.load(Acquire).as_ref() }
}

/// Returns every frame of the first `threads` threads, and of ranges that may end anywhere.
pub(super) fn frames(threads: usize) -> impl Iterator<Item = &'static Frame> {
    (0..threads)
        .filter_map(thread)
        .flat_map(|thread| {
            std::iter::once(&thread.mark.frame)
                .chain(thread.levels.iter().map(|range| &range.frame))
        })
        .chain(
            anywhere()
                .map_or(&[][..], SlotTable::slots)
                .iter()
                .map(|entry| &entry.shared().frame),
        )
}

/// Returns the operation of a call of the core table, and its thread's ranges; `None` for other
/// tables.
fn of(call: Call) -> Option<(u32, &'static Thread, &'static mut Open)> {
    let (index, _) = call.slot_and_depth()?;
    let running = probe::running_call(call)?;
    if running.open.kind != kind::MARKER_CORE_API {
        return None;
    }
    let (tid, operation) = (running.busy.tid(), running.open.operation);
    drop(running);
    let thread = thread(index)?;
    // SAFETY: this is the calling thread's own data, and the only reference to it while the thread
    // is in `enter` or `exit`: a ROCTx call from a tool's function is not reported.
    let open = unsafe { &mut *thread.open.get() };
    if (open.generation, open.tid) != (call.generation(), tid) {
        // The ranges belong to another session, or to a thread that has ended without closing them.
        for range in &thread.levels {
            finish(&range.frame, None, &[]);
        }
        *open = Open {
            generation: call.generation(),
            tid,
            depth: 0,
            overflow: 0,
        };
    }
    Some((operation, thread, open))
}

/// Reports the start of a mark or a range. `message` is a C string's address, or 0. Returns
/// false when no tool wants it.
fn begin(call: Call, range: &ReportedRange, what: u32, message: u64) -> bool {
    finish(&range.frame, None, &[]);
    begin_frame(
        call,
        &range.frame,
        Some((kind::MARKER_CORE_RANGE_API, what)),
        |body: &mut Body| {
            // SAFETY: the frame is free, so no tool is reading its text.
            let text = unsafe { &mut *range.text.get() };
            let address = if message == 0 {
                0
            } else {
                let (text, end) = text.split_at_mut(TEXT - 8);
                end.fill(0);
                // SAFETY: the application passes the message to the call that is running.
                let len = unsafe {
                    copy_message(std::ptr::with_exposed_provenance(message as usize), text)
                };
                if let Some(rest) = text.get_mut(len..) {
                    rest.fill(0);
                }
                text.as_ptr().expose_provenance() as u64
            };
            if let Some(argument) = body.payload.get_mut(1) {
                *argument = address;
            }
        },
    )
}

/// Called before a call of ROCTx that is reported to a tool. `words` are its argument words.
#[cold]
#[inline(never)]
pub fn enter(call: Call, words: &[u64]) {
    super::enter(call, words);
    let Some((operation, thread, open)) = of(call) else {
        return;
    };
    let first = words.first().copied().unwrap_or(0);
    match operation {
        operation::MARK => {
            begin(call, &thread.mark, operation::MARK, first);
        }
        operation::GET_THREAD_ID => {
            begin(call, &thread.mark, operation::RANGE_GET_THREAD_ID, 0);
        }
        operation::POP if open.overflow > 0 => open.overflow -= 1,
        operation::POP if open.depth > 0 => {
            open.depth -= 1;
            if let Some(range) = thread.levels.get(open.depth) {
                finish(&range.frame, Some(call.generation()), &[open.depth as u64]);
            }
        }
        operation::STOP => stop(call, first),
        _ => {}
    }
    probe::restart(call);
}

/// Called after such a call, with the words of its result. Returns the call with the time of its
/// return.
#[cold]
#[inline(never)]
pub fn exit(call: Call, words: &[u64], result: &[u64]) -> Call {
    let call = super::exit(call, result);
    let Some((operation, thread, open)) = of(call) else {
        return call;
    };
    let (first, result) = (
        words.first().copied().unwrap_or(0),
        result.first().copied().unwrap_or(0),
    );
    match operation {
        operation::MARK | operation::GET_THREAD_ID => {
            finish(&thread.mark.frame, Some(call.generation()), &[result]);
        }
        operation::PUSH => match thread.levels.get(open.depth).filter(|_| open.overflow == 0) {
            Some(range) => {
                open.depth += 1;
                begin(call, range, operation::RANGE_THREAD, first);
            }
            None => {
                open.overflow += 1;
                STATE.unreported.fetch_add(1, Relaxed);
            }
        },
        operation::START => start(call, result, first),
        _ => {}
    }
    call
}

fn start(call: Call, id: u64, message: u64) {
    if !AtomicKey::is_key(id) {
        return;
    }
    // An entry without an open frame is left over from an earlier session.
    let stale = |range: &ReportedRange| range.frame.state.load(Acquire) == FrameState::Free;
    match anywhere().and_then(|all| all.claim_where(id as usize, PROBES, stale)) {
        Some(entry) => {
            if begin(call, entry.shared(), operation::RANGE_PROCESS, message) {
                entry.publish(id);
            } else {
                entry.free();
            }
        }
        None => {
            STATE.unreported.fetch_add(1, Relaxed);
        }
    }
}

fn stop(call: Call, id: u64) {
    if let Some(entry) =
        anywhere().and_then(|all| all.hold_where(id, id as usize, PROBES, |_| true))
    {
        finish(&entry.shared().frame, Some(call.generation()), &[id]);
        entry.free();
    }
}
