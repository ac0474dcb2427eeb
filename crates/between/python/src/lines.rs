//! The line number of an instruction (source: CPython's Objects/locations.md from 3.11 on, before that
//! Objects/lnotab_notes.txt).

/// Returns the line of the instruction that lies `distance` bytes behind the first one, in a
/// function whose first line is `first`. None where the instruction has no line.
pub(crate) fn line(table: &[u8], first: u32, distance: u64) -> Option<u32> {
    let mut line = i64::from(first);
    let mut bytes = table.iter().copied();
    let mut end = 0;
    while let Some(head) = bytes.next() {
        if head & 0x80 == 0 {
            return None;
        }
        let code = head >> 3 & 15;
        // The length is counted in units of two bytes.
        end += 2 * (u64::from(head & 7) + 1);
        let mut has_line = true;
        match code {
            15 => has_line = false,
            14 => {
                line = line.checked_add(signed(&mut bytes)?)?;
                // Skips the last line and both columns.
                for _ in 0..3 {
                    unsigned(&mut bytes)?;
                }
            }
            13 => line = line.checked_add(signed(&mut bytes)?)?,
            10..=12 => {
                line = line.checked_add(i64::from(code) - 10)?;
                bytes.nth(1)?;
            }
            _ => {
                bytes.next()?;
            }
        }
        if distance < end {
            return has_line.then(|| u32::try_from(line).ok()).flatten();
        }
    }
    None
}

/// The same for 3.10: pairs of a number of bytes, and how many lines their line is behind the one before.
/// The distance -128 stands for bytes without a line.
pub(crate) fn line_3_10(table: &[u8], first: u32, distance: u64) -> Option<u32> {
    let mut line = i64::from(first);
    let mut end = 0;
    for pair in table.as_chunks::<2>().0 {
        let [bytes, lines] = *pair;
        let lines = lines as i8;
        if lines != i8::MIN {
            line += i64::from(lines);
        }
        end += u64::from(bytes);
        if distance < end {
            let line = u32::try_from(line).ok();
            return line.filter(|_| lines != i8::MIN);
        }
    }
    None
}

/// The same for 3.9: pairs of the distance to the next line's first byte, and to the next line.
pub(crate) fn line_3_9(table: &[u8], first: u32, distance: u64) -> Option<u32> {
    let mut line = i64::from(first);
    let mut at = 0;
    for pair in table.as_chunks::<2>().0 {
        let [bytes, lines] = *pair;
        at += u64::from(bytes);
        if at > distance {
            break;
        }
        line += i64::from(lines as i8);
    }
    u32::try_from(line).ok()
}

/// Reads a number in groups of six bits, the lowest group first.
fn unsigned(bytes: &mut impl Iterator<Item = u8>) -> Option<u64> {
    let mut number = 0;
    for shift in (0..60).step_by(6) {
        let byte = bytes.next()?;
        number |= u64::from(byte & 63) << shift;
        if byte & 64 == 0 {
            return Some(number);
        }
    }
    None
}

/// Reads such a number with its sign in the lowest bit.
fn signed(bytes: &mut impl Iterator<Item = u8>) -> Option<i64> {
    let number = unsigned(bytes)?;
    let size = (number >> 1) as i64;
    Some(if number & 1 == 1 { -size } else { size })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_an_entry() {
        let table = [
            // No line, one unit.
            0x80 | 15 << 3,
            // Short, two units, the first line.
            0x80 | 3 << 3 | 1,
            0x12,
            // One line on, one unit.
            0x80 | 11 << 3,
            1,
            2,
            // Without columns, 100 lines on.
            0x80 | 13 << 3,
            0x40 | (200 & 63),
            200 >> 6,
            // Long, two lines back.
            0x80 | 14 << 3,
            5,
            0,
            1,
            1,
        ];
        let line = |distance| line(&table, 7, distance);
        assert_eq!(
            [0, 2, 4, 6, 8, 10, 12].map(line),
            [None, Some(7), Some(7), Some(8), Some(108), Some(106), None]
        );
    }

    /// What 3.9 and 3.10 make of the same function, and the lines of its instructions, two bytes each.
    #[test]
    fn tables_of_older_versions() {
        let lines: [u32; 26] = [
            2, 2, 2, 2, 3, 3, 4, 3, 5, 5, 5, 5, 5, 7, 7, 8, 7, 7, 7, 209, 209, 209, 210, 209, 209,
            209,
        ];
        let of_3_9 = [
            0, 1, 8, 1, 4, 1, 2, 255, 2, 2, 10, 2, 4, 1, 2, 255, 6, 127, 0, 75, 6, 1, 2, 255,
        ];
        let of_3_10 = [
            8, 1, 4, 1, 2, 1, 2, 255, 10, 2, 4, 2, 2, 1, 6, 255, 0, 127, 6, 75, 2, 1, 6, 255,
        ];
        for (at, line) in (0..).step_by(2).zip(lines) {
            assert_eq!(line_3_9(&of_3_9, 1, at), Some(line), "{at}");
            assert_eq!(line_3_10(&of_3_10, 1, at), Some(line), "{at}");
        }
        assert_eq!(line_3_10(&of_3_10, 1, 52), None);
        // -128 is no line, and does not count.
        let none = [2, 1, 2, 128, 2, 1];
        assert_eq!(
            [0, 2, 4].map(|at| line_3_10(&none, 7, at)),
            [Some(8), None, Some(9)]
        );
        // A table that is cut, and one that leads below the first line.
        assert_eq!(line_3_9(&[0], 7, 0), Some(7));
        assert_eq!(line_3_9(&[0, 200], 7, 0), None);
        assert_eq!(line_3_10(&[2, 200], 7, 0), None);
    }

    #[test]
    fn a_table_that_breaks_off_has_no_line() {
        assert_eq!(line(&[0x80 | 14 << 3, 0x40], 1, 0), None);
        assert_eq!(line(&[0x12], 1, 0), None);
        assert_eq!(line(&[], 1, 0), None);
        assert_eq!(line(&[0x80 | 13 << 3; 20], 1, 1000), None);
    }

    /// Each entry goes further by nearly 2^59 lines. 16 of them are more than a number holds, and a
    /// build with overflow checks would panic.
    #[test]
    fn a_table_whose_lines_have_no_sum() {
        let entry = [&[0x80 | 13 << 3][..], &[0x7e], &[0x7f; 8], &[63]].concat();
        assert_eq!(line(&entry.repeat(40), 1, 1000), None);
        let back = [&[0x80 | 13 << 3][..], &[0x7f; 9], &[63]].concat();
        assert_eq!(line(&back.repeat(40), 1, 1000), None);
    }
}
