//! A call that is reported to tools, from its start to its end.

use crate::openmp::regions::MAX_REGIONS;
use crate::operations::{Opaque, RequestCallback, TracingCallback};
use midair_abi::records::CorrelationId;
use midair_lockfree::{AtomicEnum, word_enum};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// The most contexts that one call is reported to.
pub const MAX_CONTEXTS: usize = 8;
/// The number of words of the largest payload: HSA's (source: api/rocprofiler_sdk.json,
/// `rocprofiler_callback_tracing_hsa_api_data_t`).
pub const PAYLOAD: usize = 26;
/// How many contexts are remembered whose tool is no longer used ([`super::out`]). The tool of a
/// further one gets calls until the worker thread has stopped using it.
pub const MOST_OUT: usize = 64;
/// The handles of these contexts, 0 for none.
pub(crate) type Out = [AtomicU64; MOST_OUT];

/// The frames of a thread for OpenMP: one for each open region, and one for events without
/// duration.
pub(crate) struct RegionFrames {
    pub(super) regions: [Frame; MAX_REGIONS],
    pub(super) event: Frame,
}

word_enum! {
    /// States of a [`Frame`].
    pub(crate) enum FrameState else Abandoned {
        /// It belongs to its thread and has no call.
        Free = 0,
        /// Its thread reports the call's start.
        Entering = 1,
        /// The call is running.
        Open = 2,
        /// Its thread reports the call's end.
        Exiting = 3,
        /// The worker thread reports the call's end.
        Closing = 4,
        /// The session ended while the start was being reported, so the end is not reported.
        Abandoned = 5,
    }
}

/// A call that was reported. Zeroed memory is a free frame.
#[repr(C)]
pub(crate) struct Frame {
    pub state: AtomicEnum<FrameState>,
    /// Whether it is open only for the data in it: no end remains to be reported.
    pub is_kept: AtomicBool,
    /// Only the holder of the state uses this.
    pub body: UnsafeCell<Body>,
}

pub(crate) struct Body {
    pub generation: u64,
    pub tid: u64,
    pub correlation: CorrelationId,
    pub kind: u8,
    /// `rocprofiler_callback_tracing_kind_t`.
    pub callback_kind: i32,
    pub operation: u32,
    /// The id by which the record is identified: see [`super::requests`].
    pub id: u64,
    pub count: usize,
    pub contexts: [u64; MAX_CONTEXTS],
    pub callbacks: [Option<(TracingCallback, Opaque)>; MAX_CONTEXTS],
    pub user_data: [u64; MAX_CONTEXTS],
    pub external: [u64; MAX_CONTEXTS],
    /// Tools that are asked for the external id, or have answered. The bool says whether a buffer
    /// wants the answer as well.
    pub requests: [Option<(RequestCallback, Opaque, bool)>; MAX_CONTEXTS],
    pub payload: [u64; PAYLOAD],
}

// SAFETY: `body` is used only by the holder of the state, see the module's description.
unsafe impl Sync for Frame {}
