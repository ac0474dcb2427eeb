//! Tools: how they are configured, attached, detached and ended (source:
//! `docs/sources.md#register`). How they are found and loaded is in [`library`] and [`discover`].
//!
//! A tool's functions are called in this order: `midair_tool_bind` if it has one (ours has),
//! `rocprofiler_configure`, immediately after that `rocprofiler_configure_attach`, then
//! `initialize`, which is the only time at which the tool may make contexts. Each attach calls
//! `tool_attach`. At each detach the tool's contexts are stopped, what was recorded is delivered,
//! its buffers are flushed, and `tool_detach` is called. `finalize` is called once, at the end of
//! the process. A tool of the first generation has `rocprofiler_configure_experimental` instead,
//! whose `tool_reattach` is called from the second attach on.
//!
//! An attach reaches only the tools that were named for it. Those that the process was started with,
//! and those that are part of the application, are left as they are.

use crate::buffer;
use crate::code_object;
use crate::context;
use crate::registry::{self, Registry};
use crate::state::{self, STATE};
use crate::status::Status;
use midair_abi::registration::{
    ClientId, Configure, ConfigureAttach, ConfigureExperimental, ConfigureResult,
};
use std::cell::Cell;
use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

pub(crate) mod client;
pub mod discover;
pub mod library;
pub(crate) mod out;
pub(crate) mod search;

use client::{Client, Hooks, Phase, Source};
pub use discover::find_clients;
pub use library::{load, load_list};
use midair_tool_call::{Thrown, call};
pub use out::{expel_reported, why};

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
    /// `rocprofiler_configure_experimental`. It covers all of `rocprofiler_configure`, and is called
    /// in its place where the tool does not have `rocprofiler_configure_attach` as well.
    pub experimental: Option<ConfigureExperimental>,
}

impl Entry {
    /// Address of the function by which the tool is known.
    fn function(&self) -> usize {
        self.configure.map_or_else(
            || self.experimental.map_or(0, |function| function as usize),
            |function| function as usize,
        )
    }
}

/// Why a tool was not configured.
#[derive(Debug)]
enum NotConfigured {
    Because(Status),
    /// Its function of this name did not return.
    Thrown(&'static str, Thrown),
}

impl From<Status> for NotConfigured {
    fn from(status: Status) -> NotConfigured {
        NotConfigured::Because(status)
    }
}

impl NotConfigured {
    /// Where we asked for it: what was thrown ends here, and is told.
    fn told(self) -> Status {
        match self {
            NotConfigured::Because(status) => status,
            NotConfigured::Thrown(stage, thrown) => {
                out::keep(format!("in its {stage} {thrown}"));
                Status::ERROR
            }
        }
    }
}

thread_local! {
    static IN_ATTACHMENT: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread is inside the configuration of a tool that was named for an attach.
pub fn is_current_client_attachment() -> bool {
    IN_ATTACHMENT.get()
}

/// `rocprofiler_force_configure`: a tool that is part of the application. One whose function was
/// forced before is left alone; one that was found before otherwise is refused, as AMD's library
/// does: it has had its configuration.
///
/// # Errors
/// What the tool's functions threw, which is the application's to catch: nothing of the tool is left
/// here then.
///
/// # Safety
/// `configure` must be a function of that type.
pub unsafe fn force(configure: Configure) -> Result<Result<(), Status>, Thrown> {
    let source = Source::Forced(configure as usize);
    {
        let state = state::lock();
        if state.finalized {
            return Ok(Err(Status::FINALIZED));
        }
        if state.busy {
            return Ok(Err(Status::CONFIGURATION_LOCKED));
        }
        let same = |client: &&Client| client.function == configure as usize;
        if let Some(known) = state.clients.iter().find(same) {
            return Ok(match known.source {
                Source::Forced(_) => Ok(()),
                Source::Start(_) | Source::Attachment(_) => Err(Status::CONFIGURATION_LOCKED),
            });
        }
    }
    let entry = Entry {
        configure: Some(configure),
        attach: None,
        experimental: None,
    };
    match configure_client(source, entry) {
        Ok(()) => Ok(Ok(())),
        Err(NotConfigured::Because(status)) => Ok(Err(status)),
        Err(NotConfigured::Thrown(_, thrown)) => Err(thrown),
    }
}

/// Configures and initialises a tool. One at a time, and not from inside another tool's
/// configuration.
fn configure_client(source: Source, entry: Entry) -> Result<(), NotConfigured> {
    {
        let mut state = state::lock();
        state.refusal = None;
        if state.finalized {
            return Err(Status::FINALIZED.into());
        }
        if std::mem::replace(&mut state.busy, true) {
            return Err(Status::CONFIGURATION_LOCKED.into());
        }
    }
    end_at_exit();
    IN_ATTACHMENT.set(source.is_attachment());
    let result = configure_alone(source, entry);
    IN_ATTACHMENT.set(false);
    state::lock().busy = false;
    result
}

/// What a tool's `configure` functions returned.
struct Configured {
    result: ConfigureResult,
    hooks: Hooks,
}

/// Calls a tool's `configure` functions. `None`: it declines.
fn configure_tool(
    entry: Entry,
    priority: u32,
    id: *mut ClientId,
) -> Result<Option<Configured>, NotConfigured> {
    let text = VERSION_TEXT.as_ptr();
    let lent = [(id.cast_const().cast::<c_void>(), size_of::<ClientId>())];
    if let (Some(configure), None) = (entry.experimental, entry.attach) {
        // SAFETY: the tool's function, with arguments as the C API describes them; `id` lives for
        // ever.
        let answer = call(&lent, || unsafe {
            configure(VERSION_NUMBER, text, priority, id)
        })
        .map_err(|thrown| NotConfigured::Thrown("rocprofiler_configure_experimental", thrown))?;
        // SAFETY: the result is null or the tool's struct, which lives at least until its next
        // function is called. Only fields that its size covers are read.
        let Some(answer) = (unsafe { answer.as_ref() }) else {
            return Ok(None);
        };
        let whole = answer.size >= size_of_val(answer);
        return Ok(whole.then_some(Configured {
            result: ConfigureResult {
                size: size_of::<ConfigureResult>(),
                initialize: answer.initialize,
                finalize: answer.finalize,
                tool_data: answer.tool_data,
            },
            hooks: Hooks::Experimental {
                reattach: answer.tool_reattach,
                detach: answer.tool_detach,
                data: answer.tool_data,
            },
        }));
    }
    let Some(configure) = entry.configure else {
        return Ok(None);
    };
    // SAFETY: as above.
    let result = call(&lent, || unsafe {
        configure(VERSION_NUMBER, text, priority, id)
    })
    .map_err(|thrown| NotConfigured::Thrown("rocprofiler_configure", thrown))?;
    // SAFETY: as above.
    let result = unsafe { result.as_ref() }
        .filter(|result| result.size >= size_of::<ConfigureResult>())
        .copied();
    let Some(result) = result else {
        return Ok(None);
    };
    let attach = match entry.attach {
        None => None,
        Some(configure) => {
            // SAFETY: as above.
            let answer = call(&lent, || unsafe {
                configure(VERSION_NUMBER, text, priority, id)
            })
            .map_err(|thrown| NotConfigured::Thrown("rocprofiler_configure_attach", thrown))?;
            // SAFETY: as above.
            unsafe { answer.as_ref() }.filter(|answer| answer.size >= size_of_val(*answer))
        }
    };
    let hooks = attach.map_or(Hooks::None, |answer| Hooks::Attach {
        attach: answer.tool_attach,
        detach: answer.tool_detach,
        data: answer.tool_data,
    });
    Ok(Some(Configured { result, hooks }))
}

/// What the registry holds before a tool is configured: a tool that is part of the application and
/// throws leaves nothing behind.
#[derive(Debug, Clone, Copy)]
struct Before {
    clients: usize,
    contexts: usize,
    buffers: usize,
    threads: usize,
    initialized: bool,
}

impl Before {
    fn now(state: &Registry) -> Before {
        Before {
            clients: state.clients.len(),
            contexts: state.contexts.len(),
            buffers: state.buffers.len(),
            threads: state.threads.len(),
            initialized: state.initialized,
        }
    }

    /// Removes what a client has made since. Only one is configured at a time.
    fn restore(self) {
        let mut state = state::lock();
        let made: Vec<u64> = (self.contexts as u64 + 1..=state.contexts.len() as u64).collect();
        drop(state);
        context::stop_all(&made);
        state = state::lock();
        state.clients.truncate(self.clients);
        state.contexts.truncate(self.contexts);
        state.buffers.truncate(self.buffers);
        let kept = self.threads.min(state.threads.len());
        let ended = state.threads.split_off(kept);
        state.initialized = self.initialized;
        drop(state);
        // Their threads end when there is nobody who could send them work.
        drop(ended);
        midair_sdk_hot::callbacks::readmit(&made);
    }
}

fn configure_alone(source: Source, entry: Entry) -> Result<(), NotConfigured> {
    let before = Before::now(&state::lock());
    let priority = state::lock().clients.len() as u32;
    let handle = priority + 1;
    // The tool may keep the pointer for ever.
    let id: &'static mut ClientId = Box::leak(Box::new(ClientId {
        size: size_of::<ClientId>(),
        name: std::ptr::null(),
        handle,
    }));
    let Some(Configured { result, hooks }) = configure_tool(entry, priority, &raw mut *id)? else {
        out::keep("it declined: its rocprofiler_configure returned nothing".to_owned());
        return Err(Status::NOT_AVAILABLE.into());
    };
    {
        let mut state = state::lock();
        state.clients.push(Client {
            handle,
            function: entry.function(),
            source,
            named: source.is_attachment(),
            result,
            hooks,
            phase: Phase::Configured,
            was_attached: false,
            resume: Vec::new(),
        });
        state.configuring = Some(handle);
    }
    let answer = result.initialize.map_or(Ok(0), |initialize| {
        // SAFETY: the tool's function with its own data.
        call(&[], || unsafe {
            initialize(Some(end_client), result.tool_data)
        })
    });
    state::lock().configuring = None;
    let answer = match answer {
        Ok(answer) => answer,
        Err(thrown) if matches!(source, Source::Forced(_)) => {
            before.restore();
            return Err(NotConfigured::Thrown("initialize", thrown));
        }
        Err(thrown) => {
            out::expel(handle, "initialize", &thrown);
            return Err(NotConfigured::Thrown("initialize", thrown));
        }
    };
    {
        let mut state = state::lock();
        state.initialized = true;
        let phase = if answer == 0 {
            Phase::Initialized
        } else {
            Phase::Ended
        };
        set_phase(&mut state, handle, phase);
    }
    if answer != 0 {
        context::stop_all(&contexts_of(handle));
        out::keep(format!("it failed: its initialize returned {answer}"));
        return Err(Status::ERROR.into());
    }
    if source.is_attachment() {
        // The contexts that it has started begin with the attach, which may yet fail because of
        // another tool.
        let started = running(&contexts_of(handle));
        with_client(handle, |client| client.resume.clone_from(&started));
        context::stop_all(&started);
    }
    Ok(())
}

/// Those of the contexts that are running.
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

/// `rocprofiler_client_finalize_t`: a tool ends itself. What its `finalize` throws is its own to
/// catch.
unsafe extern "C-unwind" fn end_client(id: ClientId) {
    let thrown = midair_capi_build::edge(None, || {
        let finalize = {
            let mut state = state::lock();
            let client = registry::index(u64::from(id.handle))
                .and_then(|index| state.clients.get_mut(index));
            let client = client.filter(|client| client.phase != Phase::Ended)?;
            // A tool whose `initialize` has not returned has nothing to finalize.
            let begun = client.phase != Phase::Configured;
            client.phase = Phase::Ended;
            client
                .result
                .finalize
                .filter(|_| begun)
                .map(|finalize| (finalize, client.result.tool_data))
        };
        let contexts = contexts_of(id.handle);
        context::stop_all(&contexts);
        buffer::flush_contexts(&contexts);
        let (finalize, data) = finalize?;
        // SAFETY: the tool's function with its own data.
        call(&[], || unsafe { finalize(data) }).err()
    });
    if let Some(thrown) = thrown {
        thrown.pass_on();
    }
}

/// A client that is being attached or detached: what is needed of it while no lock is held.
struct Transition {
    handle: u32,
    hooks: Hooks,
    was_attached: bool,
    contexts: Vec<u64>,
    resume: Vec<u64>,
}

/// Moves every client that is in phase `from` and passes `fits` to the phase `to`, and returns them.
/// The caller is then the only one that works on them.
fn begin_transitions(from: Phase, to: Phase, fits: impl Fn(&Client) -> bool) -> Vec<Transition> {
    let mut transitions: Vec<Transition> = {
        let mut state = state::lock();
        let clients = state
            .clients
            .iter_mut()
            .filter(|client| client.phase == from && fits(client));
        clients
            .map(|client| {
                client.phase = to;
                Transition {
                    handle: client.handle,
                    hooks: client.hooks,
                    was_attached: client.was_attached,
                    contexts: Vec::new(),
                    resume: std::mem::take(&mut client.resume),
                }
            })
            .collect()
    };
    for transition in &mut transitions {
        transition.contexts = contexts_of(transition.handle);
    }
    transitions
}

/// Begins the naming of tools for the next attach: those of the last one stay loaded and are left
/// alone.
pub fn begin_session() {
    let mut state = state::lock();
    state
        .clients
        .iter_mut()
        .for_each(|client| client.named = false);
    state.named_used = false;
}

/// Names a tool that is already configured. `None`: it is not known; false: it has ended.
fn name_known(source: Source) -> Option<bool> {
    let mut state = state::lock();
    let client = state
        .clients
        .iter_mut()
        .find(|client| client.source == source)?;
    client.named = client.phase != Phase::Ended;
    Some(client.named)
}

/// Whether a tool with this function has been configured, wherever it came from: a program that
/// hands its `rocprofiler_configure` over by `rocprofiler_force_configure` often shows it, too.
fn is_known(function: usize) -> bool {
    let state = state::lock();
    state
        .clients
        .iter()
        .any(|client| client.function == function)
}

/// Whether an attach would reach a tool.
pub fn has_named() -> bool {
    state::lock().clients.iter().any(|client| client.named)
}

/// Whether the tool whose library has this function is at work: attached, or there from the start.
/// A function of a library that is no tool's is taken for one's.
pub fn is_at_work(function: usize) -> bool {
    let Some(home) = library::base_of(function) else {
        return true;
    };
    let state = state::lock();
    let mut owners = state
        .clients
        .iter()
        .filter(|client| library::base_of(client.function) == Some(home))
        .peekable();
    owners.peek().is_none()
        || owners.any(|client| match client.phase {
            Phase::Attached => true,
            Phase::Configured | Phase::Initialized => !client.source.is_attachment(),
            Phase::Detaching | Phase::Ended => false,
        })
}

/// Whether a tool that the process was started with is named, that is, one of ours.
pub fn has_started() -> bool {
    let state = state::lock();
    state
        .clients
        .iter()
        .any(|client| client.named && !client.source.is_attachment())
}

/// Whether a context runs that no attach brought: one of a tool that the process was started with,
/// or of a profiler of its own.
pub fn runs_by_itself() -> bool {
    let state = state::lock();
    let brought = |client: u32| {
        let mut clients = state.clients.iter();
        clients
            .find(|it| it.handle == client)
            .is_some_and(|it| it.source.is_attachment())
    };
    let mut running = state.contexts.iter().filter(|context| context.active);
    running.any(|context| !brought(context.client))
}

/// A caller that names tools one by one begins again once they have been attached.
fn begin_names() {
    if state::lock().named_used {
        begin_session();
    }
}

/// Attaches every tool that was named for it: calls its `tool_attach`, which starts contexts. For a
/// tool without one, the contexts are started that ran when it was last detached, or, the first
/// time, those that it had started when it was initialised.
///
/// # Errors
/// [`Status::NOT_AVAILABLE`] when there is no tool, [`Status::ERROR`] when one refuses: its contexts
/// are stopped again, and its `tool_detach` is called; the others are attached.
pub fn attach() -> Result<(), Status> {
    state::lock().named_used = true;
    let transitions = begin_transitions(Phase::Initialized, Phase::Attached, |client| client.named);
    let mut outcome = if transitions.is_empty() {
        Err(Status::NOT_AVAILABLE)
    } else {
        Ok(())
    };
    for mut transition in transitions {
        with_client(transition.handle, |client| client.was_attached = true);
        for context in &transition.resume {
            let _ = context::start(*context);
        }
        let answer = match transition.hooks {
            Hooks::None => Ok(0),
            Hooks::Experimental { reattach, data, .. } => {
                let reattach = reattach.filter(|_| transition.was_attached);
                reattach.map_or(Ok(0), |reattach| {
                    // SAFETY: the tool's function with its own data.
                    call(&[], || unsafe { reattach(data) }).map(|()| 0)
                })
            }
            Hooks::Attach { attach, data, .. } => attach.map_or(Ok(0), |attach| {
                let list = transition.contexts.as_mut_slice();
                let lent = [(list.as_ptr().cast(), size_of_val(list))];
                let (list, count) = (list.as_mut_ptr(), list.len() as u64);
                // SAFETY: the tool's function with its own data and a list that lives during the
                // call. There is no detach function, as with AMD's library.
                call(&lent, || unsafe { attach(None, list, count, data) })
            }),
        };
        let answer = match answer {
            Ok(answer) => answer,
            Err(thrown) => {
                out::expel(transition.handle, "tool_attach", &thrown);
                out::keep(format!("in its tool_attach {thrown}"));
                outcome = Err(Status::ERROR);
                continue;
            }
        };
        if answer != 0 {
            with_client(transition.handle, |client| {
                client.phase = Phase::Detaching;
                client.was_attached = transition.was_attached;
                client.resume.clone_from(&transition.resume);
            });
            detach_one(&transition);
            out::keep(format!("its tool_attach returned {answer}"));
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
    let transitions = begin_transitions(Phase::Attached, Phase::Detaching, |_| true);
    if transitions.is_empty() {
        return Err(Status::NOT_AVAILABLE);
    }
    for transition in transitions
        .iter()
        .filter(|transition| !transition.hooks.starts())
    {
        let ran = running(&transition.contexts);
        with_client(transition.handle, |client| client.resume = ran);
    }
    // All at the same time, so that the collecting side stops and drains once.
    let all: Vec<u64> = transitions
        .iter()
        .flat_map(|transition| transition.contexts.iter().copied())
        .collect();
    context::stop_all(&all);
    transitions.iter().for_each(detach_one);
    Ok(())
}

fn detach_one(transition: &Transition) {
    context::stop_all(&transition.contexts);
    buffer::flush_contexts(&transition.contexts);
    let notice = match transition.hooks {
        Hooks::None => None,
        Hooks::Attach { detach, data, .. } | Hooks::Experimental { detach, data, .. } => {
            detach.map(|detach| (detach, data))
        }
    };
    if let Some((tool_detach, data)) = notice {
        // SAFETY: the tool's function with its own data.
        if let Err(thrown) = call(&[], || unsafe { tool_detach(data) }) {
            out::expel(transition.handle, "tool_detach", &thrown);
        }
    }
    // A tool may have ended itself in between.
    with_client(transition.handle, |client| {
        if client.phase == Phase::Detaching {
            client.phase = Phase::Initialized;
        }
    });
}

/// Ends everything, once: detaches, stops and flushes what is still running, then calls every tool's
/// `finalize`. For the end of the process.
pub fn finalize() {
    let _ = detach();
    wait_for_detaches();
    if std::mem::replace(&mut state::lock().finalized, true) {
        return;
    }
    let handles: Vec<u32> = {
        let state = state::lock();
        let living = state
            .clients
            .iter()
            .filter(|client| client.phase != Phase::Ended);
        living.map(|client| client.handle).collect()
    };
    let all: Vec<u64> = handles
        .iter()
        .flat_map(|handle| contexts_of(*handle))
        .collect();
    // As AMD's: what is loaded counts as unloaded, before the tools end.
    code_object::unload_all();
    context::stop_all(&all);
    buffer::flush_contexts(&all);
    for handle in handles {
        let mut end = None;
        with_client(handle, |client| {
            if client.phase != Phase::Ended {
                // One whose `initialize` has not returned has nothing to finalize.
                let begun = client.phase != Phase::Configured;
                client.phase = Phase::Ended;
                end = client
                    .result
                    .finalize
                    .filter(|_| begun)
                    .map(|finalize| (finalize, client.result.tool_data));
            }
        });
        if let Some((finalize, data)) = end {
            // The process ends: nobody is left to be told.
            // SAFETY: the tool's function with its own data.
            let _ = call(&[], || unsafe { finalize(data) });
        }
    }
    state::lock().ended = true;
}

/// Waits, for at most two seconds, until no tool is being detached: the worker thread may be in the
/// middle of a detach and have tools still to call.
fn wait_for_detaches() {
    let end = Instant::now() + Duration::from_secs(2);
    let detaching = || {
        state::lock()
            .clients
            .iter()
            .any(|client| client.phase == Phase::Detaching)
    };
    while detaching() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Has [`finalize`] called when this process exits; once. Whatever stops the collection at the exit
/// must be registered later, since the exit calls the last one first.
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
