//! Everything that depends on the processor: the code that runs in the target, signal frames,
//! system call numbers, and the setting of registers.
//!
//! Each processor has a module with the same items. Everything above uses only these.

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

/// What happens to a blocking system call when its thread is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blocked {
    /// The kernel restarts it as if nothing had happened.
    Restarts,
    /// A futex wait. The kernel restarts it, too, but it may be for a lock of the allocator or
    /// loader.
    Futex,
    /// The kernel's own restart of an interrupted wait. It may be any of the two above.
    Restarted,
    /// It returns EINTR when its thread is stopped.
    Disturbed,
}

/// Bytes of a `timespec` and of a `timeval`.
pub(crate) const TIME_BYTES: u64 = 16;

/// Returns where the kernel writes the time that is left when it goes on with a wait by itself
/// (`restart_syscall`). The arguments belong to the interrupted call, whose number is not
/// known: nanosleep, clock_nanosleep, a futex wait, or on some processors poll.
///
/// The second argument is such a place in nanosleep only. In the others it is a number, which is no
/// address of a stack. The fourth is such a place in clock_nanosleep only, which depends on a clock's
/// number, no flag and an address. In the others the first is an address, or, in a poll of nothing,
/// the third is a number of milliseconds.
pub(crate) fn restarted_time_left_at(args: &[u64; 6]) -> [u64; 2] {
    /// More than all clocks of the system (linux/time.h).
    const CLOCKS: u64 = 16;
    let is_clock = args[0] < CLOCKS && args[1] == 0 && args[2] > u64::from(u32::MAX);
    [args[1], if is_clock { args[3] } else { 0 }]
}

/// How an interrupted system call goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RestartAs {
    /// The same call is made again.
    Again,
    /// The kernel would go on with the rest of a timed wait. A thread that restores itself gets
    /// EINTR.
    Interrupted,
    /// It has its result already.
    Done,
}

/// What a thread was doing when it was stopped wherever it was. A processor whose registers do not
/// tell must say [`Standing::Unknown`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(dead_code, reason = "each processor makes its part of them")]
pub(crate) enum Standing {
    /// It was executing its own code. The next instruction is at its instruction pointer.
    User,
    /// It has just returned from the system call of this number, which has its result.
    Back(u64),
    /// It was waiting in the system call of this number and these arguments. The call is made
    /// again.
    Waiting(u64, [u64; 6]),
    /// It may be any of these.
    Unknown,
}

/// How to tell the kernel that a thread is interrupted in a system call, on a processor where
/// registers alone do not. A harmless call is made first, and these registers are set at its end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rearm {
    /// Number of the harmless call.
    pub(crate) number: u64,
    /// Its arguments.
    pub(crate) args: [u64; 6],
    /// Registers at its end.
    pub(crate) registers: Registers,
}
