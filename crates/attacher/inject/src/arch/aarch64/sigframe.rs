//! The prepared signal frame. With a plain `rt_sigreturn`, the thread restores itself to what it
//! was doing, without anybody's help. Because of it, the attacher may die at any moment without
//! harm.
//!
//! Layout after linux/arch/arm64: `struct rt_sigframe` (kernel/signal.c), `struct sigcontext` and
//! its records (uapi/asm/sigcontext.h). The kernel reads the records up to the terminator, not the
//! whole of their space.

use midair_procinfo::syscall::Blocking;
use midair_ptrace::arch::FPSIMD_BYTES;
use midair_ptrace::{Registers, RemoteAddr, SignalMask};

use super::{RestartAs, stands_in};

const EINTR: i64 = 4;
/// Bytes of `siginfo_t`, which the ucontext follows.
const SIGINFO: usize = 128;
// Offsets from the frame's start.
const STACK_FLAGS: usize = SIGINFO + 24;
const MASK: usize = SIGINFO + 40;
/// `struct sigcontext` is aligned to 16.
const CONTEXT: usize = SIGINFO + 176;
pub(super) const GENERAL: usize = CONTEXT + 8;
const RECORDS: usize = CONTEXT + 288;
/// The room for records in the sigcontext. Further ones lie behind it, and an extra record tells
/// where.
const RECORDS_MOST: usize = 4096;

/// Not a valid combination for `sigaltstack`. So the kernel ignores the error and leaves the
/// alternative stack as it is.
const NO_ALTSTACK: u32 = 0x7;
const FPSIMD_MAGIC: u32 = 0x4650_8001;
const EXTRA_MAGIC: u32 = 0x4558_5401;
const SVE_MAGIC: u32 = 0x5356_4501;
/// A record without content ends the list.
const TERMINATOR: usize = 16;
const EXTRA: usize = 32;
/// Bytes of the header of the SVE register set. Bit 0 of its `flags` says that the long registers
/// are live.
const SVE_HEADER: usize = 16;

/// Where the frame lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameLayout {
    /// The stack pointer for the system calls that we make, which is the frame itself.
    pub(crate) stack: RemoteAddr,
    /// The same address: it is the stack pointer at the moment of `rt_sigreturn`.
    pub(crate) context: RemoteAddr,
    /// Address after the last byte.
    pub(crate) end: RemoteAddr,
}

/// Puts the frame below the thread's stack pointer. This processor has no red zone: nothing below
/// the stack pointer is in use.
pub(crate) fn lay_out(regs: &Registers, extended: &[u8]) -> FrameLayout {
    let end = RemoteAddr::new(regs.sp()).align_down(16);
    let len = RECORDS + records(RemoteAddr::new(0), extended).len();
    let context = end.minus(len as u64).align_down(16);
    FrameLayout {
        stack: context,
        context,
        end,
    }
}

fn head(bytes: &mut Vec<u8>, magic: u32, size: usize) {
    bytes.extend_from_slice(&magic.to_le_bytes());
    bytes.extend_from_slice(&u32::try_from(size).unwrap_or(0).to_le_bytes());
}

/// Returns the record of the SVE registers, if these are live. In a system call they are not.
fn sve_record(extended: &[u8]) -> Option<Vec<u8>> {
    let set = extended.get(FPSIMD_BYTES..)?;
    let half = |at: usize| Some(u16::from_le_bytes([*set.get(at)?, *set.get(at + 1)?]));
    let (vector_bytes, flags) = (half(8)?, half(12)?);
    if flags & 1 == 0 {
        return None;
    }
    let vector = usize::from(vector_bytes);
    // There are 32 vectors. The 16 predicates and the first-fault register have an eighth of a
    // vector each.
    let live = 32 * vector + 17 * (vector / 8);
    let registers = set.get(SVE_HEADER..SVE_HEADER + live)?;
    let size = (16 + live).next_multiple_of(16);
    let mut record = Vec::with_capacity(size);
    head(&mut record, SVE_MAGIC, size);
    record.extend_from_slice(&vector_bytes.to_le_bytes());
    record.resize(16, 0);
    record.extend_from_slice(registers);
    record.resize(size, 0);
    Some(record)
}

/// Returns the records, which will lie at `at`.
fn records(at: RemoteAddr, extended: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    head(&mut bytes, FPSIMD_MAGIC, FPSIMD_BYTES);
    // Status and control come first in this record. In the register set they come behind the
    // vectors.
    bytes.extend_from_slice(extended.get(512..520).unwrap_or(&[0; 8]));
    bytes.extend_from_slice(extended.get(..512).unwrap_or(&[0; 512]));
    if let Some(sve) = sve_record(extended) {
        if bytes.len() + sve.len() + TERMINATOR > RECORDS_MOST {
            let more = bytes.len() + EXTRA + TERMINATOR;
            head(&mut bytes, EXTRA_MAGIC, EXTRA);
            bytes.extend_from_slice(&at.plus(more as u64).get().to_le_bytes());
            let size = u32::try_from(sve.len() + TERMINATOR).unwrap_or(0);
            bytes.extend_from_slice(&size.to_le_bytes());
            bytes.resize(more, 0);
        }
        bytes.extend_from_slice(&sve);
    }
    bytes.resize(bytes.len() + TERMINATOR, 0);
    bytes
}

/// Returns the bytes from `layout.stack` to `layout.end`, for a thread that is in `call`, if it is
/// in a call. `_restorer` is not needed here: the link register leads to it.
pub(crate) fn frame_bytes(
    layout: &FrameLayout,
    regs: &Registers,
    call: Option<&Blocking>,
    mask: SignalMask,
    extended: &[u8],
    _restorer: RemoteAddr,
) -> Vec<u8> {
    let len = layout.end.get().wrapping_sub(layout.stack.get());
    let mut bytes = vec![0_u8; usize::try_from(len).unwrap_or(0)];
    let mut put = |at: usize, piece: &[u8]| {
        if let Some(place) = bytes.get_mut(at..at.saturating_add(piece.len())) {
            place.copy_from_slice(piece);
        }
    };
    let (mut first, mut pc) = (regs.user.regs[0], regs.user.pc);
    let comes_back = call.and_then(|call| Some((call, stands_in(regs, call)?)));
    // The kernel forgets the rest of a timed wait at `rt_sigreturn`. In the other cases, the
    // registers already make the call again, or have its result.
    if let Some((call, RestartAs::Interrupted)) = comes_back {
        first = (-EINTR).cast_unsigned();
        pc = call.pc;
    }
    put(STACK_FLAGS, &NO_ALTSTACK.to_le_bytes());
    put(MASK, &mask.0.to_le_bytes());
    let general = [first]
        .into_iter()
        .chain(regs.user.regs[1..].iter().copied())
        .chain([regs.user.sp, pc, regs.user.pstate]);
    for (index, value) in general.enumerate() {
        put(GENERAL + 8 * index, &value.to_le_bytes());
    }
    put(
        RECORDS,
        &records(layout.context.plus(RECORDS as u64), extended),
    );
    bytes
}

#[cfg(test)]
#[expect(unsafe_code, reason = "a frame of ours is given to the kernel")]
mod tests {
    use super::*;
    use std::mem::offset_of;

    /// The context that a signal handler gets has the kernel's layout, and libc's `ucontext_t`
    /// describes it, too.
    #[test]
    fn offsets_are_those_of_the_c_library() {
        assert_eq!(MASK - SIGINFO, offset_of!(libc::ucontext_t, uc_sigmask));
        assert_eq!(CONTEXT - SIGINFO, offset_of!(libc::ucontext_t, uc_mcontext));
        assert_eq!(size_of::<libc::siginfo_t>(), SIGINFO);
        assert_eq!(offset_of!(libc::mcontext_t, regs), GENERAL - CONTEXT);
        assert_eq!(offset_of!(libc::mcontext_t, sp), 256);
        assert_eq!(size_of::<libc::mcontext_t>() - 4096, RECORDS - CONTEXT);
    }

    fn state(vector: usize) -> Vec<u8> {
        let mut extended: Vec<u8> = (0..FPSIMD_BYTES).map(|at| at as u8).collect();
        if vector != 0 {
            let mut set = vec![0; SVE_HEADER + 40 * vector];
            set[8..10].copy_from_slice(&(vector as u16).to_le_bytes());
            set[12] = 1;
            for (at, byte) in set[SVE_HEADER..].iter_mut().enumerate() {
                *byte = at as u8 ^ 0x5a;
            }
            extended.extend_from_slice(&set);
        }
        extended
    }

    fn word(bytes: &[u8], at: usize) -> u32 {
        u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
    }

    #[test]
    fn long_vectors_lie_behind_a_record_that_says_so() {
        let plain = records(RemoteAddr::new(0x1000), &state(0));
        assert_eq!(plain.len(), FPSIMD_BYTES + TERMINATOR);
        // Registers that are not live get no record.
        let mut unused = state(16);
        unused[FPSIMD_BYTES + 12] = 0;
        assert_eq!(records(RemoteAddr::new(0x1000), &unused), plain);
        let short = records(RemoteAddr::new(0x1000), &state(32));
        assert_eq!(word(&short, FPSIMD_BYTES), SVE_MAGIC);
        let long = records(RemoteAddr::new(0x1000), &state(256));
        assert_eq!(word(&long, FPSIMD_BYTES), EXTRA_MAGIC);
        let more = FPSIMD_BYTES + EXTRA + TERMINATOR;
        assert_eq!(word(&long, FPSIMD_BYTES + 8) as usize, 0x1000 + more);
        assert_eq!(word(&long, FPSIMD_BYTES + 16) as usize, long.len() - more);
        assert_eq!(word(&long, more), SVE_MAGIC);
        assert!(long.len().is_multiple_of(16));
    }

    /// Lets the kernel (or its emulator) prove the frame: one of midair's takes the place of a real
    /// one, and `rt_sigreturn` uses it.
    #[test]
    fn a_thread_goes_on_by_a_frame_of_ours() {
        use std::sync::atomic::{AtomicU64, Ordering};
        static SEEN: AtomicU64 = AtomicU64::new(0);
        extern "C" fn handler(
            _signal: i32,
            _info: *mut libc::siginfo_t,
            context: *mut libc::c_void,
        ) {
            // SAFETY: the kernel passes a live context. A midair frame is written over it, records
            // included, and stays within the space that the kernel has made for its own.
            unsafe {
                let context = &mut *context.cast::<libc::ucontext_t>();
                let machine = &context.uc_mcontext;
                let mut regs = libc::user_regs_struct {
                    regs: machine.regs,
                    sp: machine.sp,
                    pc: machine.pc,
                    pstate: machine.pstate,
                };
                // x19 comes back with this value, which is checked below.
                regs.regs[19] = 0x1234_5678;
                let regs = Registers {
                    user: regs,
                    call: -1,
                };
                let base = (&raw mut *context).cast::<u8>().sub(SIGINFO);
                let mut extended = vec![0_u8; FPSIMD_BYTES];
                extended[..16].copy_from_slice(&0xfeed_u128.to_le_bytes());
                let at = RemoteAddr::new(base as u64);
                let len = (RECORDS + records(at, &extended).len()) as u64;
                let layout = FrameLayout {
                    stack: at,
                    context: at,
                    end: at.plus(len),
                };
                let mask = SignalMask(1 << (libc::SIGUSR2 - 1));
                let bytes = frame_bytes(&layout, &regs, None, mask, &extended, at);
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), base, bytes.len());
            }
            SEEN.fetch_add(1, Ordering::SeqCst);
        }
        let (mut register, mut vector) = (7_u64, 0_u64);
        // SAFETY: the handler is ours, and only this thread gets the signal. The assembly sends it
        // with `tgkill`, declares or restores every register that it changes, and reads the values
        // that the frame has put into x19 and v0.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            assert_eq!(
                libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()),
                0
            );
            std::arch::asm!(
                "mov x21, x19",
                "svc #0",
                "mov x20, x19",
                "mov x19, x21",
                "umov x22, v0.d[0]",
                inout("x8") 131_u64 => _,
                inout("x0") libc::getpid() as u64 => _,
                in("x1") libc::gettid() as u64,
                in("x2") libc::SIGUSR1 as u64,
                out("x20") register, out("x21") _, out("x22") vector,
                out("v0") _,
                clobber_abi("C"),
            );
            let mut mask: libc::sigset_t = std::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::null(), &mut mask);
            assert_eq!(libc::sigismember(&mask, libc::SIGUSR2), 1);
            assert_eq!(libc::sigismember(&mask, libc::SIGUSR1), 0);
        }
        assert_eq!(SEEN.load(Ordering::SeqCst), 1);
        assert_eq!((register, vector), (0x1234_5678, 0xfeed));
    }
}
