//! All state of this crate. [`ForkState`] says what a forked child does with it.

use crate::collection::Collection;
use crate::counting::kept::Counting;
use crate::gate::request::TableRequest;
use crate::install::Marks;
use crate::local::phase::{Command, Kind, Phase};
use crate::runtimes::Registry;
use midair_lockfree::AtomicEnum;
use midair_record::spool::Area;
use midair_sdk_hot::fork::ForkState;
use std::sync::Mutex;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize};

/// How long writing may take at a signal, in seconds, where nothing is said (`ROCPROF_FINALIZE_WAIT_TIMEOUT_SECONDS`).
pub(crate) const SIGNAL_LIMIT: u64 = 60;

/// All of it.
#[derive(Debug)]
pub(crate) struct State {
    /// The collection. Only the worker takes the lock, and the thread that sets a started process up in its stead.
    pub collection: Mutex<Option<Collection>>,
    /// What tools of the process count ([`crate::counting`]).
    pub counting: Counting,
    /// Whether a session collects.
    pub collecting: AtomicBool,
    /// What is to be hooked without waiting for the next look at the loaded libraries.
    pub request: AtomicEnum<TableRequest>,
    /// How often that was requested.
    pub searches: AtomicU64,
    /// Up to which of these requests the tables are hooked.
    pub searched: AtomicU64,
    /// 1 while the worker may wait for a lock of the HSA runtime's.
    pub in_runtime: AtomicU32,
    /// 1 while the application shuts its HSA runtime down.
    pub runtime_leaves: AtomicU32,
    /// 1 once the process runs its exit handlers.
    pub process_leaves: AtomicU32,
    /// 1 from the session's begin until the HSA runtime is open *and* hooked: whoever's `hsa_init`
    /// returns meanwhile waits. It is not taken back when the runtime is merely seen open, since
    /// the worker may lose its processor before it has hooked a slot.
    pub hsa_closed: AtomicU32,
    /// 1 while a session wants the device's work and the HSA runtime is not open yet, or open and not hooked.
    pub device_pending: AtomicU32,
    /// Threads of the application that went on into an open runtime before the worker had hooked
    /// it: what they did may be missing.
    pub went_on_unhooked: AtomicU32,
    /// The first thread that is inside `hsa_init`, 0 when none is.
    pub opener: AtomicU32,
    /// How far a session without an attacher is. Futex word.
    pub phase: AtomicEnum<Phase>,
    /// What its worker is to do.
    pub command: AtomicEnum<Command>,
    /// The process that its worker was made in, 0 = none yet.
    pub process: AtomicI32,
    /// What kind of session it is.
    pub kind: AtomicEnum<Kind>,
    /// See [`Kind::Becoming`].
    pub becomes: AtomicBool,
    /// Status of a set-up that failed.
    pub failure: AtomicI32,
    /// A session with an attacher is about to begin, or is on: the process's own tools are served by it.
    pub has_guest: AtomicBool,
    /// Begin and end, one at a time.
    pub life: Mutex<()>,
    /// The spool that a tool of ours reads.
    pub spool: Mutex<Option<Area>>,
    /// How long writing may take at a signal, in seconds.
    pub signal_limit: AtomicU64,
    /// What is known of slots beyond a process's own lists.
    pub marks: Marks,
    /// What register libraries said of the runtimes.
    pub registered: Registry,
    /// Where a register library said that HSA's root table is, 0 = nobody did.
    pub root_table: AtomicUsize,
}

impl State {
    const fn new() -> State {
        State {
            collection: Mutex::new(None),
            counting: Counting::new(),
            collecting: AtomicBool::new(false),
            request: AtomicEnum::new(),
            searches: AtomicU64::new(0),
            searched: AtomicU64::new(0),
            in_runtime: AtomicU32::new(0),
            runtime_leaves: AtomicU32::new(0),
            process_leaves: AtomicU32::new(0),
            hsa_closed: AtomicU32::new(0),
            device_pending: AtomicU32::new(0),
            went_on_unhooked: AtomicU32::new(0),
            opener: AtomicU32::new(0),
            phase: AtomicEnum::new(),
            command: AtomicEnum::new(),
            process: AtomicI32::new(0),
            kind: AtomicEnum::new(),
            becomes: AtomicBool::new(false),
            failure: AtomicI32::new(0),
            has_guest: AtomicBool::new(false),
            life: Mutex::new(()),
            spool: Mutex::new(None),
            signal_limit: AtomicU64::new(SIGNAL_LIMIT),
            marks: Marks::new(),
            registered: Registry::new(),
            root_table: AtomicUsize::new(0),
        }
    }
}

pub(crate) static STATE: ForkState<State> = ForkState::new(State::new());
static FRESH: ForkState<State> = ForkState::new(State::new());

/// Replaces the state in a forked child.
///
/// # Safety
/// In a forked child that has had no session of its own: no other thread uses the state.
pub(crate) unsafe fn reset_after_fork() {
    // What stays: whether slots may hold ours that no list of the child knows, and what register
    // libraries said, which is true of the child, too.
    // SAFETY: the caller's promise.
    unsafe {
        STATE.replace(
            &FRESH,
            |old| {
                (
                    old.marks.inherited.load(SeqCst)
                        || old.collecting.load(SeqCst)
                        || old.marks.covered.load(SeqCst),
                    old.marks.covered.load(SeqCst),
                    old.registered.known_to_parent(),
                    old.root_table.load(SeqCst),
                )
            },
            |new, (inherited, covered, registered, root_table)| {
                new.marks.inherited.store(inherited, SeqCst);
                new.marks.covered.store(covered, SeqCst);
                new.registered.take_over(registered);
                new.root_table.store(root_table, SeqCst);
            },
        );
    }
}
