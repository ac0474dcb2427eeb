//! Threads on which the callbacks of tools' buffers are called. They exist only if a tool asks for
//! them.

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

/// The most callback threads of a process (AMD-069).
const MOST: usize = 256;

thread_local! {
    static CALLBACK_THREAD: Cell<u64> = const { Cell::new(0) };
}

/// Returns the calling thread's handle if it is a callback thread, otherwise 0.
pub(crate) fn current() -> u64 {
    CALLBACK_THREAD.get()
}

/// Registers a tool's functions that are called before and after a library of the set `libraries`
/// creates a thread. `ROCPROFILER_LIBRARY` is this library; the threads of other libraries are not
/// known here.
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

/// Creates a callback thread and returns its handle. Only while a tool is being initialised.
///
/// # Errors
/// [`Status::CONFIGURATION_LOCKED`] at other times; [`Status::OUT_OF_RESOURCES`] where the system
/// refuses to create a thread or there are [`MOST`] already; and what tools' functions throw that
/// are called for the thread.
pub fn create() -> Result<u64, Ended> {
    {
        let state = state::lock();
        state.configuring()?;
        // Check before calling the tools' functions, since these may create a thread themselves.
        if state.threads.len() >= MOST {
            return Err(Status::OUT_OF_RESOURCES.into());
        }
    }
    let (work, inbox) = channel::<Work>();
    let (tell, name) = channel::<u64>();
    notify(|listener| listener.0)?;
    let spawned = with_signals_blocked(|| {
        // The application's signals must not be handled on this thread, so it inherits a full
        // signal mask.
        std::thread::Builder::new()
            .name("midair-buffer".into())
            .stack_size(1 << 20)
            .spawn(move || {
                // Nothing is sent to the thread before its handle is known.
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
    // SAFETY: sigset_t is an integer array, for which any value is valid.
    let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    let mut before: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the sets are valid, and the calls change only this thread's mask.
    unsafe {
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
    }
    let result = body();
    // SAFETY: the set is the one that was read above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) };
    result
}
