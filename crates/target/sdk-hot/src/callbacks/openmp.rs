//! Reports events of OpenMP to tools: the start and the end of a region like a call's, and
//! other events once, without a phase.

use super::frame::{Frame, FrameState};
use super::region_frames::of;
use super::{Body, complete, finish_with, gathered, layout, put_arguments, requests, run};
use crate::functions::function_of;
use crate::openmp::regions::Region;
use crate::probe::Busy;
use midair_abi::constants as c;
use midair_abi::records::CorrelationId;
use midair_record::event::kind;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release};

fn put(body: &mut Body, words: &[u64]) {
    let layout = layout(body.kind);
    if let Some(function) = function_of(body.kind, body.operation)
        && let Some(arguments) = body.payload.get_mut(1..=layout.arguments)
    {
        arguments.fill(0);
        put_arguments(function, words, arguments);
    }
}

/// Fills a frame with an event. Returns false when no tool wants it.
fn fill(busy: &Busy, frame: &Frame, event: &mut Region, words: &[u64]) -> bool {
    let Some(body) = gathered(busy, frame, (kind::OMPT, event.operation)) else {
        return false;
    };
    if event.correlation == 0 {
        // An event that is only reported gets an id when a tool wants it.
        event.correlation = busy.fresh_correlation();
    }
    let correlation = CorrelationId {
        internal: event.correlation,
        external: 0,
        ancestor: event.ancestor,
    };
    complete(frame, body, busy.generation(), correlation, |body| {
        put(body, words)
    });
    true
}

/// Fills the frame of an event without duration, for [`tell`]. `None`: no tool wants it.
pub(crate) fn instant(busy: &Busy, event: &mut Region, words: &[u64]) -> Option<&'static Frame> {
    let frame = &of(busy.thread())?.event;
    fill(busy, frame, event, words).then_some(frame)
}

/// Calls the tools' functions for an event without duration. The thread is not busy any more.
pub(crate) fn tell(frame: &Frame) {
    requests::ask(frame);
    run(frame, c::ROCPROFILER_CALLBACK_PHASE_NONE);
    frame.state.store(FrameState::Free, Release);
}

/// Fills the frame of a region that starts, for [`enter`]. Returns false when no tool wants it.
pub(crate) fn fill_region(
    busy: &Busy,
    thread: usize,
    depth: usize,
    region: &mut Region,
    words: &[u64],
) -> bool {
    let frame = of(thread).and_then(|frames| frames.regions.get(depth));
    frame.is_some_and(|frame| {
        // A region of an earlier thread, which ended without ending it. Its end cannot be determined in
        // that thread's name.
        let _ = frame
            .state
            .compare_exchange(FrameState::Open, FrameState::Free, AcqRel, Relaxed);
        fill(busy, frame, region, words)
    })
}

/// Calls the tools' functions for the start of a region.
pub(crate) fn enter(thread: usize, depth: usize) {
    let Some(frame) = of(thread).and_then(|frames| frames.regions.get(depth)) else {
        return;
    };
    requests::ask(frame);
    run(frame, c::ROCPROFILER_CALLBACK_PHASE_ENTER);
    let opened =
        frame
            .state
            .compare_exchange(FrameState::Entering, FrameState::Open, AcqRel, Relaxed);
    if opened.is_err() {
        // The session's end has abandoned the frame.
        frame.state.store(FrameState::Free, Release);
    }
}

/// Calls the tools' functions for the end of a region, if its start was reported; first for
/// those in it that were abandoned.
pub(crate) fn exit(thread: usize, depth: usize, generation: u64, words: &[u64]) {
    let Some(frames) = of(thread) else { return };
    let mut open = frames.regions.get(depth..).unwrap_or_default().iter();
    let Some(own) = open.next() else { return };
    for abandoned in open.rev() {
        finish_with(abandoned, None, |_| ());
    }
    finish_with(own, Some(generation), |body| put(body, words));
}
