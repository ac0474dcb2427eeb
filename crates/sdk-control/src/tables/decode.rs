//! Reads the machine code of an exported runtime function and says through which table it jumps.
//!
//! Forms seen (`docs/sources.md#hsa`, `docs/sources.md#hip`): HSA `mov table(%rip),%rax; jmp
//! *off(%rax)` (also by way of `lea; mov (%rax)`); HIP `…save arguments…; call get_table;
//! …restore…; mov off(%rax),%rax; jmp *%rax`, where `get_table` is `movzbl guard(%rip); test; je
//! slow; mov table(%rip),%rax; ret`. The decoder follows the straight path, tracks the one value
//! that matters (is it the table's address?), and gives up on anything else.

use super::maps::Maps;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

/// Most instructions of a stub that are looked at.
const STUB_LIMIT: usize = 48;
/// Most instructions of a `get_table`.
const GETTER_LIMIT: usize = 12;

/// What a stub does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stub {
    /// Address of the table; `None` when the runtime has not made it yet.
    pub table: Option<u64>,
    /// Offset of the entry that it jumps to.
    pub offset: u32,
    /// The runtime's own function that gives the table and makes it where it is not made: what each stub calls first.
    pub getter: Option<usize>,
}

/// Why a function is not a stub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotAStub {
    /// Its code could not be read.
    Unreadable,
    /// It does something else.
    OtherCode,
}

/// Decodes the function at `address`.
///
/// # Errors
/// [`NotAStub`] when it is anything but a jump through a table.
pub fn stub(maps: &Maps, address: usize) -> Result<Stub, NotAStub> {
    let code = code_at(maps, address, 192)?;
    let mut decoder = Decoder::with_ip(64, &code, address as u64, DecoderOptions::NONE);
    // Registers that hold the table's address, as far as the straight path tells.
    let mut table: Option<(Register, Place)> = None;
    let mut entry: Option<(Register, Place, u32)> = None;
    let mut by: Option<usize> = None;
    for _ in 0..STUB_LIMIT {
        if !decoder.can_decode() {
            return Err(NotAStub::OtherCode);
        }
        let instruction = decoder.decode();
        match instruction.mnemonic() {
            Mnemonic::Mov
                if instruction.op0_kind() == OpKind::Register
                    && instruction.op1_kind() == OpKind::Memory =>
            {
                let into = instruction.op0_register();
                let base = instruction.memory_base();
                if instruction.is_ip_rel_memory_operand() && into.is_gpr64() {
                    table = Some((into, Place::Pointer(instruction.ip_rel_memory_address())));
                } else if let Some((register, Place::Address(variable))) = table
                    && register == base
                    && instruction.memory_displacement64() == 0
                    && plain(&instruction)
                {
                    // `lea variable(%rip),%rax; mov (%rax),%rax`
                    table = Some((into, Place::Pointer(variable)));
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
                    Place::Address(instruction.ip_rel_memory_address()),
                ));
            }
            Mnemonic::Call if instruction.op0_kind() == OpKind::NearBranch64 => {
                // HSA's hsa_init calls a helper first and loads the table later: a call whose
                // target is no getter is passed over.
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

/// Where a table's address comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// It is this address.
    Address(u64),
    /// It is what this variable holds.
    Pointer(u64),
    /// It is this address once the byte at the second one is set (a function-local static and its guard).
    Guarded(u64, u64),
    /// It is what the first variable holds once the byte at the second one is set.
    GuardedPointer(u64, u64),
}

impl Place {
    fn resolve(self, maps: &Maps) -> Option<u64> {
        let set = |guard: u64| {
            let mut byte = [0];
            maps.read(guard as usize, &mut byte) && byte != [0]
        };
        let held = |variable: u64| maps.read_u64(variable as usize).filter(|table| *table != 0);
        match self {
            Place::Address(table) => Some(table),
            Place::Pointer(variable) => held(variable),
            Place::Guarded(table, guard) => set(guard).then_some(table),
            Place::GuardedPointer(variable, guard) => set(guard).then(|| held(variable)).flatten(),
        }
    }
}

/// Decodes a function that returns the table: the straight path to its first `ret`.
fn getter(maps: &Maps, address: usize) -> Result<Place, NotAStub> {
    let code = code_at(maps, address, 64)?;
    let mut decoder = Decoder::with_ip(64, &code, address as u64, DecoderOptions::NONE);
    let mut place = None;
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
                place = Some(Place::Pointer(instruction.ip_rel_memory_address()));
            }
            Mnemonic::Lea if rip_relative && instruction.op0_register() == Register::RAX => {
                place = Some(Place::Address(instruction.ip_rel_memory_address()));
            }
            Mnemonic::Ret => {
                return match (place, guard) {
                    (Some(Place::Address(table)), Some(guard)) => Ok(Place::Guarded(table, guard)),
                    (Some(Place::Pointer(variable)), Some(guard)) => {
                        Ok(Place::GuardedPointer(variable, guard))
                    }
                    (Some(place), _) => Ok(place),
                    (None, _) => Err(NotAStub::OtherCode),
                };
            }
            _ => match instruction.flow_control() {
                FlowControl::Next | FlowControl::ConditionalBranch => {}
                _ => return Err(NotAStub::OtherCode),
            },
        }
    }
    Err(NotAStub::OtherCode)
}

/// No index register and no segment override: `offset(%base)`.
fn plain(instruction: &Instruction) -> bool {
    instruction.memory_index() == Register::None && !instruction.has_segment_prefix()
}

fn offset_of(instruction: &Instruction) -> Result<u32, NotAStub> {
    u32::try_from(instruction.memory_displacement64())
        .ok()
        .filter(|offset| offset.is_multiple_of(8))
        .ok_or(NotAStub::OtherCode)
}

fn code_at(maps: &Maps, address: usize, len: usize) -> Result<Vec<u8>, NotAStub> {
    if !maps.is_text(address) {
        return Err(NotAStub::Unreadable);
    }
    // The function may be the last of its mapping.
    let mut len = len;
    while len >= 16 {
        let mut code = vec![0; len];
        if maps.read(address, &mut code) {
            return Ok(code);
        }
        len /= 2;
    }
    Err(NotAStub::Unreadable)
}
