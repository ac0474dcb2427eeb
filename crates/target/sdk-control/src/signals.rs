//! Signals that end a launched process. What was recorded is written before the signal ends the
//! process.
//!
//! A handler is installed only where the signal has its default action, which ends the process. The
//! handler only makes two futex calls. The worker thread does the work, while the signalled thread
//! waits for it, within a limit. A program that has, or sets, its own handler keeps it.
//! (`--disable-signal-handlers` or `ROCPROF_SIGNAL_HANDLERS=0`: no handlers are installed.)

use crate::state::{SIGNAL_LIMIT, STATE};
use std::ffi::c_int;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// The signals that end a process by default and that are sent, or raised, in practice.
const SIGNALS: [c_int; 9] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGABRT,
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
];

/// Installs handlers where signals have their default action.
pub fn install(patience: Option<u64>) {
    STATE
        .signal_limit
        .store(patience.unwrap_or(SIGNAL_LIMIT), Relaxed);
    for signal in SIGNALS {
        // SAFETY: all-zero structures are valid, and the handler is a function of a library that is
        // never unloaded.
        unsafe {
            let mut before: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(signal, std::ptr::null(), &mut before) != 0
                || before.sa_sigaction != libc::SIG_DFL
            {
                continue;
            }
            let mut ours: libc::sigaction = std::mem::zeroed();
            ours.sa_sigaction = handle as *const () as usize;
            // Use the thread's own signal stack, if it has one: a stack that has overflowed cannot
            // run a handler.
            ours.sa_flags = libc::SA_ONSTACK | libc::SA_RESTART;
            libc::sigaction(signal, &ours, std::ptr::null_mut());
        }
    }
}

/// Handles a signal. Calls only what a handler may call: atomics, futex, sigaction, raise.
extern "C" fn handle(signal: c_int) {
    // SAFETY: errno is the calling thread's own variable.
    let errno = unsafe { *libc::__errno_location() };
    crate::local::finish_within(Duration::from_secs(STATE.signal_limit.load(Relaxed)));
    // The signal is blocked until this returns; then the default action runs. A fault then occurs
    // again by itself.
    // SAFETY: an all-zero structure (the default action) is valid.
    unsafe {
        let fresh: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, &fresh, std::ptr::null_mut());
        libc::raise(signal);
        *libc::__errno_location() = errno;
    }
}
