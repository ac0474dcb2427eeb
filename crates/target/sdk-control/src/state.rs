//! All state of this crate. [`ForkState`] decides what a forked child does with it.

use crate::collection::Collection;
use crate::counting::kept::Counting;
use crate::install::Marks;
use crate::local::phase::{Command, Kind, Phase};
use crate::openmp_use::Use;
use crate::rendezvous::request::TableRequest;
use crate::runtimes::Registry;
use midair_lockfree::AtomicEnum;
use midair_record::spool::Area;
use midair_sdk_hot::fork::ForkState;
use std::sync::Mutex;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize};

/// How long writing may take after a signal, in seconds, where no limit is set
/// (`ROCPROF_FINALIZE_WAIT_TIMEOUT_SECONDS`).
pub(crate) const SIGNAL_LIMIT: u64 = 60;

/// All of it.
#[derive(Debug)]
pub(crate) struct State {
    /// The collection. Only the worker takes the lock, or the thread that sets up a started process
    /// in its place.
    pub collection: Mutex<Option<Collection>>,
    /// The state of what tools of the process count ([`crate::counting`]).
    pub counting: Counting,
    /// Whether a session collects.
    pub collecting: AtomicBool,
    /// The tables to hook without waiting for the next search of the loaded libraries.
    pub request: AtomicEnum<TableRequest>,
    /// How often such a search was requested.
    pub searches: AtomicU64,
    /// The last of these requests for which the tables are hooked.
    pub searched: AtomicU64,
    /// 1 while the worker may wait for a lock of the HSA runtime.
    pub in_runtime: AtomicU32,
    /// 1 while the application shuts down its HSA runtime.
    pub runtime_leaves: AtomicU32,
    /// 1 after the process has started to run its exit handlers.
    pub process_leaves: AtomicU32,
    /// 1 from the start of the session until the HSA runtime is open *and* hooked. A thread
    /// whose `hsa_init` returns in this time waits. It is not reset when the runtime is merely seen
    /// open, since the worker may lose its processor before it has hooked a slot.
    pub hsa_closed: AtomicU32,
    /// 1 while a session wants the device's work and the HSA runtime is not open yet, or is open
    /// and not hooked.
    pub device_pending: AtomicU32,
    /// The number of threads of the application that continued into an open runtime before the
    /// worker had hooked it; what they did may be missing.
    pub went_on_unhooked: AtomicU32,
    /// The first thread that is inside `hsa_init`; 0 when there is none.
    pub opener: AtomicU32,
    /// The phase of a session without an attacher. Futex word.
    pub phase: AtomicEnum<Phase>,
    /// The command to its worker.
    pub command: AtomicEnum<Command>,
    /// The process in which its worker was created; 0 = none yet.
    pub process: AtomicI32,
    /// The kind of session.
    pub kind: AtomicEnum<Kind>,
    /// See [`Kind::Becoming`].
    pub becomes: AtomicBool,
    /// The status of a set-up that failed.
    pub failure: AtomicI32,
    /// Whether a session with an attacher is on or about to start; it then serves the process's own
    /// tools.
    pub has_guest: AtomicBool,
    /// Held while a session starts or ends, one at a time.
    pub life: Mutex<()>,
    /// The spool that a midair tool made.
    pub spool: Mutex<Option<Area>>,
    /// How long writing may take after a signal, in seconds.
    pub signal_limit: AtomicU64,
    /// What is known about slots apart from a process's own lists.
    pub marks: Marks,
    /// What register libraries have announced about the runtimes.
    pub registered: Registry,
    /// What a runtime of OpenMP has made of us.
    pub openmp: AtomicEnum<Use>,
    /// Where HSA's root table is according to a register library; 0 = unknown.
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
            openmp: AtomicEnum::new(),
            root_table: AtomicUsize::new(0),
        }
    }
}

pub(crate) static STATE: ForkState<State> = ForkState::new(State::new());
static FRESH: ForkState<State> = ForkState::new(State::new());

/// Replaces the state in a forked child.
///
/// # Safety
/// Call it in a forked child that has had no session of its own, where no other thread uses the
/// state.
pub(crate) unsafe fn reset_after_fork() {
    // Two things are kept: whether slots may contain our functions that no list of the child knows,
    // and what register libraries have announced, which is true for the child as well.
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
