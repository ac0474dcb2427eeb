//! AMD's library of code objects, which HIP has for its own compilations.
//!
//! Source: amd_comgr/amd_comgr.h, from version 2.0 on: the functions and their arguments.

use crate::Disassembler;
use libc::{c_char, c_void};
use midair_disassemble::wire::Question;
use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;

type Read = unsafe extern "C" fn(u64, *mut c_char, u64, *mut c_void) -> u64;
type Print = unsafe extern "C" fn(*const c_char, *mut c_void);
type Annotate = unsafe extern "C" fn(u64, *mut c_void);
type Create = unsafe extern "C" fn(*const c_char, Read, Print, Annotate, *mut u64) -> u32;
type Disassemble = unsafe extern "C" fn(u64, u64, *mut c_void, *mut u64) -> u32;

/// The library with a device.
struct Comgr {
    disassemble: Disassemble,
    device: u64,
}

/// An instruction that is being disassembled.
struct One<'b> {
    bytes: &'b [u8],
    text: String,
}

/// Loads the library.
///
/// # Errors
/// Why it cannot be used, if it is there.
pub(crate) fn open(file: &OsStr, device: &str) -> Result<Box<dyn Disassembler>, Option<String>> {
    let name = CString::new(file.as_bytes()).map_err(|_| None)?;
    // SAFETY: the name ends with a zero byte. The library's initialisers run: this process exists for
    // them.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
    if handle.is_null() {
        return Err(None);
    }
    let missing = || Some(format!("{} is too old", file.display()));
    let find = |name: &CStr| {
        // SAFETY: the handle belongs to a loaded library, and the name ends with a zero byte.
        let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
        (!found.is_null()).then_some(found)
    };
    let create = find(c"amd_comgr_create_disassembly_info").ok_or_else(missing)?;
    let disassemble = find(c"amd_comgr_disassemble_instruction").ok_or_else(missing)?;
    // SAFETY: these are the library's functions of these names, with the arguments of its header.
    let (create, disassemble) = unsafe {
        (
            std::mem::transmute::<*mut c_void, Create>(create),
            std::mem::transmute::<*mut c_void, Disassemble>(disassemble),
        )
    };
    let isa = CString::new(format!("amdgcn-amd-amdhsa--{device}")).map_err(|_| None)?;
    let mut created = 0;
    // SAFETY: the name and the place for the handle outlive the call, and the functions the process.
    let status = unsafe { create(isa.as_ptr(), read, print, annotate, &raw mut created) };
    if status != 0 {
        return Err(Some(format!("{} refuses it", file.display())));
    }
    Ok(Box::new(Comgr {
        disassemble,
        device: created,
    }))
}

impl Disassembler for Comgr {
    fn texts<'s>(&'s mut self, question: &'s Question) -> Box<dyn Iterator<Item = String> + 's> {
        Box::new(question.instructions.iter().map(|bytes| {
            let mut one = One {
                bytes,
                text: String::new(),
            };
            let mut size = 0;
            // The instruction's address is 0.
            // SAFETY: the handle is the library's own. What the functions get is the instruction, which
            // outlives the call.
            let status =
                unsafe { (self.disassemble)(self.device, 0, (&raw mut one).cast(), &raw mut size) };
            match status {
                0 => one.text,
                _ => String::new(),
            }
        }))
    }
}

/// Gives the library bytes from an address on, and returns how many.
///
/// # Safety
/// `to` has room for `size` bytes, and `one` is the [`One`] of the call.
unsafe extern "C" fn read(from: u64, to: *mut c_char, size: u64, one: *mut c_void) -> u64 {
    // SAFETY: the caller promises it.
    let one = unsafe { &*one.cast::<One<'_>>() };
    let rest = usize::try_from(from)
        .ok()
        .and_then(|from| one.bytes.get(from..));
    let rest = rest.unwrap_or_default();
    let count = rest.len().min(usize::try_from(size).unwrap_or(usize::MAX));
    // SAFETY: the caller promises the room, and the bytes are there.
    unsafe { std::ptr::copy_nonoverlapping(rest.as_ptr(), to.cast(), count) };
    count as u64
}

/// Takes the instruction's text.
///
/// # Safety
/// `text` is a text with a zero byte at its end, and `one` is the [`One`] of the call.
unsafe extern "C" fn print(text: *const c_char, one: *mut c_void) {
    // SAFETY: the caller promises both.
    let (text, one) = unsafe { (CStr::from_ptr(text), &mut *one.cast::<One<'_>>()) };
    one.text.push_str(&text.to_string_lossy());
}

/// The addresses of branches are not shown: they are relative to nothing that a reader knows.
unsafe extern "C" fn annotate(_address: u64, _one: *mut c_void) {}
