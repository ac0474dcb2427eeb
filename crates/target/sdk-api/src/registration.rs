//! Tools: how they are configured, attached, detached and ended (source:
//! `docs/sources.md#register`). [`library`] and [`discover`] find and load them.
//!
//! A tool's functions are called in this order: `midair_tool_bind` if it has one (ours has),
//! `rocprofiler_configure`, immediately after that `rocprofiler_configure_attach`, then
//! `initialize`, which is the only time at which the tool may create contexts. Each attach calls
//! `tool_attach`. At each detach the tool's contexts are stopped, what was recorded is delivered,
//! its buffers are flushed, and `tool_detach` is called. `finalize` is called once, at the end of
//! the process. A tool of the first generation has `rocprofiler_configure_experimental` instead;
//! its `tool_reattach` is called from the second attach on.
//!
//! An attach affects only the tools that were named for it. Tools that the process was started
//! with, and tools that are part of the application, are left as they are.

use crate::buffer;
use crate::context;
use crate::registry::{self, Registry};
use crate::state;
use crate::status::Status;
use midair_abi::registration::{
    ClientId, Configure, ConfigureAttach, ConfigureExperimental, ConfigureResult,
};
use std::cell::Cell;
use std::ffi::{CStr, c_int, c_void};
use std::time::{Duration, Instant};

pub(crate) mod client;
pub mod discover;
pub mod library;
pub(crate) mod out;
pub(crate) mod search;
mod transitions;

use client::{Client, Hooks, Phase, Source};
pub use discover::find_clients;
pub use library::{load, load_list};
use midair_tool_call::{Thrown, call};
pub use out::{expel_reported, why};
pub use transitions::{attach, detach, end_at_exit, finalize};

/// Our version as tools see it, 10000 major + 100 minor + patch: we have the interface of 1.2.1.
pub const VERSION: (u32, u32, u32) = (1, 2, 1);
/// [`VERSION`] in one number.
pub const VERSION_NUMBER: u32 = VERSION.0 * 10000 + VERSION.1 * 100 + VERSION.2;
/// [`VERSION`] as text.
pub const VERSION_TEXT: &CStr = c"1.2.1";

/// The functions that configure a tool, as far as its library has them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    /// `rocprofiler_configure`.
    pub configure: Option<Configure>,
    /// `rocprofiler_configure_attach`.
    pub attach: Option<ConfigureAttach>,
    /// `rocprofiler_configure_experimental`. It does everything that `rocprofiler_configure` does,
    /// and is called in its place where the tool has no `rocprofiler_configure_attach`.
    pub experimental: Option<ConfigureExperimental>,
}

impl Entry {
    /// Returns the address of the function that identifies the tool.
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
    /// Returns the status for a configuration that we asked for: if something was thrown, this ends
    /// here and is reported.
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

/// `rocprofiler_force_configure`: configures a tool that is part of the application. If the same
/// function was forced before, nothing happens. If the tool was found in another way before, it is
/// refused, as by AMD's library, since it is configured already.
///
/// # Errors
/// What the tool's functions threw, which the application has to catch. Nothing of the tool is left
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

/// The longest time that an attach waits while another thread configures a tool.
const OTHERS_CONFIGURE: Duration = Duration::from_secs(2);

/// Configures and initialises a tool. Only one at a time, and not from inside another tool's
/// configuration. An attach is on a thread of its own, so it waits until another thread has
/// configured its tool, for [`OTHERS_CONFIGURE`] at most.
fn configure_client(source: Source, entry: Entry) -> Result<(), NotConfigured> {
    let deadline = Instant::now() + OTHERS_CONFIGURE;
    loop {
        let mut state = state::lock();
        state.refusal = None;
        if state.finalized {
            return Err(Status::FINALIZED.into());
        }
        if !std::mem::replace(&mut state.busy, true) {
            break;
        }
        drop(state);
        if !source.is_attachment() {
            return Err(Status::CONFIGURATION_LOCKED.into());
        }
        if Instant::now() >= deadline {
            out::keep("another tool's initialization has been running for 2 s".to_owned());
            return Err(Status::CONFIGURATION_LOCKED.into());
        }
        std::thread::sleep(Duration::from_millis(1));
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

/// Calls a tool's `configure` functions. Returns `None` if the tool declines.
fn configure_tool(
    entry: Entry,
    priority: u32,
    id: *mut ClientId,
) -> Result<Option<Configured>, NotConfigured> {
    let text = VERSION_TEXT.as_ptr();
    let lent = [(id.cast_const().cast::<c_void>(), size_of::<ClientId>())];
    if let (Some(configure), None) = (entry.experimental, entry.attach) {
        // SAFETY: this calls the tool's function with arguments as the C API describes them; `id`
        // lives forever.
        let answer = call(&lent, || unsafe {
            configure(VERSION_NUMBER, text, priority, id)
        })
        .map_err(|thrown| NotConfigured::Thrown("rocprofiler_configure_experimental", thrown))?;
        // SAFETY: the result is null or the tool's struct, which lives at least until the tool's
        // next function is called. Only fields that its size covers are read.
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

/// The sizes of the registry's lists before a tool is configured. They serve to remove everything
/// of a tool that is part of the application and throws.
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

    /// Removes what a client has created since then. Only one client is configured at a time.
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
        // Their threads end when no sender for their work is left.
        drop(ended);
        midair_sdk_hot::callbacks::readmit(&made);
    }
}

fn configure_alone(source: Source, entry: Entry) -> Result<(), NotConfigured> {
    let before = Before::now(&state::lock());
    let priority = state::lock().clients.len() as u32;
    let handle = priority + 1;
    // The tool may keep the pointer forever.
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
        // SAFETY: this calls the tool's function with its own data.
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
        // Stop the contexts that it has started. They start with the attach, which may still fail
        // because of another tool.
        let started = running(&contexts_of(handle));
        with_client(handle, |client| client.resume.clone_from(&started));
        context::stop_all(&started);
    }
    Ok(())
}

/// Returns the contexts that are running.
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

/// Returns the handles of a client's contexts.
fn contexts_of(client: u32) -> Vec<u64> {
    let state = state::lock();
    let handles = (1..).zip(&state.contexts);
    handles
        .filter(|(_, context)| context.client == client)
        .map(|(handle, _)| handle)
        .collect()
}

/// `rocprofiler_client_finalize_t`: a tool ends itself. What its `finalize` throws is for the tool
/// to catch.
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
        // SAFETY: this calls the tool's function with its own data.
        call(&[], || unsafe { finalize(data) }).err()
    });
    if let Some(thrown) = thrown {
        thrown.pass_on();
    }
}

/// Starts the naming of tools for the next attach. The tools of the last attach stay loaded, and
/// are left alone unless they are named again.
pub fn begin_session() {
    let mut state = state::lock();
    state
        .clients
        .iter_mut()
        .for_each(|client| client.named = false);
    state.named_used = false;
}

/// Names a tool that is already configured. `None`: the tool is unknown; false: it has ended.
fn name_known(source: Source) -> Option<bool> {
    let mut state = state::lock();
    let client = state
        .clients
        .iter_mut()
        .find(|client| client.source == source)?;
    client.named = client.phase != Phase::Ended;
    Some(client.named)
}

/// Whether a tool with this function has been configured, in any way. A program that passes its
/// `rocprofiler_configure` to `rocprofiler_force_configure` often exports it, too.
fn is_known(function: usize) -> bool {
    let state = state::lock();
    state
        .clients
        .iter()
        .any(|client| client.function == function)
}

/// Whether an attach would affect any tool.
pub fn has_named() -> bool {
    state::lock().clients.iter().any(|client| client.named)
}

/// Whether the tool whose library contains this function is active: attached, or active since the
/// process started. A function in a library that belongs to no known tool counts as active.
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

/// Whether a tool that the process was started with is named; only our own are.
pub fn has_started() -> bool {
    let state = state::lock();
    state
        .clients
        .iter()
        .any(|client| client.named && !client.source.is_attachment())
}

/// Whether a context is running that no attach has brought: one of a tool that the process was
/// started with, or of a profiler inside the application.
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

/// Starts a new list of names if the named tools have been attached, for callers that name tools
/// one by one.
fn begin_names() {
    if state::lock().named_used {
        begin_session();
    }
}

/// `rocprofiler_is_initialized`: 0 no, 1 yes, -1 while a tool is being initialised.
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr;
    use std::sync::Mutex;
    use std::sync::mpsc::{Receiver, Sender, channel};

    static STEPS: Mutex<Option<(Sender<()>, Receiver<()>)>> = Mutex::new(None);

    /// Declines when it is asked to.
    unsafe extern "C-unwind" fn waits(
        _: u32,
        _: *const std::ffi::c_char,
        _: u32,
        _: *mut ClientId,
    ) -> *mut ConfigureResult {
        if let Some((inside, go_on)) = STEPS.lock().unwrap().take() {
            inside.send(()).unwrap();
            // The test may be over.
            let _ = go_on.recv();
        }
        ptr::null_mut()
    }

    fn entry() -> Entry {
        Entry {
            configure: Some(waits),
            attach: None,
            experimental: None,
        }
    }

    /// A thread of the application was inside `rocprofiler_force_configure`; the attach was refused.
    #[test]
    fn an_attach_waits_while_another_thread_configures() {
        let ((inside, is_inside), (go, go_on)) = (channel(), channel());
        *STEPS.lock().unwrap() = Some((inside, go_on));
        let other = std::thread::spawn(|| configure_client(Source::Forced(1), entry()).is_err());
        is_inside.recv().unwrap();
        let refused = configure_client(Source::Forced(2), entry());
        assert!(matches!(
            refused,
            Err(NotConfigured::Because(Status::CONFIGURATION_LOCKED))
        ));
        let (done, is_done) = channel();
        let attach = std::thread::spawn(move || {
            let result = configure_client(Source::Attachment(3), entry());
            done.send(()).unwrap();
            matches!(result, Err(NotConfigured::Because(Status::NOT_AVAILABLE)))
        });
        assert!(is_done.recv_timeout(Duration::from_millis(50)).is_err());
        go.send(()).unwrap();
        // It had its turn: the tool itself declined.
        assert!(attach.join().unwrap());
        other.join().unwrap();
    }

    #[test]
    fn an_attach_does_not_wait_forever() {
        let ((inside, is_inside), (_go, go_on)) = (channel::<()>(), channel());
        *STEPS.lock().unwrap() = Some((inside, go_on));
        std::thread::spawn(|| configure_client(Source::Forced(1), entry()).is_ok());
        is_inside.recv().unwrap();
        let before = Instant::now();
        let result = configure_client(Source::Attachment(3), entry());
        assert!(before.elapsed() >= OTHERS_CONFIGURE);
        let Err(NotConfigured::Because(status)) = result else {
            panic!("the other tool is being configured still");
        };
        assert_eq!(
            why(status),
            "another tool's initialization has been running for 2 s"
        );
    }
}
