//! External correlation ids that a tool is asked for, once for each event of the kinds that it
//! named. The answer is passed to the tool's callbacks with the event, and to its buffers with the
//! record. It is kept in a lock-free table until the worker thread makes that record.

use super::frame::{Body, Frame};
use super::out;
pub use crate::operations::RequestCallback;
use crate::state::STATE;
use crate::threads;
use midair_abi::constants as c;
use midair_domain::kind;
use std::ffi::c_int;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// How many slots are searched for an answer.
const PROBES: usize = 64;

/// Returns AMD's request kind of a record kind, if it has one.
pub fn request_kind(record_kind: u8) -> Option<c_int> {
    Some(match record_kind {
        kind::HSA_CORE_API => c::ROCPROFILER_EXTERNAL_CORRELATION_REQUEST_HSA_CORE_API,
        kind::HSA_AMD_EXT_API => c::ROCPROFILER_EXTERNAL_CORRELATION_REQUEST_HSA_AMD_EXT_API,
        kind::HSA_IMAGE_EXT_API => c::ROCPROFILER_EXTERNAL_CORRELATION_REQUEST_HSA_IMAGE_EXT_API,
        kind::HSA_FINALIZE_EXT_API => {
            c::ROCPROFILER_EXTERNAL_CORRELATION_REQUEST_HSA_FINALIZE_EXT_API
        }
        kind::HIP_RUNTIME_API_EXT => c::ROCPROFILER_EXTERNAL_CORRELATION_REQUEST_HIP_RUNTIME_API,
        kind::HIP_COMPILER_API_EXT => c::ROCPROFILER_EXTERNAL_CORRELATION_REQUEST_HIP_COMPILER_API,
        kind::MARKER_CORE_API => c::ROCPROFILER_EXTERNAL_CORRELATION_REQUEST_MARKER_CORE_API,
        kind::MARKER_CONTROL_API => c::ROCPROFILER_EXTERNAL_CORRELATION_REQUEST_MARKER_CONTROL_API,
        kind::MARKER_NAME_API => c::ROCPROFILER_EXTERNAL_CORRELATION_REQUEST_MARKER_NAME_API,
        kind::MARKER_CORE_RANGE_API => {
            c::ROCPROFILER_EXTERNAL_CORRELATION_REQUEST_MARKER_CORE_RANGE_API
        }
        kind::MEMORY_COPY => c::ROCPROFILER_EXTERNAL_CORRELATION_REQUEST_MEMORY_COPY,
        kind::KERNEL_DISPATCH => c::ROCPROFILER_EXTERNAL_CORRELATION_REQUEST_KERNEL_DISPATCH,
        kind::SCRATCH_MEMORY => c::ROCPROFILER_EXTERNAL_CORRELATION_REQUEST_SCRATCH_MEMORY,
        kind::MEMORY_ALLOCATION => c::ROCPROFILER_EXTERNAL_CORRELATION_REQUEST_MEMORY_ALLOCATION,
        kind::RCCL_API => c::ROCPROFILER_EXTERNAL_CORRELATION_REQUEST_RCCL_API,
        kind::ROCDECODE_API_EXT => c::ROCPROFILER_EXTERNAL_CORRELATION_REQUEST_ROCDECODE_API,
        kind::ROCJPEG_API => c::ROCPROFILER_EXTERNAL_CORRELATION_REQUEST_ROCJPEG_API,
        kind::OMPT => c::ROCPROFILER_EXTERNAL_CORRELATION_REQUEST_OMPT,
        _ => return None,
    })
}

/// Returns the key of an answer. `id` identifies the record of the event: the correlation id of a
/// call, and for other events what [`mixed`] makes of two words of the record.
fn key_of(context: u64, record_kind: u8, id: u64) -> u64 {
    // The handle of a context is at least 1, so that no key is a reserved one.
    context.min(0xfe) << 56 | u64::from(record_kind) << 48 | id & 0xffff_ffff_ffff
}

/// Returns one number made of two words that a record and its report have in common.
pub fn mixed(one: u64, other: u64) -> u64 {
    (one.rotate_left(29) ^ other).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16
}

/// Asks the tools that want to be asked. The caller holds the frame's state, and is not busy.
pub(super) fn ask(frame: &Frame) {
    // SAFETY: the caller holds the frame's state, which gives it the body.
    let body = unsafe { &mut *frame.body.get() };
    if body.requests.iter().take(body.count).all(Option::is_none) {
        return;
    }
    let Some(asked) = request_kind(body.kind) else {
        return;
    };
    let slot = threads::existing();
    if let Some(slot) = slot {
        slot.in_tool.fetch_add(1, Relaxed);
    }
    let Body {
        tid,
        kind: record_kind,
        operation,
        id,
        correlation,
        ..
    } = *body;
    let entries = body
        .contexts
        .iter()
        .zip(&mut body.requests)
        .zip(&mut body.external);
    for ((context, request), external) in entries.take(body.count) {
        let Some((callback, data, is_stored)) = *request else {
            continue;
        };
        if out::is_out(*context) {
            *request = None;
            continue;
        }
        let (mut value, context) = (0, *context);
        let to = &raw mut value;
        // SAFETY: the tool gave us this function for such calls; the value outlives the call.
        let called = midair_tool_call::call(&[], || unsafe {
            callback(
                tid,
                context,
                asked,
                operation as c_int,
                correlation.internal,
                to,
                data.0,
            )
        });
        if let Err(thrown) = &called {
            out::put_out(context, thrown);
        }
        if called.unwrap_or(1) != 0 {
            *request = None;
            continue;
        }
        *external = value;
        if is_stored && !put(key_of(context, record_kind, id), value) {
            STATE.unreported.fetch_add(1, Relaxed);
        }
    }
    if let Some(slot) = slot {
        slot.in_tool.fetch_sub(1, Relaxed);
    }
}

fn put(key: u64, value: u64) -> bool {
    if let Some(known) = STATE.requested.find(key, PROBES) {
        // Two events have the same key: the later answer replaces the earlier one.
        known.shared().store(value, Release);
        return true;
    }
    let Some(entry) = STATE.requested.claim_key(key, PROBES) else {
        return false;
    };
    entry.shared().store(value, Release);
    entry.publish(key);
    STATE.any_requested.store(true, Release);
    true
}

/// Takes the answer of a context for an event; `None` when there is none. Called on the worker
/// thread.
pub fn take(context: u64, record_kind: u8, id: u64) -> Option<u64> {
    if !STATE.any_requested.load(Acquire) {
        return None;
    }
    let key = key_of(context, record_kind, id);
    let value = STATE.requested.find(key, PROBES)?.shared().load(Acquire);
    STATE.requested.remove(key, PROBES);
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_taken_once_by_its_context_and_event() {
        assert!(put(key_of(3, kind::HIP_RUNTIME_API_EXT, 77), 5));
        assert_eq!(take(3, kind::HIP_RUNTIME_API_EXT, 78), None);
        assert_eq!(take(4, kind::HIP_RUNTIME_API_EXT, 77), None);
        assert_eq!(take(3, kind::MEMORY_COPY, 77), None);
        assert_eq!(take(3, kind::HIP_RUNTIME_API_EXT, 77), Some(5));
        assert_eq!(take(3, kind::HIP_RUNTIME_API_EXT, 77), None);
        // The table does not fill up with answers that were taken.
        for id in 0..100_000 {
            assert!(put(key_of(1, kind::KERNEL_DISPATCH, id), id + 1));
            assert_eq!(take(1, kind::KERNEL_DISPATCH, id), Some(id + 1));
        }
    }
}
