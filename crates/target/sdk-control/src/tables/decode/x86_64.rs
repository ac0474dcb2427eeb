//! The stubs on x86-64.
//!
//! These forms were seen (`docs/sources.md#hsa`, `docs/sources.md#hip`): HSA `mov table(%rip),%rax;
//! jmp *off(%rax)` (also through `lea; mov (%rax)`); HIP `…save arguments…; call get_table;
//! …restore…; mov off(%rax),%rax; jmp *%rax`, where `get_table` is `movzbl guard(%rip); test; je
//! slow; mov table(%rip),%rax; ret`. AMD's ROCTx library does the same for one object that has all
//! three tables, through a reference (`mov reference(%rip),%rax; mov (%rax),%rax`), with the getter
//! or its fast path in each function.

use super::{MOST_READS, NotAStub, Place, Stub, code_at};
use crate::tables::maps::Maps;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

/// The most instructions of a stub that are looked at.
const STUB_LIMIT: usize = 48;
/// The most instructions of a `get_table`.
const GETTER_LIMIT: usize = 12;

/// Decodes the function at `address`.
///
/// # Errors
/// [`NotAStub`] when it is anything but a jump through a table.
pub fn stub(maps: &Maps, address: usize) -> Result<Stub, NotAStub> {
    let code = code_at(maps, address, 192)?;
    let mut decoder = Decoder::with_ip(64, &code, address as u64, DecoderOptions::NONE);
    // Registers that contain the table's address, as far as the straight path shows.
    let mut table: Option<(Register, Place)> = None;
    let mut entry: Option<(Register, Place, u32)> = None;
    let mut by: Option<usize> = None;
    // The guard of a function-local static, if the getter's fast path is in the stub itself.
    let mut guard: Option<u64> = None;
    for _ in 0..STUB_LIMIT {
        if !decoder.can_decode() {
            return Err(NotAStub::OtherCode);
        }
        let instruction = decoder.decode();
        match instruction.mnemonic() {
            Mnemonic::Movzx | Mnemonic::Cmp | Mnemonic::Test
                if table.is_none() && instruction.is_ip_rel_memory_operand() =>
            {
                guard = Some(instruction.ip_rel_memory_address());
            }
            // This jump is not taken after the table was created.
            Mnemonic::Je if guard.is_some() && table.is_none() => {}
            Mnemonic::Mov
                if instruction.op0_kind() == OpKind::Register
                    && instruction.op1_kind() == OpKind::Memory =>
            {
                let into = instruction.op0_register();
                let base = instruction.memory_base();
                if instruction.is_ip_rel_memory_operand() && into.is_gpr64() {
                    let place = Place::at(instruction.ip_rel_memory_address(), guard);
                    table = Some((into, place.read()));
                } else if let Some((register, place)) = table
                    && register == base
                    && instruction.memory_displacement64() == 0
                    && plain(&instruction)
                    && place.reads < MOST_READS
                {
                    // `lea variable(%rip),%rax; mov (%rax),%rax`. No entry is at offset 0: a table
                    // starts with its size or version.
                    table = Some((into, place.read()));
                } else if let Some((register, place)) = table
                    && register == base
                    && plain(&instruction)
                    && into.is_gpr64()
                {
                    entry = Some((into, place, offset_of(&instruction)?));
                    if into == register {
                        table = None;
                    }
                } else if table.is_some_and(|(register, _)| register == into.full_register()) {
                    table = None;
                }
            }
            Mnemonic::Lea if instruction.is_ip_rel_memory_operand() => {
                table = Some((
                    instruction.op0_register(),
                    Place::at(instruction.ip_rel_memory_address(), guard),
                ));
            }
            Mnemonic::Call if instruction.op0_kind() == OpKind::NearBranch64 => {
                // HSA's hsa_init calls a helper first and loads the table later. A call whose
                // target is not a getter is skipped.
                let target = instruction.near_branch_target() as usize;
                table = getter(maps, target)
                    .ok()
                    .map(|place| (Register::RAX, place));
                by = table.and(Some(target));
            }
            Mnemonic::Jmp if instruction.op0_kind() == OpKind::Memory => {
                let (register, place) = table.ok_or(NotAStub::OtherCode)?;
                if instruction.memory_base() != register || !plain(&instruction) {
                    return Err(NotAStub::OtherCode);
                }
                return Ok(Stub {
                    table: place.resolve(maps),
                    offset: offset_of(&instruction)?,
                    getter: by,
                });
            }
            Mnemonic::Jmp if instruction.op0_kind() == OpKind::Register => {
                let (register, place, offset) = entry.ok_or(NotAStub::OtherCode)?;
                if instruction.op0_register() != register {
                    return Err(NotAStub::OtherCode);
                }
                return Ok(Stub {
                    table: place.resolve(maps),
                    offset,
                    getter: by,
                });
            }
            // A stub for a function with stack arguments may call through the table and return.
            Mnemonic::Call => {
                let (place, offset) = match (instruction.op0_kind(), table, entry) {
                    (OpKind::Memory, Some((register, place)), _)
                        if instruction.memory_base() == register =>
                    {
                        (place, offset_of(&instruction)?)
                    }
                    (OpKind::Register, _, Some((register, place, offset)))
                        if instruction.op0_register() == register =>
                    {
                        (place, offset)
                    }
                    _ => return Err(NotAStub::OtherCode),
                };
                return Ok(Stub {
                    table: place.resolve(maps),
                    offset,
                    getter: by,
                });
            }
            _ if instruction.flow_control() != FlowControl::Next => {
                return Err(NotAStub::OtherCode);
            }
            _ => {}
        }
    }
    Err(NotAStub::OtherCode)
}

/// Decodes a function that returns the table, along the straight path to its first `ret`.
fn getter(maps: &Maps, address: usize) -> Result<Place, NotAStub> {
    let code = code_at(maps, address, 64)?;
    let mut decoder = Decoder::with_ip(64, &code, address as u64, DecoderOptions::NONE);
    let mut place: Option<Place> = None;
    let mut guard = None;
    for _ in 0..GETTER_LIMIT {
        if !decoder.can_decode() {
            break;
        }
        let instruction = decoder.decode();
        let rip_relative = instruction.is_ip_rel_memory_operand();
        match instruction.mnemonic() {
            Mnemonic::Movzx | Mnemonic::Cmp | Mnemonic::Test if rip_relative => {
                guard = Some(instruction.ip_rel_memory_address());
            }
            Mnemonic::Mov if rip_relative && instruction.op0_register() == Register::AL => {
                guard = Some(instruction.ip_rel_memory_address());
            }
            Mnemonic::Mov if rip_relative && instruction.op0_register() == Register::RAX => {
                place = Some(Place::at(instruction.ip_rel_memory_address(), None).read());
            }
            Mnemonic::Lea if rip_relative && instruction.op0_register() == Register::RAX => {
                place = Some(Place::at(instruction.ip_rel_memory_address(), None));
            }
            Mnemonic::Mov
                if instruction.op0_register() == Register::RAX
                    && instruction.op1_kind() == OpKind::Memory =>
            {
                // `mov reference(%rip),%rax; mov (%rax),%rax`, or something entirely different.
                place = place.filter(|place| {
                    instruction.memory_base() == Register::RAX
                        && instruction.memory_displacement64() == 0
                        && plain(&instruction)
                        && place.reads < MOST_READS
                });
                place = place.map(Place::read);
            }
            Mnemonic::Ret => {
                return place
                    .map(|place| Place { guard, ..place })
                    .ok_or(NotAStub::OtherCode);
            }
            _ => match instruction.flow_control() {
                FlowControl::Next | FlowControl::ConditionalBranch => {}
                _ => return Err(NotAStub::OtherCode),
            },
        }
    }
    Err(NotAStub::OtherCode)
}

/// Whether the operand has no index register and no segment override: `offset(%base)`.
fn plain(instruction: &Instruction) -> bool {
    instruction.memory_index() == Register::None && !instruction.has_segment_prefix()
}

fn offset_of(instruction: &Instruction) -> Result<u32, NotAStub> {
    u32::try_from(instruction.memory_displacement64())
        .ok()
        .filter(|offset| offset.is_multiple_of(8))
        .ok_or(NotAStub::OtherCode)
}
