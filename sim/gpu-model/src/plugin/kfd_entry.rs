//! Puts the plugin's function in front of the driver that ROCr emulates in its model mode, in the memory
//! of this process only.
//!
//! ROCr asks the model for devices and queues, but answers requests to the driver itself, and ends the
//! process at those that it does not know. Its function for requests starts with position-independent
//! instructions of exactly [`JUMP`] bytes: they are replaced by a jump to ours, and run from a page of
//! ours to reach the rest. The library's file stays as it is, and a library that has other code is
//! left alone.

use super::kfd::Handler;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;

/// What is known of ROCr's code.
pub(super) struct Original {
    /// The function for requests, as ROCr has it.
    pub answer: Handler,
    debugging: Flag,
}

/// A flag of the runtime: the address of the pointer to the runtime, and the flag's offset in it.
struct Flag {
    runtime: usize,
    offset: usize,
}

impl Original {
    /// Tells the runtime, if it exists, that the driver reports exceptions. It asks the driver for that
    /// at its start, but not in its model mode, and samples no program counters without it.
    pub(super) fn claim_debugging(&self) {
        // SAFETY: it is a static variable of the library, which stays loaded: the code that was found
        // reads the runtime's address there.
        let runtime = unsafe {
            std::ptr::with_exposed_provenance::<*mut u8>(self.debugging.runtime).read_volatile()
        };
        if !runtime.is_null() {
            // SAFETY: that code writes a byte there, and no other thread runs yet.
            unsafe { runtime.add(self.debugging.offset).write_volatile(1) };
        }
    }
}

/// `movabs $ADDRESS,%rax; jmp *%rax`.
const JUMP: usize = 12;
/// `endbr64; push %r14; push %r12; push %rbp; mov %rdi,%rbp`.
const ENTRY: [u8; JUMP] = [
    0xf3, 0x0f, 0x1e, 0xfa, 0x41, 0x56, 0x41, 0x54, 0x55, 0x48, 0x89, 0xfd,
];
/// `mov %rbp,%rax; and $0xff00,%eax; cmp $0x4b00,%rax`: whether it is a request to this driver.
const IS_OURS: [u8; 14] = [
    0x48, 0x89, 0xe8, 0x25, 0x00, 0xff, 0x00, 0x00, 0x48, 0x3d, 0x00, 0x4b, 0x00, 0x00,
];
/// Where [`IS_OURS`] is in the function.
const AT: usize = 0x2e;

/// In the function that asks the driver whether it reports exceptions: `call *0x208(%rax);
/// cmp $0xb,%eax; setne %r12b`.
const ASKED: [u8; 13] = [
    0xff, 0x90, 0x08, 0x02, 0x00, 0x00, 0x83, 0xf8, 0x0b, 0x41, 0x0f, 0x95, 0xc4,
];
/// Before it: `lea RUNTIME(%rip),%rbx`.
const RUNTIME: ([u8; 3], usize) = ([0x48, 0x8d, 0x1d], 0x30);
/// Behind it: `mov %r12b,OFFSET(%rax)`.
const STORED: ([u8; 3], usize) = ([0x44, 0x88, 0xa0], 0x49);

fn jump(to: usize) -> [u8; JUMP] {
    let mut code = [0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0];
    code[2..10].copy_from_slice(&(to as u64).to_le_bytes());
    code
}

/// Has ROCr call `ours` for each request. Returns ROCr's own function. To be called before the
/// runtime has threads.
pub(super) fn replace(ours: Handler) -> Option<Original> {
    let mut options = OpenOptions::new();
    let memory = options.read(true).write(true).open("/proc/self/mem").ok()?;
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let (from, code) = maps
        .lines()
        .filter(|line| line.contains(" r-xp ") && line.contains("/libhsa-runtime64.so"))
        .find_map(|line| text(&memory, line))?;
    let debugging = flag(&code, from as usize)?;
    let at = from as usize + entry(&code)?;
    let page = code_page(&memory, at)?;
    memory.write_all_at(&jump(ours as usize), at as u64).ok()?;
    // SAFETY: the page holds the function's first instructions and a jump to the rest, so it is
    // this function.
    let answer = unsafe { std::mem::transmute::<usize, Handler>(page) };
    Some(Original { answer, debugging })
}

/// Reads the code that a line of `maps` names.
fn text(memory: &File, line: &str) -> Option<(u64, Vec<u8>)> {
    let (from, to) = line.split(' ').next()?.split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    let (from, to) = (number(from)?, number(to)?);
    let mut code = vec![0; usize::try_from(to.checked_sub(from)?).ok()?];
    memory.read_exact_at(&mut code, from).ok()?;
    Some((from, code))
}

/// Returns where the function is in the code, if there is exactly one.
fn entry(code: &[u8]) -> Option<usize> {
    let mut places = (AT..code.len())
        .filter(|at| code[*at..].starts_with(&IS_OURS) && code[at - AT..].starts_with(&ENTRY))
        .map(|at| at - AT);
    match (places.next(), places.next()) {
        (Some(at), None) => Some(at),
        _ => None,
    }
}

/// Finds the flag in code that starts at `from`.
fn flag(code: &[u8], from: usize) -> Option<Flag> {
    let mut places = (RUNTIME.1..code.len()).filter(|at| code[*at..].starts_with(&ASKED));
    let (Some(at), None) = (places.next(), places.next()) else {
        return None;
    };
    let number = |at: usize, (bytes, _): ([u8; 3], usize)| {
        let rest = code.get(at..)?.strip_prefix(&bytes)?;
        Some(i32::from_le_bytes(*rest.first_chunk()?))
    };
    let lea = at - RUNTIME.1;
    let distance = number(lea, RUNTIME)?;
    Some(Flag {
        // From the end of the instruction on.
        runtime: (from + lea + 7).checked_add_signed(distance as isize)?,
        offset: usize::try_from(number(at + STORED.1, STORED)?).ok()?,
    })
}

/// Makes a page with the function's first instructions and a jump behind them.
fn code_page(memory: &File, at: usize) -> Option<usize> {
    const PAGE: usize = 4096;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new page, at an address that the kernel chooses.
    let page = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            PAGE,
            libc::PROT_READ | libc::PROT_EXEC,
            flags,
            -1,
            0,
        )
    };
    if page == libc::MAP_FAILED {
        return None;
    }
    let code = [ENTRY, jump(at + JUMP)].concat();
    let page = page.expose_provenance();
    memory.write_all_at(&code, page as u64).ok()?;
    Some(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_function_is_found_where_it_is_alone() {
        let mut code = vec![0x90; 4096];
        assert_eq!(entry(&code), None);
        code[100..112].copy_from_slice(&ENTRY);
        assert_eq!(entry(&code), None, "the entry alone");
        code[100 + AT..114 + AT].copy_from_slice(&IS_OURS);
        assert_eq!(entry(&code), Some(100));
        code.copy_within(100..200, 1000);
        assert_eq!(entry(&code), None, "twice: which one?");
    }

    #[test]
    fn the_flag_is_where_the_code_stores_it() {
        let mut code = vec![0x90; 4096];
        assert!(flag(&code, 0x1000).is_none());
        code[0x100..0x10d].copy_from_slice(&ASKED);
        assert!(flag(&code, 0x1000).is_none(), "this part alone");
        code[0xd0..0xd7].copy_from_slice(&[0x48, 0x8d, 0x1d, 0xf0, 0xff, 0xff, 0xff]);
        code[0x149..0x150].copy_from_slice(&[0x44, 0x88, 0xa0, 0x40, 6, 0, 0]);
        let flag = flag(&code, 0x1000).unwrap();
        assert_eq!((flag.runtime, flag.offset), (0x10c7, 0x640));
    }
}
