//! Callbacks for HIP streams (`HIP_STREAM`): a call creates, destroys or names one. The events are
//! calls of HIP's runtime. As in AMD's library, they are reported around the call if it names a
//! stream, and after the call if it creates or destroys one.
//!
//! Streams are numbered from 1 in the order in which they are seen; the null stream has the number
//! 0.

use super::frame::{Body, Frame, FrameState, PAYLOAD};
use super::{push, run};
use crate::functions::function_of;
use crate::lazy_memory::{InChild, map};
use crate::probe::{self, Call};
use crate::state::STATE;
use crate::threads::{MAX_OPEN, MAX_THREADS};
use midair_abi::constants as c;
use midair_abi::layout::rocprofiler_callback_tracing_hip_stream_data_t as theirs;
use midair_abi::records::CorrelationId;
use midair_record::event::kind;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

/// How many slots are searched for a stream.
const PROBES: usize = 64;
/// Indexes of words of the payload, which has its size, the stream's number, and its handle.
const NUMBER: usize = 1;
const HANDLE: usize = 2;
const _: () = assert!(
    theirs::SIZE == 24 && theirs::stream_id == 8 * NUMBER && theirs::stream_value == 8 * HANDLE
);

/// Maps the memory. Called on the worker thread. Returns false when the system refuses.
pub(super) fn prepare() -> bool {
    map(&STATE.stream_frames, MAX_THREADS, InChild::Zeroed)
}

fn frame(thread: usize, depth: usize) -> Option<&'static Frame> {
    let base = STATE.stream_frames.load(Acquire);
    if base.is_null() || thread >= MAX_THREADS {
        return None;
    }
    // SAFETY: the index is inside the mapping made by `prepare`, which is never unmapped; zeroed
    // memory is valid.
    unsafe { &*base.add(thread) }.get(depth)
}

/// Returns every frame of the first `threads` threads.
pub(super) fn frames(threads: usize) -> impl Iterator<Item = &'static Frame> {
    (0..threads).flat_map(|thread| (0..MAX_OPEN).map_while(move |depth| frame(thread, depth)))
}

/// Returns what a call does with a stream: AMD's operation, and the index of its argument.
fn what(operation: u32) -> Option<(i32, usize)> {
    let function = function_of(kind::HIP_RUNTIME_API_EXT, operation)?;
    let parameter = |ty: &str| {
        let found = function
            .parameters
            .iter()
            .find(|parameter| parameter.ty.c.replace(' ', "") == ty)?;
        Some(usize::from(found.word))
    };
    let made = || parameter("hipStream_t*").map(|word| (c::ROCPROFILER_HIP_STREAM_CREATE, word));
    match function.stream {
        Some(index) => {
            let word = function.parameters.get(usize::from(index))?.word;
            let is_end = function.name.as_str() == "hipStreamDestroy";
            let operation = if is_end {
                c::ROCPROFILER_HIP_STREAM_DESTROY
            } else {
                c::ROCPROFILER_HIP_STREAM_SET
            };
            Some((operation, usize::from(word)))
        }
        None => made(),
    }
}

/// Returns the number of a stream; a stream that was not seen before gets a new one.
fn number_of(handle: u64) -> u64 {
    if handle == 0 {
        return 0;
    }
    if let Some(known) = STATE.stream_ids.find(handle, PROBES) {
        return known.shared().load(Acquire);
    }
    let Some(entry) = STATE.stream_ids.claim_key(handle, PROBES) else {
        return handle;
    };
    let number = STATE.last_stream.fetch_add(1, Relaxed) + 1;
    entry.shared().store(number, Release);
    entry.publish(handle);
    number
}

/// Called before a call of HIP's runtime: reports that the stream that it names is set.
pub(super) fn enter(call: Call, thread: usize, depth: usize, words: &[u64]) {
    let Some(running) = probe::running_call(call) else {
        return;
    };
    // SAFETY: it is null, or it was published and is not freed before this thread, which is busy,
    // is seen outside.
    let Some(services) = (unsafe { STATE.services.load(Acquire).as_ref() }) else {
        return;
    };
    if running.open.kind != kind::HIP_RUNTIME_API_EXT || services.streams().next().is_none() {
        return;
    }
    let Some((operation, word)) = what(running.open.operation) else {
        return;
    };
    let Some(own) = frame(thread, depth) else {
        return;
    };
    if own.is_kept.swap(false, AcqRel) {
        // A call at this depth was abandoned.
        own.state.store(FrameState::Free, Release);
    }
    if own.state.load(Acquire) == FrameState::Open {
        super::finish(own, None, &[]);
    }
    if own.state.load(Acquire) != FrameState::Free {
        STATE.unreported.fetch_add(1, Relaxed);
        return;
    }
    // SAFETY: only the thread itself uses a free frame.
    let body = unsafe { &mut *own.body.get() };
    let tid = u64::from(running.busy.tid());
    (body.count, body.tid) = (0, tid);
    for service in services
        .streams()
        .filter(|service| service.operations.has(operation as u32))
        .filter(|service| service.on.load(SeqCst))
    {
        push(
            body,
            service.context,
            Some((service.callback, service.data)),
            tid,
        );
    }
    if body.count == 0 {
        return;
    }
    body.generation = call.generation();
    body.correlation = CorrelationId {
        internal: 0,
        external: 0,
        ancestor: 0,
    };
    body.kind = kind::HIP_RUNTIME_API_EXT;
    body.callback_kind = c::ROCPROFILER_CALLBACK_TRACING_HIP_STREAM;
    body.operation = operation as u32;
    body.payload = [0; PAYLOAD];
    let handle = words.get(word).copied().unwrap_or(0);
    let number = if operation == c::ROCPROFILER_HIP_STREAM_CREATE {
        0
    } else {
        number_of(handle)
    };
    put(body, number, handle);
    if operation != c::ROCPROFILER_HIP_STREAM_SET {
        own.is_kept.store(true, Release);
        own.state.store(FrameState::Open, Release);
        return;
    }
    own.state.store(FrameState::Entering, SeqCst);
    drop(running);
    run(own, c::ROCPROFILER_CALLBACK_PHASE_ENTER);
    if own
        .state
        .compare_exchange(FrameState::Entering, FrameState::Open, AcqRel, Relaxed)
        .is_err()
    {
        // The session's end has abandoned the frame.
        own.state.store(FrameState::Free, Release);
    }
}

fn put(body: &mut Body, number: u64, handle: u64) {
    for (to, value) in body.payload.iter_mut().zip([24, number, handle]) {
        *to = value;
    }
}

/// Called after such a call, with the words of its result.
pub(super) fn exit(call: Call, thread: usize, depth: usize, result: &[u64]) {
    let Some(own) = frame(thread, depth) else {
        return;
    };
    if !own.is_kept.load(Acquire) {
        return super::finish(own, Some(call.generation()), &[]);
    }
    // The session may have ended in the meantime; then nothing more is reported.
    let Some(running) = probe::running_call(call) else {
        own.is_kept.store(false, Release);
        own.state.store(FrameState::Free, Release);
        return;
    };
    // SAFETY: it is a kept frame of this thread, which nothing else uses.
    let body = unsafe { &mut *own.body.get() };
    own.state.store(FrameState::Exiting, SeqCst);
    own.is_kept.store(false, Release);
    drop(running);
    if result.first() == Some(&0) {
        let handle = body.payload.get(HANDLE).copied().unwrap_or(0);
        if body.operation == c::ROCPROFILER_HIP_STREAM_CREATE as u32 {
            let made: *const u64 = std::ptr::with_exposed_provenance(handle as usize);
            // SAFETY: the call that got this out parameter has succeeded, so it wrote a handle.
            let handle = unsafe { made.read_unaligned() };
            put(body, number_of(handle), handle);
        } else {
            STATE.stream_ids.remove(handle, PROBES);
        }
        run(own, c::ROCPROFILER_CALLBACK_PHASE_NONE);
    }
    own.state.store(FrameState::Free, Release);
}
