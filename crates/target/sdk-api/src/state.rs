//! All state of this crate. [`ForkState`] decides what a forked child does with it.

use crate::agents::list::List;
use crate::callback_thread::handle::Listener;
use crate::code_object::hosts::Hosts;
use crate::code_object::loaded::Loaded;
use crate::counting::kept::Counting;
use crate::counting::services::{DispatchService, Engine};
use crate::events::joined::Joined;
use crate::external::stack::Stack;
use crate::intercept::held::Interceptor;
use crate::registration::search::Search;
use crate::registry::Registry;
use crate::retirement::waiting::Waiting;
use crate::setting::store::Store;
use midair_lockfree::AtomicEnum;
use midair_sdk_hot::fork::ForkState;
use std::collections::{HashMap, HashSet};
use std::ffi::CStr;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

/// All of it.
#[derive(Debug)]
pub(crate) struct State {
    /// The number of changes of the running contexts, and of those that the worker has applied
    /// ([`crate::changes`]).
    pub requested: AtomicU64,
    pub applied: AtomicU64,
    /// The number of rounds that tools have asked for, and of those that the worker has finished
    /// ([`crate::changes::round_within`]).
    pub rounds_asked: AtomicU64,
    pub rounds_done: AtomicU64,
    /// The pid of the process in which a worker serves a session, 0 when none.
    pub serving: AtomicU32,
    /// Thread id of the worker.
    pub worker: AtomicU32,
    /// Futex word that the worker waits on; it counts the calls of [`crate::changes::wake`].
    pub calls: AtomicU32,
    /// Whether notes are accepted, and the waiting notes ([`crate::notes`]).
    pub notes_open: AtomicBool,
    pub notes: Mutex<Vec<String>>,
    /// Notes that came too late for the records.
    pub last_words: Mutex<Vec<String>>,
    /// Clients, contexts, buffers and callback threads.
    pub registry: Mutex<Registry>,
    /// Signalled, with `registry`, when a buffer's callback has returned.
    pub buffer_is_free: Condvar,
    /// Texts that were given to tools ([`crate::interned`]).
    pub interned: Mutex<Option<HashSet<&'static CStr>>>,
    /// What was reported to tools as loaded ([`crate::code_object`]).
    pub loaded: Mutex<Vec<Loaded>>,
    /// The host functions of kernels that the program registered ([`crate::code_object::hosts`]).
    pub host_functions: Mutex<Option<Hosts>>,
    /// The settings of the session ([`crate::setting`]).
    pub settings: Mutex<Option<Store>>,
    /// External correlation ids by context and thread, and whether a tool has pushed any.
    pub external: Mutex<Option<HashMap<(u64, u64), Stack>>>,
    pub external_used: AtomicU64,
    /// Correlation ids that wait to be retired, and whether ids are followed.
    pub retirement: Mutex<Option<Waiting>>,
    pub follows_ids: AtomicBool,
    /// HIP's events with their barriers, and whether they are joined for tools ([`crate::events`]).
    pub events: Mutex<Option<Joined>>,
    pub follows_events: AtomicBool,
    /// Tools' functions that get runtimes' tables ([`crate::intercept`]).
    pub interceptors: Mutex<Vec<Interceptor>>,
    /// Tools' functions that are called when a thread is created.
    pub listeners: Mutex<Vec<Listener>>,
    /// `hsa_agent_t` handles by KFD node.
    pub agent_handles: Mutex<Option<HashMap<u32, u64>>>,
    /// Counters that tools ask about ([`crate::counting`]).
    pub counting: Mutex<Counting>,
    /// Services that count around dispatches, and the engine that counts on devices.
    pub dispatch_counting: RwLock<Vec<DispatchService>>,
    pub counting_engine: Mutex<Option<&'static dyn Engine>>,
    /// The machine's agents, read once ([`crate::agents`]).
    pub agents: OnceLock<&'static List>,
    /// The search for tools ([`crate::registration::discover`]).
    pub search: AtomicEnum<Search>,
    /// Whether an attacher's engine loaded this library, so that nothing in the process asked for
    /// it.
    pub entered_by_engine: AtomicBool,
    /// The process at whose exit tools are ended. A forked child has no tools of its own to end.
    pub exit_process: AtomicI32,
}

impl State {
    const fn new() -> State {
        State {
            requested: AtomicU64::new(0),
            applied: AtomicU64::new(0),
            rounds_asked: AtomicU64::new(0),
            rounds_done: AtomicU64::new(0),
            serving: AtomicU32::new(0),
            worker: AtomicU32::new(0),
            calls: AtomicU32::new(0),
            notes_open: AtomicBool::new(false),
            notes: Mutex::new(Vec::new()),
            last_words: Mutex::new(Vec::new()),
            registry: Mutex::new(Registry::new()),
            buffer_is_free: Condvar::new(),
            interned: Mutex::new(None),
            loaded: Mutex::new(Vec::new()),
            host_functions: Mutex::new(None),
            settings: Mutex::new(None),
            external: Mutex::new(None),
            external_used: AtomicU64::new(0),
            retirement: Mutex::new(None),
            events: Mutex::new(None),
            follows_events: AtomicBool::new(false),
            follows_ids: AtomicBool::new(false),
            interceptors: Mutex::new(Vec::new()),
            listeners: Mutex::new(Vec::new()),
            agent_handles: Mutex::new(None),
            counting: Mutex::new(Counting::new()),
            dispatch_counting: RwLock::new(Vec::new()),
            counting_engine: Mutex::new(None),
            agents: OnceLock::new(),
            search: AtomicEnum::new(),
            entered_by_engine: AtomicBool::new(false),
            exit_process: AtomicI32::new(0),
        }
    }
}

pub(crate) static STATE: ForkState<State> = ForkState::new(State::new());
static FRESH: ForkState<State> = ForkState::new(State::new());

/// Takes the registry's lock. A panic of another holder does not matter, since every change is made
/// in one piece.
pub(crate) fn lock() -> MutexGuard<'static, Registry> {
    STATE
        .registry
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
}

/// Replaces the state in a forked child: the parent's tools are not the child's.
///
/// # Safety
/// Call it in a forked child that has had no session of its own, where no other thread uses the
/// state.
pub unsafe fn reset_after_fork() {
    // The facts of the process are kept: the machine's agents, how this library was loaded, the
    // word that a thread may be waiting on, and the process whose exit ends the tools.
    //
    // SAFETY: the caller's promise.
    unsafe {
        STATE.replace(
            &FRESH,
            |old| {
                (
                    old.agents.get().copied(),
                    old.search.load(SeqCst),
                    old.entered_by_engine.load(SeqCst),
                    old.exit_process.load(SeqCst),
                    old.calls.load(SeqCst),
                )
            },
            |new, (agents, search, entered, exit_process, calls)| {
                if let Some(agents) = agents {
                    // This cannot fail: the new state is fresh, so nothing was set.
                    let _ = new.agents.set(agents);
                }
                new.search.store(search, SeqCst);
                new.entered_by_engine.store(entered, SeqCst);
                new.exit_process.store(exit_process, SeqCst);
                new.calls.store(calls, SeqCst);
            },
        );
    }
}
