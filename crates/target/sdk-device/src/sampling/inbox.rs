//! Samples on their way from the runtime's threads to the worker thread.

use super::calls::Copy;
use super::kept::{Counts, Passed, Waiting};
use super::raw::BYTES;
use crate::state::STATE;
use std::ffi::c_void;
use std::sync::atomic::Ordering::{AcqRel, Acquire};
use std::sync::{MutexGuard, PoisonError};

/// The most bytes that wait for the worker thread.
const MOST: usize = 64 << 20;

fn waiting() -> MutexGuard<'static, Option<Box<Waiting>>> {
    let waiting = &STATE.sampling.inbox.waiting;
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Opens the inbox for a session. Returns the session's number.
pub(super) fn open() -> u32 {
    *waiting() = Some(Box::new(Waiting {
        passed: Vec::new(),
        bytes: 0,
        counts: Counts::default(),
    }));
    let session = &STATE.sampling.inbox.session;
    session.fetch_add(1, AcqRel).wrapping_add(1)
}

/// Closes it. What comes later is left where it is.
pub(super) fn close() -> Counts {
    STATE.sampling.inbox.session.fetch_add(1, AcqRel);
    waiting().take().map_or(Counts::default(), |it| it.counts)
}

/// Takes what has arrived.
pub(super) fn take() -> Vec<Passed> {
    let mut waiting = waiting();
    let Some(waiting) = waiting.as_mut() else {
        return Vec::new();
    };
    waiting.bytes = 0;
    std::mem::take(&mut waiting.passed)
}

/// Returns the data that the runtime passes to [`ready`]: the session and the agent's place in it.
pub(super) fn data_of(session: u32, agent: usize) -> *mut c_void {
    std::ptr::without_provenance_mut((session as usize) << 16 | agent & 0xffff)
}

/// Takes samples from the runtime. Called on a thread of the runtime, or on ours while it flushes.
pub(super) unsafe extern "C" fn ready(
    data: *mut c_void,
    bytes: usize,
    lost: usize,
    copy: Copy,
    of_runtime: *mut c_void,
) {
    let (session, agent) = ((data.addr() >> 16) as u32, data.addr() & 0xffff);
    let mut waiting = waiting();
    let Some(waiting) = waiting.as_mut() else {
        return;
    };
    if session != STATE.sampling.inbox.session.load(Acquire) {
        return;
    }
    waiting.counts.lost += lost as u64;
    let mut samples: Vec<u8> = Vec::new();
    let has_room = waiting.bytes.saturating_add(bytes) <= MOST
        && waiting.passed.try_reserve(1).is_ok()
        && samples.try_reserve_exact(bytes).is_ok();
    // The runtime copies exactly the bytes that it has announced, or returns an error.
    // SAFETY: there is room for so many bytes, which are initialised if the call succeeds; `of_runtime`
    // is passed on as it came.
    let copied = has_room
        && unsafe {
            let status = copy(of_runtime, bytes, samples.as_mut_ptr().cast());
            if status == 0 {
                samples.set_len(bytes);
            }
            status == 0
        };
    if copied {
        waiting.bytes += bytes;
        waiting.passed.push(Passed {
            agent,
            bytes: samples,
        });
    } else {
        waiting.counts.dropped += (bytes / BYTES) as u64;
    }
}
