//! Type-state ptrace and access to another process's memory.
//!
//! A traced thread is either [`Seized`] (it runs, and can only be asked to stop) or [`Stopped`]
//! (only this type has methods for registers, signal mask and resumption), so a ptrace request on a
//! running thread does not compile. The end of the tracee is an outcome of its own
//! ([`Waited::Gone`], [`Error::Gone`]), never a bare errno.
//!
//! Facts that shaped this crate:
//! * The kernel binds a tracee to the tracing *thread*: both types are neither `Send` nor `Sync`,
//!   and that thread should end soon ([`trace`]).
//! * Every wait takes a deadline, since a tracee in uninterruptible sleep may take arbitrarily long
//!   to stop.
//! * `PTRACE_SEIZE` is used, never `PTRACE_ATTACH` (so no SIGSTOP is sent), and never
//!   `PTRACE_O_EXITKILL` (so the tracee outlives us).
//! * [`Memory`] is keyed on a live thread id: once the leader has exited, nothing can be read
//!   through the process id.
//!
//! What a stopped thread is made to do is up to the caller. This crate keeps no undo list; dropping
//! [`Stopped`] or [`Seized`] lets the thread go in the state that it is in.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod added;
mod addr;
pub mod arch;
mod awake;
mod boost;
mod error;
pub mod fault;
mod handles;
mod helper_process;
pub mod kfd;
mod local;
mod memory;
mod progress;
mod real_user;
mod regs;
mod stop;
pub mod sys;
mod urgent;
mod watch;

pub use added::{added_capabilities, with_added_rights};
pub use addr::RemoteAddr;
pub use arch::{FrameRegisters, Registers, ticks_per_millisecond};
pub use awake::Awake;
pub use boost::{Boost, Lender};
pub use error::{Error, Result};
pub use handles::{
    copy_of_socket, has_pidfds_of_threads, is_channel, kind_of_socket, memfd_filled, memfd_with,
    pidfd_open, pidfd_open_thread, poll_readable, send_bytes, send_with_descriptor, share_memory,
};
pub use helper_process::{close_shared_descriptors, in_helper_process, in_helper_process_always};
pub use local::{Peer, connect_abstract, connect_abstract_in, listening_peer, receive_now};
pub use memory::{Answers, Memory};
pub use midair_ids::{InvalidId, Pid, Tid};
pub use progress::Progress;
pub use real_user::{with_own_rights, without_capabilities};
pub use regs::SignalMask;
pub use stop::{Deadline, Death, Seized, StopKind, Stopped, Waited, on_own_thread, trace};
pub use urgent::{Pace, Urgent, avoid_processor};
pub use watch::sleep_beside;

/// Returns the id of the calling thread.
pub(crate) fn own_tid() -> Tid {
    // SAFETY: gettid takes nothing and cannot fail. (A thread's id is never 0.)
    Tid::try_from(unsafe { libc::gettid() }).unwrap_or(Tid::MAX)
}
