//! Sessions without a midair attacher: another injector attached, or the process was started
//! under the profiler.
//!
//! The worker thread is created here instead of by the engine, and runs the same session. It
//! attaches the named tools, hooks the tables, polls, and drains at the end. There is no attacher
//! that makes a spool, so a tool that wants records makes the spool and has it read
//! ([`give_spool`]). Tools with buffers need no reader.
//!
//! * [`attach`] and [`detach`] serve `rocprofiler_attach` and `rocprofiler_detach`: the thread
//!   lives as long as the session.
//! * [`launch`] serves a process that was started with tools: the thread waits for the first
//!   runtime, then the session lasts until the process ends.
//!
//! There is one session per process ([`midair_guest::claim`]), whoever started it. A forked child has
//! no session and gets none, since threads that it does not have may hold locks there. A session
//! yields to an attacher if only tools in the process get its records. The attacher's session
//! then serves those tools as well, and their own session starts again after it ([`make_way`],
//! [`go_on`]).
//!
//! Decisions: AMD-021, AMD-022, AMD-075 (`docs/deviations/amd.md`).

pub(crate) mod phase;
mod thread;

use crate::state::STATE;
use crate::{rendezvous, tables};
use midair_abi::private::SdkTable;
use midair_capi_build::{edge, quiet_thread};
use midair_guest::claim;
use midair_guest::wait_on;
use midair_lockfree::WordEnum;
use midair_record::boot::{LOCAL_NAME, SOLE_NAME};
use midair_record::counter_plan;
use midair_record::spool::Area;
use midair_sdk_api::status::Status;
use midair_sdk_api::{changes, context, registration, setting};
use midair_sdk_device::queue::{serialized, traces};
use midair_settings::Settings;
pub use phase::Kind;
use phase::{Command, Phase};
use rendezvous::is_child;
pub use rendezvous::is_on;
use std::ffi::CStr;
use std::sync::PoisonError;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};
use thread::{finish, serve, set_up};

/// The size in bytes of the worker thread's stack: the same as the engine gives it.
const STACK: usize = 1 << 20;
/// The longest set-up; most of it is the tool's work.
const SET_UP: Duration = Duration::from_secs(20);
/// The longest detach, in which the tool has its files written.
const DETACH: Duration = Duration::from_secs(600);
/// How long an exit waits for the worker thread, which has to drain and to restore the tables, but
/// writes no files.
const LEAVE: Duration = Duration::from_secs(5);
/// How long the device has to finish what it is running.
const DRAIN: Duration = Duration::from_millis(100);
/// How long the loader may take to answer when the process starts, on a busy machine.
const LOADER_PATIENCE: Duration = Duration::from_secs(1);
/// How often a process without a runtime is searched for one.
const WATCH_TICK: Duration = Duration::from_millis(20);

/// Returns the kind of session that the calling tool's function is in.
pub fn kind() -> Kind {
    if STATE.becomes.load(SeqCst) {
        return Kind::Becoming;
    }
    if is_on() || STATE.phase.load(SeqCst) == Phase::Stopped {
        STATE.kind.load(SeqCst)
    } else {
        Kind::Engine
    }
}

/// Accepts the spool that the calling tool made, during its `tool_attach`.
///
/// # Errors
/// [`Status::NOT_AVAILABLE`] when an attacher reads another spool, or another tool has given one.
///
/// # Safety
/// `base` must be the start of a spool of `len` bytes that stays mapped until the tool's
/// `tool_detach` or `finalize`, and forever if the spool's outcome then has
/// [`MEMORY_KEPT`](midair_record::spool::outcome::MEMORY_KEPT).
pub unsafe fn give_spool(base: *mut u8, len: usize) -> Result<(), Status> {
    if kind() == Kind::Engine {
        return Err(Status::NOT_AVAILABLE);
    }
    // SAFETY: the caller's promise.
    let area = unsafe { Area::new(base, len) }.ok_or(Status::INVALID_ARGUMENT)?;
    let mut spool = STATE.spool.lock().unwrap_or_else(PoisonError::into_inner);
    if spool.is_some() {
        return Err(Status::NOT_AVAILABLE);
    }
    *spool = Some(area);
    Ok(())
}

/// Counts every dispatch by a plan of the calling tool, during its `tool_attach`.
///
/// # Errors
/// [`Status::NOT_AVAILABLE`] if the process was not started with the tool, since queues may be
/// older than this call; [`Status::INVALID_ARGUMENT`] if the plan is invalid;
/// [`Status::OUT_OF_RESOURCES`] if too many others count already.
pub fn count_every(plan: &[u8], interval: u64) -> Result<(), Status> {
    if kind() != Kind::Launched {
        return Err(Status::NOT_AVAILABLE);
    }
    let plan = counter_plan::decode(plan).ok_or(Status::INVALID_ARGUMENT)?;
    if !plan.traces.is_empty() {
        traces::set_plan(plan.traces);
        return Ok(());
    }
    match serialized::planned::set_plan(plan, interval) {
        true => Ok(()),
        false => Err(Status::OUT_OF_RESOURCES),
    }
}

fn futex_wake(word: &AtomicU32) {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word is static, and waking does not access memory.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            std::ptr::from_ref(word),
            operation,
            i32::MAX,
            0,
            0,
            0,
        )
    };
}

fn set_state(value: Phase) {
    STATE.phase.store(value, SeqCst);
    futex_wake(STATE.phase.as_word());
}

/// Waits while the phase is one of these. Returns false when it still is at the end of the limit.
fn wait_while(states: &[Phase], limit: Duration) -> bool {
    let end = Instant::now() + limit;
    loop {
        let state = STATE.phase.load(SeqCst);
        if !states.contains(&state) {
            return true;
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        wait_on(STATE.phase.as_word(), state.word(), Some(left), true);
    }
}

/// Locks `State::life`, within a limit: its holder may be in a detach that writes for a long time.
fn life(limit: Duration) -> Option<std::sync::MutexGuard<'static, ()>> {
    let end = Instant::now() + limit;
    loop {
        match STATE.life.try_lock() {
            Ok(guard) => return Some(guard),
            Err(std::sync::TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(std::sync::TryLockError::WouldBlock) if Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(std::sync::TryLockError::WouldBlock) => return None,
        }
    }
}

/// Attaches the named tools, with these settings. When it returns, records are being collected.
///
/// # Errors
/// [`Status::CONFIGURATION_LOCKED`] while another session of any kind is on;
/// [`Status::NOT_AVAILABLE`] when there is no tool, when no reader takes what a tool wants, or in a
/// forked child; [`Status::OUT_OF_RESOURCES`] if no thread can be created; [`Status::ERROR`] when a
/// tool refuses or the set-up takes too long.
pub fn attach(settings: Settings) -> Result<(), Status> {
    if is_child() {
        return Err(Status::NOT_AVAILABLE);
    }
    let _life = life(SET_UP).ok_or(Status::CONFIGURATION_LOCKED)?;
    if is_kept() {
        return Err(Status::CONFIGURATION_LOCKED);
    }
    end_what_makes_way()?;
    setting::publish(settings);
    prepare(Kind::Attached).inspect_err(|_| launch_alone())?;
    STATE.phase.store(Phase::Starting, SeqCst);
    make_thread(Kind::Attached).inspect_err(|_| {
        give_up();
        launch_alone();
    })?;
    if !wait_while(&[Phase::Starting], SET_UP) {
        // The thread ends the session as soon as it has set it up.
        STATE.command.store(Command::Detach, SeqCst);
        changes::wake();
        return Err(Status::ERROR);
    }
    match STATE.phase.load(SeqCst) {
        Phase::On => Ok(()),
        _ => {
            let failure = STATE.failure.load(SeqCst);
            launch_alone();
            Err(match failure {
                0 => Status::ERROR,
                number => Status(number),
            })
        }
    }
}

/// Yields to a session with an attacher. Ends the session of the process's own tools, whose
/// contexts stay as they are. Until [`go_on`] no such session starts.
///
/// # Errors
/// [`Status::CONFIGURATION_LOCKED`] when the current session keeps the process for itself, or does
/// not end in time.
pub fn make_way() -> Result<(), Status> {
    if is_child() {
        return Ok(());
    }
    STATE.has_guest.store(true, SeqCst);
    let made = match life(SET_UP) {
        Some(_life) => end_what_makes_way(),
        None => Err(Status::CONFIGURATION_LOCKED),
    };
    made.inspect_err(|_| STATE.has_guest.store(false, SeqCst))
}

/// Serves the process's own tools again, if they want anything, because the session with an
/// attacher is over or did not start.
pub fn go_on() {
    STATE.has_guest.store(false, SeqCst);
    // A runtime that is being shut down must not be read from.
    let end = Instant::now() + rendezvous::SHUT_DOWN_LIMIT;
    while rendezvous::runtime_leaves() && Instant::now() < end {
        std::thread::sleep(WATCH_TICK);
    }
    if registration::runs_by_itself()
        && !rendezvous::runtime_leaves()
        && !rendezvous::process_leaves()
    {
        launch();
    }
}

/// Whether a session is on that does not make way for an attach.
pub fn is_kept() -> bool {
    if !is_on() {
        return changes::is_served();
    }
    let spool = STATE.spool.lock().unwrap_or_else(PoisonError::into_inner);
    STATE.kind.load(SeqCst) != Kind::Launched || spool.is_some() || registration::has_started()
}

/// Ends a session that yields. The caller holds `State::life`.
fn end_what_makes_way() -> Result<(), Status> {
    if !is_on() {
        return Ok(());
    }
    wait_while(&[Phase::Starting], LEAVE);
    if is_kept() {
        return Err(Status::CONFIGURATION_LOCKED);
    }
    let asked = STATE
        .command
        .compare_exchange(Command::Run, Command::MakeWay, SeqCst, SeqCst);
    changes::wake();
    if asked.is_ok() && wait_while(&[Phase::Starting, Phase::Watching, Phase::On], LEAVE) {
        Ok(())
    } else {
        Err(Status::CONFIGURATION_LOCKED)
    }
}

/// Ends the session that [`attach`] started. When it returns, the tools have all records, and files
/// are written.
///
/// # Errors
/// [`Status::NOT_AVAILABLE`] when there is no such session; [`Status::ERROR`] when it does not end
/// in time, in which case it continues to end.
pub fn detach() -> Result<(), Status> {
    if is_child() {
        return Err(Status::NOT_AVAILABLE);
    }
    let _life = life(DETACH).ok_or(Status::ERROR)?;
    if !is_on() || kind() != Kind::Attached {
        return Err(Status::NOT_AVAILABLE);
    }
    STATE.command.store(Command::Detach, SeqCst);
    changes::wake();
    if wait_while(&[Phase::Starting, Phase::On, Phase::Stopped], DETACH) {
        launch_alone();
        Ok(())
    } else {
        Err(Status::ERROR)
    }
}

/// Serves the tools that the process was started with ([`registration::find_clients`]), from its
/// first runtime on. Does nothing when they are served already, when there are none, and in a
/// forked child. A loaded runtime is hooked when this returns.
///
/// The calling thread does the set-up: it may be inside a `dlopen` and hold a lock for which the
/// worker would wait.
pub fn launch() {
    // A failure here is not the caller's failure: a running context is served later.
    let _ = try_launch(Duration::ZERO);
}

/// Does the same as [`launch`], and waits for `patience` while another thread starts or ends a
/// session.
///
/// # Errors
/// [`Status::CONFIGURATION_LOCKED`] when another build of this library has a session in this
/// process, so that nothing is recorded.
fn try_launch(patience: Duration) -> Result<(), Status> {
    let Some(_life) = life(patience) else {
        return Ok(());
    };
    launch_locked()
}

/// Serves the process's own tools again. The caller holds `State::life`.
fn launch_alone() {
    if registration::runs_by_itself() {
        let _ = launch_locked();
    }
}

fn launch_locked() -> Result<(), Status> {
    if is_child()
        || !(registration::has_started() || context::any_active())
        || STATE.has_guest.load(SeqCst)
        || is_on()
        || changes::is_served()
    {
        return Ok(());
    }
    prepare(Kind::Launched)?;
    if rendezvous::is_search_requested() || tables::find().is_any() {
        STATE.phase.store(Phase::Starting, SeqCst);
        set_up_here();
    } else {
        STATE.phase.store(Phase::Watching, SeqCst);
    }
    if is_on() && make_thread(Kind::Launched).is_err() {
        changes::become_worker();
        finish(Command::Detach);
        give_up();
        changes::leave_worker();
    }
    Ok(())
}

/// Sets up a launched session on the calling thread. Afterwards the session is on, or has ended.
///
/// The calling thread is the worker only during this time. As the worker it would wait for no
/// round. Its flush right after the start of a context would then deliver nothing if the session's
/// own thread had not run yet.
fn set_up_here() {
    changes::become_worker();
    changes::serve(true);
    match set_up(Kind::Launched) {
        Ok(()) => set_state(Phase::On),
        Err(_) => {
            finish(Command::Detach);
            give_up();
        }
    }
    changes::leave_worker();
}

/// Handles the start of a context by a tool. Where no session is on, one starts now if the process
/// was started with the tool. When this returns, the hooks of that session are in place, even if
/// another thread starts it.
///
/// # Errors
/// [`Status::CONFIGURATION_LOCKED`] when another build of this library has a session in this
/// process, so that the context would get nothing.
pub fn context_started() -> Result<(), Status> {
    // Inside a tool's `initialize` it is too early; the caller of `initialize` calls `launch` after
    // it.
    if changes::is_worker() || registration::is_initialized() != 1 {
        return Ok(());
    }
    let patience = changes::patience(changes::LIMIT);
    if !is_on() && !changes::is_served() {
        try_launch(patience)?;
    }
    if STATE.kind.load(SeqCst) == Kind::Launched {
        wait_while(&[Phase::Starting], patience);
    }
    Ok(())
}

/// Handles the loading of this library. In a process that is started under the profiler, the tools
/// are found and served before the program's own first instruction. `ROCPROFILER_LIBRARY_CTOR`,
/// which AMD's command line and ours set, marks such a process. A program that runs with more
/// rights than its caller is never treated as one.
pub fn at_load(host: &'static SdkTable) {
    let asked = midair_secure::variable("ROCPROFILER_LIBRARY_CTOR")
        .and_then(|word| midair_settings::tool_boolean(word.to_str()?))
        .unwrap_or(false);
    if asked && is_loader_free() {
        serve_the_start(host, true);
    }
}

/// Whether other threads can call the loader. They cannot during a `dlopen`, whose caller holds the
/// loader's lock. If they can, the process is starting, or nearly so. If this library is loaded
/// later, tools are served when the first table is registered.
fn is_loader_free() -> bool {
    let (answer, answered) = std::sync::mpsc::channel();
    let ask = move || {
        // SAFETY: dladdr takes any address, and an all-zero Dl_info is valid.
        unsafe {
            let mut info: libc::Dl_info = std::mem::zeroed();
            libc::dladdr(is_loader_free as *const libc::c_void, &mut info);
        }
        let _ = answer.send(());
    };
    quiet_thread("midair-look", STACK / 8, ask).is_ok()
        && answered.recv_timeout(LOADER_PATIENCE).is_ok()
}

/// Does the same as [`serve_the_start`], for a registration library's first table. `hsa`: it is the
/// HSA runtime's table, and the calling thread is inside `hsa_init`.
pub fn serve_the_first_table(hsa: bool, host: &'static SdkTable) {
    if registration::discover::is_done() {
        return;
    }
    rendezvous::request_search(hsa);
    serve_the_start(host, false);
    if !is_on() {
        rendezvous::withdraw_search();
    }
}

/// Finds, configures and serves the tools that the process was started with, once. `first`: no
/// library has registered itself yet, and none is about to.
pub fn serve_the_start(host: &'static SdkTable, first: bool) {
    if registration::find_clients(host) > 0 {
        if registration::has_started() || context::any_active() {
            tables::make(first);
        }
        launch();
    }
}

/// Takes the tables that a register library passes on. They are the live tables, which
/// [`crate::tables`] finds by itself. They are hooked when this returns, so that not even the
/// runtime's first call is missed.
pub fn adopt(name: &CStr, version: u64, instance: u64, tables: &[usize]) {
    if let (b"hsa", Some(root)) = (name.to_bytes(), tables.first()) {
        STATE.root_table.store(*root, SeqCst);
    }
    let table = tables.first().copied().unwrap_or_default();
    STATE.registered.handed_over(name, version, instance, table);
    if !changes::is_worker() {
        runtime_is_here(name == c"hsa");
    }
}

/// Handles new tables, HSA's or others: a session that waited for a runtime starts and hooks them,
/// on the calling thread, as in [`launch`].
pub(crate) fn runtime_is_here(hsa: bool) {
    if !(is_on() || changes::is_served()) {
        return;
    }
    if begin_watched() {
        rendezvous::request_search(hsa);
        set_up_here();
        changes::wake();
    } else {
        wait_while(&[Phase::Starting], LEAVE);
        rendezvous::search_and_wait(hsa);
    }
}

/// Handles the start of OpenMP's runtime, on the thread that starts it: a session that waited for a
/// runtime starts, as in [`launch`].
pub(crate) fn openmp_is_here() {
    if is_child() {
        return;
    }
    if !(is_on() || changes::is_served()) {
        launch();
    }
    if begin_watched() {
        set_up_here();
        changes::wake();
    } else if is_on() {
        wait_while(&[Phase::Starting], LEAVE);
    }
}

/// Ends the wait for a runtime. Returns true for the one caller that has to set the session up.
fn begin_watched() -> bool {
    STATE
        .phase
        .compare_exchange(Phase::Watching, Phase::Starting, SeqCst, SeqCst)
        .is_ok()
}

/// Ends the session for a signal handler that ends the process: the worker thread ends the session
/// and the tools, and the handler waits for it. It calls nothing that a handler may not call.
pub(crate) fn finish_within(limit: Duration) {
    if is_on()
        && STATE
            .command
            .compare_exchange(Command::Run, Command::Finish, SeqCst, SeqCst)
            .is_ok()
    {
        changes::wake();
    }
    if !is_child() {
        wait_while(&[Phase::Starting, Phase::Watching, Phase::On], limit);
    }
}

/// Prepares everything for a session, except the thread.
fn prepare(kind: Kind) -> Result<(), Status> {
    if !claim::acquire() {
        return Err(Status::CONFIGURATION_LOCKED);
    }
    STATE.process.store(std::process::id() as i32, SeqCst);
    STATE.kind.store(kind, SeqCst);
    STATE.command.store(Command::Run, SeqCst);
    STATE.failure.store(0, SeqCst);
    *STATE.spool.lock().unwrap_or_else(PoisonError::into_inner) = None;
    // The tools' own exit handlers run after ours, since the last registered handler runs first.
    registration::end_at_exit();
    leave_at_exit();
    // SAFETY: `on_quick_exit` is a function of a library that is never unloaded.
    unsafe { at_quick_exit(on_quick_exit) };
    Ok(())
}

fn make_thread(kind: Kind) -> Result<(), Status> {
    let body = move || {
        if std::panic::catch_unwind(|| serve(kind)).is_err() {
            changes::serve(false);
            give_up();
        }
    };
    let name = match kind {
        Kind::Launched => LOCAL_NAME,
        _ => SOLE_NAME,
    };
    quiet_thread(name, STACK, body).map_err(|_| Status::OUT_OF_RESOURCES)
}

/// Ends the session's claim on the process.
fn give_up() {
    claim::release();
    set_state(Phase::Off);
}

unsafe extern "C" {
    /// From C11; the C library links it into each library.
    fn at_quick_exit(function: extern "C" fn()) -> std::ffi::c_int;
}

/// Registers an exit handler that ends the session before the runtimes' own handlers run. Call it
/// again after a runtime was loaded, which has registered its own.
fn leave_at_exit() {
    // SAFETY: `on_exit` is a function of a library that is never unloaded.
    unsafe { libc::atexit(on_exit) };
}

extern "C" fn on_exit() {
    edge((), || {
        if is_on() {
            STATE.command.store(Command::Leave, SeqCst);
            changes::wake();
            wait_while(&[Phase::Starting, Phase::Watching, Phase::On], LEAVE);
        }
    });
}

extern "C" fn on_quick_exit() {
    edge((), || leave(false));
}

/// Ends the session and the tools of a process that is about to end without its exit handlers, or
/// to execute another program; in the second case only if something is being recorded.
pub fn leave(becomes_another: bool) {
    if is_on() && !(becomes_another && STATE.phase.load(SeqCst) == Phase::Watching) {
        STATE.becomes.store(becomes_another, SeqCst);
        on_exit();
        registration::finalize();
    }
}
