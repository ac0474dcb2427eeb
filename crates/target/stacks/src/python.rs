//! The Python frames of the calling thread.
//!
//! Everything here is read where it lies: the thread is inside of these frames, so neither they nor
//! their code objects change or vanish before it returns. That holds also while it has released
//! Python's global lock, since the lock protects what threads share, and a thread's frames are its
//! own.

use crate::common::{Unavailable, mix, symbol};
use crate::text::Text;
use midair_python::{Form, Known, OWNED_BY_INTERPRETER, Offsets, Refused};
use midair_record::event::MOST_FRAMES;
use std::ffi::c_void;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

/// No object lies below this address.
const LOWEST: usize = 1 << 16;
/// The most bytes of a table of lines, and steps over frames of the interpreter's own.
const LONGEST_TABLE: usize = 1 << 20;
const MOST_STEPS: usize = 4 * MOST_FRAMES;

/// A frame.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frame {
    /// Address of the code object.
    code: usize,
    /// Distance of the instruction from the first one, in bytes.
    distance: u64,
    /// The object for which it was called, as far as that is of interest ([`ModuleCalls`]); otherwise 0.
    pub(crate) object: usize,
}

/// The end of the file's name, and the names of the function by which PyTorch calls a module. The call's
/// object is the module.
const MODULE_FILE: &str = "/torch/nn/modules/module.py";
const MODULE_CALLS: [&str; 2] = ["Module._call_impl", "_call_impl"];

/// The most modules of a session. A program that makes new ones all the time would otherwise have a stack
/// of its own for each, and soon no room for others.
const MOST_MODULES: usize = 1 << 13;

/// Code objects of that function, of which a process has one, from the first place on. All of it is valid
/// when zeroed.
#[derive(Debug)]
pub(crate) struct ModuleCalls {
    codes: [AtomicUsize; 4],
    /// How many modules are described.
    described: AtomicUsize,
}

impl ModuleCalls {
    /// Removes all.
    pub(crate) fn clear(&self) {
        self.codes.iter().for_each(|place| place.store(0, Relaxed));
        self.described.store(0, Relaxed);
    }

    /// Takes note of a module that is described. With too many, calls have no objects any more.
    pub(crate) fn count(&self) {
        self.described.fetch_add(1, Relaxed);
    }

    fn has(&self, code: usize) -> bool {
        let all = self.codes.iter().map(|known| known.load(Relaxed));
        let mut known = all.take_while(|known| *known != 0);
        known.any(|known| known == code) && self.described.load(Relaxed) < MOST_MODULES
    }

    /// Adds a code object. Returns whether it was missing, and there was room.
    fn add(&self, code: usize) -> bool {
        for place in &self.codes {
            match place.compare_exchange(0, code, Relaxed, Relaxed) {
                Ok(_) => return true,
                Err(known) if known == code => return false,
                Err(_) => {}
            }
        }
        false
    }
}

/// The process's Python.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Python {
    offsets: Offsets,
    /// `PyGILState_GetThisThreadState`: it returns the state of the calling thread from a variable
    /// of the thread, or null. It needs no lock.
    state: unsafe extern "C" fn() -> *mut c_void,
    /// `PyCode_Type`.
    code_type: usize,
    /// `PyCell_Type`; 0 where it is not exported.
    cell_type: usize,
}

/// Returns the offsets of a Python that does not export its version, as 3.10 and older do not. Functions that
/// are new in a version distinguish them.
fn old() -> Option<Offsets> {
    let minor = match [c"PyIter_Send", c"PyFrame_GetBack"].map(symbol) {
        [0, 0] => return None,
        [0, _] => 9,
        _ => 10,
    };
    Offsets::of_frame_objects(minor)
}

/// Reads a value of the interpreter's.
///
/// # Safety
/// `at` must be the address of a live object of the interpreter, plus the offset of a field of it.
unsafe fn read<T: Copy>(at: usize) -> T {
    // SAFETY: the caller's promise; the read needs no alignment.
    unsafe { std::ptr::with_exposed_provenance::<T>(at).read_unaligned() }
}

impl Python {
    /// Finds the Python of this process.
    pub(crate) fn find() -> Result<Python, Unavailable> {
        let [runtime, state, code_type, cell_type] = [
            c"_PyRuntime",
            c"PyGILState_GetThisThreadState",
            c"PyCode_Type",
            c"PyCell_Type",
        ]
        .map(symbol);
        if runtime == 0 || state == 0 || code_type == 0 {
            return Err(Unavailable::NoPython);
        }
        let version = match symbol(c"Py_Version") {
            0 => None,
            // SAFETY: the symbol is an `unsigned long` of the interpreter.
            at => Some(unsafe { read::<u64>(at) }),
        };
        let fill = |into: &mut [u8]| {
            for (distance, byte) in into.iter_mut().enumerate() {
                // SAFETY: the largest read is of 768 bytes, and `_PyRuntime` has some 100 KiB.
                *byte = unsafe { read(runtime + distance) };
            }
            true
        };
        let offsets = match Offsets::of(fill, version) {
            Known::Yes(offsets) => offsets,
            Known::No(Refused::Old) => old().ok_or(Unavailable::Version(None))?,
            Known::No(Refused::FreeThreaded(major, minor)) => {
                return Err(Unavailable::FreeThreaded(major, minor));
            }
            Known::No(Refused::Version(major, minor)) => {
                return Err(Unavailable::Version(Some((major, minor))));
            }
            Known::No(Refused::Nonsense) => return Err(Unavailable::Layout),
        };
        // SAFETY: the symbol is this function in every version that has known offsets.
        let state = unsafe {
            std::mem::transmute::<*const c_void, unsafe extern "C" fn() -> *mut c_void>(
                std::ptr::with_exposed_provenance(state),
            )
        };
        Ok(Python {
            offsets,
            state,
            code_type,
            cell_type,
        })
    }

    /// Calls `each` with the calling thread's frames, from the innermost one, [`MOST_FRAMES`] at
    /// most. Returns whether there are more; None if the thread is not in Python code. Calls of `modules`
    /// have their objects.
    pub(crate) fn walk(&self, modules: &ModuleCalls, mut each: impl FnMut(Frame)) -> Option<bool> {
        // SAFETY: the function takes no arguments and may be called by any thread at any time.
        let state = unsafe { (self.state)() }.addr();
        if state < LOWEST {
            return None;
        }
        let of = &self.offsets;
        // SAFETY: the state belongs to the calling thread, which keeps it until it returns.
        let mut at: usize = unsafe { read(state + of.frame as usize) };
        if let Some(behind) = of.frame_behind {
            if at < LOWEST {
                return None;
            }
            // SAFETY: as above.
            at = unsafe { read(at + behind as usize) };
        }
        let mut count = 0;
        for _ in 0..MOST_STEPS {
            if at < LOWEST || !at.is_multiple_of(8) {
                break;
            }
            let is_code = match of.form {
                Form::Address => {
                    // SAFETY: `at` is a frame of the calling thread: the innermost, or one around it.
                    let owner: u8 = unsafe { read(at + of.owner as usize) };
                    // 3.14 has a further such owner, with the next number.
                    owner < OWNED_BY_INTERPRETER
                }
                Form::Number | Form::Distance => true,
            };
            if is_code {
                let Some(frame) = self.frame(at, modules) else {
                    break;
                };
                if count == MOST_FRAMES {
                    return Some(true);
                }
                count += 1;
                each(frame);
            }
            // SAFETY: as above.
            at = unsafe { read(at + of.previous as usize) };
        }
        (count > 0).then_some(false)
    }

    fn frame(&self, at: usize, modules: &ModuleCalls) -> Option<Frame> {
        let of = &self.offsets;
        // SAFETY: `at` is a frame of the calling thread.
        let code: usize = unsafe { read(at + of.code as usize) };
        let code = code & !7;
        // SAFETY: a frame keeps the object that it executes; the type is an object's second word.
        if code < LOWEST || unsafe { read::<usize>(code + 8) } != self.code_type {
            return None;
        }
        let instruction = at + of.instruction as usize;
        // SAFETY: as above; the field has 64 bits in the first form, and 32 in the others.
        let distance = unsafe {
            match of.form {
                Form::Address => read::<u64>(instruction).wrapping_sub(code as u64 + of.bytecode),
                Form::Number => 2 * u64::from(read::<u32>(instruction)),
                Form::Distance => u64::from(read::<u32>(instruction)),
            }
        };
        let object = match modules.has(code) {
            true => self.object(at, code),
            false => 0,
        };
        Some(Frame {
            code,
            distance,
            object,
        })
    }

    /// Returns the address of a frame's first argument; 0 where it has none. Of the object only the type's address is
    /// read, to see whether it is a cell.
    fn object(&self, at: usize, code: usize) -> usize {
        let of = &self.offsets;
        let Some(locals) = of.locals else {
            return 0;
        };
        // SAFETY: a frame keeps its code object. Where that has an argument, the frame has a place for it,
        // with a reference of its own, or null: other threads do not change it, and a frame whose
        // variables are released is in no list any more.
        unsafe {
            if read::<u32>(code + of.arguments as usize) == 0 {
                return 0;
            }
            let first: usize = read(at + locals as usize);
            if first < LOWEST || self.cell_type == 0 {
                return 0;
            }
            // A variable that an inner function uses is in a cell, which has its value behind the header.
            match read::<usize>(first + 8) == self.cell_type {
                true => read(first + 16),
                false => first,
            }
        }
    }

    /// Adds the calls of PyTorch's modules on the calling thread's stack to `modules`. Returns whether some
    /// were missing.
    pub(crate) fn learn_modules(&self, modules: &ModuleCalls) -> bool {
        let mut has_new = false;
        if self.offsets.locals.is_some() {
            self.walk(modules, |frame| {
                if !modules.has(frame.code) && self.calls_module(&frame) {
                    has_new |= modules.add(frame.code);
                }
            });
        }
        has_new
    }

    fn calls_module(&self, frame: &Frame) -> bool {
        // SAFETY: as in `line`; the name is a string that the code object refers to.
        let len = unsafe {
            let name: usize = read(frame.code + self.offsets.qualname as usize);
            match name < LOWEST {
                true => 0,
                false => read::<usize>(name + self.offsets.text_length as usize),
            }
        };
        if !MODULE_CALLS.iter().any(|name| name.len() == len) {
            return false;
        }
        let mut text = Text::new();
        self.file(frame, &mut text);
        let file = text.len();
        text.next();
        self.name(frame, &mut text);
        let (file, name) = text.padded().split_at(file);
        let name = name.get(..len).unwrap_or_default();
        file.ends_with(MODULE_FILE.as_bytes())
            && MODULE_CALLS.iter().any(|call| call.as_bytes() == name)
    }

    /// Returns what differs between code objects that lie at the same place one after the other.
    fn identity(&self, code: usize) -> u64 {
        // SAFETY: `frame` has found that this is a code object, and a frame keeps it.
        unsafe {
            let name: u64 = read(code + self.offsets.qualname as usize);
            let first: u32 = read(code + self.offsets.first_line as usize);
            name ^ u64::from(first) << 40
        }
    }

    /// Mixes a frame into a stack's key.
    pub(crate) fn mixed(&self, key: u64, frame: &Frame) -> u64 {
        let key = mix(mix(key, frame.code as u64), frame.distance);
        let key = match frame.object {
            0 => key,
            object => mix(key, object as u64),
        };
        // A code object may lie where another one lay before.
        mix(key, self.identity(frame.code))
    }

    /// Returns a key that differs between different functions.
    pub(crate) fn function_key(&self, frame: &Frame) -> u64 {
        let key = mix(7 ^ frame.object as u64, frame.code as u64);
        mix(key, self.identity(frame.code))
    }

    /// Returns the line of a frame.
    pub(crate) fn line(&self, frame: &Frame) -> Option<u32> {
        let of = &self.offsets;
        // SAFETY: `frame` has found that this is a code object, and a frame keeps it, and so its
        // table of lines, which has as many bytes as it says.
        let (first, table) = unsafe {
            let first: u32 = read(frame.code + of.first_line as usize);
            let table: usize = read(frame.code + of.line_table as usize);
            if table < LOWEST {
                return None;
            }
            let len: usize = read(table + of.bytes_size as usize);
            let data = std::ptr::with_exposed_provenance(table + of.bytes_data as usize);
            (
                first,
                std::slice::from_raw_parts::<u8>(data, len.min(LONGEST_TABLE)),
            )
        };
        of.line(table, first, frame.distance)
    }

    /// Adds the name of a frame's file.
    pub(crate) fn file(&self, frame: &Frame, to: &mut Text) {
        // SAFETY: as in `line`.
        let at = unsafe { read(frame.code + self.offsets.filename as usize) };
        self.text(at, to);
    }

    /// Adds the name of a frame's function.
    pub(crate) fn name(&self, frame: &Frame, to: &mut Text) {
        // SAFETY: as in `line`.
        let at = unsafe { read(frame.code + self.offsets.qualname as usize) };
        self.text(at, to);
    }

    /// Adds a string of a code object.
    fn text(&self, at: usize, to: &mut Text) {
        let of = &self.offsets;
        if at < LOWEST {
            return;
        }
        // SAFETY: it is a string that a live code object refers to.
        let (state, len): (u32, usize) = unsafe {
            (
                read(at + of.text_state as usize),
                read(at + of.text_length as usize),
            )
        };
        let (size, is_compact, is_ascii) = (
            (state >> 2 & 7) as usize,
            state >> 5 & 1 == 1,
            state >> 6 & 1 == 1,
        );
        if !is_compact {
            return;
        }
        let data = at
            + if is_ascii {
                of.ascii_size
            } else {
                of.compact_size
            } as usize;
        for index in 0..len {
            // SAFETY: a compact string has `len` characters of `size` bytes.
            let character = unsafe {
                match size {
                    1 => u32::from(read::<u8>(data + index)),
                    2 => u32::from(read::<u16>(data + 2 * index)),
                    4 => read::<u32>(data + 4 * index),
                    _ => return,
                }
            };
            let character = char::from_u32(character).unwrap_or(char::REPLACEMENT_CHARACTER);
            if !to.push(character) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_too_many_modules_have_no_objects() {
        let calls = ModuleCalls {
            codes: std::array::from_fn(|_| AtomicUsize::new(0)),
            described: AtomicUsize::new(0),
        };
        assert!(!calls.has(0) && !calls.has(64));
        assert!(calls.add(64) && !calls.add(64) && calls.add(128));
        assert!(calls.has(64) && calls.has(128) && !calls.has(192));
        (1..MOST_MODULES).for_each(|_| calls.count());
        assert!(calls.has(64));
        calls.count();
        assert!(!calls.has(64) && !calls.add(64));
        assert!(calls.add(192) && calls.add(256) && !calls.add(320));
        calls.clear();
        assert!(!calls.has(64) && calls.add(64) && calls.has(64));
    }
}
