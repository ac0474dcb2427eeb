//! x86-64.

mod blob;
mod sigframe;

pub(crate) use blob::{code, last_call};
pub(crate) use sigframe::{FrameLayout, frame_bytes, lay_out};

use midair_procinfo::syscall::Blocking;
use midair_ptrace::{Registers, RemoteAddr};

use crate::needs::{Need, may, must};

use super::{Blocked, Rearm, RestartAs, Standing};

/// Bytes in a page.
pub(crate) const PAGE: u64 = 4096;
/// Size of `pthread_mutex_t`, in bytes.
pub(crate) const MUTEX: usize = 40;
/// Bytes below the stack pointer that belong to the running function (System V ABI).
pub(crate) const RED_ZONE: u64 = 128;
/// The instruction by which a thread enters the kernel.
pub(crate) const SYSCALL_INSTRUCTION: [u8; 2] = [0x0f, 0x05];
/// `mov $39,%eax; syscall; ret`: the inside of getpid.
pub(crate) const GETPID_BODY: [u8; 8] = [0xb8, 0x27, 0, 0, 0, 0x0f, 0x05, 0xc3];
/// Where its `syscall; ret` starts.
pub(crate) const GETPID_CALL: u64 = 5;
/// `syscall; ret`.
pub(crate) const SYSCALL_RETURN: [u8; 3] = [0x0f, 0x05, 0xc3];
/// `mov $15,%rax; syscall`: the C library's return from signal handlers.
pub(crate) const RESTORER: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];
/// False: signal handlers return to the C library's own restorer.
pub(crate) const RESTORER_IN_VDSO: bool = false;

/// System call numbers that the engine makes in the target.
pub(crate) mod number {
    pub(crate) const MMAP: u64 = 9;
    pub(crate) const MUNMAP: u64 = 11;
    pub(crate) const FUTEX: u64 = 202;
    pub(crate) const EXIT: u64 = 60;
    pub(crate) const SET_TID_ADDRESS: u64 = 218;
    pub(crate) const SET_ROBUST_LIST: u64 = 273;
    pub(crate) const RSEQ: u64 = 334;
}

/// `AUDIT_ARCH_X86_64` (linux/audit.h).
pub(crate) const AUDIT: u32 = 0xc000_003e;
/// Calls that entering makes on this processor only.
pub(crate) const NEEDED: &[Need] = &[
    must("poll", libc::SYS_poll, [1, 1, 0, 0, 0, 0]),
    may("readlink", libc::SYS_readlink, [1, 1, 64, 0, 0, 0]),
];

/// Judges a system call by its number and arguments. None if a thread in it is not to be borrowed.
/// The three groups were measured, see `docs/sources.md#inject`.
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

/// Returns where the kernel writes the time that is left when a stop interrupts this call, as the
/// program asked it to: the addresses of up to two times ([`super::TIME_BYTES`]), 0 for none.
pub(crate) fn time_left_at(nr: u64, args: &[u64; 6]) -> [u64; 2] {
    match nr {
        // select, pselect6
        23 | 270 => [args[4], 0],
        // nanosleep
        35 => [args[1], 0],
        // restart_syscall
        219 => super::restarted_time_left_at(args),
        // clock_nanosleep
        230 => [args[3], 0],
        // ppoll
        271 => [args[2], 0],
        _ => [0; 2],
    }
}

const ERESTARTSYS: i64 = 512;
const ERESTARTNOINTR: i64 = 513;
const ERESTARTNOHAND: i64 = 514;
const ERESTART_RESTARTBLOCK: i64 = 516;

/// Returns how the system call goes on in which a thread was stopped. None if it is in no call.
fn restart_as(regs: &Registers) -> Option<RestartAs> {
    let regs = &regs.0;
    if regs.orig_rax.cast_signed() < 0 {
        return None;
    }
    match -regs.rax.cast_signed() {
        ERESTARTSYS | ERESTARTNOINTR | ERESTARTNOHAND => Some(RestartAs::Again),
        ERESTART_RESTARTBLOCK => Some(RestartAs::Interrupted),
        _ => Some(RestartAs::Done),
    }
}

/// Returns how the call goes on in which a thread was seen before it was stopped. None if it is not
/// in that call any more.
pub(crate) fn stands_in(regs: &Registers, call: &Blocking) -> Option<RestartAs> {
    let same = regs.0.orig_rax == call.number && regs.0.rip == call.pc && regs.0.rsp == call.sp;
    same.then(|| restart_as(regs)).flatten()
}

/// Returns the number and arguments of the system call that a stop has interrupted and that will be
/// made again, whichever it is. `_instruction` reads the instruction at an address.
pub(crate) fn interrupted_call(
    regs: &Registers,
    _instruction: impl Fn(u64) -> Option<[u8; SYSCALL_INSTRUCTION.len()]>,
) -> Option<(u64, [u64; 6])> {
    let again = restart_as(regs) == Some(RestartAs::Again);
    let regs = &regs.0;
    let args = [regs.rdi, regs.rsi, regs.rdx, regs.r10, regs.r8, regs.r9];
    again.then_some((regs.orig_rax, args))
}

/// Returns None, since nothing more is needed here: the kernel reads from `orig_rax` and `rax` how
/// the call goes on.
pub(crate) fn rearm(_original: &Registers, _call: Option<&Blocking>) -> Option<Rearm> {
    None
}

/// Returns the name of a system call, by its number, if no allocator, loader or C library makes it
/// while it holds a lock that making a thread needs. A thread that has just returned from such a
/// call is in a plain wrapper. `futex` is not among them, nor are calls that change mappings or
/// threads.
pub(crate) fn plain_call(nr: u64) -> Option<&'static str> {
    Some(match nr {
        0 => "read",
        1 => "write",
        7 => "poll",
        8 => "lseek",
        16 => "ioctl",
        17 => "pread64",
        18 => "pwrite64",
        19 => "readv",
        20 => "writev",
        23 => "select",
        24 => "sched_yield",
        35 => "nanosleep",
        39 => "getpid",
        44 => "sendto",
        45 => "recvfrom",
        46 => "sendmsg",
        47 => "recvmsg",
        96 => "gettimeofday",
        98 => "getrusage",
        102 => "getuid",
        104 => "getgid",
        107 => "geteuid",
        110 => "getppid",
        186 => "gettid",
        201 => "time",
        228 => "clock_gettime",
        230 => "clock_nanosleep",
        270 => "pselect6",
        271 => "ppoll",
        309 => "getcpu",
        _ => return None,
    })
}

/// True: [`standing`] tells where a thread was stopped.
pub(crate) const HAS_SAFE_POINTS: bool = true;

/// Returns what a stopped thread was doing.
pub(crate) fn standing(regs: &Registers) -> Standing {
    let number = regs.0.orig_rax;
    match restart_as(regs) {
        None => Standing::User,
        Some(RestartAs::Done) => Standing::Back(number),
        Some(RestartAs::Again | RestartAs::Interrupted) => {
            let regs = &regs.0;
            let args = [regs.rdi, regs.rsi, regs.rdx, regs.r10, regs.r8, regs.r9];
            Standing::Waiting(number, args)
        }
    }
}

/// The flags that must be clear in our code: direction, trap.
const CLEAR_FLAGS: u64 = 0x400 | 0x100;

/// Returns the registers for one system call, which is made by the `syscall; ret` at `gadget` on
/// the stack at `stack`. `orig_rax` is -1 so that the kernel does not take the interrupted call for
/// one to restart. The restorer's address is on the stack already.
pub(crate) fn for_system_call(
    base: &Registers,
    gadget: RemoteAddr,
    stack: RemoteAddr,
    nr: u64,
    args: [u64; 6],
    _restorer: RemoteAddr,
) -> Registers {
    let mut regs = base.0;
    regs.rip = gadget.get();
    regs.rsp = stack.get();
    regs.rax = nr;
    [regs.rdi, regs.rsi, regs.rdx, regs.r10, regs.r8, regs.r9] = args;
    regs.orig_rax = u64::MAX;
    regs.eflags &= !CLEAR_FLAGS;
    Registers(regs)
}

/// Returns the number of the system call at whose start or end a thread is stopped.
pub(crate) fn call_begun(regs: &Registers) -> u64 {
    regs.0.orig_rax
}

/// Returns registers that leave a system call out if the thread has only started it, and make none
/// again if it has returned from one.
pub(crate) fn without_call(base: &Registers) -> Registers {
    let mut regs = base.0;
    regs.orig_rax = u64::MAX;
    Registers(regs)
}

/// Returns the registers for one system call by the instruction at `at`. All but the address, the
/// number and the given arguments are as in `base`.
pub(crate) fn call_from(base: &Registers, at: RemoteAddr, nr: u64, args: &[u64]) -> Registers {
    let mut regs = base.0;
    regs.rip = at.get();
    regs.rax = nr;
    let places = [
        &mut regs.rdi,
        &mut regs.rsi,
        &mut regs.rdx,
        &mut regs.r10,
        &mut regs.r8,
        &mut regs.r9,
    ];
    for (place, value) in places.into_iter().zip(args) {
        *place = *value;
    }
    regs.orig_rax = u64::MAX;
    Registers(regs)
}

/// The number of bytes before and behind a system call that [`ends_in_exit`] looks at.
pub(crate) const AROUND_EXIT: (usize, usize) = (16, 2);

/// Returns true if the code around the `syscall` with which the C library ends a thread makes that
/// call again when it returns. This must hold whatever the call left in the registers that it
/// changes (`rax`, `rcx`, `r11`) and in those that `munmap` needs (`rdi`, `rsi`). `before` ends
/// with the instruction.
pub(crate) fn ends_in_exit(before: &[u8], after: &[u8]) -> bool {
    // A backwards jmp by a signed byte.
    let &[0xeb, back] = after else { return false };
    let Some(len) = usize::from(back.cast_signed().unsigned_abs()).checked_sub(2) else {
        return false;
    };
    if back.cast_signed() >= 0 || len < SYSCALL_INSTRUCTION.len() {
        return false;
    }
    let Some(mut code) = before.get(before.len().saturating_sub(len)..) else {
        return false;
    };
    if code.len() != len {
        return false;
    }
    let mut number = false;
    while code != SYSCALL_INSTRUCTION {
        // Only moves between registers are allowed, and nothing that touches memory. The number has
        // to come from a register that nothing changes.
        let (is_number, rest) = match *code {
            [0x31, 0xff, ref rest @ ..] => (false, rest),
            // mov eax, 60
            [0xb8, 60, 0, 0, 0, ref rest @ ..] => (true, rest),
            // mov eax, ebx | edx | ebp
            [0x89, 0xd8 | 0xd0 | 0xe8, ref rest @ ..] => (true, rest),
            // mov eax, r8d | r9d | r10d | r12d | r13d | r14d | r15d
            [
                0x44,
                0x89,
                0xc0 | 0xc8 | 0xd0 | 0xe0 | 0xe8 | 0xf0 | 0xf8,
                ref rest @ ..,
            ] => (true, rest),
            _ => return false,
        };
        number |= is_number;
        code = rest;
    }
    number
}

/// Returns the registers for the stub.
pub(crate) fn for_stub(
    base: &Registers,
    code: RemoteAddr,
    stack: RemoteAddr,
    block: RemoteAddr,
) -> Registers {
    let mut regs = base.0;
    regs.rip = code.get();
    regs.rsp = stack.get();
    regs.rbp = 0;
    regs.rbx = block.get();
    regs.orig_rax = u64::MAX;
    regs.eflags &= !CLEAR_FLAGS;
    Registers(regs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_thread_is_a_loop() {
        // xor edi, edi; mov eax, edx; syscall; and back (Debian's glibc 2.36).
        let debian = [0x31, 0xff, 0x89, 0xd0, 0x0f, 0x05];
        assert!(ends_in_exit(&debian, &[0xeb, 0xf8]));
        assert!(ends_in_exit(
            &[&[0x90; 10], &debian[..]].concat(),
            &[0xeb, 0xf8]
        ));
        // mov eax, 60 in the loop.
        let other = [0xb8, 60, 0, 0, 0, 0x31, 0xff, 0x0f, 0x05];
        assert!(ends_in_exit(&other, &[0xeb, 0xf5]));
        for (before, after) in [
            // In this order: a jump forwards, no jump, a jump into the middle, a jump past the
            // bytes that were read, the number not loaded again (twice), the number from a register
            // that changes, and the longest jump backwards.
            (&debian[..], [0xeb, 0x08]),
            (&debian, [0x90, 0x90]),
            (&debian, [0xeb, 0xf9]),
            (&debian, [0xeb, 0xe0]),
            (&debian[4..], [0xeb, 0xfc]),
            (&[0x31, 0xff, 0x0f, 0x05], [0xeb, 0xfa]),
            (&[0x31, 0xff, 0x89, 0xf0, 0x0f, 0x05], [0xeb, 0xf8]),
            (&debian, [0xeb, 0x80]),
        ] {
            assert!(!ends_in_exit(before, &after), "{before:x?} {after:x?}");
        }
    }
}
