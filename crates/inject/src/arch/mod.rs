//! What is architecture-specific: the code that runs in the target, signal frames, system call
//! numbers, register set-up.
//!
//! Each processor has a module with the same items; everything above uses only these.

#[cfg(target_arch = "aarch64")]
mod aarch64;
mod scratch;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub(crate) use aarch64::*;
pub(crate) use scratch::{SETXID, Scratch, fill_scratch};
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::*;

use midair_ptrace::Registers;

/// What blocking system calls mean for a thread that is stopped in them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blocked {
    /// Restarted by the kernel as if nothing had been.
    Restarts,
    /// A futex wait, restarted too, but it may be a lock of the allocator or loader.
    Futex,
    /// The kernel's own restart of an interrupted wait: may be any of the two above.
    Restarted,
    /// Comes back with EINTR when its thread is stopped.
    Disturbed,
}

/// What an interrupted system call comes back with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RestartAs {
    /// The same call is made again.
    Again,
    /// The kernel would go on with the rest of a timed wait; a thread that restores itself gets
    /// EINTR.
    Interrupted,
    /// It has its result already.
    Done,
}

/// What a thread was doing that was stopped wherever it was. A processor whose registers do not
/// tell must say [`Standing::Unknown`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(dead_code, reason = "each processor makes its part of them")]
pub(crate) enum Standing {
    /// Instructions of its own, the next of which is at its instruction pointer.
    User,
    /// It has just come back from this system call, which has its result.
    Back(u64),
    /// It was waiting in the system call of this number and these arguments, which is made again.
    Waiting(u64, [u64; 6]),
    /// Any of these.
    Unknown,
}

/// How to tell the kernel that a thread stands interrupted in a system call, where registers alone
/// do not: a harmless call is made first, and these registers are set at its end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rearm {
    /// Number of the harmless call.
    pub(crate) number: u64,
    /// Its arguments.
    pub(crate) args: [u64; 6],
    /// Registers at its end.
    pub(crate) registers: Registers,
}
