//! The prepared signal frame. With a plain `rt_sigreturn`, the thread restores itself to what it
//! was doing, without anybody's help. Because of it, the attacher may die at any moment without
//! harm.
//!
//! Layout after linux/arch/x86: `struct rt_sigframe`, `struct sigcontext`, `struct _fpx_sw_bytes`.

use midair_procinfo::syscall::Blocking;
use midair_ptrace::arch::xsave_bytes_needed;
use midair_ptrace::{Registers, RemoteAddr, SignalMask};

use super::{RED_ZONE, RestartAs, restart_as};

const EINTR: i64 = 4;

/// Bytes of `struct ucontext` with the kernel's 8-byte mask.
const UCONTEXT: u64 = 304;
/// `UC_FP_XSTATE | UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS`.
const UC_FLAGS: u64 = 7;
/// Not a valid combination for `sigaltstack`. So the kernel ignores the error and leaves the
/// alternative stack as it is.
const NO_ALTSTACK: u32 = 0x7;
const MAGIC1: u32 = 0x4650_5853;
const MAGIC2: u32 = 0x4650_5845;
/// The offset of the software-reserved bytes in the XSAVE area. In the first eight, ptrace gives
/// XCR0.
const SOFTWARE_BYTES: usize = 464;

/// Where the frame lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameLayout {
    /// The stack pointer for the system calls that we make. The word there is the address of the C
    /// library's restorer.
    pub(crate) stack: RemoteAddr,
    /// The ucontext, which is the stack pointer at the moment of `rt_sigreturn`.
    pub(crate) context: RemoteAddr,
    /// The XSAVE area.
    xsave: RemoteAddr,
    /// Its length, without the second magic.
    xsave_len: usize,
    /// Address after the last byte.
    pub(crate) end: RemoteAddr,
}

/// Puts the frame below the red zone of the thread's own stack.
pub(crate) fn lay_out(regs: &Registers, extended: &[u8]) -> FrameLayout {
    let end = RemoteAddr::new(regs.sp()).minus(RED_ZONE);
    let (xcr0, used) = (word(extended, SOFTWARE_BYTES), word(extended, 512));
    let xsave_len = xsave_bytes_needed(xcr0, used).min(extended.len());
    let xsave = end.minus(xsave_len as u64 + 4).align_down(64);
    let context = xsave.minus(UCONTEXT).align_down(16);
    FrameLayout {
        stack: context.minus(8),
        context,
        xsave,
        xsave_len,
        end,
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes
        .get(at..at + 8)
        .and_then(|word| word.try_into().ok())
        .map_or(0, u64::from_le_bytes)
}

/// Returns the bytes from `layout.stack` to `layout.end`, for a thread that is in `_call`, if it is
/// in a call. `restorer` is the C library's `mov $15,%rax; syscall`.
pub(crate) fn frame_bytes(
    layout: &FrameLayout,
    regs: &Registers,
    _call: Option<&Blocking>,
    mask: SignalMask,
    extended: &[u8],
    restorer: RemoteAddr,
) -> Vec<u8> {
    let len = layout.end.get().wrapping_sub(layout.stack.get());
    let mut bytes = vec![0_u8; usize::try_from(len).unwrap_or(0)];
    let mut put = |address: RemoteAddr, piece: &[u8]| {
        let at =
            usize::try_from(address.get().wrapping_sub(layout.stack.get())).unwrap_or(usize::MAX);
        if let Some(place) = bytes.get_mut(at..at.saturating_add(piece.len())) {
            place.copy_from_slice(piece);
        }
    };
    let restart = restart_as(regs);
    let regs = &regs.0;
    let (mut rax, mut rip) = (regs.rax, regs.rip);
    match restart {
        Some(RestartAs::Again) => {
            rax = regs.orig_rax;
            rip = rip.wrapping_sub(2);
        }
        Some(RestartAs::Interrupted) => rax = (-EINTR).cast_unsigned(),
        Some(RestartAs::Done) | None => {}
    }
    put(layout.stack, &restorer.get().to_le_bytes());
    let context = layout.context;
    put(context, &UC_FLAGS.to_le_bytes());
    put(context.plus(24), &NO_ALTSTACK.to_le_bytes());
    let general = [
        regs.r8,
        regs.r9,
        regs.r10,
        regs.r11,
        regs.r12,
        regs.r13,
        regs.r14,
        regs.r15,
        regs.rdi,
        regs.rsi,
        regs.rbp,
        regs.rbx,
        regs.rdx,
        rax,
        regs.rcx,
        regs.rsp,
        rip,
        regs.eflags,
    ];
    for (index, value) in general.iter().enumerate() {
        put(context.plus(40 + 8 * index as u64), &value.to_le_bytes());
    }
    // cs, gs, fs, ss, two bytes each.
    let selectors = (regs.cs & 0xffff) | (regs.ss & 0xffff) << 48;
    put(context.plus(40 + 8 * 18), &selectors.to_le_bytes());
    put(context.plus(224), &layout.xsave.get().to_le_bytes());
    put(context.plus(296), &mask.0.to_le_bytes());
    put(
        layout.xsave,
        extended.get(..layout.xsave_len).unwrap_or(extended),
    );
    if layout.xsave_len > 512 {
        let xfeatures = if word(extended, 512) & (1 << 18) != 0 {
            word(extended, SOFTWARE_BYTES)
        } else {
            word(extended, SOFTWARE_BYTES) & !(0b11 << 17)
        };
        let size = u32::try_from(layout.xsave_len).unwrap_or(0);
        let software = layout.xsave.plus(SOFTWARE_BYTES as u64);
        put(software, &[0; 48]);
        put(software, &MAGIC1.to_le_bytes());
        put(software.plus(4), &size.saturating_add(4).to_le_bytes());
        put(software.plus(8), &xfeatures.to_le_bytes());
        put(software.plus(16), &size.to_le_bytes());
        put(layout.xsave.plus(u64::from(size)), &MAGIC2.to_le_bytes());
    }
    bytes
}
