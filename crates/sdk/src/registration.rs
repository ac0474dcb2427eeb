//! Tools: how they are loaded, configured, attached, detached and ended (source: research/upstream-attach.md 4).
//!
//! Order for a tool: `midair_tool_bind` if it has one (ours has), `rocprofiler_configure`, at once `rocprofiler_configure_attach`,
//! then `initialize`, the only time at which it may make contexts. At each attach `tool_attach`; at each detach its contexts are
//! stopped, what was recorded is delivered, its buffers are flushed, then `tool_detach`. `finalize` once, at the end.
//!
//! Only tools that the user named come here. A `rocprofiler_configure` that happens to be in the process is not looked for.

use crate::buffer;
use crate::capi;
use crate::collector;
use crate::context;
use crate::state::{self, State};
use crate::status::Status;
use midair_abi::private::{TOOL_BIND, ToolBind};
use midair_abi::registration::{
    ClientId, Configure, ConfigureAttach, ConfigureAttachResult, ConfigureResult,
};
use std::cell::Cell;
use std::ffi::{CStr, CString, c_int, c_void};

/// Our version as tools see it, 10000 major + 100 minor + patch: the interface is that of 1.2.1.
pub const VERSION: (u32, u32, u32) = (1, 2, 1);
/// [`VERSION`] in one number.
pub const VERSION_NUMBER: u32 = VERSION.0 * 10000 + VERSION.1 * 100 + VERSION.2;
/// [`VERSION`] in words.
pub const VERSION_TEXT: &CStr = c"1.2.1";

/// A configured tool.
#[derive(Debug)]
pub(crate) struct Client {
    /// Lives for ever: the tool may keep the pointer.
    id: &'static mut ClientId,
    /// Where it came from.
    source: Source,
    result: ConfigureResult,
    attach: Option<ConfigureAttachResult>,
    phase: Phase,
    /// For a tool without `tool_attach`: its contexts that ran at the last detach, to be started at the next attach.
    resume: Vec<u64>,
}

// SAFETY: the pointers in it are the tool's functions and data, which the tool has told us to use from our thread.
unsafe impl Send for Client {}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Configured,
    Initialized,
    Attached,
    /// `initialize` said no, or the tool ended itself.
    Out,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// Named for an attach; by its library handle, so that the next attach finds it again.
    Attachment(usize),
    /// `rocprofiler_force_configure`; by its function.
    Forced(usize),
}

thread_local! {
    static IN_ATTACHMENT: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread is inside the configuration of a tool that was named for an attach.
pub fn is_current_client_attachment() -> bool {
    IN_ATTACHMENT.get()
}

/// A symbol of the library itself: `dlsym` would also find one of a library that it depends on.
fn own_symbol(library: *mut c_void, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: a live handle (the caller's promise) and a C string.
    let address = unsafe { libc::dlsym(library, name.as_ptr()) };
    if address.is_null() {
        return None;
    }
    let mut map: *mut LinkMap = std::ptr::null_mut();
    // SAFETY: RTLD_DI_LINKMAP stores one pointer.
    if unsafe { libc::dlinfo(library, libc::RTLD_DI_LINKMAP, (&raw mut map).cast()) } != 0
        || map.is_null()
    {
        return Some(address);
    }
    // SAFETY: an all-zero Dl_info is one.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: any address may be asked for; `info` is ours.
    let known = unsafe { libc::dladdr(address, &mut info) } != 0 && !info.dli_fname.is_null();
    // SAFETY: `map` is the library's, which is loaded; its name is a C string or null.
    let name = unsafe { (*map).name };
    if !known || name.is_null() {
        return Some(address);
    }
    // SAFETY: both are C strings of the loader's.
    let same = unsafe { CStr::from_ptr(name) == CStr::from_ptr(info.dli_fname) };
    same.then_some(address)
}

/// The public front of glibc's `struct link_map`.
#[repr(C)]
struct LinkMap {
    base: usize,
    name: *const std::ffi::c_char,
}

/// Configures and initialises a tool from its loaded library; nothing happens when it was done before.
///
/// # Errors
/// [`Status::INVALID_ARGUMENT`] when the library is no tool, [`Status::INCOMPATIBLE_ABI`] when it is one of ours of another
/// build, [`Status::NOT_AVAILABLE`] when it declines, [`Status::ERROR`] when its `initialize` fails.
///
/// # Safety
/// `library` must be a handle from `dlopen` that is never closed.
pub unsafe fn load(library: *mut c_void) -> Result<(), Status> {
    let source = Source::Attachment(library.addr());
    if let Some(phase) = state::lock()
        .clients
        .iter()
        .find(|client| client.source == source)
        .map(|client| client.phase)
    {
        return if phase == Phase::Out {
            Err(Status::ERROR)
        } else {
            Ok(())
        };
    }
    let bind_name = CString::new(TOOL_BIND).map_err(|_| Status::ERROR)?;
    if let Some(bind) = own_symbol(library, &bind_name) {
        // SAFETY: only our own tools export this name, with this type.
        let bind = unsafe { std::mem::transmute::<*mut c_void, ToolBind>(bind) };
        // SAFETY: a table that lives for ever.
        if unsafe { bind(capi::table()) } != 0 {
            return Err(Status::INCOMPATIBLE_ABI);
        }
    }
    let configure =
        own_symbol(library, c"rocprofiler_configure").ok_or(Status::INVALID_ARGUMENT)?;
    // SAFETY: the C API gives the function of this name this type.
    let configure = unsafe { std::mem::transmute::<*mut c_void, Configure>(configure) };
    // SAFETY: as above.
    let configure_attach = own_symbol(library, c"rocprofiler_configure_attach")
        .map(|address| unsafe { std::mem::transmute::<*mut c_void, ConfigureAttach>(address) });
    IN_ATTACHMENT.set(true);
    let result = configure_client(source, configure, configure_attach);
    IN_ATTACHMENT.set(false);
    result
}

/// Loads the tool at `path` and configures it as [`load`] does.
///
/// # Errors
/// As [`load`]; [`Status::NOT_AVAILABLE`] also when the loader cannot load it, whose words go into the session's records.
pub fn load_path(path: &CStr) -> Result<(), Status> {
    // SAFETY: loading a library runs its constructors: the user named it.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) };
    if library.is_null() {
        // SAFETY: null or a C string that is valid until this thread's next dl call.
        let why = unsafe { libc::dlerror() };
        if !why.is_null() {
            // SAFETY: as above.
            let why = unsafe { CStr::from_ptr(why) };
            collector::note(&format!(
                "the tool cannot be loaded: {}",
                why.to_string_lossy()
            ));
        }
        return Err(Status::NOT_AVAILABLE);
    }
    // SAFETY: just opened, never closed.
    unsafe { load(library) }
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
    configure_client(source, configure, None)
}

fn configure_client(
    source: Source,
    configure: Configure,
    configure_attach: Option<ConfigureAttach>,
) -> Result<(), Status> {
    {
        let mut state = state::lock();
        if state.finalized {
            return Err(Status::FINALIZED);
        }
        if std::mem::replace(&mut state.busy, true) {
            return Err(Status::CONFIGURATION_LOCKED);
        }
    }
    let result = configure_alone(source, configure, configure_attach);
    state::lock().busy = false;
    result
}

fn configure_alone(
    source: Source,
    configure: Configure,
    configure_attach: Option<ConfigureAttach>,
) -> Result<(), Status> {
    let priority = state::lock().clients.len() as u32;
    let handle = priority + 1;
    // The tool may keep the pointer for ever.
    let id: &'static mut ClientId = Box::leak(Box::new(ClientId {
        size: size_of::<ClientId>(),
        name: std::ptr::null(),
        handle,
    }));
    // SAFETY: the tool's function, with arguments as the C API describes them; `id` lives for ever.
    let result = unsafe {
        configure(
            VERSION_NUMBER,
            VERSION_TEXT.as_ptr(),
            priority,
            &raw mut *id,
        )
    };
    // SAFETY: null, or the tool's struct, which lives at least until its next function is called; only fields that its size
    // covers are read.
    let result = unsafe { result.as_ref() }
        .filter(|result| result.size >= size_of::<ConfigureResult>())
        .copied();
    let Some(result) = result else {
        return Err(Status::NOT_AVAILABLE);
    };
    let attach = configure_attach.and_then(|configure| {
        // SAFETY: as above.
        let result = unsafe {
            configure(
                VERSION_NUMBER,
                VERSION_TEXT.as_ptr(),
                priority,
                &raw mut *id,
            )
            .as_ref()
        };
        result
            .filter(|result| result.size >= size_of::<ConfigureAttachResult>())
            .copied()
    });
    {
        let mut state = state::lock();
        state.clients.push(Client {
            id,
            source,
            result,
            attach,
            phase: Phase::Configured,
            resume: Vec::new(),
        });
        state.configuring = Some(handle);
    }
    // SAFETY: the tool's function with its own data.
    let answer = result.initialize.map_or(0, |initialize| unsafe {
        initialize(Some(end_client), result.tool_data)
    });
    let mut state = state::lock();
    state.configuring = None;
    state.initialized = true;
    set_phase(
        &mut state,
        handle,
        if answer == 0 {
            Phase::Initialized
        } else {
            Phase::Out
        },
    );
    drop(state);
    if answer != 0 {
        context::stop_all(&contexts_of(handle));
        return Err(Status::ERROR);
    }
    Ok(())
}

fn set_phase(state: &mut State, handle: u32, phase: Phase) {
    if let Some(client) =
        state::index(u64::from(handle)).and_then(|index| state.clients.get_mut(index))
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
            let client =
                state::index(u64::from(id.handle)).and_then(|index| state.clients.get_mut(index));
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
    attach: Option<ConfigureAttachResult>,
    contexts: Vec<u64>,
    resume: Vec<u64>,
}

fn turns(phase: Phase) -> Vec<Turn> {
    let mut turns: Vec<Turn> = {
        let state = state::lock();
        let clients = state.clients.iter().filter(|client| client.phase == phase);
        clients
            .map(|client| Turn {
                handle: client.id.handle,
                attach: client.attach,
                contexts: Vec::new(),
                resume: client.resume.clone(),
            })
            .collect()
    };
    for turn in &mut turns {
        turn.contexts = contexts_of(turn.handle);
    }
    turns
}

/// Attaches every tool that is initialised and not attached: calls its `tool_attach`, which starts contexts. A tool without one
/// gets the contexts started that ran when it was last detached.
///
/// # Errors
/// [`Status::NOT_AVAILABLE`] when there is no tool, [`Status::ERROR`] when one refuses: its contexts are stopped again, and its
/// `tool_detach` is called; the others are attached.
pub fn attach() -> Result<(), Status> {
    let turns = turns(Phase::Initialized);
    let mut outcome = if turns.is_empty() {
        Err(Status::NOT_AVAILABLE)
    } else {
        Ok(())
    };
    for mut turn in turns {
        set_phase(&mut state::lock(), turn.handle, Phase::Attached);
        let tool_attach = turn.attach.and_then(|attach| {
            attach
                .tool_attach
                .map(|function| (function, attach.tool_data))
        });
        let Some((tool_attach, data)) = tool_attach else {
            for context in turn.resume {
                let _ = context::start(context);
            }
            continue;
        };
        // SAFETY: the tool's function with its own data and a list that lives during the call; no detach function, as AMD's.
        let answer = unsafe {
            tool_attach(
                None,
                turn.contexts.as_mut_ptr(),
                turn.contexts.len() as u64,
                data,
            )
        };
        if answer != 0 {
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
    let turns = turns(Phase::Attached);
    if turns.is_empty() {
        return Err(Status::NOT_AVAILABLE);
    }
    remember_running(&turns);
    // All at one moment, so that the collecting side stops and drains once.
    let all: Vec<u64> = turns
        .iter()
        .flat_map(|turn| turn.contexts.iter().copied())
        .collect();
    context::stop_all(&all);
    turns.iter().for_each(detach_one);
    Ok(())
}

/// For tools without `tool_attach`: which contexts the next attach starts again.
fn remember_running(turns: &[Turn]) {
    let mut state = state::lock();
    for turn in turns
        .iter()
        .filter(|turn| turn.attach.and_then(|attach| attach.tool_attach).is_none())
    {
        let running: Vec<u64> = turn
            .contexts
            .iter()
            .copied()
            .filter(|handle| state.context(*handle).is_ok_and(|c| c.active))
            .collect();
        if let Some(client) =
            state::index(u64::from(turn.handle)).and_then(|index| state.clients.get_mut(index))
        {
            client.resume = running;
        }
    }
}

fn detach_one(turn: &Turn) {
    context::stop_all(&turn.contexts);
    buffer::flush_contexts(&turn.contexts);
    if let Some(attach) = turn.attach
        && let Some(tool_detach) = attach.tool_detach
    {
        // SAFETY: the tool's function with its own data.
        unsafe { tool_detach(attach.tool_data) };
    }
    // A tool may have ended itself in between.
    let mut state = state::lock();
    if let Some(client) =
        state::index(u64::from(turn.handle)).and_then(|index| state.clients.get_mut(index))
        && client.phase == Phase::Attached
    {
        client.phase = Phase::Initialized;
    }
}

/// Ends everything, once: detaches, then calls every tool's `finalize`. For the end of the process.
pub fn finalize() {
    let _ = detach();
    let ends: Vec<_> = {
        let mut state = state::lock();
        if std::mem::replace(&mut state.finalized, true) {
            return;
        }
        let clients = state
            .clients
            .iter_mut()
            .filter(|client| client.phase != Phase::Out);
        clients
            .filter_map(|client| {
                client.phase = Phase::Out;
                client
                    .result
                    .finalize
                    .map(|finalize| (finalize, client.result.tool_data))
            })
            .collect()
    };
    for (finalize, data) in ends {
        // SAFETY: the tool's function with its own data.
        unsafe { finalize(data) };
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
