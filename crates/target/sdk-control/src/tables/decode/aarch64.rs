//! The stubs on aarch64.
//!
//! No runtime of AMD's for aarch64 has been seen. The forms come from our stand-in runtimes, from
//! our ROCTx library, and from gcc 12's output for sources whose x86-64 code is known: `adrp; ldr
//! table; ldr entry; br` (also through the global offset table), and `...save arguments...; bl
//! get_table; ...restore...; ldr entry; br`, where `get_table` reads a guard with acquire order.

use super::{MOST_READS, NotAStub, Place, Stub, code_at};
use crate::tables::maps::Maps;

/// The most instructions that are looked at.
const LIMIT: usize = 48;
/// The stack pointer, or the register that is always zero.
const SP: usize = 31;

/// What is known of a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Value {
    /// It contains this address. `page`: only the page of something.
    Pointer { to: Place, page: bool },
    /// It was loaded from `offset` bytes behind this address.
    Loaded { at: Place, page: bool, offset: u32 },
}

impl Value {
    /// Returns the address, for code that goes on with the value as one.
    fn place(self) -> Option<Place> {
        match self {
            Value::Pointer { to, .. } => Some(to),
            Value::Loaded { at, offset, .. } if at.reads == 0 => Some(
                Place {
                    address: at.address.wrapping_add(u64::from(offset)),
                    ..at
                }
                .read(),
            ),
            // No entry is at offset 0: a table starts with its size or version.
            Value::Loaded { at, offset: 0, .. } if at.reads < MOST_READS => Some(at.read()),
            Value::Loaded { .. } => None,
        }
    }
}

/// How a straight path ends.
enum End {
    /// It jumps to, or calls, what is in a register.
    Jump(Option<Value>),
    /// It returns the first register.
    Return(Option<Value>),
}

/// The state at the end of a path.
struct Path {
    end: End,
    /// The byte of a function-local static that was tested.
    guard: Option<u64>,
    /// The last function that was called and returns a table.
    getter: Option<usize>,
}

/// Decodes the function at `address`.
///
/// # Errors
/// [`NotAStub`] when it is anything but a jump through a table.
pub fn stub(maps: &Maps, address: usize) -> Result<Stub, NotAStub> {
    let path = walk(maps, address, true)?;
    match path.end {
        End::Jump(Some(Value::Loaded {
            at,
            page: false,
            offset,
        })) => Ok(Stub {
            table: Place {
                guard: path.guard.or(at.guard),
                ..at
            }
            .resolve(maps),
            offset,
            getter: path.getter,
        }),
        _ => Err(NotAStub::OtherCode),
    }
}

/// Decodes a function that returns the table.
fn getter(maps: &Maps, address: usize) -> Result<Place, NotAStub> {
    let path = walk(maps, address, false)?;
    let place = match path.end {
        End::Return(Some(value)) => value.place(),
        _ => None,
    };
    let guard = path.guard;
    place
        .map(|place| Place { guard, ..place })
        .ok_or(NotAStub::OtherCode)
}

/// Bits `low..low + count`.
fn bits(word: u32, low: u32, count: u32) -> u32 {
    (word >> low) & ((1 << count) - 1)
}

/// The number of the register that these bits name.
fn register(word: u32, low: u32) -> usize {
    bits(word, low, 5) as usize
}

/// The same bits as a signed number.
fn signed(word: u32, low: u32, count: u32) -> i64 {
    let value = i64::from(bits(word, low, count));
    if value >> (count - 1) == 0 {
        value
    } else {
        value - (1 << count)
    }
}

fn exactly(address: u64, page: bool) -> Value {
    Value::Pointer {
        to: Place::at(address, None),
        page,
    }
}

/// Follows a function to its first jump through a register, or to its return. `calls`: whether it
/// may call a getter.
fn walk(maps: &Maps, address: usize, calls: bool) -> Result<Path, NotAStub> {
    let code = code_at(maps, address, 4 * LIMIT)?;
    let mut known: [Option<Value>; 32] = [None; 32];
    let mut guard = None;
    let mut by = None;
    let set = |known: &mut [Option<Value>; 32], to: usize, value: Option<Value>| {
        if let Some(slot) = known.get_mut(to).filter(|_| to != SP) {
            *slot = value;
        }
    };
    let end = |end: End, guard: Option<u64>, getter: Option<usize>| Path { end, guard, getter };
    for (word, at) in code.chunks_exact(4).zip((address as u64..).step_by(4)) {
        let word = u32::from_le_bytes(word.try_into().map_err(|_| NotAStub::Unreadable)?);
        let (first, second) = (register(word, 0), register(word, 5));
        let of_second = known
            .get(second)
            .copied()
            .flatten()
            .filter(|_| second != SP);
        match word {
            // hint: bti, paciasp, autiasp, nop.
            _ if word & 0xffff_f01f == 0xd503_201f => {}
            // adr, adrp.
            _ if word & 0x1f00_0000 == 0x1000_0000 => {
                let distance = signed(word, 5, 19) << 2 | i64::from(bits(word, 29, 2));
                let page = word >> 31 == 1;
                let to = if page {
                    (at & !0xfff).wrapping_add_signed(distance << 12)
                } else {
                    at.wrapping_add_signed(distance)
                };
                set(&mut known, first, Some(exactly(to, page)));
            }
            // add of a number to 64 bits.
            _ if word & 0xff80_0000 == 0x9100_0000 => {
                let number = u64::from(bits(word, 10, 12)) << (12 * bits(word, 22, 1));
                let sum = match of_second {
                    Some(Value::Pointer { to, .. }) if to.reads == 0 => {
                        Some(exactly(to.address.wrapping_add(number), false))
                    }
                    _ => None,
                };
                set(&mut known, first, sum);
            }
            // Other additions and subtractions of numbers, and moves of numbers.
            _ if word & 0x1f80_0000 == 0x1100_0000 || word & 0x1f80_0000 == 0x1280_0000 => {
                set(&mut known, first, None);
            }
            // mov of 64 bits, and of 32, which are no address.
            _ if word & 0xffe0_ffe0 == 0xaa00_03e0 => {
                let from = register(word, 16);
                let value = known.get(from).copied().flatten();
                set(&mut known, first, value);
            }
            _ if word & 0xffe0_ffe0 == 0x2a00_03e0 => set(&mut known, first, None),
            // ldar, ldarb: the guard of a function-local static.
            _ if word & 0xbfff_fc00 == 0x88df_fc00 || word & 0xffff_fc00 == 0x08df_fc00 => {
                if let Some(Value::Pointer { to, .. }) = of_second {
                    guard = (to.reads == 0).then_some(to.address);
                }
                set(&mut known, first, None);
            }
            // ldr of 64 bits.
            _ if word & 0xffc0_0000 == 0xf940_0000 => {
                let offset = 8 * bits(word, 10, 12);
                let value = of_second.and_then(|value| {
                    let page = matches!(value, Value::Pointer { page: true, .. });
                    let at = value.place()?;
                    Some(Value::Loaded { at, page, offset })
                });
                set(&mut known, first, value);
            }
            // Other loads and stores of one register, with a number behind the address.
            _ if word & 0x3b00_0000 == 0x3900_0000 => {
                let is_vector = bits(word, 26, 1) == 1;
                let loads = !is_vector && bits(word, 22, 2) != 0;
                if loads {
                    // ldrb: the guard on systems without the instructions of acquire order.
                    if let (0x3940_0000, Some(Value::Pointer { to, .. })) =
                        (word & 0xffc0_0000, of_second)
                    {
                        let byte = to.address.wrapping_add(u64::from(bits(word, 10, 12)));
                        guard = (to.reads == 0).then_some(byte);
                    }
                    set(&mut known, first, None);
                }
            }
            // The same with a changed address or an unscaled number.
            _ if word & 0x3b20_0000 == 0x3800_0000 => {
                if bits(word, 26, 1) == 0 && bits(word, 22, 2) != 0 {
                    set(&mut known, first, None);
                }
                if bits(word, 10, 1) == 1 {
                    set(&mut known, second, None);
                }
            }
            // Loads and stores of two registers.
            _ if word & 0x3a00_0000 == 0x2800_0000 => {
                if bits(word, 26, 1) == 0 && bits(word, 22, 1) == 1 {
                    set(&mut known, first, None);
                    set(&mut known, register(word, 10), None);
                }
                if bits(word, 23, 1) == 1 {
                    set(&mut known, second, None);
                }
            }
            // tbz, cbz: taken before the table was created.
            _ if word & 0x7f00_0000 == 0x3600_0000 || word & 0x7f00_0000 == 0x3400_0000 => {}
            // bl.
            _ if word & 0xfc00_0000 == 0x9400_0000 && calls => {
                let target = at.wrapping_add_signed(signed(word, 0, 26) << 2) as usize;
                let place = getter(maps, target).ok();
                by = place.map(|_| target);
                // Registers that a call may change.
                for changed in (0..=18).chain([30]) {
                    set(&mut known, changed, None);
                }
                let value = place.map(|to| Value::Pointer { to, page: false });
                set(&mut known, 0, value);
            }
            // br, blr.
            _ if word & 0xffdf_fc1f == 0xd61f_0000 => {
                return Ok(end(End::Jump(of_second), guard, by));
            }
            // ret.
            0xd65f_03c0 => {
                let value = known.first().copied().flatten();
                return Ok(end(End::Return(value), guard, by));
            }
            _ => return Err(NotAStub::OtherCode),
        }
    }
    Err(NotAStub::OtherCode)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 4096;

    /// Two pages: code, and behind it data.
    struct Memory(usize);

    impl Memory {
        fn with(code: &[u32], data: &[u64]) -> Memory {
            // SAFETY: a fresh private mapping; what is written fits into its two pages.
            unsafe {
                let pages = libc::mmap(
                    std::ptr::null_mut(),
                    2 * PAGE,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                    -1,
                    0,
                );
                assert_ne!(pages, libc::MAP_FAILED);
                std::ptr::copy_nonoverlapping(code.as_ptr(), pages.cast(), code.len());
                let second = pages.byte_add(PAGE);
                std::ptr::copy_nonoverlapping(data.as_ptr(), second.cast(), data.len());
                assert_eq!(
                    libc::mprotect(pages, PAGE, libc::PROT_READ | libc::PROT_EXEC),
                    0
                );
                Memory(pages.expose_provenance())
            }
        }

        /// The address of the data.
        fn data(&self) -> u64 {
            (self.0 + PAGE) as u64
        }

        fn write(&self, word: usize, value: u64) {
            let data = std::ptr::with_exposed_provenance_mut::<u64>(self.0 + PAGE);
            // SAFETY: a word of the second page, which is writable and this value's own.
            unsafe { data.add(word).write(value) };
        }

        /// Decodes the function at this instruction.
        fn stub(&self, at: usize) -> Result<Stub, NotAStub> {
            stub(&Maps::of_self().unwrap(), self.0 + 4 * at)
        }
    }

    impl Drop for Memory {
        fn drop(&mut self) {
            // SAFETY: the mapping is this value's own.
            unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(self.0), 2 * PAGE) };
        }
    }

    fn found(table: Option<u64>, offset: u32) -> Stub {
        Stub {
            table,
            offset,
            getter: None,
        }
    }

    /// As gcc 12 and our own libraries make them (`aarch64-linux-gnu-objdump -d`).
    #[test]
    fn a_stub_loads_its_entry_from_a_variable_a_reference_or_the_table_itself() {
        let data = [0, 0x1000, 0, 0];
        // bti c; adrp x16, next page; ldr x16, [x16, #8]; ldr x16, [x16, #24]; br x16
        let variable = [
            0xd503_245f,
            0xb000_0010,
            0xf940_0610,
            0xf940_0e10,
            0xd61f_0200,
        ];
        assert_eq!(
            Memory::with(&variable, &data).stub(0),
            Ok(found(Some(0x1000), 24))
        );
        // adrp x3; ldr x3, [x3, #8]; ldr x3, [x3]; ldr x3, [x3, #24]; mov x16, x3; br x16
        let reference = [
            0xb000_0003,
            0xf940_0463,
            0xf940_0063,
            0xf940_0c63,
            0xaa03_03f0,
            0xd61f_0200,
        ];
        let memory = Memory::with(&reference, &[]);
        memory.write(1, memory.data() + 16);
        assert_eq!(memory.stub(0), Ok(found(None, 24)), "not made yet");
        memory.write(2, 0x1000);
        assert_eq!(memory.stub(0), Ok(found(Some(0x1000), 24)));
        // bti c; adrp x16; add x16, x16, #16; ldr x16, [x16, #24]; br x16
        let itself = [
            0xd503_245f,
            0xb000_0010,
            0x9100_4210,
            0xf940_0e10,
            0xd61f_0200,
        ];
        let memory = Memory::with(&itself, &[]);
        assert_eq!(memory.stub(0), Ok(found(Some(memory.data() + 16), 24)));
    }

    #[test]
    fn a_table_that_a_function_returns_and_its_guard() {
        let getter = 8;
        let code = [
            0xa9be_7bfd, // stp x29, x30, [sp, #-32]!
            0x9100_03fd, // mov x29, sp
            0xf900_0be0, // str x0, [sp, #16]
            0x9400_0005, // bl getter
            0xf940_1010, // ldr x16, [x0, #32]
            0xf940_0be0, // ldr x0, [sp, #16]
            0xa8c2_7bfd, // ldp x29, x30, [sp], #32
            0xd61f_0200, // br x16
            0xa9be_7bfd, // stp x29, x30, [sp, #-32]!
            0xb000_0013, // adrp x19, next page
            0x9100_0260, // add x0, x19, #0
            0xc8df_fc01, // ldar x1, [x0]
            0x3600_00c1, // tbz w1, #0, slow
            0x9100_0273, // add x19, x19, #0
            0xf940_0660, // ldr x0, [x19, #8]
            0xa8c2_7bfd, // ldp x29, x30, [sp], #32
            0xd65f_03c0, // ret
        ];
        let made = Memory::with(&code, &[1, 0x5000]);
        let by = |memory: &Memory| Some(memory.0 + 4 * getter);
        let stub = made.stub(0).unwrap();
        assert_eq!(
            (stub.table, stub.offset, stub.getter),
            (Some(0x5000), 32, by(&made))
        );
        let unmade = Memory::with(&code, &[0, 0x5000]);
        let stub = unmade.stub(0).unwrap();
        assert_eq!((stub.table, stub.getter), (None, by(&unmade)));
    }

    #[test]
    fn other_code_is_no_stub() {
        // ret; a slot at a known address, whose table is not; an instruction that is not known.
        let codes: [&[u32]; 3] = [
            &[0xd65f_03c0],
            &[0xb000_0003, 0xf940_0463, 0xd61f_0060],
            &[
                0xb000_0010,
                0xf940_0610,
                0x9b01_7c00,
                0xf940_0e10,
                0xd61f_0200,
            ],
        ];
        for code in codes {
            let memory = Memory::with(code, &[0x1000, 0x1000]);
            assert_eq!(memory.stub(0), Err(NotAStub::OtherCode), "{code:x?}");
        }
        let memory = Memory::with(&[], &[]);
        assert_eq!(memory.stub(PAGE / 4), Err(NotAStub::Unreadable));
    }
}
