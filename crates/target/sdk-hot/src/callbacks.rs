//! Calls tools' functions on the application's threads, before and after API calls (callback
//! tracing).
//!
//! **Pairs.** A call whose start was reported is also reported when it ends, even if its
//! context was stopped in between. Each pair has a [`Frame`] per thread and depth. The state of the
//! frame is passed on by compare-and-exchange:
//!
//! ```text
//! Free -> Entering -> Open -> Exiting -> Free      the thread itself
//!                     Open -> Closing -> Free      the worker thread, at the end of a session
//! ```
//!
//! `Entering` is set while the thread is busy in the sense of [`crate::probe`]; the tool's function
//! runs after that. So, once nothing new is reported and every thread was seen outside, the frames
//! show every call for which a tool's code may still run. At the end of a session, open calls get
//! [`GRACE`] to return. For those that do not return, the worker thread reports the end in the name
//! of their thread (without a result). After that, no code of a tool runs on the application's
//! threads.
//!
//! A call that a tool's function makes itself is neither reported nor recorded.

pub(crate) mod frame;
pub(crate) mod open_ranges;
pub(crate) mod openmp;
pub(crate) mod out;
pub mod ranges;
mod region_frames;
pub mod requests;
mod services;
mod streams;
pub mod work;

pub use out::{readmit, take_thrown};
pub use services::{Request, Service, Services};

use crate::clock::now;
use crate::external_ids;
use crate::functions::function_of;
use crate::markers;
use crate::operations::{Opaque, TracingCallback};
use crate::probe::{self, Call};
use crate::state::STATE;
use crate::threads::{self, MAX_OPEN, MAX_THREADS};
use frame::{Body, Frame, FrameState, PAYLOAD};
use midair_abi::constants as c;
use midair_abi::records::{CallbackRecord, CorrelationId};
use midair_abi::tables::Function;
use midair_domain::{CallbackTime, KindSet};
use midair_record::event::kind;
use std::ffi::c_void;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::time::{Duration, Instant};

/// How long open calls have to return by themselves at the end of a session.
const GRACE: Duration = Duration::from_millis(20);
/// Returns the kind of our records for calls of a callback-tracing kind. `None` when it is not
/// built, or is not reported around calls.
pub fn record_kind(callback_kind: i32) -> Option<u8> {
    let domain = midair_domain::of_callback_kind(callback_kind)?;
    let is_around = domain
        .callback
        .is_some_and(|callback| callback.told == CallbackTime::Around);
    (domain.built && is_around).then_some(domain.kind)
}

/// Returns AMD's callback-tracing kind for a record kind that [`record_kind`] returned.
fn callback_kind(record_kind: u8) -> i32 {
    midair_domain::domain(record_kind)
        .and_then(|domain| domain.callback)
        .map_or(0, |callback| callback.kind)
}

/// The places of arguments and result in a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// The number of words of the whole payload.
    pub words: usize,
    /// The number of words of the union of arguments, which starts at the payload's second word.
    pub arguments: usize,
    /// The number of words of the result, which come last.
    pub result: usize,
}

/// Returns the layout of the payload for a kind of calls.
pub fn layout(record_kind: u8) -> Layout {
    match record_kind {
        kind::HIP_RUNTIME_API_EXT | kind::HIP_COMPILER_API_EXT => Layout {
            words: 15,
            arguments: 11,
            result: 3,
        },
        kind::RCCL_API => Layout {
            words: 21,
            arguments: 19,
            result: 1,
        },
        kind::ROCDECODE_API_EXT => Layout {
            words: 7,
            arguments: 5,
            result: 1,
        },
        kind::ROCJPEG_API => Layout {
            words: 8,
            arguments: 6,
            result: 1,
        },
        kind::OMPT => Layout {
            words: 17,
            arguments: 16,
            result: 0,
        },
        _ if markers::is_marker(record_kind) => Layout {
            words: 4,
            arguments: 2,
            result: 1,
        },
        _ => Layout {
            words: 26,
            arguments: 24,
            result: 1,
        },
    }
}

const _: () = {
    use midair_abi::layout as theirs;
    assert!(theirs::rocprofiler_callback_tracing_hip_api_data_t::SIZE == 15 * 8);
    assert!(theirs::rocprofiler_callback_tracing_hip_api_data_t::retval == 12 * 8);
    assert!(theirs::rocprofiler_callback_tracing_hsa_api_data_t::SIZE == PAYLOAD * 8);
    assert!(theirs::rocprofiler_callback_tracing_hsa_api_data_t::retval == 25 * 8);
    assert!(theirs::rocprofiler_callback_tracing_marker_api_data_t::SIZE == 4 * 8);
    assert!(theirs::rocprofiler_callback_tracing_marker_api_data_t::retval == 3 * 8);
    assert!(theirs::rocprofiler_callback_tracing_ompt_data_t::SIZE == 17 * 8);
    assert!(theirs::rocprofiler_callback_tracing_ompt_data_t::args == 8);
    assert!(theirs::rocprofiler_callback_tracing_rccl_api_data_t::SIZE == 21 * 8);
    assert!(theirs::rocprofiler_callback_tracing_rccl_api_data_t::retval == 20 * 8);
    assert!(theirs::rocprofiler_callback_tracing_rocdecode_api_data_t::SIZE == 7 * 8);
    assert!(theirs::rocprofiler_callback_tracing_rocdecode_api_data_t::retval == 6 * 8);
    assert!(theirs::rocprofiler_callback_tracing_rocjpeg_api_data_t::SIZE == 8 * 8);
    assert!(theirs::rocprofiler_callback_tracing_rocjpeg_api_data_t::retval == 7 * 8);
};

fn frames(thread: usize) -> &'static [Frame] {
    let base = STATE.frames.load(Acquire);
    if base.is_null() || thread >= MAX_THREADS {
        return &[];
    }
    // SAFETY: the index is inside the mapping made by `publish`, which is never unmapped; zeroed
    // memory is valid.
    unsafe { &*base.add(thread) }
}

fn make_frames() -> bool {
    if !STATE.frames.load(Acquire).is_null() {
        return true;
    }
    // SAFETY: this creates a fresh private mapping at an address that the kernel chooses. Zeroed
    // memory is a valid frame: numbers, and `None` function pointers.
    let base = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            MAX_THREADS * size_of::<[Frame; MAX_OPEN]>(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if base == libc::MAP_FAILED {
        return false;
    }
    // A forked child must not report its parent's calls.
    // SAFETY: the mapping is ours and fresh. If the system refuses, it is just not wiped.
    unsafe {
        libc::madvise(
            base,
            MAX_THREADS * size_of::<[Frame; MAX_OPEN]>(),
            libc::MADV_WIPEONFORK,
        )
    };
    STATE.frames.store(base.cast(), Release);
    true
}

/// Publishes which calls are reported to the running contexts. Returns their kinds; empty when
/// memory cannot be mapped. Called on the worker thread.
pub fn publish(services: Services) -> KindSet {
    let services = Box::new(services);
    let mut kinds = services.kinds();
    let prepared = kinds.is_empty()
        || make_frames()
            && ranges::prepare()
            && work::prepare()
            && streams::prepare()
            && region_frames::prepare();
    if !prepared {
        kinds = KindSet::EMPTY;
    }
    // Create the tables that this function uses now, not on a thread of the application.
    let _ = function_of(kind::HIP_RUNTIME_API_EXT, 0);
    let new = if kinds.is_empty() {
        std::ptr::null_mut()
    } else {
        STATE.any_reported.store(true, Relaxed);
        Box::into_raw(services)
    };
    let old = STATE.services.swap(new, AcqRel);
    // Threads read the old value only while they are busy. If a thread was not seen outside, the
    // old value is leaked.
    if !old.is_null() && probe::quiesce(Duration::from_millis(250)) {
        // SAFETY: it was made by `Box::into_raw` above, and no thread reads it any more.
        drop(unsafe { Box::from_raw(old) });
    }
    kinds
}

/// Whether the calling thread is running a tool's function.
pub fn is_inside() -> bool {
    threads::existing().is_some_and(|slot| slot.in_tool.load(Relaxed) != 0)
}

/// Runs a tool's function. Calls that it makes are neither reported nor recorded.
pub fn as_tool<T>(function: impl FnOnce() -> T) -> T {
    let slot = threads::existing();
    if let Some(slot) = slot {
        slot.in_tool.fetch_add(1, Relaxed);
    }
    let result = function();
    if let Some(slot) = slot {
        slot.in_tool.fetch_sub(1, Relaxed);
    }
    result
}

/// Stops calling the tool of a context, because its function did not return on a thread of the
/// application. The worker thread does the rest ([`take_thrown`]).
pub fn put_out(context: u64, thrown: &midair_tool_call::Thrown) {
    out::put_out(context, thrown);
}

/// Waits, after a context was switched off ([`Service::on`]), until every thread that found it
/// switched on is in the tool's function. After that, no thread enters the function any more. May
/// be called from within such a function.
pub fn settle(limit: Duration) -> bool {
    // Threads decide while they are busy, and are not busy while the function runs.
    STATE.services.load(Acquire).is_null() || probe::quiesce(limit)
}

/// Called before a call that is reported to a tool. `words` are its argument words.
#[cold]
#[inline(never)]
pub fn enter(call: Call, words: &[u64]) {
    let Some((thread, depth)) = call.slot_and_depth() else {
        return;
    };
    let own = frames(thread);
    // Calls at this depth and deeper that have not returned were abandoned by longjmp or an
    // exception. Report their end now.
    for frame in own.get(depth..).unwrap_or_default() {
        finish(frame, None, &[]);
    }
    streams::enter(call, thread, depth, words);
    let Some(frame) = own.get(depth) else { return };
    begin_frame(call, frame, None, |body| {
        let layout = layout(body.kind);
        if let Some(function) = function_of(body.kind, body.operation)
            && let Some(arguments) = body.payload.get_mut(1..=layout.arguments)
        {
            put_arguments(function, words, arguments);
        }
    });
    probe::restart(call);
}

/// Reports a start: of the call itself, or of `what` (record kind, operation) that the call
/// starts. Returns false when no tool wants it.
fn begin_frame(
    call: Call,
    frame: &Frame,
    what: Option<(u8, u32)>,
    put: impl FnOnce(&mut Body),
) -> bool {
    if !fill(call, frame, what, put) {
        return false;
    }
    requests::ask(frame);
    run(frame, c::ROCPROFILER_CALLBACK_PHASE_ENTER);
    if frame
        .state
        .compare_exchange(FrameState::Entering, FrameState::Open, AcqRel, Relaxed)
        .is_err()
    {
        // The session's end has abandoned the frame.
        frame.state.store(FrameState::Free, Release);
    }
    true
}

/// Called after such a call, with the words of its result. Returns the call with the time of its
/// return.
#[cold]
#[inline(never)]
pub fn exit(call: Call, result: &[u64]) -> Call {
    let end = now();
    if let Some((thread, depth)) = call.slot_and_depth()
        && let Some(frame) = frames(thread).get(depth)
    {
        finish(frame, Some(call.generation()), result);
        streams::exit(call, thread, depth, result);
    }
    call.ended_at(end)
}

/// Reports the end of a call of the calling thread, if its start was reported (in the session
/// `generation`, if that is given).
fn finish(frame: &Frame, generation: Option<u64>, result: &[u64]) {
    finish_with(frame, generation, |body| put_result(body, result));
}

/// Does the same as [`finish`] for what has more to tell at its end than a result.
fn finish_with(frame: &Frame, generation: Option<u64>, put: impl FnOnce(&mut Body)) {
    if frame.state.load(Relaxed) != FrameState::Open {
        return;
    }
    if frame
        .state
        .compare_exchange(FrameState::Open, FrameState::Exiting, AcqRel, Relaxed)
        .is_err()
    {
        return;
    }
    // SAFETY: this thread holds the frame's state, which gives it the body.
    let body = unsafe { &mut *frame.body.get() };
    if generation.is_none_or(|generation| generation == body.generation) {
        put(body);
        run(frame, c::ROCPROFILER_CALLBACK_PHASE_EXIT);
        frame.state.store(FrameState::Free, Release);
    } else {
        // The frame is of a call of another session at the same depth.
        frame.state.store(FrameState::Open, Release);
    }
}

fn put_result(body: &mut Body, result: &[u64]) {
    let Layout {
        words, result: len, ..
    } = layout(body.kind);
    let at = words - len;
    for (to, word) in body.payload.iter_mut().take(words).skip(at).zip(result) {
        *to = *word;
    }
}

/// Stores the contexts that want an event in a frame's body, with their current external ids, and
/// with the requests for others. The thread is busy and holds the frame.
fn gather(_busy: &probe::Busy, body: &mut Body, record_kind: u8, operation: u32, tid: u64) {
    body.count = 0;
    body.tid = tid;
    body.callback_kind = callback_kind(record_kind);
    // SAFETY: it is null, or it was published and is not freed before this thread, which is busy,
    // is seen outside.
    let Some(services) = (unsafe { STATE.services.load(Acquire).as_ref() }) else {
        return;
    };
    for service in services
        .of(record_kind)
        .filter(|service| service.operations.has(operation))
        // This load is sequentially consistent and comes after `busy` was set: see `settle`.
        .filter(|service| service.on.load(SeqCst))
    {
        push(
            body,
            service.context,
            Some((service.callback, service.data)),
            tid,
        );
    }
    for request in services
        .requests(record_kind)
        .filter(|request| request.on.load(SeqCst))
    {
        let asked = Some((
            request.callback,
            request.data,
            request.stored.contains(record_kind),
        ));
        let known = body
            .contexts
            .iter()
            .take(body.count)
            .position(|context| *context == request.context);
        let at = match known {
            Some(at) => at,
            None => {
                push(body, request.context, None, tid);
                body.count.saturating_sub(1)
            }
        };
        if body.contexts.get(at) == Some(&request.context)
            && let Some(entry) = body.requests.get_mut(at)
        {
            *entry = asked;
        }
    }
}

/// Adds a context to a frame's body, or counts it as unreported if there is no room.
fn push(body: &mut Body, context: u64, callback: Option<(TracingCallback, Opaque)>, tid: u64) {
    let at = body.count;
    let (Some(to), Some(external), Some(function), Some(user_data), Some(request)) = (
        body.contexts.get_mut(at),
        body.external.get_mut(at),
        body.callbacks.get_mut(at),
        body.user_data.get_mut(at),
        body.requests.get_mut(at),
    ) else {
        STATE.unreported.fetch_add(1, Relaxed);
        return;
    };
    (*to, *function, *user_data, *request) = (context, callback, 0, None);
    *external = external_ids::current(context, tid);
    body.count += 1;
}

/// Fills the frame with the call and the services that want it. Returns false when there are none.
fn fill(call: Call, frame: &Frame, what: Option<(u8, u32)>, put: impl FnOnce(&mut Body)) -> bool {
    let Some(mut running) = probe::running_call(call) else {
        return false;
    };
    let open = running.open;
    let what = what.unwrap_or((open.kind, open.operation));
    let Some(body) = gathered(&running.busy, frame, what) else {
        return false;
    };
    let correlation = CorrelationId {
        internal: running.identify(),
        external: 0,
        ancestor: running.ancestor,
    };
    complete(frame, body, call.generation(), correlation, put);
    // When `running` is dropped, this thread counts as outside. The frame's state is visible by
    // then.
    true
}

/// Stores in a free frame which services want `what` (record kind, operation). `None` when there
/// are none, or when the frame is not free.
#[expect(
    clippy::mut_from_ref,
    reason = "an UnsafeCell that a free frame's thread owns"
)]
fn gathered<'f>(
    busy: &probe::Busy,
    frame: &'f Frame,
    (record_kind, operation): (u8, u32),
) -> Option<&'f mut Body> {
    if frame.state.load(Acquire) != FrameState::Free {
        STATE.unreported.fetch_add(1, Relaxed);
        return None;
    }
    // SAFETY: only the thread itself uses a free frame.
    let body = unsafe { &mut *frame.body.get() };
    gather(busy, body, record_kind, operation, u64::from(busy.tid()));
    (body.kind, body.operation) = (record_kind, operation);
    (body.count > 0).then_some(body)
}

/// Fills the rest of a frame that [`gathered`] returned. It is being entered from here on.
fn complete(
    frame: &Frame,
    body: &mut Body,
    generation: u64,
    correlation: CorrelationId,
    put: impl FnOnce(&mut Body),
) {
    body.id = correlation.internal;
    body.generation = generation;
    body.correlation = correlation;
    body.payload = [0; PAYLOAD];
    if let Some(size) = body.payload.first_mut() {
        *size = (layout(body.kind).words * 8) as u64;
    }
    put(body);
    frame.state.store(FrameState::Entering, SeqCst);
}

/// Stores argument words at the function's places in AMD's union.
pub fn put_arguments(function: &Function, words: &[u64], into: &mut [u64]) {
    // SAFETY: words consist of initialised bytes, and any bytes are valid words.
    let (from, to) = unsafe {
        (
            std::slice::from_raw_parts(words.as_ptr().cast::<u8>(), size_of_val(words)),
            std::slice::from_raw_parts_mut(into.as_mut_ptr().cast::<u8>(), size_of_val(into)),
        )
    };
    for parameter in function.parameters {
        let (source, target) = (
            usize::from(parameter.word) * 8,
            usize::from(parameter.args_offset),
        );
        let size = usize::from(parameter.ty.size);
        // A struct passed by value to a function that AMD's union does not have may not fit; its
        // bytes stay zero.
        if let (Some(source), Some(target)) = (
            from.get(source..source + size),
            to.get_mut(target..target + size),
        ) {
            target.copy_from_slice(source);
        }
    }
}

/// Calls the functions of all services in the frame, whose state the caller holds.
fn run(frame: &Frame, phase: i32) {
    // SAFETY: the caller holds the frame's state, which gives it the body.
    let body = unsafe { &mut *frame.body.get() };
    let slot = threads::existing();
    if let Some(slot) = slot {
        slot.in_tool.fetch_add(1, Relaxed);
    }
    let payload: *mut c_void = body.payload.as_mut_ptr().cast();
    let services = body
        .contexts
        .iter()
        .zip(&body.callbacks)
        .zip(&body.external)
        .zip(&mut body.user_data);
    let lent = [(payload.cast_const(), size_of_val(&body.payload))];
    for (((context, callback), external), user_data) in services.take(body.count) {
        let Some((callback, data)) = callback else {
            continue;
        };
        if out::is_out(*context) {
            continue;
        }
        let record = CallbackRecord {
            context_id: *context,
            thread_id: body.tid,
            correlation_id: CorrelationId {
                external: *external,
                ..body.correlation
            },
            kind: body.callback_kind,
            operation: body.operation as i32,
            phase,
            payload,
        };
        let user_data = &raw mut *user_data;
        // SAFETY: the tool gave us this function for such calls. Payload and user data are the
        // frame's.
        let called =
            midair_tool_call::call(&lent, || unsafe { callback(record, user_data, data.0) });
        if let Err(thrown) = called {
            out::put_out(*context, &thrown);
        }
    }
    if let Some(slot) = slot {
        slot.in_tool.fetch_sub(1, Relaxed);
    }
}

/// Starts a session.
pub fn begin() {
    STATE.any_reported.store(false, Relaxed);
    STATE.unreported.store(0, Relaxed);
    work::forget();
}

/// Ends the callbacks of a session. Nothing new is reported any more, and every thread was seen
/// outside. When this returns, no code of a tool runs on the application's threads, and the end of
/// every call whose start was reported has been reported, except as the returned notes say.
pub fn close(limit: Duration) -> Vec<String> {
    publish_nothing();
    if !STATE.any_reported.load(Relaxed) {
        return Vec::new();
    }
    let begun = Instant::now();
    let live = || {
        (0..threads::all().len())
            .flat_map(frames)
            .chain(ranges::frames(threads::all().len()))
            .chain(streams::frames(threads::all().len()))
            .chain(region_frames::frames(threads::all().len()))
            .chain(work::frames())
            .filter(|frame| {
                frame.state.load(Acquire) != FrameState::Free && !frame.is_kept.load(Acquire)
            })
    };
    while live().next().is_some() && begun.elapsed() < GRACE {
        std::thread::sleep(Duration::from_micros(200));
    }
    let (mut ended, mut stuck) = (0, 0);
    for frame in live() {
        loop {
            let expired = begun.elapsed() >= limit;
            match frame.state.load(Acquire) {
                FrameState::Open
                    if frame
                        .state
                        .compare_exchange(FrameState::Open, FrameState::Closing, AcqRel, Relaxed)
                        .is_ok() =>
                {
                    run(frame, c::ROCPROFILER_CALLBACK_PHASE_EXIT);
                    // Threads of OpenMP wait in a region until the process ends, so this is usual
                    // there.
                    // SAFETY: this thread holds the frame's state, which gives it the body.
                    ended += u64::from(unsafe { (*frame.body.get()).kind } != kind::OMPT);
                    frame.state.store(FrameState::Free, Release);
                    break;
                }
                FrameState::Entering if expired => {
                    // The frame's thread will see this and report no end.
                    let _ = frame.state.compare_exchange(
                        FrameState::Entering,
                        FrameState::Abandoned,
                        AcqRel,
                        Relaxed,
                    );
                    stuck += 1;
                    break;
                }
                FrameState::Exiting if expired => {
                    stuck += 1;
                    break;
                }
                FrameState::Free | FrameState::Abandoned => break,
                _ if expired => {
                    stuck += 1;
                    break;
                }
                _ => std::thread::sleep(Duration::from_micros(200)),
            }
        }
    }
    let unreported = STATE.unreported.load(Relaxed);
    let mut notes = Vec::new();
    let mut say = |count: u64, text: &str| {
        if count > 0 {
            notes.push(format!("{count} {text}"));
        }
    };
    say(
        ended,
        "calls had not returned when the session ended: the tool was notified of their end without a result",
    );
    say(
        stuck,
        "calls of a tool's function had not returned when the session ended",
    );
    say(unreported, "times a tool could not be notified of a call");
    notes
}

fn publish_nothing() {
    let old = STATE.services.swap(std::ptr::null_mut(), AcqRel);
    if !old.is_null() && probe::quiesce(Duration::from_millis(250)) {
        // SAFETY: it was made by `Box::into_raw` in `publish`, and no thread reads it any more.
        drop(unsafe { Box::from_raw(old) });
    }
}
