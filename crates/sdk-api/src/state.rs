//! All state of this crate. [`ForkState`] says what a forked child does with it.

use crate::agents::list::List;
use crate::callback_thread::handle::Listener;
use crate::code_object::hosts::Hosts;
use crate::code_object::loaded::Loaded;
use crate::counting::kept::Counting;
use crate::counting::services::{DispatchService, Engine};
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
    /// Changes of the running contexts, and those that the worker has applied ([`crate::changes`]).
    pub requested: AtomicU64,
    pub applied: AtomicU64,
    /// Rounds that tools have asked for, and those that the worker has finished
    /// ([`crate::changes::round_within`]).
    pub rounds_asked: AtomicU64,
    pub rounds_done: AtomicU64,
    /// The pid of the process in which a worker serves a session, 0 when none.
    pub serving: AtomicU32,
    /// Thread id of the worker.
    pub worker: AtomicU32,
    /// Futex word that the worker waits on; counts the calls of [`crate::changes::wake`].
    pub calls: AtomicU32,
    /// Whether notes are taken, and those that wait ([`crate::notes`]).
    pub notes_open: AtomicBool,
    pub notes: Mutex<Vec<String>>,
    /// Notes for which there are no records any more.
    pub last_words: Mutex<Vec<String>>,
    /// Clients, contexts, buffers and callback threads.
    pub registry: Mutex<Registry>,
    /// Goes with `registry`: a buffer's callback has returned.
    pub buffer_is_free: Condvar,
    /// Texts that tools were given ([`crate::interned`]).
    pub interned: Mutex<Option<HashSet<&'static CStr>>>,
    /// What tools were told is loaded ([`crate::code_object`]).
    pub loaded: Mutex<Vec<Loaded>>,
    /// What the program registered of its kernels ([`crate::code_object::hosts`]).
    pub host_functions: Mutex<Option<Hosts>>,
    /// Settings of the session ([`crate::setting`]).
    pub settings: Mutex<Option<Store>>,
    /// External correlation ids by context and thread, and whether a tool has pushed any.
    pub external: Mutex<Option<HashMap<(u64, u64), Stack>>>,
    pub external_used: AtomicU64,
    /// Correlation ids that wait for their retirement, and whether that is wanted.
    pub retirement: Mutex<Option<Waiting>>,
    pub follows_ids: AtomicBool,
    /// Tools' functions that get runtimes' tables ([`crate::intercept`]).
    pub interceptors: Mutex<Vec<Interceptor>>,
    /// Tools' functions that are called when a thread is made.
    pub listeners: Mutex<Vec<Listener>>,
    /// `hsa_agent_t` handles by KFD node.
    pub agent_handles: Mutex<Option<HashMap<u32, u64>>>,
    /// Counters that tools ask about ([`crate::counting`]).
    pub counting: Mutex<Counting>,
    /// Services that count around dispatches, and who counts for devices.
    pub dispatch_counting: RwLock<Vec<DispatchService>>,
    pub counting_engine: Mutex<Option<&'static dyn Engine>>,
    /// The machine's agents, made once ([`crate::agents`]).
    pub agents: OnceLock<&'static List>,
    /// The search for tools ([`crate::registration::discover`]).
    pub search: AtomicEnum<Search>,
    /// An attacher's engine brought this library: nothing in the process asked for it.
    pub entered_by_engine: AtomicBool,
    /// The process in which tools end at the exit. A child has no tool of its own to end.
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

/// Takes the registry's lock. A panic of another holder does not matter: every change is made in one piece.
pub(crate) fn lock() -> MutexGuard<'static, Registry> {
    STATE
        .registry
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
}

/// Replaces the state in a forked child: the parent's tools are not the child's.
///
/// # Safety
/// In a forked child that has had no session of its own: no other thread uses the state.
pub unsafe fn reset_after_fork() {
    // What stays are facts of the process: the machine's agents, how this library was loaded, the
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
                    // Nobody has set it: it is fresh.
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
