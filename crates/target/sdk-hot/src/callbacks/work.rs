//! Callbacks for work that calls cause: dispatches, copies, allocations, scratch memory.
//!
//! The start is reported on the thread that requests the work, before it is done. The end is
//! reported where it becomes known: on the same thread, on a thread of the runtime, or on the
//! worker thread. In between, the report is kept in a [`Frame`], as for calls, in one of two
//! tables. One has [`PLACES`] entries that the reporting thread claims. The other has as many
//! entries for dispatches, indexed by the dispatch's number, since the worker thread has only the
//! records of dispatches when they have ended.
//!
//! [`super::close`] ends what is still open when a session ends.

use super::frame::{Body, Frame, FrameState, PAYLOAD};
use super::requests;
use super::{gather, run};
use crate::lazy_memory::{InChild, map};
use crate::probe::Busy;
use crate::state::STATE;
use midair_abi::constants as c;
use midair_abi::records::CorrelationId;
use std::num::NonZeroU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

/// How many reports can be open at one time in each of the tables.
const PLACES: usize = 1 << 13;
/// How many places are tried for a new report.
const TRIES: usize = 64;

/// The work that is reported.
#[derive(Debug, Clone, Copy)]
pub struct Work {
    /// Record kind.
    pub kind: u8,
    /// AMD's operation.
    pub operation: u32,
    /// Correlation id.
    pub correlation: u64,
    /// Correlation id of the call around the one that caused it, or 0.
    pub ancestor: u64,
    /// The thread that asked for it.
    pub tid: u32,
    /// The id by which its record is identified; see [`take`](super::requests::take).
    pub id: u64,
}

/// The start of work, after it was reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Notified {
    place: NonZeroU32,
    generation: u64,
}

/// Maps the memory. Called on the worker thread. Returns false when the system refuses.
pub(super) fn prepare() -> bool {
    map(&STATE.work_frames, 2 * PLACES, InChild::Zeroed)
}

fn place(index: usize) -> Option<&'static Frame> {
    let base = STATE.work_frames.load(Acquire);
    // SAFETY: the index is inside the mapping made by `prepare`, which is never unmapped; zeroed
    // memory is a free frame.
    (!base.is_null() && index < 2 * PLACES).then(|| unsafe { &*base.add(index) })
}

/// Returns the frame of a dispatch.
fn place_of(dispatch_id: u64) -> Option<&'static Frame> {
    place(PLACES + dispatch_id as usize % PLACES)
}

/// Returns every frame that was used in this session.
pub(super) fn frames() -> impl Iterator<Item = &'static Frame> {
    let used = if STATE.work_told.load(Acquire) {
        2 * PLACES
    } else {
        0
    };
    (0..used).map_while(place)
}

/// Forgets what was kept of dispatches in the last session, because another session starts.
pub(super) fn forget() {
    for frame in frames().filter(|frame| frame.is_kept.swap(false, AcqRel)) {
        let _ = frame
            .state
            .compare_exchange(FrameState::Open, FrameState::Free, AcqRel, Relaxed);
    }
    STATE.work_told.store(false, Release);
}

/// Sets the ids of agents by node, for payloads that are made on the application's threads.
pub fn set_agents(agents: impl IntoIterator<Item = (u32, u64)>) {
    for (node, id) in agents {
        if let Some(entry) = STATE.agent_ids.get(node as usize) {
            entry.store(id, Relaxed);
        }
    }
}

/// Returns the id of a node's agent; 0 when it is not known.
pub fn agent_id(node: u32) -> u64 {
    STATE
        .agent_ids
        .get(node as usize)
        .map_or(0, |id| id.load(Relaxed))
}

/// Fills a frame that this thread holds. Returns None when no tool wants it.
fn fill(frame: &Frame, work: &Work, payload: &[u64]) -> Option<u64> {
    let busy = Busy::enter()?;
    // SAFETY: the caller holds the frame's state, which gives it the body.
    let body = unsafe { &mut *frame.body.get() };
    STATE.work_told.store(true, Release);
    gather(&busy, body, work.kind, work.operation, u64::from(work.tid));
    if body.count == 0 {
        return None;
    }
    body.generation = busy.generation();
    body.id = work.id;
    body.correlation = CorrelationId {
        internal: work.correlation,
        external: 0,
        ancestor: work.ancestor,
    };
    (body.kind, body.operation) = (work.kind, work.operation);
    body.payload = [0; PAYLOAD];
    for (to, word) in body.payload.iter_mut().zip(payload) {
        *to = *word;
    }
    Some(body.generation)
}

/// Reports a start, on the thread that requests the work; that thread is not busy. Returns
/// `None` when no tool wants it.
#[cold]
#[inline(never)]
pub fn begin(work: &Work, payload: &[u64]) -> Option<Notified> {
    let first = STATE.next_work.fetch_add(1, Relaxed);
    let claimed = (0..TRIES).find_map(|step| {
        let index = first.wrapping_add(step) % PLACES;
        let frame = place(index)?;
        frame
            .state
            .compare_exchange(FrameState::Free, FrameState::Entering, SeqCst, Relaxed)
            .is_ok()
            .then_some((index, frame))
    });
    let Some((index, frame)) = claimed else {
        STATE.unreported.fetch_add(1, Relaxed);
        return None;
    };
    let Some(generation) = fill(frame, work, payload) else {
        frame.state.store(FrameState::Free, Release);
        return None;
    };
    requests::ask(frame);
    run(frame, c::ROCPROFILER_CALLBACK_PHASE_ENTER);
    if frame
        .state
        .compare_exchange(FrameState::Entering, FrameState::Open, AcqRel, Relaxed)
        .is_err()
    {
        // The session's end has abandoned the frame.
        frame.state.store(FrameState::Free, Release);
        return None;
    }
    Some(Notified {
        place: NonZeroU32::new(index as u32 + 1)?,
        generation,
    })
}

/// Reports the end of the work, on the thread that learns of it. `put` completes the payload, a
/// slice of words.
#[cold]
#[inline(never)]
pub fn end(told: Notified, put: impl FnOnce(&mut [u64])) {
    let Some(frame) = place(told.place.get() as usize - 1) else {
        return;
    };
    if frame
        .state
        .compare_exchange(FrameState::Open, FrameState::Exiting, AcqRel, Relaxed)
        .is_err()
    {
        return;
    }
    // SAFETY: this thread holds the frame's state, which gives it the body.
    let body = unsafe { &mut *frame.body.get() };
    if body.generation != told.generation {
        // The report ended with its session; another one uses the frame now.
        frame.state.store(FrameState::Open, Release);
        return;
    }
    put(&mut body.payload);
    run(frame, c::ROCPROFILER_CALLBACK_PHASE_EXIT);
    frame.state.store(FrameState::Free, Release);
}

/// Reports that a dispatch is enqueued, with start and end. The tools' user data is kept until
/// [`completed`]. `work.id` is the dispatch's number.
#[cold]
#[inline(never)]
pub fn enqueued(work: &Work, payload: &[u64]) {
    let Some(frame) = place_of(work.id) else {
        return;
    };
    if frame
        .state
        .compare_exchange(FrameState::Free, FrameState::Entering, SeqCst, Relaxed)
        .is_err()
    {
        STATE.unreported.fetch_add(1, Relaxed);
        return;
    }
    if fill(frame, work, payload).is_none() {
        frame.state.store(FrameState::Free, Release);
        return;
    }
    requests::ask(frame);
    run(frame, c::ROCPROFILER_CALLBACK_PHASE_ENTER);
    run(frame, c::ROCPROFILER_CALLBACK_PHASE_EXIT);
    frame.is_kept.store(true, Release);
    if frame
        .state
        .compare_exchange(FrameState::Entering, FrameState::Open, AcqRel, Relaxed)
        .is_err()
    {
        frame.is_kept.store(false, Release);
        frame.state.store(FrameState::Free, Release);
    }
}

/// What the tools answered when a dispatch was enqueued.
#[derive(Debug)]
pub struct Kept {
    contexts: Vec<(u64, u64, Option<u64>)>,
}

impl Kept {
    /// Returns a context's user data.
    pub fn user_data(&self, context: u64) -> u64 {
        self.of(context).map_or(0, |(_, word, _)| *word)
    }
    /// Returns the external correlation id that a context's tool gave when it was asked.
    pub fn external(&self, context: u64) -> Option<u64> {
        self.of(context).and_then(|(_, _, external)| *external)
    }
    fn of(&self, context: u64) -> Option<&(u64, u64, Option<u64>)> {
        self.contexts.iter().find(|(of, ..)| *of == context)
    }
}

/// Takes what is kept of a dispatch. `None` when it was not reported, or is being reported. Called
/// on the worker thread.
pub fn completed(dispatch_id: u64) -> Option<Kept> {
    let frame = place_of(dispatch_id)?;
    frame
        .state
        .compare_exchange(FrameState::Open, FrameState::Exiting, AcqRel, Relaxed)
        .ok()?;
    // SAFETY: this thread holds the frame's state, which gives it the body.
    let body = unsafe { &*frame.body.get() };
    if body.id != dispatch_id {
        frame.state.store(FrameState::Open, Release);
        return None;
    }
    let kept = kept(body);
    frame.is_kept.store(false, Release);
    frame.state.store(FrameState::Free, Release);
    Some(kept)
}

fn kept(body: &Body) -> Kept {
    let entries = body
        .contexts
        .iter()
        .zip(&body.user_data)
        .zip(body.external.iter().zip(&body.requests));
    Kept {
        contexts: entries
            .take(body.count)
            .map(|((context, word), (external, request))| {
                (*context, *word, request.is_some().then_some(*external))
            })
            .collect(),
    }
}
