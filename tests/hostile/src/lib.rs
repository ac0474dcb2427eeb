//! Everything that is read from a target may have been made to do harm. Each function here takes
//! bytes as a target could send them and gives them to the code that reads such bytes. It checks
//! what must hold for any bytes: no panic, no read beyond the end, no endless loop, and what was
//! accepted says what the bytes say.
//!
//! Two drivers call these functions: proptest (`tests/properties.rs`, in the suite) and libFuzzer
//! (`fuzz/`).
#![expect(
    clippy::panic,
    reason = "to find what does not hold is what this is for; it is a part of tests only"
)]

mod files;
mod loader;
mod log;
mod packets;
mod results;
mod spool;
mod why;

pub use files::{code_object, elf, unwind};
pub use loader::{Program, auxv};
pub use log::dispatch_log;
pub use packets::packet_answer;
pub use results::results;
pub use spool::{a_connect_request, a_proof, an_answer, connect_request, offer, records, spool};
pub use why::why;

use midair_procinfo::bpf::{self, Call, Instruction};
use midair_procinfo::{access, limits, maps, stat, status, syscall};
use midair_ptrace::{Memory, Pid, RemoteAddr};
use midair_settings::{Settings, buffer};

/// Makes a text of a value and uses it, so that the compiler cannot leave the work out.
fn used(value: impl std::fmt::Debug) {
    std::hint::black_box(&value);
}

/// Reads `/proc/PID/maps`.
pub fn maps(bytes: &[u8]) {
    let found = maps::parse(bytes);
    assert!(found.len() <= bytes.iter().filter(|byte| **byte == b'\n').count() + 1);
    for mapping in &found {
        assert!(mapping.start < mapping.end);
        assert!(!mapping.holds(mapping.end) && mapping.holds(mapping.start));
        let flag = |on: bool, letter: char| if on { letter } else { '-' };
        let mut line = format!(
            "{:x}-{:x} {}{}{}{} {:x} {:x}:{:x} {} ",
            mapping.start,
            mapping.end,
            flag(mapping.read, 'r'),
            flag(mapping.write, 'w'),
            flag(mapping.execute, 'x'),
            if mapping.shared { 's' } else { 'p' },
            mapping.offset,
            mapping.device.0,
            mapping.device.1,
            mapping.inode,
        )
        .into_bytes();
        line.extend_from_slice(&mapping.path);
        if mapping.deleted {
            line.extend_from_slice(b" (deleted)");
        }
        assert_eq!(
            maps::line(&line).as_ref(),
            Some(mapping),
            "{}",
            midair_procinfo::show(&line)
        );
    }
}

/// Reads `/proc/TID/stat`, `status`, `syscall`, `limits`, and the further facts of `access`.
pub fn proc_files(bytes: &[u8]) {
    if let Some(found) = stat::parse(bytes) {
        assert!(found.comm.len() < bytes.len());
        used((found.is_dead(), found.is_kernel_thread()));
    }
    let found = status::parse(bytes);
    assert!(found.ns_pid.len() + found.ns_tgid.len() + found.groups.len() <= bytes.len());
    assert!(status::cpu_mask(&found.cpus_allowed).len() <= found.cpus_allowed.len() * 8 + 8);
    used(status::cpu_mask(bytes));
    used(syscall::parse(bytes));
    used(limits::threads_of_user(bytes));
    used(limits::kilobytes(bytes, "VmSize"));
    used(access::look(Pid::MAX).is_ok());
}

/// Runs a seccomp filter. The bytes are its program, and they also give the call that it judges.
pub fn seccomp(bytes: &[u8]) {
    let program: Vec<Instruction> = bytes
        .as_chunks::<8>()
        .0
        .iter()
        .map(|one| Instruction::parse(*one))
        .collect();
    let word = |at: usize| {
        bytes.get(at..at + 4).map_or(0, |four| {
            u32::from_le_bytes([four[0], four[1], four[2], four[3]])
        })
    };
    let call = Call {
        number: word(0),
        arch: word(4),
        pc: u64::from(word(8)) << 32,
        args: [u64::from(word(12)); 6],
    };
    // Jumps lead forwards only, so the filter ends, and it says the same at each run.
    assert_eq!(bpf::run(&program, &call), bpf::run(&program, &call));
    let action = bpf::decide(&[program.clone(), program], &call);
    used((action, action.lets_pass()));
}

/// Decodes the environment buffer as each side reads it.
pub fn environment(bytes: &[u8]) {
    if let Ok(decoded) = buffer::decode(bytes) {
        assert!(decoded.used <= bytes.len());
        let mut again = (decoded.pairs.len() as u32).to_le_bytes().to_vec();
        for (name, value) in &decoded.pairs {
            assert!(!name.is_empty() && !name.contains(&b'='));
            for text in [name, value] {
                again.extend_from_slice(text);
                again.push(0);
            }
        }
        assert_eq!(again, bytes[..decoded.used]);
    }
    if let Ok(settings) = Settings::decode(bytes) {
        let again = settings.encode().map(|bytes| Settings::decode(&bytes));
        assert_eq!(again, Ok(Ok(settings)));
    }
    // In the target the buffer has no length, so the reader must not need anything behind its end.
    // Here it lies at the end of a page, and the next page cannot be read.
    let page = Guarded::with(bytes);
    let there = midair_register::environment::read_buffer(page.at().cast());
    if let Ok(variables) = there {
        assert!(
            buffer::decode(bytes).is_ok(),
            "the target took what the attacher would not"
        );
        used(variables);
    }
}

/// Reads a midair boot block in a target.
pub fn boot_block(bytes: &[u8]) {
    let mut block = vec![0_u8; size_of::<midair_record::boot::BootBlock>()];
    let len = block.len().min(bytes.len());
    block[..len].copy_from_slice(&bytes[..len]);
    let us = Memory::of(Pid::own());
    let found = midair_inject::read_block(us.clone(), RemoteAddr::new(block.as_ptr() as u64));
    let Ok((state, failure)) = found else {
        panic!("our own memory can be read");
    };
    assert!(!state.is_empty());
    if let Some(failure) = failure {
        assert!(failure.to_string().len() < 4096, "{failure}");
    }
    // The block may also be at any address.
    let mut at = [0; 8];
    let len = at.len().min(bytes.len());
    at[..len].copy_from_slice(&bytes[..len]);
    used(midair_inject::read_block(us, RemoteAddr::new(u64::from_le_bytes(at))).is_ok());
}

/// Bytes that end where a page ends, with nothing readable behind them. Reading further faults.
struct Guarded {
    base: *mut libc::c_void,
    whole: usize,
    len: usize,
}

const PAGE: usize = 4096;

impl Guarded {
    fn with(bytes: &[u8]) -> Guarded {
        let pages = bytes.len().div_ceil(PAGE).max(1) * PAGE;
        let whole = pages + PAGE;
        // SAFETY: this makes new anonymous memory at an address of the kernel's choice, so it
        // replaces no other mapping.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                whole,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(base, libc::MAP_FAILED);
        let page = Guarded {
            base,
            whole,
            len: bytes.len(),
        };
        // SAFETY: the mapping just made has room for `len` bytes before its last page, and no
        // reference to it exists. Only that last page is then made inaccessible.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), page.at().cast_mut(), bytes.len());
            assert_eq!(
                libc::mprotect(base.byte_add(pages), PAGE, libc::PROT_NONE),
                0
            );
        }
        page
    }

    fn at(&self) -> *const u8 {
        // SAFETY: the offset lies within the mapping, since `len` is at most its size without the
        // last page.
        unsafe { self.base.cast::<u8>().add(self.whole - PAGE - self.len) }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: this is the mapping made in `with`, and no reference to it is left.
        unsafe { libc::munmap(self.base, self.whole) };
    }
}
