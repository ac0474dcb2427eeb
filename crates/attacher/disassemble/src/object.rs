//! A code object as a process has loaded it. Its bytes are the process's: nothing in them is believed.

use crate::lines::Lines;
use object::elf::{EM_AMDGPU, FileHeader64, PF_X, PT_LOAD};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{LittleEndian, ReadRef};

/// The most bytes of an instruction that are looked at. The longest has 20.
///
/// Source: AMD's ISA documents (MIMG with NSA on gfx10 and newer).
pub const LONGEST: usize = 32;
/// The most segments that are looked at.
const MOST_SEGMENTS: usize = 64;

/// A part of the file that holds code.
#[derive(Debug, Clone, Copy)]
struct Code<'b> {
    address: u64,
    bytes: &'b [u8],
}

/// A code object.
#[derive(Debug)]
pub struct Object<'b> {
    code: Vec<Code<'b>>,
    lines: Lines<'b>,
}

impl<'b> Object<'b> {
    /// Reads a code object.
    ///
    /// # Errors
    /// Why it is none, in words.
    pub fn read(bytes: &'b [u8]) -> Result<Object<'b>, &'static str> {
        let header = FileHeader64::<LittleEndian>::parse(bytes).map_err(|_| "it is no ELF file")?;
        let endian = header.endian().map_err(|_| "it is no ELF file")?;
        if header.e_machine(endian) != EM_AMDGPU {
            return Err("its code is not for AMD's GPUs");
        }
        let segments = header
            .program_headers(endian, bytes)
            .map_err(|_| "its segments lie outside of it")?;
        let mut code = Vec::new();
        for segment in segments.iter().take(MOST_SEGMENTS) {
            let is_code =
                segment.p_type(endian) == PT_LOAD && segment.p_flags(endian).contains(PF_X);
            let (at, len) = (segment.p_offset(endian), segment.p_filesz(endian));
            if is_code && let Ok(bytes) = bytes.read_bytes_at(at, len) {
                let address = segment.p_vaddr(endian);
                code.push(Code { address, bytes });
            }
        }
        Ok(Object {
            code,
            lines: Lines::read(header, endian, bytes),
        })
    }

    /// Returns the bytes of the instruction at an address of the file, and some behind them.
    pub fn instruction(&self, address: u64) -> Option<&'b [u8]> {
        self.code.iter().find_map(|code| {
            let from = usize::try_from(address.checked_sub(code.address)?).ok()?;
            let rest = code.bytes.get(from..)?;
            let bytes = rest.get(..LONGEST).unwrap_or(rest);
            (bytes.len() >= 4).then_some(bytes)
        })
    }

    /// Returns the lines in the sources, as `file:line`, of these addresses of the file, which are in
    /// order. Empty where there is none.
    pub fn lines(&self, addresses: &[u64]) -> Vec<String> {
        self.lines.of(addresses)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Makes a code object with these bytes of code at 0x1000, and these sections behind them.
    pub(crate) fn made(code: &[u8], sections: &[(&str, &[u8])]) -> Vec<u8> {
        let mut names = vec![0];
        let mut file = vec![0; 64 + 56];
        let code_at = file.len();
        file.extend(code);
        // (name, kind, offset, size)
        let mut table = vec![(0_usize, 0_u32, 0_usize, 0_usize)];
        for (name, bytes) in sections {
            table.push((names.len(), 1, file.len(), bytes.len()));
            names.extend(name.bytes().chain([0]));
            file.extend(*bytes);
        }
        let name = names.len();
        names.extend(b".shstrtab\0");
        table.push((name, 3, file.len(), names.len()));
        file.extend(&names);
        file.resize(file.len().next_multiple_of(8), 0);
        let sections_at = file.len();
        for (name, kind, at, size) in &table {
            let mut row = [0; 64];
            row[..4].copy_from_slice(&(*name as u32).to_le_bytes());
            row[4..8].copy_from_slice(&kind.to_le_bytes());
            row[24..32].copy_from_slice(&(*at as u64).to_le_bytes());
            row[32..40].copy_from_slice(&(*size as u64).to_le_bytes());
            file.extend(row);
        }
        let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, b"\x7fELF\x02\x01\x01\x40");
        put(16, &3_u16.to_le_bytes());
        put(18, &EM_AMDGPU.0.to_le_bytes());
        put(20, &1_u32.to_le_bytes());
        put(32, &64_u64.to_le_bytes());
        put(40, &(sections_at as u64).to_le_bytes());
        for (at, value) in [
            (52, 64),
            (54, 56),
            (56, 1),
            (58, 64),
            (60, table.len()),
            (62, table.len() - 1),
        ] {
            put(at, &(value as u16).to_le_bytes());
        }
        put(64, &PT_LOAD.0.to_le_bytes());
        put(68, &(PF_X.0 | 4).to_le_bytes());
        for (at, value) in [
            (72, code_at),
            (80, 0x1000),
            (88, 0x1000),
            (96, code.len()),
            (104, code.len()),
        ] {
            put(at, &(value as u64).to_le_bytes());
        }
        file
    }

    #[test]
    fn an_instruction_is_found_by_its_address() {
        let code: Vec<u8> = (0..80).collect();
        let file = made(&code, &[]);
        let object = Object::read(&file).unwrap();
        assert_eq!(object.instruction(0x1000), Some(&code[..32]));
        assert_eq!(object.instruction(0x1040), Some(&code[64..]));
        // Fewer bytes than the shortest instruction has, and no code.
        for address in [0x104e, 0x1050, 0xfff, 0, u64::MAX] {
            assert_eq!(object.instruction(address), None, "{address:#x}");
        }
        assert_eq!(object.lines(&[0x1000]), [""]);
    }

    #[test]
    fn garbage_is_named() {
        assert_eq!(Object::read(b"garbage").unwrap_err(), "it is no ELF file");
        let mut other = made(&[0; 8], &[]);
        other[18] = 62;
        let why = Object::read(&other).unwrap_err();
        assert_eq!(why, "its code is not for AMD's GPUs");
        let mut outside = made(&[0; 8], &[]);
        outside[32..40].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(Object::read(&outside).is_err());
        // Each byte of a file in turn is another one: nothing panics.
        let whole = made(&[7; 40], &[(".debug_line", &[9; 40])]);
        for at in 0..whole.len() {
            let mut file = whole.clone();
            file[at] ^= 0xff;
            if let Ok(object) = Object::read(&file) {
                object.instruction(0x1000);
                object.lines(&[0x1000]);
            }
        }
    }
}
