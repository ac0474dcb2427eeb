//! Sessions without an attacher of ours: somebody else's injector attached, or the process was
//! started under the profiler.
//!
//! The worker thread is made here instead of by the engine, and runs the same session: it attaches
//! the tools that were named, hooks the tables, polls, and drains at the end. There is no attacher
//! that reads a spool, so a tool that wants records makes the spool and reads it itself
//! ([`give_spool`]). Tools with buffers need no reader.
//!
//! * [`attach`] and [`detach`] serve `rocprofiler_attach` and `rocprofiler_detach`: the thread lives
//!   as long as the session.
//! * [`launch`] serves a process that was started with tools: the thread waits for the first
//!   runtime, then the session lasts until the process ends.
//!
//! There is one session per process ([`midair_guest::claim`]), whoever made it. A forked child has
//! none and gets none: threads that it does not have may hold locks there. A session whose records
//! only tools in the process receive makes way for one with an attacher, which serves those tools as
//! well, and begins again behind it ([`make_way`], [`go_on`]).
//!
//! Decisions: AMD-021, AMD-022, AMD-075 (`docs/deviations/amd.md`).

pub(crate) mod phase;

use crate::state::STATE;
use crate::{collect, gate, signals, tables};
use gate::is_child;
pub use gate::is_on;
use midair_abi::private::SdkTable;
use midair_capi_build::{edge, quiet_thread};
use midair_guest::claim;
use midair_guest::{BUSY_TICK, IDLE_TICK, wait_on};
use midair_lockfree::WordEnum;
use midair_record::boot::{LOCAL_NAME, SOLE_NAME};
use midair_record::counter_plan;
use midair_record::spool::{Area, outcome};
use midair_sdk_api::status::Status;
use midair_sdk_api::{changes, context, registration, setting};
use midair_sdk_device::queue::alone;
use midair_sdk_hot::clock::now;
use midair_sdk_hot::pause;
use midair_settings::Settings;
pub use phase::Kind;
use phase::{Command, Phase};
use std::ffi::CStr;
use std::sync::PoisonError;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::{Duration, Instant};

/// Bytes of the worker thread's stack: as many as the engine gives it.
const STACK: usize = 1 << 20;
/// Longest set-up; most of it is the tool's.
const SET_UP: Duration = Duration::from_secs(20);
/// Longest detach: the tool writes its files in it.
const DETACH: Duration = Duration::from_secs(600);
/// How long an exit waits for the worker thread, which has to drain and to restore the tables, and
/// writes no files.
const LEAVE: Duration = Duration::from_secs(5);
/// How long the device may finish what it runs.
const DRAIN: Duration = Duration::from_millis(100);
/// How long the loader may take to answer at a start, on a busy machine.
const LOADER_PATIENCE: Duration = Duration::from_secs(1);
/// How often a process without a runtime is searched for one.
const WATCH_TICK: Duration = Duration::from_millis(20);

/// The kind of session that the calling tool's function is in.
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

/// Accepts the spool that the calling tool reads, during its `tool_attach`.
///
/// # Errors
/// [`Status::NOT_AVAILABLE`] when an attacher reads another, or another tool has given one.
///
/// # Safety
/// `base` must be the start of a spool of `len` bytes that is mapped until the tool's `tool_detach`
/// or `finalize`, and for ever if the spool's outcome then says [`outcome::MEMORY_KEPT`].
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

/// Counts every dispatch by a plan of the calling tool's, during its `tool_attach`.
///
/// # Errors
/// [`Status::NOT_AVAILABLE`] where the process was not started with the tool: queues may be older
/// than this; [`Status::INVALID_ARGUMENT`] for what is no plan; [`Status::OUT_OF_RESOURCES`] where
/// there are too many that count.
pub fn count_every(plan: &[u8], interval: u64) -> Result<(), Status> {
    if kind() != Kind::Launched {
        return Err(Status::NOT_AVAILABLE);
    }
    let plan = counter_plan::decode(plan).ok_or(Status::INVALID_ARGUMENT)?;
    match alone::planned::set_plan(plan, interval) {
        true => Ok(()),
        false => Err(Status::OUT_OF_RESOURCES),
    }
}

fn futex_wake(word: &AtomicU32) {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: a static word; waking has no effect on memory.
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

/// Waits while the state is one of these. False when it still is at the end of the limit.
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

/// Attaches the tools that are named, with these settings. When it returns, records flow.
///
/// # Errors
/// [`Status::CONFIGURATION_LOCKED`] while another session is on, of whatever kind;
/// [`Status::NOT_AVAILABLE`] when there is no tool, nobody to read what one wants, or in a forked
/// child; [`Status::OUT_OF_RESOURCES`] without a thread; [`Status::ERROR`] when a tool refuses or
/// the set-up takes too long.
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
        // The thread ends the session itself as soon as it has set it up.
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

/// Makes way for a session with an attacher: ends the session of the process's own tools, whose contexts stay as they
/// are. Until [`go_on`] none begins.
///
/// # Errors
/// [`Status::CONFIGURATION_LOCKED`] when the session that is on keeps the process for itself, and when it does not end
/// in time.
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

/// The session with an attacher is over, or did not begin: the process's own tools are served again, if they want
/// anything.
pub fn go_on() {
    STATE.has_guest.store(false, SeqCst);
    // A runtime that is being shut down must not be read from.
    let end = Instant::now() + gate::SHUT_DOWN_LIMIT;
    while gate::runtime_leaves() && Instant::now() < end {
        std::thread::sleep(WATCH_TICK);
    }
    if registration::runs_by_itself() && !gate::runtime_leaves() && !gate::process_leaves() {
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

/// Ends a session that makes way. With `State::life` held.
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

/// Ends the session that [`attach`] began. When it returns, the tools have everything, and files are written.
///
/// # Errors
/// [`Status::NOT_AVAILABLE`] when there is none; [`Status::ERROR`] when it does not end in time: it goes on ending.
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
/// first runtime on. Does nothing when they are served already, when there are none, and in a forked
/// child. A runtime that is loaded is hooked when this returns.
///
/// The calling thread does the set-up: it may be inside a `dlopen` and hold a lock for which the
/// worker would wait.
pub fn launch() {
    // What stands in the way is no failure of whoever calls this: a context that runs is served later.
    let _ = try_launch(Duration::ZERO);
}

/// [`launch`], with `patience` for whoever else begins or ends a session.
///
/// # Errors
/// [`Status::CONFIGURATION_LOCKED`] when another build of this library has a session in this process, so that nothing
/// is recorded.
fn try_launch(patience: Duration) -> Result<(), Status> {
    let Some(_life) = life(patience) else {
        return Ok(());
    };
    launch_locked()
}

/// Serves the process's own tools again, with `State::life` held.
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
    if gate::is_search_requested() || tables::find().is_any() {
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

/// Sets a launched session up, on the calling thread. Afterwards it is on, or it has ended.
///
/// The calling thread is the worker for that long and no longer: as the worker it would wait for no
/// round, and its flush right after the start of a context would hand over nothing where the
/// session's own thread has not had the processor yet.
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

/// A tool started a context. Where no session is on, one begins with it in a process that was started with the tool.
/// When this returns its hooks are in place, also where another thread begins that session.
///
/// # Errors
/// [`Status::CONFIGURATION_LOCKED`] when another build of this library has a session in this process: the context would
/// get nothing.
pub fn context_started() -> Result<(), Status> {
    // Inside a tool's `initialize` it is too early; the caller of that calls `launch` after it.
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

/// The library was loaded. In a process that is started under the profiler, the tools are found and
/// served before the program's first own instruction. `ROCPROFILER_LIBRARY_CTOR`, which AMD's
/// command line and ours set, tells that it is one. A program that runs with more rights than its
/// caller is none.
pub fn at_load(host: &'static SdkTable) {
    let asked = midair_secure::variable("ROCPROFILER_LIBRARY_CTOR")
        .and_then(|word| midair_settings::tool_boolean(word.to_str()?))
        .unwrap_or(false);
    if asked && is_loader_free() {
        serve_the_start(host, true);
    }
}

/// Whether other threads can ask the loader, which they cannot inside a `dlopen`: its caller holds
/// the loader's lock. If they can, the process is starting, or as good as; a library that is loaded
/// later is served when the first table is handed over.
fn is_loader_free() -> bool {
    let (answer, answered) = std::sync::mpsc::channel();
    let ask = move || {
        // SAFETY: dladdr takes any address and a structure of which zero is a value.
        unsafe {
            let mut info: libc::Dl_info = std::mem::zeroed();
            libc::dladdr(is_loader_free as *const libc::c_void, &mut info);
        }
        let _ = answer.send(());
    };
    quiet_thread("midair-look", STACK / 8, ask).is_ok()
        && answered.recv_timeout(LOADER_PATIENCE).is_ok()
}

/// As [`serve_the_start`], for a registration library's first table. `hsa`: it is the HSA runtime's,
/// and the calling thread is inside `hsa_init`.
pub fn serve_the_first_table(hsa: bool, host: &'static SdkTable) {
    if registration::discover::is_done() {
        return;
    }
    gate::request_search(hsa);
    serve_the_start(host, false);
    if !is_on() {
        gate::withdraw_search();
    }
}

/// Finds, configures and serves the tools that the process was started with, once. `first`: no
/// library has registered itself yet, nor does.
pub fn serve_the_start(host: &'static SdkTable, first: bool) {
    if registration::find_clients(host) > 0 {
        if registration::has_started() || context::any_active() {
            tables::make(first);
        }
        launch();
    }
}

/// The tables that a register library hands over are the live ones, which [`crate::tables`] finds by
/// itself. They are hooked when this returns, so that not even the runtime's first call is missed.
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

/// Tables were handed over, HSA's or others: a session that waited for a runtime begins and hooks
/// them, on the calling thread, as in [`launch`].
pub(crate) fn runtime_is_here(hsa: bool) {
    if !(is_on() || changes::is_served()) {
        return;
    }
    if begin_watched() {
        gate::request_search(hsa);
        set_up_here();
        changes::wake();
    } else {
        wait_while(&[Phase::Starting], LEAVE);
        gate::search_and_wait(hsa);
    }
}

/// Ends the waiting for a runtime. True for the one caller that is to set the session up.
fn begin_watched() -> bool {
    STATE
        .phase
        .compare_exchange(Phase::Watching, Phase::Starting, SeqCst, SeqCst)
        .is_ok()
}

/// For a signal handler that ends the process: the worker thread ends the session and the tools, and
/// the handler waits for it. Calls nothing that a handler may not.
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

/// Makes everything ready for a session, except the thread.
fn prepare(kind: Kind) -> Result<(), Status> {
    if !claim::acquire() {
        return Err(Status::CONFIGURATION_LOCKED);
    }
    STATE.process.store(std::process::id() as i32, SeqCst);
    STATE.kind.store(kind, SeqCst);
    STATE.command.store(Command::Run, SeqCst);
    STATE.failure.store(0, SeqCst);
    *STATE.spool.lock().unwrap_or_else(PoisonError::into_inner) = None;
    // The tools' own exit handlers run after ours: the last one registered is the first to run.
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

/// The session is over.
fn give_up() {
    claim::release();
    set_state(Phase::Off);
}

unsafe extern "C" {
    /// C11's; part of what the C library links into each library.
    fn at_quick_exit(function: extern "C" fn()) -> std::ffi::c_int;
}

/// Registers an exit handler that ends the session before the runtimes' own handlers run. To be
/// called again when a runtime was loaded, which has registered its own.
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

/// Ends the session and the tools of a process that is about to end without its exit handlers, or to
/// become another program; in the second case only if something is being recorded.
pub fn leave(becomes_another: bool) {
    if is_on() && !(becomes_another && STATE.phase.load(SeqCst) == Phase::Watching) {
        STATE.becomes.store(becomes_another, SeqCst);
        on_exit();
        registration::finalize();
    }
}

/// The worker thread's work. A launched session has been set up by another thread, or waits for its
/// runtime.
fn serve(kind: Kind) {
    if kind == Kind::Launched && !watch() {
        // It ended before it began.
        if STATE.phase.load(SeqCst) != Phase::Off {
            give_up();
        }
        return;
    }
    changes::become_worker();
    changes::serve(true);
    if registration::has_started() {
        let mut name = [0_u8; 16];
        for (to, from) in name.iter_mut().zip(SOLE_NAME.bytes()) {
            *to = from;
        }
        // SAFETY: a NUL-terminated name, for the calling thread.
        unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
    }
    let set_up = match kind {
        Kind::Launched => Ok(()),
        _ => set_up(kind).inspect(|()| set_state(Phase::On)),
    };
    let command = match set_up {
        Ok(()) => run(),
        Err(status) => {
            STATE.failure.store(status.0, SeqCst);
            Command::Detach
        }
    };
    finish(command);
    claim::release();
    set_state(if command == Command::Leave {
        Phase::Stopped
    } else {
        Phase::Off
    });
}

/// Waits until a launched session is on. False when it ends before that.
fn watch() -> bool {
    let mut epoch = 0;
    loop {
        let seen = changes::calls().load(SeqCst);
        match STATE.phase.load(SeqCst) {
            Phase::Watching => {}
            Phase::Starting => {
                wait_on(
                    STATE.phase.as_word(),
                    Phase::Starting.word(),
                    Some(WATCH_TICK),
                    true,
                );
                continue;
            }
            state => return state == Phase::On,
        }
        if STATE.command.load(SeqCst) != Command::Run {
            return false;
        }
        let loaded = tables::loader_epoch();
        if loaded != epoch {
            epoch = loaded;
            if tables::find().is_any() {
                wait_for_the_loader();
                if begin_watched() {
                    set_up_here();
                }
                continue;
            }
        }
        wait_on(changes::calls(), seen, Some(WATCH_TICK), true);
    }
}

/// Returns when no thread is inside a `dlopen`: a library that is being loaded may still hand its
/// tables over by itself, and the set-up asks the loader for functions.
fn wait_for_the_loader() {
    // SAFETY: dladdr takes any address and a structure of which zero is a value.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        libc::dladdr(wait_for_the_loader as *const libc::c_void, &mut info);
    }
}

fn set_up(kind: Kind) -> Result<(), Status> {
    // Until a tool that writes to the spool says otherwise.
    pause::begin(pause::Mode::default());
    // All domains begin at the same time, as in a session of the engine's.
    if kind == Kind::Attached || registration::has_started() {
        registration::attach()?;
    }
    let spool = *STATE.spool.lock().unwrap_or_else(PoisonError::into_inner);
    let applied = collect::with(|collection| {
        collection.begin(spool, false);
        collection.apply()
    });
    if let Some(why) = applied.err() {
        collect::with(|collection| collection.note(&why));
        return Err(Status::NOT_AVAILABLE);
    }
    if let Some(spool) = spool {
        spool.head().attached_at.store(now(), Relaxed);
    }
    leave_at_exit();
    if kind == Kind::Launched && spool.is_some() {
        let (handlers, patience) = setting::with(|settings| {
            (
                settings.boolean("ROCPROF_SIGNAL_HANDLERS"),
                settings.number("ROCPROF_FINALIZE_WAIT_TIMEOUT_SECONDS"),
            )
        });
        if handlers != Ok(Some(false)) {
            signals::install(patience.ok().flatten());
        }
    }
    Ok(())
}

/// Polls until the end is requested.
fn run() -> Command {
    loop {
        let seen = changes::calls().load(SeqCst);
        let busy = collect::with(|collection| collection.tick());
        let command = STATE.command.load(SeqCst);
        if command != Command::Run {
            return command;
        }
        if gate::runtime_leaves() {
            wait_for_shut_down();
        }
        wait_on(
            changes::calls(),
            seen,
            Some(if busy { BUSY_TICK } else { IDLE_TICK }),
            true,
        );
    }
}

/// The application shuts its HSA runtime down, for good or for a while: nothing is collected until
/// that is done.
fn wait_for_shut_down() {
    collect::with(|collection| collection.stop_all(now() + DRAIN.as_nanos() as u64));
    while gate::runtime_leaves() && STATE.command.load(SeqCst) == Command::Run {
        wait_on(
            changes::calls(),
            changes::calls().load(SeqCst),
            Some(BUSY_TICK),
            true,
        );
    }
    if STATE.command.load(SeqCst) == Command::Run {
        let _ = collect::with(|collection| collection.apply());
    }
}

fn finish(command: Command) {
    let deadline = now() + DRAIN.as_nanos() as u64;
    let outcome_bits = collect::with(|collection| {
        collection.stop_all(deadline);
        collection.outcome
    });
    let spool = *STATE.spool.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(spool) = spool {
        let leaves = if command == Command::Detach {
            0
        } else {
            outcome::PROCESS_EXIT
        };
        let head = spool.head();
        head.detached_at.store(now(), Relaxed);
        head.outcome.store(outcome_bits | leaves, SeqCst);
    }
    // Everything is in the spool and in the buffers: no thread waits for what tools change from here on.
    changes::serve(false);
    collect::with(|collection| collection.end());
    match command {
        Command::Detach => {
            let _ = registration::detach();
        }
        Command::Finish => registration::finalize(),
        _ => {}
    }
    *STATE.spool.lock().unwrap_or_else(PoisonError::into_inner) = None;
}
