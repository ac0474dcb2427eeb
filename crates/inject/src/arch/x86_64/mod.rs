//! x86-64.

mod blob;
mod scratch;
mod sigframe;

pub(crate) use blob::code;
pub(crate) use scratch::{Scratch, fill_scratch};
pub(crate) use sigframe::{FrameLayout, RestartAs, frame_bytes, lay_out, restart_as};

use midair_ptrace::{Registers, RemoteAddr};

/// Bytes below the stack pointer that belong to the running function (System V ABI).
pub(crate) const RED_ZONE: u64 = 128;
/// The instruction by which a thread enters the kernel.
pub(crate) const SYSCALL_INSTRUCTION: [u8; 2] = [0x0f, 0x05];
/// `mov $39,%eax; syscall; ret`: the inside of getpid.
pub(crate) const GETPID_BODY: [u8; 8] = [0xb8, 0x27, 0, 0, 0, 0x0f, 0x05, 0xc3];
/// `syscall; ret`.
pub(crate) const SYSCALL_RETURN: [u8; 3] = [0x0f, 0x05, 0xc3];
/// `mov $15,%rax; syscall`: the C library's return from signal handlers.
pub(crate) const RESTORER: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];

/// System call numbers that the engine makes in the target.
pub(crate) mod number {
    pub(crate) const MMAP: u64 = 9;
    pub(crate) const MUNMAP: u64 = 11;
}

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

/// Judges a system call by number and arguments; None: not one to enter through. The three groups were measured, see
/// research/injection-anchors.md 1.3.
pub(crate) fn blocked_in(nr: u64, args: &[u64; 6]) -> Option<(&'static str, Blocked)> {
    use Blocked::{Disturbed, Futex, Restarted, Restarts};
    Some(match nr {
        0 => ("read", Restarts),
        1 => ("write", Restarts),
        7 => ("poll", Restarts),
        16 => ("ioctl", Restarts),
        23 => ("select", Restarts),
        34 => ("pause", Restarts),
        35 => ("nanosleep", Restarts),
        43 => ("accept", Restarts),
        44 => ("sendto", Restarts),
        45 => ("recvfrom", Restarts),
        46 => ("sendmsg", Restarts),
        47 => ("recvmsg", Restarts),
        61 => ("wait4", Restarts),
        // F_SETLKW, F_OFD_SETLKW
        72 if args[1] == 7 || args[1] == 38 => ("fcntl", Restarts),
        73 => ("flock", Restarts),
        130 => ("rt_sigsuspend", Restarts),
        // FUTEX_WAIT, LOCK_PI, WAIT_BITSET, LOCK_PI2
        202 if matches!(args[1] & 0x7f, 0 | 6 | 9 | 13) => ("futex", Futex),
        219 => ("restart_syscall", Restarted),
        230 => ("clock_nanosleep", Restarts),
        247 => ("waitid", Restarts),
        270 => ("pselect6", Restarts),
        271 => ("ppoll", Restarts),
        288 => ("accept4", Restarts),
        65 => ("semop", Disturbed),
        128 => ("rt_sigtimedwait", Disturbed),
        208 => ("io_getevents", Disturbed),
        220 => ("semtimedop", Disturbed),
        232 => ("epoll_wait", Disturbed),
        281 => ("epoll_pwait", Disturbed),
        426 => ("io_uring_enter", Disturbed),
        441 => ("epoll_pwait2", Disturbed),
        _ => return None,
    })
}

/// The arguments of the system call that a stopped thread is in.
pub(crate) fn arguments(regs: &Registers) -> [u64; 6] {
    [regs.rdi, regs.rsi, regs.rdx, regs.r10, regs.r8, regs.r9]
}

/// Flags that must be clear in our code: direction, trap.
const CLEAR_FLAGS: u64 = 0x400 | 0x100;

/// Registers for one system call made by the `syscall; ret` at `gadget`, on the stack at `stack`. `orig_rax` is -1 so that
/// the kernel does not take the interrupted call for the one to restart.
pub(crate) fn for_system_call(
    base: &Registers,
    gadget: RemoteAddr,
    stack: RemoteAddr,
    nr: u64,
    args: [u64; 6],
) -> Registers {
    let mut regs = *base;
    regs.rip = gadget.get();
    regs.rsp = stack.get();
    regs.rax = nr;
    [regs.rdi, regs.rsi, regs.rdx, regs.r10, regs.r8, regs.r9] = args;
    regs.orig_rax = u64::MAX;
    regs.eflags &= !CLEAR_FLAGS;
    regs
}

/// Registers for the stub.
pub(crate) fn for_stub(
    base: &Registers,
    code: RemoteAddr,
    stack: RemoteAddr,
    block: RemoteAddr,
) -> Registers {
    let mut regs = *base;
    regs.rip = code.get();
    regs.rsp = stack.get();
    regs.rbp = 0;
    regs.rbx = block.get();
    regs.orig_rax = u64::MAX;
    regs.eflags &= !CLEAR_FLAGS;
    regs
}
