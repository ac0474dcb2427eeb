//! Signals that end a launched process: what was recorded is written before it ends, by that signal.
//!
//! A handler is installed only where the default action stands, which ends the process. It runs nothing
//! but two futex calls: the worker thread does the work, while the signalled thread waits for it,
//! within a limit. A program that has, or sets, a handler of its own keeps it.
//! (`--disable-signal-handlers`, `ROCPROF_SIGNAL_HANDLERS=0`: none of this.)

use crate::state::{SIGNAL_LIMIT, STATE};
use std::ffi::c_int;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Signals that end a process by default and that are sent, or raised, in practice.
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

/// Installs handlers where the default action stands.
pub fn install(patience: Option<u64>) {
    STATE
        .signal_limit
        .store(patience.unwrap_or(SIGNAL_LIMIT), Relaxed);
    for signal in SIGNALS {
        // SAFETY: plain structures that zero is a value of; the handler is a function of a library
        // that is never unloaded.
        unsafe {
            let mut before: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(signal, std::ptr::null(), &mut before) != 0
                || before.sa_sigaction != libc::SIG_DFL
            {
                continue;
            }
            let mut ours: libc::sigaction = std::mem::zeroed();
            ours.sa_sigaction = handle as *const () as usize;
            // On the thread's own signal stack where it has one: a stack that overflowed is no place for a handler.
            ours.sa_flags = libc::SA_ONSTACK | libc::SA_RESTART;
            libc::sigaction(signal, &ours, std::ptr::null_mut());
        }
    }
}

/// Only what may be called in a handler: atomics, futex, sigaction, raise.
extern "C" fn handle(signal: c_int) {
    // SAFETY: the calling thread's own variable.
    let errno = unsafe { *libc::__errno_location() };
    crate::local::finish_within(Duration::from_secs(STATE.signal_limit.load(Relaxed)));
    // The signal is blocked until this returns; then the default action runs. A fault happens again
    // by itself.
    // SAFETY: a plain structure of which zero (the default action) is a value.
    unsafe {
        let fresh: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, &fresh, std::ptr::null_mut());
        libc::raise(signal);
        *libc::__errno_location() = errno;
    }
}
