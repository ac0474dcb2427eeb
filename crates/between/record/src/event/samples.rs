//! Samples of program counters.

use super::header::Header;
#[cfg(doc)]
use super::{CodeObject, Kernel};
use super::{encode, kind, with_tail};

/// A sample of a wave's program counter. Its kind names the method: host traps, or the device itself.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PcSample {
    /// Common header.
    pub header: Header,
    /// When it was taken.
    pub time: u64,
    /// Address of the instruction.
    pub pc: u64,
    /// Which lanes of the wave are on.
    pub exec_mask: u64,
    /// [`Kernel::dispatch_id`] of the wave's dispatch; 0 = unknown.
    pub dispatch_id: u64,
    /// Correlation id of the call that launched it; 0 = unknown.
    pub correlation: u64,
    /// [`CodeObject::code_object_id`] of the instruction; 0 = unknown.
    pub code_object_id: u64,
    /// Offset of the instruction from the code object's load address; `pc` if that is unknown.
    pub offset: u64,
    /// Where the wave ran, as the device's register has it.
    pub hw_id: u32,
    /// Number of the wave in its workgroup.
    pub wave_in_group: u32,
    /// The die that the wave ran on.
    pub chiplet: u32,
    /// KFD node id of the agent.
    pub node: u32,
    /// Number of the workgroup in the grid.
    pub workgroup: [u32; 3],
    /// What the device noted about the wave, if it took the sample itself; see the methods.
    pub snapshot: [u32; 3],
}

/// An instruction that was sampled. Its text (`text_len` bytes) and its line in the sources
/// (`comment_len` bytes, as `file:line`) follow, both UTF-8. The attaching side adds it.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Instruction {
    /// Common header.
    pub header: Header,
    /// [`CodeObject::code_object_id`].
    pub code_object_id: u64,
    /// Offset from the code object's load address ([`PcSample::offset`]).
    pub offset: u64,
    /// Bytes of the text.
    pub text_len: u32,
    /// Bytes of the line in the sources.
    pub comment_len: u32,
}

impl Instruction {
    /// Returns the record.
    pub fn record(code_object_id: u64, offset: u64, text: &str, comment: &str) -> Vec<u8> {
        let instruction = Instruction {
            header: Header {
                kind: kind::INSTRUCTION,
                ..Header::default()
            },
            code_object_id,
            offset,
            text_len: text.len() as u32,
            comment_len: comment.len() as u32,
        };
        encode(&instruction, [text, comment].concat().as_bytes())
    }
}

/// Reads an instruction, its text, and its line.
pub(super) fn instruction(body: &[u8]) -> Option<(Instruction, &[u8], &[u8])> {
    let len = |it: &Instruction| (it.text_len as usize).saturating_add(it.comment_len as usize);
    let (fixed, tail) = with_tail(body, len)?;
    let (text, comment) = tail.split_at_checked(fixed.text_len as usize)?;
    Some((fixed, text, comment))
}

/// What the bits of [`PcSample::snapshot`] mean on gfx9 (`docs/sources.md#samples`).
impl PcSample {
    /// Whether the device calls the sample valid. A sample by host traps has no such bits.
    pub fn is_valid(&self) -> bool {
        self.snapshot[0] & 1 != 0 && self.snapshot[0] >> 26 & 1 == 0
    }
    /// Whether files have it. An invalid sample has no meaning but its number.
    pub fn is_in_files(&self) -> bool {
        self.header.kind != midair_domain::kind::PC_SAMPLING_STOCHASTIC || self.is_valid()
    }
    /// Whether the wave issued an instruction.
    pub fn has_issued(&self) -> bool {
        self.snapshot[0] >> 1 & 1 != 0
    }
    /// Whether two VALU instructions were issued at once.
    pub fn has_issued_two(&self) -> bool {
        self.snapshot[0] >> 2 & 1 != 0
    }
    /// The type of the instruction, in the device's numbers.
    pub fn instruction_type(&self) -> u32 {
        self.snapshot[0] >> 3 & 0xf
    }
    /// Why no instruction was issued, in the device's numbers.
    pub fn stall_reason(&self) -> u32 {
        self.snapshot[0] >> 7 & 7
    }
    /// A bit for each kind of instruction of which one was issued (bits 0-7) or stalled (bits 8-15):
    /// misc, export, flat, LDS, vector memory, scalar, matrix, VALU.
    pub fn arbiter(&self) -> u32 {
        self.snapshot[0] >> 10 & 0xffff
    }
    /// How many waves the compute unit had.
    pub fn wave_count(&self) -> u32 {
        self.snapshot[1] & 0x3f
    }
}
