//! The offsets of the fields in CPython's structures.

use crate::lines;

/// The owner of a frame that belongs to the interpreter itself (source: `enum _frameowner`, 3.12 to
/// 3.14; 3.11 has no such frames).
pub const OWNED_BY_INTERPRETER: u8 = 3;
/// The largest offset that is accepted. `_PyRuntime` of 3.13 has some 400 KiB.
const LARGEST: u64 = 16 << 20;

/// Bytes of the interpreter's own table.
const TABLE: usize = 8 * 96;

/// How frames say which instruction they are at, and code objects which line that is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Form {
    /// 3.11 and newer: by the instruction's address.
    #[default]
    Address,
    /// 3.10: by its number, 32 bits, in frame objects.
    Number,
    /// 3.9: by its distance in bytes, 32 bits, in frame objects.
    Distance,
}

/// Offsets in bytes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Offsets {
    /// The form of frames and tables of lines.
    pub form: Form,
    /// In the frame: its first local variable, a reference without tags. None where that is not known,
    /// or where a frame may still be in its list while its variables are released (3.11.0).
    pub locals: Option<u64>,
    /// In the code object: the number of its arguments, 32 bits.
    pub arguments: u64,
    /// The first interpreter, in `_PyRuntime`.
    pub interpreters: u64,
    /// From an interpreter to the next one.
    pub next_interpreter: u64,
    /// From an interpreter to its first thread.
    pub threads: u64,
    /// From a thread to the next one.
    pub next_thread: u64,
    /// In the thread: its id as the kernel knows it.
    pub native: u64,
    /// In the thread: its innermost frame, or the structure that leads to it.
    pub frame: u64,
    /// The frame within that structure, where there is one.
    pub frame_behind: Option<u64>,
    /// From a frame to the one that called it.
    pub previous: u64,
    /// From a frame to its code object, whose address may have tags in its lowest three bits.
    pub code: u64,
    /// In the frame: the address of its instruction.
    pub instruction: u64,
    /// In the frame: who owns it, one byte.
    pub owner: u64,
    /// In the code object: its file's name, a string.
    pub filename: u64,
    /// In the code object: its name, with the names of the classes and functions around it.
    pub qualname: u64,
    /// In the code object: its table of lines, a bytes object.
    pub line_table: u64,
    /// In the code object: its first line, 32 bits.
    pub first_line: u64,
    /// In the code object: its first instruction.
    pub bytecode: u64,
    /// In a bytes object: its length.
    pub bytes_size: u64,
    /// In a bytes object: its first byte.
    pub bytes_data: u64,
    /// In a string: its kind and form, 32 bits.
    pub text_state: u64,
    /// In a string: its length in characters.
    pub text_length: u64,
    /// In a string of ASCII: its first byte.
    pub ascii_size: u64,
    /// In any other compact string: its first byte.
    pub compact_size: u64,
}

/// Whether this Python can be read.
#[derive(Debug)]
pub enum Known {
    /// It can, with these offsets.
    Yes(Offsets),
    /// It cannot, for this reason.
    No(Refused),
}

/// Why a Python cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub enum Refused {
    /// Its version is not supported.
    Version(u64, u64),
    /// It does not say its version, as 3.10 and older do not.
    Old,
    /// It has no global lock, and its structures differ: its version.
    FreeThreaded(u64, u64),
    /// Its values are impossible.
    Nonsense,
}

/// Returns the major and the minor number of `PY_VERSION_HEX`.
fn version(hex: u64) -> (u64, u64) {
    (hex >> 24 & 0xff, hex >> 16 & 0xff)
}

impl Offsets {
    /// Returns the offsets for an interpreter. `read` reads from the start of its `_PyRuntime`, and
    /// returns false where it cannot; `hex` is its `Py_Version`.
    pub fn of(mut read: impl FnMut(&mut [u8]) -> bool, hex: Option<u64>) -> Known {
        // From 3.13 on, the runtime starts with a table of its offsets.
        let mut mark = [0; 8];
        if read(&mut mark) && &mark == b"xdebugpy" {
            let mut table = [0; TABLE];
            return match read(&mut table) {
                true => Offsets::of_table(&table),
                false => Known::No(Refused::Nonsense),
            };
        }
        match hex.map(version) {
            Some((3, 11)) => {
                let is_first = hex.is_some_and(|hex| hex >> 8 & 0xff == 0);
                let locals = PYTHON_3_11.locals.filter(|_| !is_first);
                Known::Yes(Offsets {
                    locals,
                    ..PYTHON_3_11
                })
            }
            Some((3, 12)) => Known::Yes(PYTHON_3_12),
            Some((major, minor)) if major == 3 && minor < 20 => {
                Known::No(Refused::Version(major, minor))
            }
            None => Known::No(Refused::Old),
            _ => Known::No(Refused::Nonsense),
        }
    }

    /// Reads the interpreter's own table (source: CPython's `pycore_runtime.h` of 3.13,
    /// `pycore_debug_offsets.h` of 3.14). It has one word of 64 bits for each field, in the order
    /// of the fields.
    fn of_table(bytes: &[u8; TABLE]) -> Known {
        let word = |index: usize| {
            let word = bytes.get(8 * index..).and_then(|rest| rest.first_chunk());
            word.map_or(u64::MAX, |word| u64::from_le_bytes(*word))
        };
        if word(2) != 0 {
            let (major, minor) = version(word(1));
            return Known::No(Refused::FreeThreaded(major, minor));
        }
        // The index of the first word of the thread state, the frame, the code object, the bytes
        // object and the string.
        let [thread, frame, code, bytes_at, text] = match version(word(1)) {
            (3, 13) => [19, 28, 34, 64, 67],
            (3, 14) => [22, 31, 39, 74, 77],
            (major, minor) => return Known::No(Refused::Version(major, minor)),
        };
        let ascii_size = word(text + 3);
        // From 3.14 on, references in frames have tags.
        let has_plain_locals = version(word(1)) == (3, 13);
        let offsets = Offsets {
            form: Form::Address,
            locals: has_plain_locals.then(|| word(frame + 4)),
            arguments: word(code + 6),
            interpreters: word(5),
            next_interpreter: word(8),
            threads: word(9),
            next_thread: word(thread + 2),
            frame: word(thread + 4),
            frame_behind: None,
            native: word(thread + 6),
            previous: word(frame + 1),
            code: word(frame + 2),
            instruction: word(frame + 3),
            owner: word(frame + 5),
            filename: word(code + 1),
            qualname: word(code + 3),
            line_table: word(code + 4),
            first_line: word(code + 5),
            bytecode: word(code + 9),
            bytes_size: word(bytes_at + 1),
            bytes_data: word(bytes_at + 2),
            text_state: word(text + 1),
            text_length: word(text + 2),
            ascii_size,
            // Behind the object's header lie the length and the address of a copy in UTF-8.
            compact_size: ascii_size.saturating_add(16),
        };
        match offsets.are_plausible() {
            true => Known::Yes(offsets),
            false => Known::No(Refused::Nonsense),
        }
    }

    /// Returns the offsets of 3.9 or 3.10, whose runtime does not say its version. They serve to read the
    /// frames of the calling thread: threads have no native ids.
    pub fn of_frame_objects(minor: u64) -> Option<Offsets> {
        match minor {
            9 => Some(PYTHON_3_9),
            10 => Some(PYTHON_3_10),
            _ => None,
        }
    }

    /// Returns the line of the instruction that lies `distance` bytes behind the first one, in a function
    /// whose first line is `first`, by its table of lines. None where the instruction has no line.
    pub fn line(&self, table: &[u8], first: u32, distance: u64) -> Option<u32> {
        match self.form {
            Form::Address => lines::line(table, first, distance),
            Form::Number => lines::line_3_10(table, first, distance),
            Form::Distance => lines::line_3_9(table, first, distance),
        }
    }

    fn are_plausible(&self) -> bool {
        let all = [
            self.interpreters,
            self.next_interpreter,
            self.threads,
            self.next_thread,
            self.native,
            self.frame,
            self.previous,
            self.code,
            self.instruction,
            self.owner,
            self.locals.unwrap_or(0),
            self.arguments,
            self.filename,
            self.qualname,
            self.line_table,
            self.first_line,
            self.bytecode,
            self.bytes_size,
            self.bytes_data,
            self.text_state,
            self.text_length,
            self.compact_size,
        ];
        all.iter().all(|offset| *offset < LARGEST)
    }
}

/// The offsets of 3.9, measured in the headers of 3.9.18. A frame is an object here, and threads do not
/// have their ids.
const PYTHON_3_9: Offsets = Offsets {
    form: Form::Distance,
    locals: None,
    arguments: 16,
    interpreters: 32,
    next_interpreter: 0,
    threads: 8,
    next_thread: 8,
    native: 0,
    frame: 24,
    frame_behind: None,
    previous: 24,
    code: 32,
    instruction: 104,
    owner: 0,
    filename: 104,
    qualname: 112,
    line_table: 120,
    first_line: 40,
    bytecode: 0,
    bytes_size: 16,
    bytes_data: 32,
    text_state: 32,
    text_length: 16,
    ascii_size: 48,
    compact_size: 72,
};

/// The offsets of 3.10, measured in the headers of 3.10.13.
const PYTHON_3_10: Offsets = Offsets {
    form: Form::Number,
    instruction: 96,
    ..PYTHON_3_9
};

/// The offsets of 3.11, measured with `offsetof` in the headers of 3.11.7. The structures do not
/// change within 3.11.
const PYTHON_3_11: Offsets = Offsets {
    form: Form::Address,
    locals: Some(72),
    arguments: 56,
    interpreters: 40,
    next_interpreter: 0,
    threads: 16,
    next_thread: 8,
    native: 160,
    frame: 56,
    frame_behind: Some(8),
    previous: 48,
    code: 32,
    instruction: 56,
    owner: 69,
    filename: 112,
    qualname: 128,
    line_table: 136,
    first_line: 72,
    bytecode: 184,
    bytes_size: 16,
    bytes_data: 32,
    text_state: 32,
    text_length: 16,
    ascii_size: 48,
    compact_size: 72,
};

/// The offsets of 3.12, measured in the headers of 3.12.1.
const PYTHON_3_12: Offsets = Offsets {
    form: Form::Address,
    locals: Some(72),
    arguments: 52,
    interpreters: 40,
    next_interpreter: 0,
    threads: 72,
    next_thread: 8,
    native: 144,
    frame: 56,
    frame_behind: Some(0),
    previous: 8,
    code: 0,
    instruction: 56,
    owner: 70,
    filename: 112,
    qualname: 128,
    line_table: 136,
    first_line: 68,
    bytecode: 192,
    bytes_size: 16,
    bytes_data: 32,
    text_state: 32,
    text_length: 16,
    ascii_size: 40,
    compact_size: 56,
};

#[cfg(test)]
mod tests {
    use super::*;

    fn locals(hex: u64) -> Option<u64> {
        match Offsets::of(|_| false, Some(hex)) {
            Known::Yes(offsets) => offsets.locals,
            Known::No(why) => panic!("{why:?}"),
        }
    }

    /// 3.11.0 releases a frame's variables while the frame is still in its thread's list.
    #[test]
    fn variables_are_read_where_a_frame_keeps_them() {
        assert_eq!(locals(0x030b_00f0), None);
        assert_eq!(locals(0x030b_01f0), Some(72));
        assert_eq!(locals(0x030c_00f0), Some(72));
    }

    /// References have tags in 3.14.
    #[test]
    fn variables_of_tagged_frames_are_not_read() {
        let table = |hex: u64, text: usize| {
            let mut words = [0_u64; TABLE / 8];
            words[0] = u64::from_le_bytes(*b"xdebugpy");
            words[1] = hex;
            // The place of the variables in 3.13 and in 3.14.
            (words[32], words[35]) = (72, 80);
            words[text + 3] = 40;
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let fill = move |into: &mut [u8]| {
                into.copy_from_slice(&bytes[..into.len()]);
                true
            };
            match Offsets::of(fill, None) {
                Known::Yes(offsets) => offsets.locals,
                Known::No(why) => panic!("{why:?}"),
            }
        };
        assert_eq!(table(0x030d_00f0, 67), Some(72));
        assert_eq!(table(0x030e_00f0, 77), None);
    }
}
