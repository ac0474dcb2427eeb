//! The state of traces that the application's threads and the worker thread share.

use crate::queue::window::AGENTS;
use midair_record::trace_plan::Trace;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

/// The owner of memory into which the device may write for good.
pub(crate) const STUCK: u32 = u32::MAX;

/// The state. Pairs of packets are among the windows of counters ([`crate::queue::window`]), since a
/// session has either.
#[derive(Debug)]
pub(crate) struct Traces {
    /// Whether packets are reserved for traces.
    pub on: AtomicBool,
    /// For each agent, the pair whose trace uses its memory until it is read; 0 = none, or [`STUCK`].
    pub owners: [AtomicU32; AGENTS],
    /// The number of chosen dispatches without a pair around them.
    pub without: AtomicU64,
    /// The number of chosen dispatches for which the agent's memory was in use.
    pub busy: AtomicU64,
    /// The same, since its owner is [`STUCK`].
    pub stuck: AtomicU64,
    /// The number of dispatches of kernels whose names were not known yet.
    pub unknown: AtomicU64,
    /// The number of reservations without a pair, since none was ready.
    pub none_ready: AtomicU64,
    /// The same, since the ring was more than half full.
    pub no_room: AtomicU64,
    /// The same, since the queue cannot have one.
    pub unfit: AtomicU64,
    /// The session's plan.
    pub plan: Mutex<Option<Box<[Trace]>>>,
}

impl Traces {
    pub(crate) const fn new() -> Traces {
        Traces {
            on: AtomicBool::new(false),
            owners: [const { AtomicU32::new(0) }; AGENTS],
            without: AtomicU64::new(0),
            busy: AtomicU64::new(0),
            stuck: AtomicU64::new(0),
            unknown: AtomicU64::new(0),
            none_ready: AtomicU64::new(0),
            no_room: AtomicU64::new(0),
            unfit: AtomicU64::new(0),
            plan: Mutex::new(None),
        }
    }
}
