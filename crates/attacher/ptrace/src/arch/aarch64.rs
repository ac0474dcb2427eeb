//! aarch64 (Linux, little-endian).

use super::{read_set, write_set};
use crate::{Result, Tid};

/// The `e_machine` value of programs for this processor (source: the ELF supplement), and its name.
pub const ELF_MACHINE: (u16, &str) = (183, "aarch64");

// Register sets (linux/elf.h).
const NT_PRSTATUS: usize = 1;
const NT_FPREGSET: usize = 2;
const NT_ARM_SYSTEM_CALL: usize = 0x404;
const NT_ARM_SVE: usize = 0x405;
const NT_ARM_GCS: usize = 0x410;

/// The size in bytes of the floating-point register set (`struct user_fpsimd_state`): 32 vector
/// registers, status, control and padding.
pub const FPSIMD_BYTES: usize = 528;
/// The largest size of the SVE register set: a header, 32 registers of 256 bytes, 16 predicates and
/// the first-fault register of 32 bytes each, and two words.
const SVE_MOST: usize = 16 + 32 * 256 + 17 * 32 + 64;

/// The general registers, as the kernel lays them out for ptrace, and the number of the system call
/// that the thread is in.
#[derive(Debug, Clone, Copy)]
pub struct Registers {
    /// x0 to x30, sp, pc, pstate.
    pub user: libc::user_regs_struct,
    /// The number of the system call; -1 when the thread is in none. At a signal-delivery stop the
    /// kernel has already forgotten which call was interrupted: `pc` then points at the instruction
    /// that makes the call again, and x0 is its first argument.
    pub call: i32,
}

/// The registers that unwinding needs besides the program counter and the stack pointer. `/proc`
/// does not report them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameRegisters {
    /// x29.
    pub fp: u64,
    /// x30: the return address, in a function that calls none.
    pub lr: u64,
}

impl FrameRegisters {
    /// Returns a value with every register set to `value`, to see whether a result depends on them.
    pub fn all(value: u64) -> Self {
        FrameRegisters {
            fp: value,
            lr: value,
        }
    }
}

impl Registers {
    /// Address of the next instruction.
    pub fn pc(&self) -> u64 {
        self.user.pc
    }
    /// Stack pointer.
    pub fn sp(&self) -> u64 {
        self.user.sp
    }
    /// The other registers that unwinding needs.
    pub fn frame(&self) -> FrameRegisters {
        FrameRegisters {
            fp: self.user.regs[29],
            lr: self.user.regs[30],
        }
    }
    /// The result of the system call that has ended: a negative errno, or a value.
    pub fn result(&self) -> i64 {
        self.user.regs[0].cast_signed()
    }

    pub(crate) fn read(tid: Tid) -> Result<Registers> {
        const WORDS: usize = 34;
        let mut bytes = [0_u8; WORDS * 8];
        read_set("PTRACE_GETREGSET", tid, NT_PRSTATUS, &mut bytes)?;
        let mut words = [0_u64; WORDS];
        for (word, piece) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_ne_bytes(*piece);
        }
        let mut regs = [0; 31];
        regs.copy_from_slice(&words[..31]);
        let mut call = [0_u8; 4];
        read_set("PTRACE_GETREGSET", tid, NT_ARM_SYSTEM_CALL, &mut call)?;
        Ok(Registers {
            user: libc::user_regs_struct {
                regs,
                sp: words[31],
                pc: words[32],
                pstate: words[33],
            },
            call: i32::from_ne_bytes(call),
        })
    }

    pub(crate) fn write(&self, tid: Tid) -> Result<()> {
        let user = &self.user;
        let mut bytes = Vec::with_capacity(34 * 8);
        for word in user.regs.iter().chain([&user.sp, &user.pc, &user.pstate]) {
            bytes.extend_from_slice(&word.to_ne_bytes());
        }
        write_set("PTRACE_SETREGSET", tid, NT_PRSTATUS, &bytes)?;
        write_set(
            "PTRACE_SETREGSET",
            tid,
            NT_ARM_SYSTEM_CALL,
            &self.call.to_ne_bytes(),
        )
    }
}

/// Reads the floating-point set, followed by the SVE set where the processor has one (both as the
/// kernel gives them).
pub(crate) fn read_extended(tid: Tid) -> Result<Vec<u8>> {
    let mut bytes = vec![0_u8; FPSIMD_BYTES];
    read_set("PTRACE_GETREGSET", tid, NT_FPREGSET, &mut bytes)?;
    let mut sve = vec![0_u8; SVE_MOST];
    // The kernel refuses this where there is no SVE.
    if let Ok(len) = read_set("PTRACE_GETREGSET", tid, NT_ARM_SVE, &mut sve) {
        bytes.extend_from_slice(sve.get(..len).unwrap_or_default());
    }
    Ok(bytes)
}

/// Writes the register sets. The SVE set includes the floating-point registers, so where it is
/// present it is the only one written.
pub(crate) fn write_extended(tid: Tid, bytes: &[u8]) -> Result<()> {
    match bytes.split_at_checked(FPSIMD_BYTES) {
        Some((_, sve)) if !sve.is_empty() => write_set("PTRACE_SETREGSET", tid, NT_ARM_SVE, sve),
        Some((vectors, _)) => write_set("PTRACE_SETREGSET", tid, NT_FPREGSET, vectors),
        None => write_set("PTRACE_SETREGSET", tid, NT_FPREGSET, bytes),
    }
}

/// Whether the thread also keeps its return addresses on a second stack (guarded control stack,
/// `struct user_gcs`).
pub(crate) fn shadow_stack(tid: Tid) -> bool {
    let mut gcs = [0_u8; 24];
    // The kernel refuses this where it or the processor has no such stack. The first word holds the
    // features that are on; bit 0 is the stack.
    read_set("PTRACE_GETREGSET", tid, NT_ARM_GCS, &mut gcs).is_ok() && gcs[0] & 1 != 0
}

/// Reads the virtual counter.
pub fn ticks() -> u64 {
    let now: u64;
    // SAFETY: reading the counter has no effect; Linux lets user code read it.
    unsafe {
        std::arch::asm!("mrs {}, cntvct_el0", out(reg) now, options(nomem, nostack, preserves_flags));
    }
    now
}
