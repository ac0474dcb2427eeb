//! All state of this crate. [`ForkState`] decides what a forked child does with it.
//!
//! The function that a table's slot held before our wrapper is stored elsewhere, in the generated
//! wrappers: it is a fact of the process, which a fork does not change.

use crate::callbacks::Services;
use crate::callbacks::frame::RegionFrames;
use crate::callbacks::frame::{Frame, MOST_OUT, Out};
use crate::callbacks::open_ranges::{Anywhere, Thread};
use crate::fork::ForkState;
use crate::host_functions::waiting::Waiting;
use crate::markers::open::{ProcessRanges, Stack};
use crate::pauses::Pause;
use crate::probe::control::Control;
use crate::threads::{self, MAX_OPEN, ThreadSlot};
use midair_abi::tables::Function;
use midair_lockfree::{AtomicKey, Slot, SlotTable};
use std::cell::UnsafeCell;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};
use std::sync::{Mutex, OnceLock};

/// How many contexts and threads can have external correlation ids; a power of two.
const EXTERNAL_IDS: usize = 4096;
/// How many nodes can have agents whose ids are stored.
const NODES: usize = 256;
/// How many answers can wait for their records; a power of two.
const REQUESTED: usize = 1 << 14;
/// How many streams a process can have at one time; a power of two.
const STREAMS: usize = 4096;

/// The functions by their records' kind and operation.
type Functions = Vec<Vec<Option<&'static Function>>>;

/// All of it.
#[derive(Debug)]
pub(crate) struct State {
    /// The page that wrappers read first; null until the first session. A fork wipes it.
    pub control: AtomicPtr<Control>,
    /// Number of the last session. It is not in the wiped page, since a child's own session must
    /// not have the number of its parent's.
    pub last_generation: AtomicU64,
    /// Slots of threads, and how many were ever claimed.
    pub slots: AtomicPtr<ThreadSlot>,
    pub slots_used: AtomicUsize,
    /// pthread key of a thread's slot; `u32::MAX` until it is created.
    pub slot_key: AtomicU32,
    /// Which tools get callbacks for which calls. Threads read it while they are busy. Null when no
    /// tool gets any.
    pub services: AtomicPtr<Services>,
    /// Calls that were reported to tools, by thread and depth. A fork wipes them.
    pub frames: AtomicPtr<[Frame; MAX_OPEN]>,
    /// Ranges that were reported to tools: the threads' and the process's. A fork wipes
    /// them.
    pub reported_threads: AtomicPtr<Thread>,
    pub reported_anywhere: AtomicPtr<Anywhere>,
    /// The same for work that calls cause ([`crate::callbacks::work`]), and for the streams that
    /// calls name. A fork wipes them.
    pub work_frames: AtomicPtr<Frame>,
    pub stream_frames: AtomicPtr<[Frame; MAX_OPEN]>,
    /// The same for regions of OpenMP.
    pub region_frames: AtomicPtr<RegionFrames>,
    /// Where the search for a free place starts, and whether any place was used in this session.
    pub next_work: AtomicUsize,
    pub work_told: AtomicBool,
    /// Ids of agents by node.
    pub agent_ids: [AtomicU64; NODES],
    /// External ids that tools gave when they were asked, by event
    /// ([`crate::callbacks::requests`]).
    pub requested: SlotTable<AtomicKey, REQUESTED, AtomicU64>,
    pub any_requested: AtomicBool,
    /// Numbers of HIP's streams by handle, and the last number.
    pub stream_ids: SlotTable<AtomicKey, STREAMS, AtomicU64>,
    pub last_stream: AtomicU64,
    /// Whether something was reported to a tool in this session.
    pub any_reported: AtomicBool,
    /// The number of reports that could not be made.
    pub unreported: AtomicU64,
    /// Contexts that get no more calls, whether there are any, and what their tools threw.
    pub out: Out,
    pub any_out: AtomicBool,
    pub thrown: Mutex<Vec<(u64, String)>>,
    /// Open ranges, of threads and of the process.
    pub stacks: AtomicPtr<UnsafeCell<Stack>>,
    pub process_ranges: AtomicPtr<ProcessRanges>,
    /// The number of pops and stops whose push or start was not seen: ranges from before the
    /// session.
    pub ranges_begun_before: AtomicU64,
    /// The number of ranges that exceeded the capacity for open ones.
    pub ranges_over_capacity: AtomicU64,
    /// The number of outer ranges of threads that were left out, and not popped since.
    pub ranges_not_popped: AtomicU64,
    /// The same for regions of OpenMP.
    pub regions_begun_before: AtomicU64,
    pub regions_over_capacity: AtomicU64,
    /// The number of messages that were truncated.
    pub messages_truncated: AtomicU64,
    /// The callback that the old ROCTx library had before ours.
    pub legacy_roctx_before: AtomicPtr<()>,
    /// The value on top of the stack of each context and thread ([`crate::external_ids`]); 0 for an
    /// empty stack. A key is never removed.
    pub external_ids: SlotTable<AtomicKey, EXTERNAL_IDS, AtomicU64>,
    /// Pauses of the session ([`crate::pause`]).
    pub pause: Pause,
    /// See [`crate::functions`]; created once.
    pub functions: OnceLock<Functions>,
    /// Whether registrations of kernels are kept, and those that wait for the worker thread
    /// ([`crate::host_functions`]). A forked child leaves alone what its parent's worker thread had
    /// not taken.
    pub keeps_host_functions: AtomicBool,
    pub host_functions: AtomicPtr<Waiting>,
}

impl State {
    const fn new() -> State {
        State {
            control: AtomicPtr::new(std::ptr::null_mut()),
            last_generation: AtomicU64::new(0),
            slots: AtomicPtr::new(std::ptr::null_mut()),
            slots_used: AtomicUsize::new(0),
            slot_key: AtomicU32::new(u32::MAX),
            services: AtomicPtr::new(std::ptr::null_mut()),
            frames: AtomicPtr::new(std::ptr::null_mut()),
            reported_threads: AtomicPtr::new(std::ptr::null_mut()),
            reported_anywhere: AtomicPtr::new(std::ptr::null_mut()),
            work_frames: AtomicPtr::new(std::ptr::null_mut()),
            stream_frames: AtomicPtr::new(std::ptr::null_mut()),
            region_frames: AtomicPtr::new(std::ptr::null_mut()),
            next_work: AtomicUsize::new(0),
            work_told: AtomicBool::new(false),
            agent_ids: [const { AtomicU64::new(0) }; NODES],
            requested: SlotTable::new(
                [const { Slot::new(AtomicKey::new(), AtomicU64::new(0), ()) }; REQUESTED],
            ),
            any_requested: AtomicBool::new(false),
            stream_ids: SlotTable::new(
                [const { Slot::new(AtomicKey::new(), AtomicU64::new(0), ()) }; STREAMS],
            ),
            last_stream: AtomicU64::new(0),
            any_reported: AtomicBool::new(false),
            unreported: AtomicU64::new(0),
            out: [const { AtomicU64::new(0) }; MOST_OUT],
            any_out: AtomicBool::new(false),
            thrown: Mutex::new(Vec::new()),
            stacks: AtomicPtr::new(std::ptr::null_mut()),
            process_ranges: AtomicPtr::new(std::ptr::null_mut()),
            ranges_begun_before: AtomicU64::new(0),
            ranges_over_capacity: AtomicU64::new(0),
            ranges_not_popped: AtomicU64::new(0),
            regions_begun_before: AtomicU64::new(0),
            regions_over_capacity: AtomicU64::new(0),
            messages_truncated: AtomicU64::new(0),
            legacy_roctx_before: AtomicPtr::new(std::ptr::null_mut()),
            external_ids: SlotTable::new(
                [const { Slot::new(AtomicKey::new(), AtomicU64::new(0), ()) }; EXTERNAL_IDS],
            ),
            pause: Pause::new(),
            functions: OnceLock::new(),
            keeps_host_functions: AtomicBool::new(false),
            host_functions: AtomicPtr::new(std::ptr::null_mut()),
        }
    }
}

pub(crate) static STATE: ForkState<State> = ForkState::new(State::new());
static FRESH: ForkState<State> = ForkState::new(State::new());

/// Replaces the state in a forked child. False when memory for its threads cannot be mapped; the
/// child then keeps its parent's state.
///
/// # Safety
/// Call it in a forked child that has had no session of its own, where no other thread uses the
/// state.
pub unsafe fn reset_after_fork() -> bool {
    let key = STATE.slot_key.load(Acquire);
    // Pages that the fork has wiped are kept, and so are facts of the process that are one word
    // each.
    // SAFETY: the caller's promise.
    unsafe {
        STATE.replace(
            &FRESH,
            |old| {
                (
                    old.control.load(Acquire),
                    old.last_generation.load(Relaxed),
                    old.frames.load(Acquire),
                    (
                        old.reported_threads.load(Acquire),
                        old.reported_anywhere.load(Acquire),
                        old.work_frames.load(Acquire),
                        old.stream_frames.load(Acquire),
                        old.region_frames.load(Acquire),
                    ),
                    old.legacy_roctx_before.load(Acquire),
                )
            },
            |new, (control, last_generation, frames, reported, before)| {
                let (
                    reported_threads,
                    reported_anywhere,
                    work_frames,
                    stream_frames,
                    region_frames,
                ) = reported;
                new.last_generation.store(last_generation, Relaxed);
                new.frames.store(frames, Release);
                new.reported_threads.store(reported_threads, Release);
                new.reported_anywhere.store(reported_anywhere, Release);
                new.work_frames.store(work_frames, Release);
                new.stream_frames.store(stream_frames, Release);
                new.region_frames.store(region_frames, Release);
                new.legacy_roctx_before.store(before, Release);
                new.control.store(control, Release);
            },
        );
    }
    if key == u32::MAX || threads::reset_after_fork(key) {
        return true;
    }
    // Tried again at the next session.
    STATE.slot_key.store(key, Release);
    false
}
