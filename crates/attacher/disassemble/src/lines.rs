//! Lines in the sources, out of a code object's DWARF.
//!
//! The rows of all line programs are walked once for all addresses. Only `.debug_line` and the texts
//! that it refers to are read: DWARF 5, which AMD's compiler writes, has whole paths there.
//!
//! The sections are the target's. So their size, the table of files of a unit and the time are limited,
//! and each address gets the line of the first row that covers it.

use gimli::{
    AttributeValue, DebugLine, DebugLineOffset, EndianSlice, LineInstruction, LineProgramHeader,
};
use object::LittleEndian;
use object::elf::{FileHeader64, SHF_COMPRESSED};
use object::read::elf::{FileHeader, SectionHeader};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

type Bytes<'b> = EndianSlice<'b, gimli::LittleEndian>;

/// How long the lines of one code object are looked for.
const LIMIT: Duration = Duration::from_secs(2);
/// How often the clock is read, in rows and lines that are found.
const STEPS: usize = 4096;
/// The most bytes of line programs that are read.
const MOST: usize = 16 << 20;
/// The most bytes of a unit's header. A file takes a byte there at least, and about a hundred in memory.
const MOST_HEADER: usize = 256 << 10;
/// The most bytes of a comment.
const LONGEST: usize = 512;

/// The addresses, which are in order, and their lines.
struct Found<'a> {
    addresses: &'a [u64],
    lines: Vec<String>,
    /// The numbers of the addresses without a line.
    left: BTreeSet<usize>,
    /// The rows and lines since the clock was read.
    steps: usize,
    until: Instant,
}

impl Found<'_> {
    /// Counts steps. Returns whether there is no time left.
    fn is_late(&mut self, steps: usize) -> bool {
        self.steps += steps;
        if self.steps < STEPS {
            return false;
        }
        self.steps = 0;
        Instant::now() > self.until
    }
}

/// The sections that have them.
#[derive(Debug, Default)]
pub(crate) struct Lines<'b> {
    line: &'b [u8],
    line_texts: &'b [u8],
    texts: &'b [u8],
}

impl<'b> Lines<'b> {
    /// Finds the sections. What cannot be read is empty, and so is what is compressed.
    pub(crate) fn read(
        header: &FileHeader64<LittleEndian>,
        endian: LittleEndian,
        bytes: &'b [u8],
    ) -> Lines<'b> {
        let mut lines = Lines::default();
        let Ok(sections) = header.sections(endian, bytes) else {
            return lines;
        };
        for section in sections.iter() {
            let place = match sections.section_name(endian, section) {
                Ok(b".debug_line") => &mut lines.line,
                Ok(b".debug_line_str") => &mut lines.line_texts,
                Ok(b".debug_str") => &mut lines.texts,
                _ => continue,
            };
            if !section.sh_flags(endian).contains(SHF_COMPRESSED) {
                *place = section.data(endian, bytes).unwrap_or_default();
            }
        }
        lines
    }

    /// Returns the lines of these addresses, which are in order.
    pub(crate) fn of(&self, addresses: &[u64]) -> Vec<String> {
        let mut found = Found {
            addresses,
            lines: vec![String::new(); addresses.len()],
            left: (0..addresses.len()).collect(),
            steps: 0,
            until: Instant::now() + LIMIT,
        };
        let section = self.line.get(..MOST).unwrap_or(self.line);
        let debug_line = DebugLine::new(section, gimli::LittleEndian);
        let mut at = 0_usize;
        while let Some(unit) = section.get(at..).and_then(Unit::read)
            && !found.left.is_empty()
            && !found.is_late(STEPS)
        {
            if unit.header <= MOST_HEADER {
                let program = debug_line.program(DebugLineOffset(at), 8, None, None);
                let Ok(program) = program else { break };
                if !defines_files(program.header()) {
                    let _ = self.walk(program.rows(), &mut found);
                }
            }
            // The length does not count its own four bytes.
            at = at.saturating_add(unit.length).saturating_add(4);
        }
        found.lines
    }

    fn walk(
        &self,
        mut rows: gimli::LineRows<Bytes<'b>, gimli::IncompleteLineProgram<Bytes<'b>>>,
        found: &mut Found<'_>,
    ) -> gimli::Result<()> {
        // The row before: from where its line holds, its file, and its line.
        let mut before: Option<(u64, u64, u64)> = None;
        while let Some((header, row)) = rows.next_row()? {
            if let Some((from, file, line)) = before {
                let first = found.addresses.partition_point(|it| *it < from);
                let end = found.addresses.partition_point(|it| *it < row.address());
                let mut text = None;
                // An end before the start is a range without addresses.
                while let Some(number) = found.left.range(first..end.max(first)).next().copied() {
                    found.left.remove(&number);
                    if let Some(place) = found.lines.get_mut(number) {
                        let text = text.get_or_insert_with(|| self.place(header, file, line));
                        *place = text.clone().unwrap_or_default();
                    }
                    if found.is_late(1) {
                        return Ok(());
                    }
                }
            }
            let line = row.line().map(std::num::NonZero::get);
            before = line
                .filter(|_| !row.end_sequence())
                .map(|line| (row.address(), row.file_index(), line));
            if found.is_late(1) {
                break;
            }
        }
        Ok(())
    }

    /// Returns `directory/file:line`.
    fn place(&self, header: &LineProgramHeader<Bytes<'b>>, file: u64, line: u64) -> Option<String> {
        let file = header.file(file)?;
        let name = self.text(file.path_name())?;
        let directory = file.directory(header).and_then(|it| self.text(it));
        let path = match directory.filter(|_| !name.starts_with('/')) {
            Some(directory) if !directory.is_empty() => format!("{directory}/{name}"),
            _ => name,
        };
        let path = midair_failure::plain::line(&path);
        let cut = path.get(..path.floor_char_boundary(LONGEST))?;
        Some(format!("{cut}:{line}"))
    }

    fn text(&self, value: AttributeValue<Bytes<'b>>) -> Option<String> {
        let bytes = match value {
            AttributeValue::String(text) => text.slice(),
            AttributeValue::DebugStrRef(at) => self.texts.get(at.0..)?,
            AttributeValue::DebugLineStrRef(at) => self.line_texts.get(at.0..)?,
            _ => return None,
        };
        // The end of a text is not looked for behind the most that is shown.
        let bytes = bytes.get(..2 * LONGEST).unwrap_or(bytes);
        let bytes = bytes.split(|byte| *byte == 0).next()?;
        Some(String::from_utf8_lossy(bytes).into_owned())
    }
}

/// The lengths of a unit, which are read before anything of it is kept.
struct Unit {
    length: usize,
    header: usize,
}

impl Unit {
    /// Reads the start of a unit. AMD's compiler writes no 64-bit DWARF.
    fn read(bytes: &[u8]) -> Option<Unit> {
        let word = |at: usize| {
            let word = bytes.get(at..)?.first_chunk()?;
            usize::try_from(u32::from_le_bytes(*word)).ok()
        };
        let version = u16::from_le_bytes(*bytes.get(4..)?.first_chunk()?);
        Some(Unit {
            length: word(0).filter(|length| *length < 0xffff_fff0)?,
            // Two sizes come before the header's length since DWARF 5.
            header: word(if version < 5 { 6 } else { 8 })?,
        })
    }
}

/// Whether a program adds to its table of files while it runs, without a limit. DWARF 5 has no such
/// instruction, and compilers do not write it.
fn defines_files(header: &LineProgramHeader<Bytes<'_>>) -> bool {
    let mut all = header.instructions();
    while let Ok(Some(instruction)) = all.next_instruction(header) {
        if matches!(instruction, LineInstruction::DefineFile(_)) {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use crate::Object;
    use crate::object::tests::made;

    /// Returns a line program of DWARF 5 for `/src/job/vadd.hip`, by hand. Each row has its distance from
    /// the row before, and how many lines it is further; the code ends `last` bytes behind the last row.
    fn program(start: u64, rows: &[(u8, u8)], last: u8) -> Vec<u8> {
        let mut header = vec![1, 1, 1, 0xfb, 14, 13, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1];
        // One directory with a path, and one file with a path and a directory.
        header.extend(b"\x01\x01\x08\x01/src/job\0");
        header.extend(b"\x02\x01\x08\x02\x0f\x01vadd.hip\0\0");
        let mut opcodes = vec![0, 9, 2];
        opcodes.extend(start.to_le_bytes());
        // The file 0.
        opcodes.extend([4, 0]);
        for (distance, lines) in rows {
            opcodes.extend([2, *distance, 3, *lines, 1]);
        }
        opcodes.extend([2, last, 0, 1, 1]);
        let mut unit = vec![5, 0, 8, 0];
        unit.extend((header.len() as u32).to_le_bytes());
        unit.extend(header);
        unit.extend(opcodes);
        let mut all = (unit.len() as u32).to_le_bytes().to_vec();
        all.extend(unit);
        all
    }

    #[test]
    fn each_address_has_the_line_of_its_row() {
        let mut all = program(0x1000, &[(0, 9), (8, 2)], 8);
        all.extend(program(0x1020, &[(0, 40)], 16));
        let file = made(&[0; 64], &[(".debug_line", &all)]);
        let object = Object::read(&file).unwrap();
        let places = [
            0xfff, 0x1000, 0x1004, 0x1008, 0x100f, 0x1010, 0x1020, 0x102f, 0x1030,
        ];
        let line = |number: u32| format!("/src/job/vadd.hip:{number}");
        let none = String::new;
        assert_eq!(
            object.lines(&places),
            [
                none(),
                line(10),
                line(10),
                line(12),
                line(12),
                none(),
                line(41),
                line(41),
                none()
            ]
        );
    }

    #[test]
    fn a_broken_program_has_no_lines() {
        let whole = program(0x1000, &[(0, 9), (8, 2)], 8);
        for at in 0..whole.len() {
            let mut broken = whole.clone();
            broken[at] ^= 0x55;
            for section in [&broken[..], &whole[..at]] {
                let file = made(&[0; 64], &[(".debug_line", section)]);
                let lines = Object::read(&file).unwrap().lines(&[0x1000, 0x1008]);
                assert_eq!(lines.len(), 2);
            }
        }
    }
    /// Returns a line program of DWARF 5 whose header has these bytes behind the opcodes' lengths.
    fn unit(header: &[u8], opcodes: &[u8]) -> Vec<u8> {
        let mut all = vec![1, 1, 1, 0xfb, 14, 13, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1];
        all.extend(header);
        let mut unit = vec![5, 0, 8, 0];
        unit.extend((all.len() as u32).to_le_bytes());
        unit.extend(all);
        unit.extend(opcodes);
        let mut whole = (unit.len() as u32).to_le_bytes().to_vec();
        whole.extend(unit);
        whole
    }

    #[test]
    fn rows_over_all_addresses_again_and_again_cost_no_more_than_one() {
        let addresses: Vec<u64> = (0..1 << 16).map(|number| number * 4).collect();
        // Two files, whose paths have no end for 64 MiB, and 200,000 times: from 0 to the highest.
        let header = b"\x01\x01\x1f\x01\0\0\0\0\x01\x01\x1f\x01\0\0\0\0";
        let mut opcodes = Vec::new();
        for _ in 0..200_000 {
            opcodes.extend([4, 0, 1, 0, 9, 2, 0, 0, 0, 0, 0, 0, 0, 0x40, 0, 1, 1]);
        }
        let mut all = unit(header, &opcodes);
        all.extend(program(0, &[(0, 9)], 8));
        let texts = vec![b'/'; 64 << 20];
        let sections = [(".debug_line", &all[..]), (".debug_line_str", &texts[..])];
        let file = made(&[0; 64], &sections);
        let object = Object::read(&file).unwrap();
        let before = std::time::Instant::now();
        let lines = object.lines(&addresses);
        let took = before.elapsed();
        assert!(took < super::LIMIT, "{took:?}");
        // The first row wins, and each address has it.
        assert!(
            lines
                .iter()
                .all(|line| line.starts_with("//") && line.ends_with(":1"))
        );
    }

    #[test]
    fn a_unit_with_a_huge_table_of_files_is_passed_by() {
        // A directory, and files whose path is one byte: a flag, which is no text.
        let mut header = b"\x01\x01\x08\x01/\0\x01\x01\x0c".to_vec();
        let files = super::MOST_HEADER as u32;
        header.extend([
            files as u8 | 0x80,
            (files >> 7) as u8 | 0x80,
            (files >> 14) as u8,
        ]);
        header.resize(header.len() + files as usize, 1);
        let mut all = unit(
            &header,
            &[0, 9, 2, 0, 0x10, 0, 0, 0, 0, 0, 0, 1, 2, 8, 0, 1, 1],
        );
        // A file that a program of DWARF 4 adds.
        let mut older = vec![4, 0, 28, 0, 0, 0];
        older.extend([1, 1, 1, 0xfb, 14, 13, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1]);
        older.extend(b"\0/old\0\0\0\0\0");
        older.extend(b"\0\x06\x03a\0\0\0\0\0\x09\x02\0\x10\0\0\0\0\0\0\x01\x02\x08\0\x01\x01");
        all.extend((older.len() as u32).to_le_bytes());
        all.extend(older);
        // The next one is read.
        all.extend(program(0x1000, &[(0, 9)], 8));
        let file = made(&[0; 64], &[(".debug_line", &all)]);
        let lines = Object::read(&file).unwrap().lines(&[0x1000]);
        assert_eq!(lines, ["/src/job/vadd.hip:10"]);
    }
}
