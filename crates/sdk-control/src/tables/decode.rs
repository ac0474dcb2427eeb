//! Reads the machine code of an exported runtime function and says through which table it jumps.
//!
//! Forms seen (`docs/sources.md#hsa`, `docs/sources.md#hip`): HSA `mov table(%rip),%rax; jmp
//! *off(%rax)` (also by way of `lea; mov (%rax)`); HIP `…save arguments…; call get_table;
//! …restore…; mov off(%rax),%rax; jmp *%rax`, where `get_table` is `movzbl guard(%rip); test; je
//! slow; mov table(%rip),%rax; ret`. AMD's ROCTx library does the same for one object that holds all
//! three tables, by way of a reference (`mov reference(%rip),%rax; mov (%rax),%rax`), with the getter
//! or its fast path in each function. The decoder follows the straight path, tracks the one value
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
    // The guard of a function-local static, where the getter's fast path is in the stub itself.
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
            // Not taken once the table is made.
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
                    // begins with its size or version.
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

/// Reads by which a table's address is reached at most: of a reference, and of what that refers to.
const MOST_READS: u8 = 2;

/// Where a table's address comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    /// It is this address,
    address: u64,
    /// or what is found there by reading so often,
    reads: u8,
    /// once the byte here is set (a function-local static's guard).
    guard: Option<u64>,
}

impl Place {
    fn at(address: u64, guard: Option<u64>) -> Place {
        Place {
            address,
            reads: 0,
            guard,
        }
    }

    /// What is found at this one.
    fn read(self) -> Place {
        Place {
            reads: self.reads + 1,
            ..self
        }
    }

    fn resolve(self, maps: &Maps) -> Option<u64> {
        if let Some(guard) = self.guard {
            let mut byte = [0];
            if !maps.read(guard as usize, &mut byte) || byte == [0] {
                return None;
            }
        }
        (0..self.reads).try_fold(self.address, |at, _| {
            maps.read_u64(at as usize).filter(|table| *table != 0)
        })
    }
}

/// Decodes a function that returns the table: the straight path to its first `ret`.
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
                // `mov reference(%rip),%rax; mov (%rax),%rax`, or something else altogether.
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
