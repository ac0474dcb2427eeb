//! GPU code objects inside a HIP program.
//!
//! A HIP program carries its device code in the section `.hip_fatbin` as a bundle: the magic
//! `__CLANG_OFFLOAD_BUNDLE__`, a count, and for each entry offset, size, length of the name and
//! name (source: the layout of clang's offload bundler).

use crate::Result;
use object::{Object, ObjectSection};

const MAGIC: &[u8] = b"__CLANG_OFFLOAD_BUNDLE__";

/// Returns the code object for `arch` (such as "gfx942") in an ELF program.
///
/// # Errors
/// Fails when the program is not ELF, or has no uncompressed bundle, or none for that architecture.
pub fn code_object<'a>(program: &'a [u8], arch: &str) -> Result<&'a [u8]> {
    let file = object::File::parse(program)?;
    let section = file
        .section_by_name(".hip_fatbin")
        .ok_or("no .hip_fatbin section")?;
    let bundle = section.data()?;
    if !bundle.starts_with(MAGIC) {
        return Err("the bundle is compressed or of an unknown kind".into());
    }
    let number = |at: usize| -> Result<usize> {
        let bytes = bundle.get(at..at + 8).ok_or("the bundle is cut off")?;
        Ok(usize::try_from(u64::from_le_bytes(bytes.try_into()?))?)
    };
    let mut at = MAGIC.len() + 8;
    for _ in 0..number(MAGIC.len())? {
        let (offset, size, name) = (number(at)?, number(at + 8)?, number(at + 16)?);
        let triple = bundle
            .get(at + 24..at + 24 + name)
            .ok_or("the bundle is cut off")?;
        if String::from_utf8_lossy(triple).rsplit("--").next() == Some(arch) {
            return bundle
                .get(offset..offset + size)
                .ok_or_else(|| "the bundle is cut off".into());
        }
        at += 24 + name;
    }
    Err(format!("no code object for {arch}").into())
}

/// Adds a section `.debug_line` to a code object: a line program of DWARF 5 by hand, for
/// `/src/job/kernels.hip`. The code at `start` is of each of these lines in turn, 8 bytes a line, and the
/// last one's has `last` bytes.
///
/// # Errors
/// Fails when the code object has no sections.
pub fn with_lines(object: &[u8], start: u64, lines: &[u8], last: u8) -> Result<Vec<u8>> {
    let mut header = vec![4, 1, 1, 0xfb, 14, 13, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1];
    // A directory has a path; a file has a path and the number of its directory.
    header.extend(b"\x01\x01\x08\x01/src/job\0");
    header.extend(b"\x02\x01\x08\x02\x0f\x01kernels.hip\0\0");
    let mut opcodes = vec![0, 9, 2];
    opcodes.extend(start.to_le_bytes());
    // The file 0, line 0.
    opcodes.extend([4, 0, 3, 0x7f]);
    for (number, line) in lines.iter().enumerate() {
        // Two instructions of four bytes further, and to that line.
        let before = number.checked_sub(1).map_or(0, |it| lines[it]);
        opcodes.extend([2, if number == 0 { 0 } else { 2 }, 3, line - before, 1]);
    }
    opcodes.extend([2, last / 4, 0, 1, 1]);
    let mut unit = vec![5, 0, 8, 0];
    unit.extend((header.len() as u32).to_le_bytes());
    unit.extend(header);
    unit.extend(opcodes);
    let mut program = (unit.len() as u32).to_le_bytes().to_vec();
    program.extend(unit);
    with_section(object, b".debug_line", &program)
}

/// Adds a section to a code object. Its table of sections is written again behind everything else.
fn with_section(object: &[u8], name: &[u8], bytes: &[u8]) -> Result<Vec<u8>> {
    let number = |at: usize, size: usize| -> Result<usize> {
        let bytes = object
            .get(at..at + size)
            .ok_or("a code object is cut off")?;
        Ok({ bytes.iter().rev() }.fold(0, |all, byte| all << 8 | usize::from(*byte)))
    };
    let (table, count, names) = (number(40, 8)?, number(60, 2)?, number(62, 2)?);
    let row = |index: usize| table + 64 * index;
    let (names_at, names_size) = (number(row(names) + 24, 8)?, number(row(names) + 32, 8)?);
    let mut all = object.to_vec();
    let at = all.len();
    all.extend(bytes);
    let new_names = all.len();
    all.extend(
        object
            .get(names_at..names_at + names_size)
            .ok_or("no names")?,
    );
    all.extend(name);
    all.push(0);
    let new_size = all.len() - new_names;
    all.resize(all.len().next_multiple_of(8), 0);
    let new_table = all.len();
    all.extend(object.get(table..row(count)).ok_or("no sections")?);
    let mut section = [0; 64];
    section[..4].copy_from_slice(&(names_size as u32).to_le_bytes());
    section[4] = 1;
    section[24..32].copy_from_slice(&(at as u64).to_le_bytes());
    section[32..40].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
    section[48] = 1;
    all.extend(section);
    let mut put = |at: usize, value: u64, size: usize| {
        all[at..at + size].copy_from_slice(&value.to_le_bytes()[..size]);
    };
    put(40, new_table as u64, 8);
    put(60, count as u64 + 1, 2);
    put(new_table + 64 * names + 24, new_names as u64, 8);
    put(new_table + 64 * names + 32, new_size as u64, 8);
    Ok(all)
}
