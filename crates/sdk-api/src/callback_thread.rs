//! Threads that tools ask for, on which their buffers' callbacks are called. There are none unless a
//! tool asks.

pub(crate) mod handle;

pub use handle::ThreadNotice;

use crate::ended::Ended;
use crate::state::{self, STATE};
use crate::status::Status;
use handle::{CallbackThread, Listener, Work};
use midair_tool_call::{Thrown, call};
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::sync::PoisonError;
use std::sync::mpsc::channel;

/// How many there can be in a process (AMD-069).
const MOST: usize = 256;

thread_local! {
    static CALLBACK_THREAD: Cell<u64> = const { Cell::new(0) };
}

/// The calling thread's handle, if it is a callback thread, otherwise 0.
pub(crate) fn current() -> u64 {
    CALLBACK_THREAD.get()
}

/// Registers a tool's functions that are called before and after libraries of the set `libraries`
/// make a thread. `ROCPROFILER_LIBRARY` is this library; threads of the others are not known here.
pub fn listen(
    before: Option<ThreadNotice>,
    after: Option<ThreadNotice>,
    libraries: c_int,
    data: *mut c_void,
) {
    let mut listeners = STATE
        .listeners
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    listeners.push((
        before,
        after,
        libraries,
        midair_sdk_hot::operations::Opaque(data),
    ));
}

fn notify(which: impl Fn(&Listener) -> Option<ThreadNotice>) -> Result<(), Thrown> {
    const US: c_int = midair_abi::constants::ROCPROFILER_LIBRARY;
    let listeners = STATE
        .listeners
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone();
    for listener in listeners.iter().filter(|listener| listener.2 & US != 0) {
        if let Some(notice) = which(listener) {
            let data = listener.3.0;
            // SAFETY: the tool gave us this function for such calls, with its data.
            call(&[], || unsafe { notice(US, data) })?;
        }
    }
    Ok(())
}

/// Makes a callback thread; returns its handle. Only while a tool is being initialised.
///
/// # Errors
/// [`Status::CONFIGURATION_LOCKED`] at other times, [`Status::OUT_OF_RESOURCES`] where the system
/// gives no thread or there are [`MOST`] already, and what the tool's own functions throw that are
/// told of the thread.
pub fn create() -> Result<u64, Ended> {
    {
        let state = state::lock();
        state.configuring()?;
        // Before anybody is told: functions that are told may make a thread themselves.
        if state.threads.len() >= MOST {
            return Err(Status::OUT_OF_RESOURCES.into());
        }
    }
    let (work, inbox) = channel::<Work>();
    let (tell, name) = channel::<u64>();
    notify(|listener| listener.0)?;
    let spawned = with_signals_blocked(|| {
        // The application's signals must not be handled on this thread, so it inherits a full mask.
        std::thread::Builder::new()
            .name("midair-buffer".into())
            .stack_size(1 << 20)
            .spawn(move || {
                // Nothing is sent before the handle is known.
                CALLBACK_THREAD.set(name.recv().unwrap_or_default());
                for work in inbox {
                    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
                }
            })
    });
    notify(|listener| listener.1)?;
    spawned.map_err(|_| Status::OUT_OF_RESOURCES)?;
    let mut state = state::lock();
    state.threads.push(CallbackThread { work });
    let handle = state.threads.len() as u64;
    let _ = tell.send(handle);
    Ok(handle)
}

/// Runs `body` with every signal blocked in the calling thread.
fn with_signals_blocked<R>(body: impl FnOnce() -> R) -> R {
    // SAFETY: an integer array; any value is one.
    let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    let mut before: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: valid sets; the calls change this thread's mask only.
    unsafe {
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
    }
    let result = body();
    // SAFETY: the set that was read above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) };
    result
}
