//! Tools told of ROCTx: of its calls as of all others, and of marks and ranges as such (`MARKER_CORE_RANGE_API`): a push tells of a
//! range's beginning, its pop of the end, with the message and the user data kept in between; so do start and stop, which may be on
//! different threads.

use super::frame::{Body, Frame, FrameState};
use super::open_ranges::{Anywhere, Open, TEXT, Thread, Told};
use super::{begin_frame, finish};
use crate::markers::{copy_message, operation};
use crate::probe::{self, Call};
use crate::state::STATE;
use crate::threads::MAX_THREADS;
use midair_lockfree::{AtomicKey, SlotTable};
use midair_record::event::kind;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Slots that are searched for such a range, from that of its id on.
const PROBES: usize = 64;

/// Makes the memory. On our own thread. False when the system refuses.
pub(super) fn prepare() -> bool {
    map(&STATE.told_threads, MAX_THREADS) && map(&STATE.told_anywhere, 1)
}

fn map<T>(to: &AtomicPtr<T>, count: usize) -> bool {
    if !to.load(Acquire).is_null() {
        return true;
    }
    // SAFETY: a fresh private mapping at an address of the kernel's choice; zeroed memory is a valid value of both types.
    let base = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            count * size_of::<T>(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if base == libc::MAP_FAILED {
        return false;
    }
    // SAFETY: our own fresh mapping: a forked child has no range of its parent's to tell of.
    unsafe { libc::madvise(base, count * size_of::<T>(), libc::MADV_WIPEONFORK) };
    to.store(base.cast(), Release);
    true
}

fn thread(index: usize) -> Option<&'static Thread> {
    let base = STATE.told_threads.load(Acquire);
    // SAFETY: inside the mapping made by `prepare`, which is never unmapped.
    (!base.is_null() && index < MAX_THREADS).then(|| unsafe { &*base.add(index) })
}

fn anywhere() -> Option<&'static Anywhere> {
    // SAFETY: null, or the mapping made by `prepare`, which is never unmapped; zeroed memory is an empty table.
    unsafe { STATE.told_anywhere.load(Acquire).as_ref() }
}

/// Every frame of the first `threads` threads, and of ranges that may end anywhere.
pub(super) fn frames(threads: usize) -> impl Iterator<Item = &'static Frame> {
    (0..threads)
        .filter_map(thread)
        .flat_map(|thread| {
            std::iter::once(&thread.moment.frame)
                .chain(thread.levels.iter().map(|told| &told.frame))
        })
        .chain(
            anywhere()
                .map_or(&[][..], SlotTable::slots)
                .iter()
                .map(|entry| &entry.shared().frame),
        )
}

/// The operation of a call of the core table, and its thread's ranges; `None` for other tables.
fn of(call: Call) -> Option<(u32, &'static Thread, &'static mut Open)> {
    let (index, _) = call.place()?;
    let begun = probe::look(call)?;
    if begun.open.kind != kind::MARKER_CORE_API {
        return None;
    }
    let (tid, operation) = (begun.busy.tid(), begun.open.operation);
    drop(begun);
    let thread = thread(index)?;
    // SAFETY: the calling thread's own; the only reference while it is in `enter` or `exit`, since a tool's function that calls
    // ROCTx is not told of that.
    let open = unsafe { &mut *thread.open.get() };
    if (open.generation, open.tid) != (call.generation(), tid) {
        // Another session's, or those of a thread that has ended and left them open.
        for told in &thread.levels {
            finish(&told.frame, None, &[]);
        }
        *open = Open {
            generation: call.generation(),
            tid,
            depth: 0,
            beyond: 0,
        };
    }
    Some((operation, thread, open))
}

/// Tells of a mark's or a range's beginning. `message` is a C string's address, or 0. False when nobody is told.
fn begin(call: Call, told: &Told, what: u32, message: u64) -> bool {
    finish(&told.frame, None, &[]);
    begin_frame(
        call,
        &told.frame,
        Some((kind::MARKER_CORE_RANGE_API, what)),
        |body: &mut Body| {
            // SAFETY: the frame is free, so nobody is shown its text.
            let text = unsafe { &mut *told.text.get() };
            let address = if message == 0 {
                0
            } else {
                let (text, end) = text.split_at_mut(TEXT - 8);
                end.fill(0);
                // SAFETY: the application passes the message to the call that it is in.
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

/// Before a call of ROCTx that somebody is told of. `words`: its argument words.
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
            begin(call, &thread.moment, operation::MARK, first);
        }
        operation::GET_THREAD_ID => {
            begin(call, &thread.moment, operation::RANGE_GET_THREAD_ID, 0);
        }
        operation::POP if open.beyond > 0 => open.beyond -= 1,
        operation::POP if open.depth > 0 => {
            open.depth -= 1;
            if let Some(told) = thread.levels.get(open.depth) {
                finish(&told.frame, Some(call.generation()), &[open.depth as u64]);
            }
        }
        operation::STOP => stop(call, first),
        _ => {}
    }
    probe::restart(call);
}

/// After such a call, with the words of its result: the call with the moment of its return.
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
            finish(&thread.moment.frame, Some(call.generation()), &[result]);
        }
        operation::PUSH => match thread.levels.get(open.depth).filter(|_| open.beyond == 0) {
            Some(told) => {
                open.depth += 1;
                begin(call, told, operation::RANGE_THREAD, first);
            }
            None => {
                open.beyond += 1;
                STATE.untold.fetch_add(1, Relaxed);
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
    // An entry without an open frame is left from an earlier session.
    let stale = |told: &Told| told.frame.state.load(Acquire) == FrameState::Free;
    match anywhere().and_then(|all| all.claim_where(id as usize, PROBES, stale)) {
        Some(entry) => {
            if begin(call, entry.shared(), operation::RANGE_PROCESS, message) {
                entry.publish(id);
            } else {
                entry.free();
            }
        }
        None => {
            STATE.untold.fetch_add(1, Relaxed);
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
