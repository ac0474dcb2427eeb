//! x86-64.

use super::{read_set, write_set};
use crate::stop::request;
use crate::{Result, Tid};

/// The `e_machine` value of programs for this processor (source: the ELF supplement), and its name.
pub const ELF_MACHINE: (u16, &str) = (62, "x86-64");

/// `NT_X86_XSTATE` (linux/elf.h).
const NT_X86_XSTATE: usize = 0x202;

/// The general registers, as the kernel lays them out for ptrace.
#[derive(Debug, Clone, Copy)]
pub struct Registers(pub libc::user_regs_struct);

/// The registers that unwinding needs besides the program counter and the stack pointer. `/proc`
/// does not report them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameRegisters {
    /// `rbp`.
    pub fp: u64,
}

impl FrameRegisters {
    /// Returns a value with every register set to `value`, to see whether a result depends on them.
    pub fn all(value: u64) -> Self {
        FrameRegisters { fp: value }
    }
}

impl Registers {
    /// Address of the next instruction.
    pub fn pc(&self) -> u64 {
        self.0.rip
    }
    /// Stack pointer.
    pub fn sp(&self) -> u64 {
        self.0.rsp
    }
    /// The other registers that unwinding needs.
    pub fn frame(&self) -> FrameRegisters {
        FrameRegisters { fp: self.0.rbp }
    }
    /// The result of the system call that has ended: a negative errno, or a value.
    pub fn result(&self) -> i64 {
        self.0.rax.cast_signed()
    }

    pub(crate) fn read(tid: Tid) -> Result<Registers> {
        // SAFETY: an all-zero user_regs_struct is a valid value: it holds integers only.
        let mut regs: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        // SAFETY: `regs` is live and has the type that the kernel fills for this request.
        unsafe {
            request(
                "PTRACE_GETREGS",
                libc::PTRACE_GETREGS,
                tid,
                0,
                (&raw mut regs) as usize,
            )
        }?;
        Ok(Registers(regs))
    }

    pub(crate) fn write(&self, tid: Tid) -> Result<()> {
        // SAFETY: the registers are live and have the type that the kernel reads for this request.
        unsafe {
            request(
                "PTRACE_SETREGS",
                libc::PTRACE_SETREGS,
                tid,
                0,
                (&raw const self.0) as usize,
            )
        }
    }
}

/// Reads the x87, SSE, AVX, … state in the standard XSAVE format, of the size that the kernel
/// reports.
pub(crate) fn read_extended(tid: Tid) -> Result<Vec<u8>> {
    // 16 KiB are enough for everything up to AMX tiles.
    let mut bytes = vec![0_u8; 16 * 1024];
    let len = read_set("PTRACE_GETREGSET", tid, NT_X86_XSTATE, &mut bytes)?;
    bytes.truncate(len);
    Ok(bytes)
}

pub(crate) fn write_extended(tid: Tid, bytes: &[u8]) -> Result<()> {
    write_set("PTRACE_SETREGSET", tid, NT_X86_XSTATE, bytes)
}

/// Whether the thread also keeps its return addresses on a second stack. Always false here: on
/// x86-64 `/proc/TID/status` tells.
pub(crate) fn shadow_stack(_tid: Tid) -> bool {
    false
}

/// Reads the time stamp counter.
pub fn ticks() -> u64 {
    // SAFETY: reading the counter has no effect; x86-64 always has it.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// The size in bytes of a standard-format XSAVE area that holds every component of `xstate_bv` and
/// all components in `xcr0`, without tile data when the thread has none. The kernel refuses a
/// signal frame whose area is larger than what the thread may use, and a thread that never asked
/// for AMX may not use tile data (source: Intel SDM vol. 1, 13.5; arch/x86 fpu/signal.c).
pub fn xsave_bytes_needed(xcr0: u64, xstate_bv: u64) -> usize {
    /// Tile configuration and tile data.
    const TILES: u64 = 0b11 << 17;
    let wanted = if xstate_bv & (1 << 18) != 0 {
        xcr0
    } else {
        xcr0 & !TILES
    };
    // The legacy area and the header are always there.
    let mut bytes = 576_usize;
    for component in 2..63_u32 {
        if wanted & (1 << component) == 0 {
            continue;
        }
        let leaf = std::arch::x86_64::__cpuid_count(0xd, component);
        bytes = bytes.max((leaf.eax as usize).saturating_add(leaf.ebx as usize));
    }
    bytes
}
