//! The Python stacks of a process's threads.
//!
//! CPython keeps its threads in a list below `_PyRuntime`, and each thread's frames in a list that
//! starts with the innermost one. From 3.13 on, the same place tells readers like this one where
//! each field lies. For 3.11 and 3.12 the offsets are known ([`midair_python`]). Older versions, and
//! builds without the global lock, are reported and not read.

use crate::answer::Thread;
use crate::memory::{Bytes, Limited, Limits};
use midair_procinfo::module::Modules;
use midair_python::{Known, OWNED_BY_INTERPRETER, Offsets, Refused};
use std::collections::BTreeMap;
use std::time::Duration;

/// The most interpreters, threads and frames that are followed.
const MOST_INTERPRETERS: usize = 64;
const MOST_THREADS: usize = 4096;
const MOST_FRAMES: usize = 256;
/// The most characters of a name, and bytes of a table of lines.
const LONGEST_NAME: usize = 1024;
const LONGEST_TABLE: usize = 1 << 18;
/// What may be read for the stacks of all threads. A table of lines is read again for each frame.
const STACKS: Limits = Limits {
    bytes: 64 << 20,
    reads: 1 << 20,
    time: Duration::from_secs(3),
};

/// A frame of Python code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The function's name, with the names of the classes and functions around it.
    pub function: String,
    /// The file's name, as the interpreter has it.
    pub file: String,
    /// The line; None where the interpreter does not know it.
    pub line: Option<u32>,
}

/// Adds the Python frames to the threads that have some.
pub(crate) fn add(modules: &Modules, threads: &mut [Thread], notes: &mut Vec<String>) {
    let Some((runtime, version)) = find(modules) else {
        return;
    };
    let memory = &Limited::new(modules.memory(), STACKS);
    let offsets = match offsets(memory, runtime, version) {
        Known::Yes(offsets) => offsets,
        Known::No(Refused::Version(major, minor)) => {
            notes.push(format!(
                "no stacks of Python {major}.{minor}: midair supports 3.11 to 3.14"
            ));
            return;
        }
        Known::No(Refused::Old) => {
            notes.push("no Python stacks: midair supports 3.11 to 3.14".to_owned());
            return;
        }
        Known::No(Refused::FreeThreaded(major, minor)) => {
            notes.push(format!(
                "no stacks of Python {major}.{minor}t: midair does not support free-threaded builds"
            ));
            return;
        }
        Known::No(Refused::Nonsense) => {
            notes.push("no Python stacks: the runtime's layout is unknown".to_owned());
            return;
        }
    };
    let mut stacks = stacks(memory, runtime, &offsets);
    if memory.is_used_up() {
        notes.push("some Python frames may be missing: their number exceeds a limit".to_owned());
    }
    for thread in threads {
        if let Some(frames) = stacks.remove(&u64::from(thread.own_tid)) {
            thread.python = frames;
        }
    }
}

/// Returns the address of `_PyRuntime`, and the version in the form of `Py_Version` where that is
/// exported.
pub(crate) fn find(modules: &Modules) -> Option<(u64, Option<u64>)> {
    let may_have = |name: &[u8]| name.starts_with(b"libpython") || name.starts_with(b"python");
    let exe = modules.list.first().map(|module| module.base);
    modules
        .list
        .iter()
        .enumerate()
        .filter(|(_, module)| may_have(module.file_name()) || Some(module.base) == exe)
        .find_map(|(index, _)| {
            let loaded = modules.load(index).ok()?;
            let [runtime, version] = loaded
                .elf
                .exported_data(["_PyRuntime", "Py_Version"])
                .ok()?;
            let place = |address: u64| address.wrapping_add(loaded.bias);
            let version = version.and_then(|at| modules.memory().word(place(at)));
            Some((place(runtime?), version))
        })
}

/// Returns the frames of all threads of an interpreter whose runtime lies at 0. Its version is the
/// one of 3.12 where the runtime does not tell its offsets.
#[cfg(any(test, feature = "image"))]
pub(crate) fn of_memory(memory: &impl Bytes) -> Vec<Frame> {
    match offsets(memory, 0, Some(0x030c_00f0)) {
        Known::Yes(offsets) => stacks(memory, 0, &offsets)
            .into_values()
            .flatten()
            .collect(),
        Known::No(_) => Vec::new(),
    }
}

/// Returns the frames of all threads by thread id. The id is the one that the interpreter knows, in
/// the process's own pid namespace.
fn stacks(memory: &impl Bytes, runtime: u64, of: &Offsets) -> BTreeMap<u64, Vec<Frame>> {
    let mut all = BTreeMap::new();
    let mut interpreter = memory
        .word(runtime.wrapping_add(of.interpreters))
        .unwrap_or(0);
    for _ in 0..MOST_INTERPRETERS {
        if interpreter == 0 {
            break;
        }
        let mut thread = memory
            .word(interpreter.wrapping_add(of.threads))
            .unwrap_or(0);
        while thread != 0 && all.len() < MOST_THREADS {
            let Some(native) = memory.word(thread.wrapping_add(of.native)) else {
                break;
            };
            if all.contains_key(&native) {
                break;
            }
            all.insert(native, frames(memory, thread, of));
            thread = memory
                .word(thread.wrapping_add(of.next_thread))
                .unwrap_or(0);
        }
        interpreter = memory
            .word(interpreter.wrapping_add(of.next_interpreter))
            .unwrap_or(0);
    }
    all.retain(|_, frames| !frames.is_empty());
    all
}

/// Returns where CPython's fields lie.
pub(crate) fn offsets(memory: &impl Bytes, runtime: u64, version: Option<u64>) -> Known {
    Offsets::of(|into| memory.fill(runtime, into), version)
}

/// Returns the innermost frame of a thread, or None where it has none.
fn first_frame(memory: &impl Bytes, thread: u64, of: &Offsets) -> Option<u64> {
    let at = memory.word(thread.wrapping_add(of.frame))?;
    match of.frame_behind {
        None => Some(at),
        Some(_) if at == 0 => None,
        Some(behind) => memory.word(at.wrapping_add(behind)),
    }
}

/// Returns the frames of one thread, the innermost first.
fn frames(memory: &impl Bytes, thread: u64, of: &Offsets) -> Vec<Frame> {
    let mut frames = Vec::new();
    let Some(mut at) = first_frame(memory, thread, of) else {
        return frames;
    };
    for _ in 0..MOST_FRAMES {
        if at == 0 {
            break;
        }
        if memory.byte(at.wrapping_add(of.owner)) != Some(OWNED_BY_INTERPRETER)
            && let Some(frame) = frame(memory, at, of)
        {
            frames.push(frame);
        }
        at = memory.word(at.wrapping_add(of.previous)).unwrap_or(0);
    }
    frames
}

fn frame(memory: &impl Bytes, at: u64, of: &Offsets) -> Option<Frame> {
    // The lowest bits of a reference may hold tags.
    let code = memory.word(at.wrapping_add(of.code))? & !7;
    let text = |offset: u64| text(memory, memory.word(code.wrapping_add(offset))?, of);
    let function = text(of.qualname)?;
    let file = text(of.filename)?;
    let at_line = || {
        let instruction = memory.word(at.wrapping_add(of.instruction))?;
        let distance = instruction.checked_sub(code.wrapping_add(of.bytecode))?;
        let first = memory.half(code.wrapping_add(of.first_line))?;
        let table = memory.word(code.wrapping_add(of.line_table))?;
        let len = usize::try_from(memory.word(table.wrapping_add(of.bytes_size))?).ok()?;
        let table = memory.bytes(table.wrapping_add(of.bytes_data), len.min(LONGEST_TABLE))?;
        of.line(&table, first, distance)
    };
    Some(Frame {
        function,
        file,
        line: at_line(),
    })
}

/// Returns the text of a Python string.
pub(crate) fn text(memory: &impl Bytes, at: u64, of: &Offsets) -> Option<String> {
    let state = memory.half(at.wrapping_add(of.text_state))?;
    let (kind, is_compact, is_ascii) = (state >> 2 & 7, state >> 5 & 1 == 1, state >> 6 & 1 == 1);
    if !is_compact {
        return None;
    }
    let len = usize::try_from(memory.word(at.wrapping_add(of.text_length))?).ok()?;
    let len = len.min(LONGEST_NAME);
    let data = match is_ascii {
        true => at.wrapping_add(of.ascii_size),
        false => at.wrapping_add(of.compact_size),
    };
    let units = |bytes: &[u8], size: usize| -> String {
        let unit = |unit: &[u8]| {
            let number = unit
                .iter()
                .rev()
                .fold(0_u32, |number, byte| number << 8 | u32::from(*byte));
            char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER)
        };
        bytes.chunks_exact(size).map(unit).collect()
    };
    match kind {
        1 | 2 | 4 => {
            let bytes = memory.bytes(data, len * kind as usize)?;
            Some(units(&bytes, kind as usize))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::fake::Pieces;

    /// The runtime as 3.14 lays it out, with one thread that is in two frames.
    fn memory() -> (Pieces, u64) {
        let mut memory = Pieces::default();
        let (runtime, interpreter, thread) = (0x10_0000, 0x20_0000, 0x30_0000);
        let mut words = [0; 96];
        words[0] = u64::from_le_bytes(*b"xdebugpy");
        words[1] = 0x030e_00f0;
        words[5] = 85 * 8;
        (words[8], words[9]) = (8, 16);
        (words[24], words[26], words[28]) = (0, 8, 16);
        (words[32], words[33], words[34], words[36]) = (0, 8, 16, 24);
        (words[40], words[42], words[43], words[44], words[48]) = (0, 8, 16, 24, 32);
        (words[75], words[76]) = (16, 24);
        (words[78], words[79], words[80]) = (16, 8, 24);
        words[85] = interpreter;
        memory.words(runtime, &words);
        memory.words(interpreter, &[0, 0, thread]);
        memory.words(thread, &[0, 0x40_0000, 77]);
        // Between them lies a frame of the interpreter's own.
        memory.words(
            0x40_0000,
            &[0x41_0000, 0x50_0000 | 1, 0x50_0000 + 32 + 4, 0],
        );
        memory.words(0x41_0000, &[0x42_0000, 0x50_0000, 0, 3]);
        memory.words(0x42_0000, &[0, 0x50_0000, 0x50_0000 + 32, 0]);
        memory.words(0x50_0000, &[0x60_0000, 0x61_0000, 0x62_0000, 10, 0]);
        let mut ascii = |at: u64, text: &str| {
            let mut bytes = vec![0; 24];
            bytes[8..16].copy_from_slice(&(text.len() as u64).to_le_bytes());
            bytes[16..20].copy_from_slice(&(1_u32 << 2 | 1 << 5 | 1 << 6).to_le_bytes());
            bytes.extend_from_slice(text.as_bytes());
            memory.put(at, &bytes);
        };
        ascii(0x60_0000, "train.py");
        ascii(0x61_0000, "Trainer.step");
        // Two units on the first line, then two on the line after the next.
        let mut table = vec![0; 24];
        let entries = [0x80 | 13 << 3 | 1, 0, 0x80 | 13 << 3 | 1, 2 << 1];
        table[16] = entries.len() as u8;
        table.extend_from_slice(&entries);
        memory.put(0x62_0000, &table);
        (memory, runtime)
    }

    #[test]
    fn frames_are_followed_by_the_interpreters_own_table() {
        let (memory, runtime) = memory();
        let Known::Yes(offsets) = offsets(&memory, runtime, None) else {
            panic!("it is known");
        };
        let stacks = stacks(&memory, runtime, &offsets);
        let frame = |line| Frame {
            function: "Trainer.step".to_owned(),
            file: "train.py".to_owned(),
            line: Some(line),
        };
        assert_eq!(stacks[&77], [frame(12), frame(10)]);
    }

    #[test]
    fn lists_that_lead_back_end() {
        let (mut memory, runtime) = memory();
        memory.set(0x42_0000, 0x40_0000);
        memory.set(0x30_0000, 0x30_0000);
        memory.set(0x20_0000 + 8, 0x20_0000);
        let Known::Yes(offsets) = offsets(&memory, runtime, None) else {
            panic!("it is known");
        };
        let stacks = stacks(&memory, runtime, &offsets);
        assert!(stacks[&77].len() <= MOST_FRAMES);
    }

    #[test]
    fn what_is_not_known_is_refused() {
        let (mut memory, runtime) = memory();
        let refused = |memory: &Pieces, version| match offsets(memory, runtime, version) {
            Known::Yes(_) => panic!("it is not known"),
            Known::No(refused) => refused,
        };
        memory.set(runtime + 16, 1);
        assert_eq!(refused(&memory, None), Refused::FreeThreaded(3, 14));
        memory.set(runtime + 16, 0);
        memory.set(runtime + 8, 0x0310_00f0);
        assert_eq!(refused(&memory, None), Refused::Version(3, 16));
        memory.set(runtime, 0);
        assert_eq!(refused(&memory, None), Refused::Old);
        assert_eq!(refused(&memory, Some(7)), Refused::Nonsense);
        assert_eq!(refused(&memory, Some(0x030a_0df0)), Refused::Version(3, 10));
    }
}
