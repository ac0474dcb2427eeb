//! aarch64 (Linux, little-endian).
//!
//! This differs from x86-64: the kernel forgets an interrupted call *before* a tracer sees the
//! thread. At the stop, `pc` is back at the instruction and x0 is the first argument again. No
//! register says how the call would have ended, so we derive that from its number ([`ending`]).
//! Changing registers at such a stop loses the restart for good. Giving a thread back therefore
//! puts it into a call once more ([`rearm`]), and the kernel itself decides again. This includes the
//! choice between a restart and EINTR when a signal has come meanwhile (source:
//! arch/arm64/kernel/signal.c).

mod blob;
mod sigframe;

pub(crate) use blob::code;
pub(crate) use sigframe::{FrameLayout, frame_bytes, lay_out};

use midair_procinfo::syscall::Blocking;
use midair_ptrace::{Registers, RemoteAddr};

use crate::needs::{Need, must};

use super::{Blocked, Rearm, RestartAs, Standing};

/// A multiple of every page size on this processor (4, 16 and 64 KiB).
pub(crate) const PAGE: u64 = 65536;
/// Size of `pthread_mutex_t`, in bytes.
pub(crate) const MUTEX: usize = 48;
/// The instruction by which a thread enters the kernel: `svc #0`.
pub(crate) const SYSCALL_INSTRUCTION: [u8; 4] = [0x01, 0, 0, 0xd4];
/// `mov x8, #172; svc #0; ret`: the inside of getpid.
pub(crate) const GETPID_BODY: [u8; 12] = [
    0x88, 0x15, 0x80, 0xd2, 0x01, 0, 0, 0xd4, 0xc0, 0x03, 0x5f, 0xd6,
];
/// Where its `svc #0; ret` starts.
pub(crate) const GETPID_CALL: u64 = 4;
/// `svc #0; ret`.
pub(crate) const SYSCALL_RETURN: [u8; 8] = [0x01, 0, 0, 0xd4, 0xc0, 0x03, 0x5f, 0xd6];
/// `mov x8, #139; svc #0`: return from signal handlers.
pub(crate) const RESTORER: [u8; 8] = [0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4];
/// True: the restorer is the kernel's own, in the page that the kernel maps into each process.
pub(crate) const RESTORER_IN_VDSO: bool = true;

/// System call numbers that the engine makes in the target (asm-generic/unistd.h).
pub(crate) mod number {
    pub(crate) const FUTEX: u64 = 98;
    pub(crate) const NANOSLEEP: u64 = 101;
    pub(crate) const CLOCK_NANOSLEEP: u64 = 115;
    pub(crate) const RESTART: u64 = 128;
    pub(crate) const SIGSUSPEND: u64 = 133;
    pub(crate) const PSELECT6: u64 = 72;
    pub(crate) const PPOLL: u64 = 73;
    pub(crate) const EXIT: u64 = 93;
    pub(crate) const SET_TID_ADDRESS: u64 = 96;
    pub(crate) const SET_ROBUST_LIST: u64 = 99;
    pub(crate) const RSEQ: u64 = 293;
    pub(crate) const GETPID: u64 = 172;
    pub(crate) const MUNMAP: u64 = 215;
    pub(crate) const MMAP: u64 = 222;
}

/// `AUDIT_ARCH_AARCH64` (linux/audit.h).
pub(crate) const AUDIT: u32 = 0xc000_00b7;
/// Calls that entering makes on this processor only.
pub(crate) const NEEDED: &[Need] = &[must("ppoll", libc::SYS_ppoll, [1, 1, 1, 0, 0, 0])];

/// Judges a system call by its number and arguments. None if a thread in it is not to be borrowed.
/// The groups are those that were measured on x86-64, see `docs/sources.md#inject`. Behind these
/// calls is code that the kernel shares between processors.
pub(crate) fn blocked_in(nr: u64, args: &[u64; 6]) -> Option<(&'static str, Blocked)> {
    use Blocked::{Disturbed, Futex, Restarted, Restarts};
    Some(match nr {
        // F_SETLKW, F_OFD_SETLKW
        25 if args[1] == 7 || args[1] == 38 => ("fcntl", Restarts),
        29 => ("ioctl", Restarts),
        32 => ("flock", Restarts),
        63 => ("read", Restarts),
        64 => ("write", Restarts),
        number::PSELECT6 => ("pselect6", Restarts),
        number::PPOLL => ("ppoll", Restarts),
        95 => ("waitid", Restarts),
        // FUTEX_WAIT, LOCK_PI, WAIT_BITSET, LOCK_PI2
        number::FUTEX if matches!(args[1] & 0x7f, 0 | 6 | 9 | 13) => ("futex", Futex),
        number::NANOSLEEP => ("nanosleep", Restarts),
        number::CLOCK_NANOSLEEP => ("clock_nanosleep", Restarts),
        number::RESTART => ("restart_syscall", Restarted),
        number::SIGSUSPEND => ("rt_sigsuspend", Restarts),
        202 => ("accept", Restarts),
        206 => ("sendto", Restarts),
        207 => ("recvfrom", Restarts),
        211 => ("sendmsg", Restarts),
        212 => ("recvmsg", Restarts),
        242 => ("accept4", Restarts),
        260 => ("wait4", Restarts),
        4 => ("io_getevents", Disturbed),
        22 => ("epoll_pwait", Disturbed),
        137 => ("rt_sigtimedwait", Disturbed),
        192 => ("semtimedop", Disturbed),
        193 => ("semop", Disturbed),
        426 => ("io_uring_enter", Disturbed),
        441 => ("epoll_pwait2", Disturbed),
        _ => return None,
    })
}

/// Returns where the kernel writes the time that is left when a stop interrupts this call, as the
/// program asked it to: the addresses of up to two times ([`super::TIME_BYTES`]), 0 for none.
pub(crate) fn time_left_at(nr: u64, args: &[u64; 6]) -> [u64; 2] {
    match nr {
        number::PSELECT6 => [args[4], 0],
        number::PPOLL => [args[2], 0],
        number::NANOSLEEP => [args[1], 0],
        number::CLOCK_NANOSLEEP => [args[3], 0],
        number::RESTART => super::restarted_time_left_at(args),
        _ => [0; 2],
    }
}

const ERESTARTSYS: i64 = 512;
const ERESTARTNOHAND: i64 = 514;
const ERESTART_RESTARTBLOCK: i64 = 516;

/// Returns the kernel's internal code with which a call ends when a stop interrupts it. No register
/// shows it.
fn ending(number: u64, args: &[u64; 6]) -> i64 {
    /// TIMER_ABSTIME
    const ABSOLUTE: u64 = 1;
    match number {
        number::NANOSLEEP | number::RESTART => ERESTART_RESTARTBLOCK,
        number::CLOCK_NANOSLEEP if args[1] & ABSOLUTE == 0 => ERESTART_RESTARTBLOCK,
        // FUTEX_WAIT and FUTEX_WAIT_BITSET with a time limit.
        number::FUTEX if args[3] != 0 && matches!(args[1] & 0x7f, 0 | 9) => ERESTART_RESTARTBLOCK,
        number::CLOCK_NANOSLEEP | number::SIGSUSPEND | number::PPOLL | number::PSELECT6 => {
            ERESTARTNOHAND
        }
        _ => ERESTARTSYS,
    }
}

fn arguments(regs: &Registers) -> [u64; 6] {
    let mut args = [0; 6];
    args.copy_from_slice(&regs.user.regs[..6]);
    args
}

const INSTRUCTION: u64 = SYSCALL_INSTRUCTION.len() as u64;

/// Returns how the call goes on in which a thread was seen before it was stopped. None if it is not
/// in that call any more.
pub(crate) fn stands_in(regs: &Registers, call: &Blocking) -> Option<RestartAs> {
    if regs.sp() != call.sp || regs.user.regs[8] != call.number {
        return None;
    }
    if regs.pc() == call.pc {
        return Some(RestartAs::Done);
    }
    let again = regs.pc().wrapping_add(INSTRUCTION) == call.pc && arguments(regs) == call.args;
    again.then(|| match ending(call.number, &call.args) {
        ERESTART_RESTARTBLOCK => RestartAs::Interrupted,
        _ => RestartAs::Again,
    })
}

/// Returns the number and arguments of the system call that a stop has interrupted and that will be
/// made again, whichever it is. `instruction` reads the instruction at an address.
pub(crate) fn interrupted_call(
    regs: &Registers,
    instruction: impl Fn(u64) -> Option<[u8; SYSCALL_INSTRUCTION.len()]>,
) -> Option<(u64, [u64; 6])> {
    let again = instruction(regs.pc()) == Some(SYSCALL_INSTRUCTION);
    again.then(|| (regs.user.regs[8], arguments(regs)))
}

/// Returns how to make the kernel find the thread interrupted in its call once more. The thread
/// makes getpid with the first argument of that call, which the kernel keeps by itself where no
/// tracer reaches it. At the end of getpid, its result is replaced by the code with which the call
/// would have ended.
pub(crate) fn rearm(original: &Registers, call: Option<&Blocking>) -> Option<Rearm> {
    let call = call?;
    if !matches!(
        stands_in(original, call)?,
        RestartAs::Again | RestartAs::Interrupted
    ) {
        return None;
    }
    let mut registers = *original;
    registers.user.pc = call.pc;
    registers.user.regs[0] = (-ending(call.number, &call.args)).cast_unsigned();
    registers.call = i32::try_from(call.number).ok()?;
    Some(Rearm {
        number: number::GETPID,
        args: [original.user.regs[0], 0, 0, 0, 0, 0],
        registers,
    })
}

/// Returns the name of a system call, by its number, if no allocator, loader or C library makes it
/// while it holds a lock that making a thread needs. A thread that has just returned from such a
/// call is in a plain wrapper. `futex` is not among them, nor are calls that change mappings or
/// threads.
pub(crate) fn plain_call(nr: u64) -> Option<&'static str> {
    Some(match nr {
        29 => "ioctl",
        62 => "lseek",
        63 => "read",
        64 => "write",
        65 => "readv",
        66 => "writev",
        67 => "pread64",
        68 => "pwrite64",
        number::PSELECT6 => "pselect6",
        number::PPOLL => "ppoll",
        number::NANOSLEEP => "nanosleep",
        113 => "clock_gettime",
        number::CLOCK_NANOSLEEP => "clock_nanosleep",
        124 => "sched_yield",
        165 => "getrusage",
        168 => "getcpu",
        169 => "gettimeofday",
        number::GETPID => "getpid",
        173 => "getppid",
        174 => "getuid",
        175 => "geteuid",
        176 => "getgid",
        178 => "gettid",
        206 => "sendto",
        207 => "recvfrom",
        211 => "sendmsg",
        212 => "recvmsg",
        _ => return None,
    })
}

/// False: no running thread is borrowed on this processor, see [`standing`]. So none is stopped to be
/// looked at.
pub(crate) const HAS_SAFE_POINTS: bool = false;

/// Returns what a stopped thread was doing. This is known only at the end of a call. At a stop for
/// signals the kernel has forgotten it, and a thread that returns from a call looks like one in its
/// own code.
pub(crate) fn standing(regs: &Registers) -> Standing {
    match u64::try_from(regs.call) {
        Ok(number) => Standing::Back(number),
        Err(_) => Standing::Unknown,
    }
}

/// The bits of `pstate` that must be clear in our code: single step, and the kind of branch that
/// led here (for landing pads).
const CLEAR_STATE: u64 = 1 << 21 | 0b11 << 10;

fn ours(base: &Registers, pc: RemoteAddr, stack: RemoteAddr, comes_back_to: u64) -> Registers {
    let mut regs = *base;
    regs.user.pc = pc.get();
    regs.user.sp = stack.get();
    regs.user.regs[30] = comes_back_to;
    regs.user.pstate &= !CLEAR_STATE;
    regs.call = -1;
    regs
}

/// Returns the registers for one system call made by the `svc #0; ret` at `gadget`, which returns
/// to the restorer with the stack pointer at the frame.
pub(crate) fn for_system_call(
    base: &Registers,
    gadget: RemoteAddr,
    stack: RemoteAddr,
    nr: u64,
    args: [u64; 6],
    restorer: RemoteAddr,
) -> Registers {
    let mut regs = ours(base, gadget, stack, restorer.get());
    regs.user.regs[8] = nr;
    for (register, value) in regs.user.regs.iter_mut().zip(args) {
        *register = value;
    }
    regs
}

/// Returns None: the worker thread cannot unmap itself here. The C library keeps the number of
/// `exit` in x8 over its last loop. If the attacher died after another call, the thread would make
/// that call for ever. So a thread of the program is borrowed for the removal here.
pub(crate) fn last_call() -> Option<u64> {
    None
}

/// Returns the number of the system call at whose start or end a thread is stopped.
pub(crate) fn call_begun(regs: &Registers) -> u64 {
    u64::from(regs.call.cast_unsigned())
}

/// Returns registers that leave a system call out if the thread has only started it, and make none
/// again if it has returned from one.
pub(crate) fn without_call(base: &Registers) -> Registers {
    let mut regs = *base;
    regs.call = -1;
    regs
}

/// Returns the registers for one system call by the instruction at `at`. All but the address, the
/// number and the given arguments are as in `base`.
pub(crate) fn call_from(base: &Registers, at: RemoteAddr, nr: u64, args: &[u64]) -> Registers {
    let mut regs = without_call(base);
    regs.user.pc = at.get();
    regs.user.regs[8] = nr;
    for (register, value) in regs.user.regs.iter_mut().zip(args) {
        *register = *value;
    }
    regs
}

/// The number of bytes before and behind a system call that [`ends_in_exit`] looks at.
pub(crate) const AROUND_EXIT: (usize, usize) = (4, 4);

/// See [`last_call`].
pub(crate) fn ends_in_exit(_before: &[u8], _after: &[u8]) -> bool {
    false
}

/// Returns the registers for the stub.
pub(crate) fn for_stub(
    base: &Registers,
    code: RemoteAddr,
    stack: RemoteAddr,
    block: RemoteAddr,
) -> Registers {
    let mut regs = ours(base, code, stack, 0);
    regs.user.regs[29] = 0;
    regs.user.regs[19] = block.get();
    regs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(number: u64, args: [u64; 6]) -> (Registers, Blocking) {
        let mut regs = [0; 31];
        regs[..6].copy_from_slice(&args);
        regs[7] = 77;
        regs[8] = number;
        let regs = Registers {
            user: libc_regs(regs, 0x7f00, 0x4000),
            call: -1,
        };
        let call = Blocking {
            number,
            args,
            sp: 0x7f00,
            pc: 0x4004,
        };
        (regs, call)
    }

    fn libc_regs(regs: [u64; 31], sp: u64, pc: u64) -> libc::user_regs_struct {
        libc::user_regs_struct {
            regs,
            sp,
            pc,
            pstate: 0x6000_0000 | CLEAR_STATE,
        }
    }

    #[test]
    fn a_stopped_thread_stands_before_its_call() {
        let (regs, call) = seen(63, [5, 0x1000, 64, 0, 0, 0]);
        assert_eq!(stands_in(&regs, &call), Some(RestartAs::Again));
        let (regs, call) = seen(number::NANOSLEEP, [0x1000, 0, 0, 0, 0, 0]);
        assert_eq!(stands_in(&regs, &call), Some(RestartAs::Interrupted));
        // The call has its result: pc is behind the instruction.
        let mut done = regs;
        done.user.pc = call.pc;
        assert_eq!(stands_in(&done, &call), Some(RestartAs::Done));
        // With another call, another first argument or another stack, the thread went on.
        let mut other = regs;
        other.user.regs[8] = 64;
        assert_eq!(stands_in(&other, &call), None);
        other = regs;
        other.user.regs[0] = 1;
        assert_eq!(stands_in(&other, &call), None);
        other = regs;
        other.user.sp += 16;
        assert_eq!(stands_in(&other, &call), None);
    }

    #[test]
    fn rearmed_as_the_call_would_have_ended() {
        let codes = [
            (63, [5, 0, 0, 0, 0, 0], -512),
            (number::PPOLL, [0; 6], -514),
            (number::SIGSUSPEND, [0; 6], -514),
            (number::CLOCK_NANOSLEEP, [0, 1, 9, 0, 0, 0], -514),
            (number::CLOCK_NANOSLEEP, [0, 0, 9, 0, 0, 0], -516),
            (number::FUTEX, [8, 0, 1, 0, 0, 0], -512),
            (number::FUTEX, [8, 137, 1, 0x2000, 0, 0], -516),
            (number::FUTEX, [8, 6, 1, 0x2000, 0, 0], -512),
        ];
        for (number, args, code) in codes {
            let (regs, call) = seen(number, args);
            let rearm = rearm(&regs, Some(&call)).unwrap();
            assert_eq!(rearm.args[0], args[0]);
            assert_eq!(rearm.registers.result(), code, "{number}");
            assert_eq!(rearm.registers.pc(), call.pc);
            assert_eq!(u64::try_from(rearm.registers.call).unwrap(), number);
            assert_eq!(rearm.registers.user.regs[7], 77);
        }
        let (mut regs, call) = seen(63, [0; 6]);
        regs.user.pc = call.pc;
        assert!(rearm(&regs, Some(&call)).is_none() && rearm(&regs, None).is_none());
    }

    #[test]
    fn registers_for_our_code() {
        let (regs, _) = seen(63, [5; 6]);
        let at = RemoteAddr::new;
        let call = for_system_call(
            &regs,
            at(0x100),
            at(0x200),
            222,
            [1, 2, 3, 4, 5, 6],
            at(0x300),
        );
        assert_eq!(&call.user.regs[..9], &[1, 2, 3, 4, 5, 6, 0, 77, 222]);
        assert_eq!(
            (call.pc(), call.sp(), call.user.regs[30]),
            (0x100, 0x200, 0x300)
        );
        assert_eq!((call.user.pstate, call.call), (0x6000_0000, -1));
        let stub = for_stub(&regs, at(0x100), at(0x200), at(0x400));
        assert_eq!(
            (stub.user.regs[19], stub.user.regs[29], stub.user.regs[30]),
            (0x400, 0, 0)
        );
    }
}
