//! Tools: how they are configured, attached, detached and ended (source: `docs/sources.md#register`). How they are found and
//! loaded is in [`library`] and [`discover`].
//!
//! Order for a tool: `midair_tool_bind` if it has one (ours has), `rocprofiler_configure`, at once `rocprofiler_configure_attach`,
//! then `initialize`, the only time at which it may make contexts. At each attach `tool_attach`; at each detach its contexts are
//! stopped, what was recorded is delivered, its buffers are flushed, then `tool_detach`. `finalize` once, at the end of the process.
//! A tool of the first generation has `rocprofiler_configure_experimental` instead, with `tool_reattach` from the second attach on.
//!
//! An attach reaches the tools that were named for it, and no others: those that the process was started with, and those that are
//! part of the application, go on as they are.

use crate::buffer;
use crate::context;
use crate::registry::{self, Registry};
use crate::state::{self, STATE};
use crate::status::Status;
use midair_abi::registration::{
    ClientId, Configure, ConfigureAttach, ConfigureExperimental, ConfigureResult,
};
use std::cell::Cell;
use std::ffi::{CStr, c_int};
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

pub(crate) mod client;
pub mod discover;
pub mod library;
pub(crate) mod search;

use client::{Client, Hooks, Phase, Source};
pub use discover::find_clients;
pub use library::{load, load_list};

/// Our version as tools see it, 10000 major + 100 minor + patch: the interface is that of 1.2.1.
pub const VERSION: (u32, u32, u32) = (1, 2, 1);
/// [`VERSION`] in one number.
pub const VERSION_NUMBER: u32 = VERSION.0 * 10000 + VERSION.1 * 100 + VERSION.2;
/// [`VERSION`] in words.
pub const VERSION_TEXT: &CStr = c"1.2.1";

/// The functions by which a tool is configured, as far as its library has them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    /// `rocprofiler_configure`.
    pub configure: Option<Configure>,
    /// `rocprofiler_configure_attach`.
    pub attach: Option<ConfigureAttach>,
    /// `rocprofiler_configure_experimental`. It says all that `rocprofiler_configure` does, and is asked in its place where the tool
    /// does not have `rocprofiler_configure_attach` as well.
    pub experimental: Option<ConfigureExperimental>,
}

thread_local! {
    static IN_ATTACHMENT: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread is inside the configuration of a tool that was named for an attach.
pub fn is_current_client_attachment() -> bool {
    IN_ATTACHMENT.get()
}

/// `rocprofiler_force_configure`: a tool that is part of the application.
///
/// # Safety
/// `configure` must be a function of that type.
pub unsafe fn force(configure: Configure) -> Result<(), Status> {
    let source = Source::Forced(configure as usize);
    {
        let state = state::lock();
        if state.finalized {
            return Err(Status::FINALIZED);
        }
        if state.busy {
            return Err(Status::CONFIGURATION_LOCKED);
        }
        if state.clients.iter().any(|client| client.source == source) {
            return Ok(());
        }
    }
    let entry = Entry {
        configure: Some(configure),
        attach: None,
        experimental: None,
    };
    configure_client(source, entry)
}

/// Configures and initialises a tool. One at a time; not from inside another's.
fn configure_client(source: Source, entry: Entry) -> Result<(), Status> {
    {
        let mut state = state::lock();
        if state.finalized {
            return Err(Status::FINALIZED);
        }
        if std::mem::replace(&mut state.busy, true) {
            return Err(Status::CONFIGURATION_LOCKED);
        }
    }
    end_at_exit();
    IN_ATTACHMENT.set(source.is_attachment());
    let result = configure_alone(source, entry);
    IN_ATTACHMENT.set(false);
    state::lock().busy = false;
    result
}

/// What a tool's `configure` functions said.
struct Said {
    result: ConfigureResult,
    hooks: Hooks,
}

/// Calls a tool's `configure` functions. `None`: it declines.
fn ask_tool(entry: Entry, priority: u32, id: *mut ClientId) -> Option<Said> {
    let text = VERSION_TEXT.as_ptr();
    if let (Some(configure), None) = (entry.experimental, entry.attach) {
        // SAFETY: the tool's function, with arguments as the C API describes them; `id` lives for ever. The result is null, or the
        // tool's struct, which lives at least until its next function is called; only fields that its size covers are read.
        let said = unsafe { configure(VERSION_NUMBER, text, priority, id).as_ref() }?;
        let whole = said.size >= size_of_val(said);
        return whole.then_some(Said {
            result: ConfigureResult {
                size: size_of::<ConfigureResult>(),
                initialize: said.initialize,
                finalize: said.finalize,
                tool_data: said.tool_data,
            },
            hooks: Hooks::Experimental {
                reattach: said.tool_reattach,
                detach: said.tool_detach,
                data: said.tool_data,
            },
        });
    }
    // SAFETY: as above.
    let result = unsafe { (entry.configure?)(VERSION_NUMBER, text, priority, id).as_ref() }
        .filter(|result| result.size >= size_of::<ConfigureResult>())
        .copied()?;
    // SAFETY: as above.
    let attach = entry
        .attach
        .and_then(|configure| unsafe { configure(VERSION_NUMBER, text, priority, id).as_ref() })
        .filter(|said| said.size >= size_of_val(*said));
    let hooks = attach.map_or(Hooks::None, |said| Hooks::Attach {
        attach: said.tool_attach,
        detach: said.tool_detach,
        data: said.tool_data,
    });
    Some(Said { result, hooks })
}

fn configure_alone(source: Source, entry: Entry) -> Result<(), Status> {
    let priority = state::lock().clients.len() as u32;
    let handle = priority + 1;
    // The tool may keep the pointer for ever.
    let id: &'static mut ClientId = Box::leak(Box::new(ClientId {
        size: size_of::<ClientId>(),
        name: std::ptr::null(),
        handle,
    }));
    let Some(Said { result, hooks }) = ask_tool(entry, priority, &raw mut *id) else {
        return Err(Status::NOT_AVAILABLE);
    };
    {
        let mut state = state::lock();
        state.clients.push(Client {
            id,
            source,
            named: source.is_attachment(),
            result,
            hooks,
            phase: Phase::Configured,
            before: false,
            resume: Vec::new(),
        });
        state.configuring = Some(handle);
    }
    // SAFETY: the tool's function with its own data.
    let answer = result.initialize.map_or(0, |initialize| unsafe {
        initialize(Some(end_client), result.tool_data)
    });
    {
        let mut state = state::lock();
        state.configuring = None;
        state.initialized = true;
        let phase = if answer == 0 {
            Phase::Initialized
        } else {
            Phase::Out
        };
        set_phase(&mut state, handle, phase);
    }
    if answer != 0 {
        context::stop_all(&contexts_of(handle));
        return Err(Status::ERROR);
    }
    if source.is_attachment() {
        // What it has started begins with the attach, which may yet fail for another tool's sake.
        let started = running(&contexts_of(handle));
        with_client(handle, |client| client.resume.clone_from(&started));
        context::stop_all(&started);
    }
    Ok(())
}

/// Those of the contexts that run.
fn running(contexts: &[u64]) -> Vec<u64> {
    let mut state = state::lock();
    let active = |handle: &u64| state.context(*handle).is_ok_and(|context| context.active);
    contexts.iter().copied().filter(active).collect()
}

fn with_client(handle: u32, change: impl FnOnce(&mut Client)) {
    let mut state = state::lock();
    if let Some(client) =
        registry::index(u64::from(handle)).and_then(|index| state.clients.get_mut(index))
    {
        change(client);
    }
}

fn set_phase(state: &mut Registry, handle: u32, phase: Phase) {
    if let Some(client) =
        registry::index(u64::from(handle)).and_then(|index| state.clients.get_mut(index))
    {
        client.phase = phase;
    }
}

/// Handles of a client's contexts.
fn contexts_of(client: u32) -> Vec<u64> {
    let state = state::lock();
    let handles = (1..).zip(&state.contexts);
    handles
        .filter(|(_, context)| context.client == client)
        .map(|(handle, _)| handle)
        .collect()
}

/// `rocprofiler_client_finalize_t`: a tool ends itself.
unsafe extern "C" fn end_client(id: ClientId) {
    midair_capi_build::edge((), || {
        let finalize = {
            let mut state = state::lock();
            let client = registry::index(u64::from(id.handle))
                .and_then(|index| state.clients.get_mut(index));
            let Some(client) = client.filter(|client| client.phase != Phase::Out) else {
                return;
            };
            client.phase = Phase::Out;
            client
                .result
                .finalize
                .map(|finalize| (finalize, client.result.tool_data))
        };
        let contexts = contexts_of(id.handle);
        context::stop_all(&contexts);
        buffer::flush_contexts(&contexts);
        if let Some((finalize, data)) = finalize {
            // SAFETY: the tool's function with its own data.
            unsafe { finalize(data) };
        }
    });
}

/// What is needed of a client while no lock is held.
struct Turn {
    handle: u32,
    hooks: Hooks,
    before: bool,
    contexts: Vec<u64>,
    resume: Vec<u64>,
}

/// Takes every client that is `from`, and fits, to the phase `to`. Whoever takes one is alone with it.
fn take_turns(from: Phase, to: Phase, fits: impl Fn(&Client) -> bool) -> Vec<Turn> {
    let mut turns: Vec<Turn> = {
        let mut state = state::lock();
        let clients = state
            .clients
            .iter_mut()
            .filter(|client| client.phase == from && fits(client));
        clients
            .map(|client| {
                client.phase = to;
                Turn {
                    handle: client.id.handle,
                    hooks: client.hooks,
                    before: client.before,
                    contexts: Vec::new(),
                    resume: std::mem::take(&mut client.resume),
                }
            })
            .collect()
    };
    for turn in &mut turns {
        turn.contexts = contexts_of(turn.handle);
    }
    turns
}

/// The next attach names its tools anew: those of the last one stay loaded and are left alone.
pub fn begin_session() {
    let mut state = state::lock();
    state
        .clients
        .iter_mut()
        .for_each(|client| client.named = false);
    state.named_used = false;
}

/// Names a tool that is configured already. `None`: it is not known; false: it is out.
fn name_again(source: Source) -> Option<bool> {
    let mut state = state::lock();
    let client = state
        .clients
        .iter_mut()
        .find(|client| client.source == source)?;
    client.named = client.phase != Phase::Out;
    Some(client.named)
}

/// Whether a tool from there has been configured.
fn is_known(source: Source) -> bool {
    let state = state::lock();
    state.clients.iter().any(|client| client.source == source)
}

/// Whether an attach would reach a tool.
pub fn has_named() -> bool {
    state::lock().clients.iter().any(|client| client.named)
}

/// Whether there is a tool that the process was started with and that waits to be attached: one of ours.
pub fn has_started() -> bool {
    let state = state::lock();
    state
        .clients
        .iter()
        .any(|client| client.named && !client.source.is_attachment())
}

/// A caller that names tools one by one names them anew once they have been attached.
fn begin_naming() {
    if state::lock().named_used {
        begin_session();
    }
}

/// Attaches every tool that was named for it: calls its `tool_attach`, which starts contexts. A tool without one gets the contexts
/// started that ran when it was last detached, or, the first time, that it had started when it was initialised.
///
/// # Errors
/// [`Status::NOT_AVAILABLE`] when there is no tool, [`Status::ERROR`] when one refuses: its contexts are stopped again, and its
/// `tool_detach` is called; the others are attached.
pub fn attach() -> Result<(), Status> {
    state::lock().named_used = true;
    let turns = take_turns(Phase::Initialized, Phase::Attached, |client| client.named);
    let mut outcome = if turns.is_empty() {
        Err(Status::NOT_AVAILABLE)
    } else {
        Ok(())
    };
    for mut turn in turns {
        with_client(turn.handle, |client| client.before = true);
        for context in &turn.resume {
            let _ = context::start(*context);
        }
        let answer = match turn.hooks {
            Hooks::None => 0,
            Hooks::Experimental { reattach, data, .. } => {
                if let Some(reattach) = reattach.filter(|_| turn.before) {
                    // SAFETY: the tool's function with its own data.
                    unsafe { reattach(data) };
                }
                0
            }
            Hooks::Attach { attach, data, .. } => attach.map_or(0, |attach| {
                let (list, count) = (turn.contexts.as_mut_ptr(), turn.contexts.len() as u64);
                // SAFETY: the tool's function with its own data and a list that lives during the call; no detach function, as AMD's.
                unsafe { attach(None, list, count, data) }
            }),
        };
        if answer != 0 {
            with_client(turn.handle, |client| {
                client.phase = Phase::Leaving;
                client.before = turn.before;
                client.resume.clone_from(&turn.resume);
            });
            detach_one(&turn);
            outcome = Err(Status::ERROR);
        }
    }
    outcome
}

/// Detaches every attached tool.
///
/// # Errors
/// [`Status::NOT_AVAILABLE`] when none was attached.
pub fn detach() -> Result<(), Status> {
    let turns = take_turns(Phase::Attached, Phase::Leaving, |_| true);
    if turns.is_empty() {
        return Err(Status::NOT_AVAILABLE);
    }
    for turn in turns.iter().filter(|turn| !turn.hooks.starts()) {
        let ran = running(&turn.contexts);
        with_client(turn.handle, |client| client.resume = ran);
    }
    // All at one moment, so that the collecting side stops and drains once.
    let all: Vec<u64> = turns
        .iter()
        .flat_map(|turn| turn.contexts.iter().copied())
        .collect();
    context::stop_all(&all);
    turns.iter().for_each(detach_one);
    Ok(())
}

fn detach_one(turn: &Turn) {
    context::stop_all(&turn.contexts);
    buffer::flush_contexts(&turn.contexts);
    let told = match turn.hooks {
        Hooks::None => None,
        Hooks::Attach { detach, data, .. } | Hooks::Experimental { detach, data, .. } => {
            detach.map(|detach| (detach, data))
        }
    };
    if let Some((tool_detach, data)) = told {
        // SAFETY: the tool's function with its own data.
        unsafe { tool_detach(data) };
    }
    // A tool may have ended itself in between.
    with_client(turn.handle, |client| {
        if client.phase == Phase::Leaving {
            client.phase = Phase::Initialized;
        }
    });
}

/// Ends everything, once: detaches, stops and flushes what still runs, then calls every tool's `finalize`. For the end of the process.
pub fn finalize() {
    let _ = detach();
    wait_for_leaving();
    if std::mem::replace(&mut state::lock().finalized, true) {
        return;
    }
    let handles: Vec<u32> = {
        let state = state::lock();
        let living = state
            .clients
            .iter()
            .filter(|client| client.phase != Phase::Out);
        living.map(|client| client.id.handle).collect()
    };
    let all: Vec<u64> = handles
        .iter()
        .flat_map(|handle| contexts_of(*handle))
        .collect();
    context::stop_all(&all);
    buffer::flush_contexts(&all);
    for handle in handles {
        let mut end = None;
        with_client(handle, |client| {
            if client.phase != Phase::Out {
                client.phase = Phase::Out;
                end = client
                    .result
                    .finalize
                    .map(|finalize| (finalize, client.result.tool_data));
            }
        });
        if let Some((finalize, data)) = end {
            // SAFETY: the tool's function with its own data.
            unsafe { finalize(data) };
        }
    }
}

/// Our thread may be in the middle of a detach: its tools are still to be told. Not waited for without end.
fn wait_for_leaving() {
    let end = Instant::now() + Duration::from_secs(2);
    let leaving = || {
        state::lock()
            .clients
            .iter()
            .any(|client| client.phase == Phase::Leaving)
    };
    while leaving() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Has [`finalize`] called when this process exits; once. What stops collecting at the exit must be registered later, since the exit
/// calls the last one first.
pub fn end_at_exit() {
    extern "C" fn at_exit() {
        // SAFETY: no arguments, no failure.
        if unsafe { libc::getpid() } == STATE.exit_process.load(SeqCst) {
            midair_capi_build::edge((), finalize);
        }
    }
    // SAFETY: as above; `at_exit` is a function of a library that is never unloaded.
    unsafe {
        let me = libc::getpid();
        if STATE.exit_process.swap(me, SeqCst) != me {
            libc::atexit(at_exit);
        }
    }
}

/// `rocprofiler_is_initialized`: 0 no, 1 yes, -1 a tool is being initialised.
pub fn is_initialized() -> c_int {
    let state = state::lock();
    if state.busy {
        -1
    } else {
        c_int::from(state.initialized)
    }
}

/// `rocprofiler_is_finalized`.
pub fn is_finalized() -> c_int {
    c_int::from(state::lock().finalized)
}
