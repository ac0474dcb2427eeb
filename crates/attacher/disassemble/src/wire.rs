//! What the attaching side and the helper write to each other: lines of text.

use crate::object::LONGEST;
use std::io::{self, BufRead, Write};

/// The most instructions of one question.
pub const MOST: usize = 1 << 16;
/// The most bytes of an instruction's text.
pub const LONGEST_TEXT: usize = 200;
/// The most bytes of a line: a number, a blank, and the bytes of an instruction in hexadecimal form, or
/// words of the disassembler's.
const LONGEST_LINE: u64 = 1024;

/// Instructions of one kind of device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Question {
    /// The device, as `gfx942`.
    pub device: String,
    /// The bytes of each instruction, and of what is behind it.
    pub instructions: Vec<Vec<u8>>,
}

impl Question {
    /// Writes the question.
    ///
    /// # Errors
    /// The output's.
    pub fn write(&self, mut out: impl Write) -> io::Result<()> {
        writeln!(out, "{}", self.device)?;
        for instruction in &self.instructions {
            for byte in instruction {
                write!(out, "{byte:02x}")?;
            }
            writeln!(out)?;
        }
        out.flush()
    }

    /// Reads the device, which is the first word of a request. None where it is none.
    ///
    /// # Errors
    /// The input's.
    pub fn read_device(from: &mut impl BufRead) -> io::Result<Option<String>> {
        Ok(line(from)?.filter(|device| is_device(device)))
    }

    /// Reads the rest of a question about a device to its end. None where it is none.
    ///
    /// # Errors
    /// The input's.
    pub fn read(device: String, mut from: impl BufRead) -> io::Result<Option<Question>> {
        let mut question = Question {
            device,
            instructions: Vec::new(),
        };
        while let Some(line) = line(&mut from)? {
            match bytes(&line) {
                Some(bytes) if question.instructions.len() < MOST => {
                    question.instructions.push(bytes);
                }
                _ => return Ok(None),
            }
        }
        Ok(Some(question))
    }
}

/// Whether a text names a device.
pub fn is_device(text: &str) -> bool {
    let rest = text.strip_prefix("gfx").unwrap_or_default();
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '-';
    !rest.is_empty() && rest.len() < 32 && rest.chars().all(is_word)
}

/// Returns bytes in hexadecimal form.
fn bytes(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    let pairs = digits.chunks_exact(2);
    if !pairs.remainder().is_empty() || digits.len() > 2 * LONGEST {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16);
    { pairs }
        .map(|pair| Some((digit(*pair.first()?)? << 4 | digit(*pair.get(1)?)?) as u8))
        .collect()
}

/// Reads a line without its end. None at the end of the input, and for a line that is too long.
///
/// # Errors
/// The input's.
pub fn line(from: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    io::Read::take(from, LONGEST_LINE).read_until(b'\n', &mut line)?;
    let text = line.strip_suffix(b"\n");
    Ok(text.map(|text| String::from_utf8_lossy(text).into_owned()))
}

/// The first line of an answer where a disassembler works: its file follows.
pub const BY: &str = "by ";
/// The same where none does: why follows.
pub const NONE: &str = "none ";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_read_as_it_was_written() {
        let question = Question {
            device: "gfx942".into(),
            instructions: vec![vec![0x7f, 0xc0, 0x8c, 0xbf], vec![0; LONGEST]],
        };
        let mut text = Vec::new();
        question.write(&mut text).unwrap();
        let read = |mut text: &[u8]| {
            let device = Question::read_device(&mut text).unwrap()?;
            Question::read(device, text).unwrap()
        };
        assert_eq!(read(&text), Some(question));
        for odd in ["", "sh -c\n", "gfx9\n12\n3\n", "gfx9\nzz\n", "gfx9\n+1\n"] {
            assert_eq!(read(odd.as_bytes()), None, "{odd}");
        }
        let long = format!("gfx9\n{}\n", "00".repeat(LONGEST + 1));
        assert_eq!(read(long.as_bytes()), None);
    }
}
