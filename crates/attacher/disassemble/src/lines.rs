//! Lines in the sources, out of a code object's DWARF.
//!
//! The rows of all line programs are walked once for all addresses. Only `.debug_line` and the texts
//! that it refers to are read: DWARF 5, which AMD's compiler writes, has whole paths there.

use gimli::{AttributeValue, DebugLine, DebugLineOffset, EndianSlice, LineProgramHeader};
use object::LittleEndian;
use object::elf::{FileHeader64, SHF_COMPRESSED};
use object::read::elf::{FileHeader, SectionHeader};
use std::time::{Duration, Instant};

type Bytes<'b> = EndianSlice<'b, gimli::LittleEndian>;

/// How long the lines of one code object are looked for.
const LIMIT: Duration = Duration::from_secs(2);
/// How often the clock is read, in rows.
const ROWS: u32 = 4096;
/// The most bytes of a comment.
const LONGEST: usize = 512;

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
        let mut found = vec![String::new(); addresses.len()];
        let until = Instant::now() + LIMIT;
        let debug_line = DebugLine::new(self.line, gimli::LittleEndian);
        let mut at = 0;
        while at < self.line.len() && Instant::now() < until {
            let program = debug_line.program(DebugLineOffset(at), 8, None, None);
            let Ok(program) = program else { break };
            // The length does not count its own four bytes; AMD's compiler writes no 64-bit DWARF.
            let length = program.header().unit_length();
            let _ = self.walk(program.rows(), (addresses, &mut found), until);
            at = at.saturating_add(length).saturating_add(4);
        }
        found
    }

    fn walk(
        &self,
        mut rows: gimli::LineRows<Bytes<'b>, gimli::IncompleteLineProgram<Bytes<'b>>>,
        (addresses, found): (&[u64], &mut [String]),
        until: Instant,
    ) -> gimli::Result<()> {
        // The row before: from where its line holds, its file, and its line.
        let mut before: Option<(u64, u64, u64)> = None;
        let mut count = 0_u32;
        while let Some((header, row)) = rows.next_row()? {
            if let Some((from, file, line)) = before {
                let first = addresses.partition_point(|it| *it < from);
                let end = addresses.partition_point(|it| *it < row.address());
                // An end before the start is a range without addresses.
                for place in found.get_mut(first..end).unwrap_or_default() {
                    *place = self.place(header, file, line).unwrap_or_default();
                }
            }
            let line = row.line().map(std::num::NonZero::get);
            before = line
                .filter(|_| !row.end_sequence())
                .map(|line| (row.address(), row.file_index(), line));
            count = count.wrapping_add(1);
            if count.is_multiple_of(ROWS) && Instant::now() > until {
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
        let endian = gimli::LittleEndian;
        let text = match value {
            AttributeValue::String(text) => text,
            AttributeValue::DebugStrRef(at) => {
                gimli::DebugStr::new(self.texts, endian).get_str(at).ok()?
            }
            AttributeValue::DebugLineStrRef(at) => {
                gimli::DebugLineStr::new(self.line_texts, endian)
                    .get_str(at)
                    .ok()?
            }
            _ => return None,
        };
        let bytes = text.slice();
        let bytes = bytes.get(..bytes.len().min(2 * LONGEST))?;
        Some(String::from_utf8_lossy(bytes).into_owned())
    }
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
}
