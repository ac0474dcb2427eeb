//! ELF files, code objects of GPUs, and unwind tables.

use midair_disassemble::{LONGEST, Object};
use midair_procinfo::elf::ElfFile;
use midair_procinfo::module::Modules;
use midair_procinfo::stack::{MOST_FRAMES, StackPosition, Walk, Walker};
use midair_ptrace::{Memory, Pid};
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use tempfile::NamedTempFile;

/// Writes bytes to a file with a name, because without further rights a mapped file is found by its
/// name.
fn file_of(bytes: &[u8]) -> NamedTempFile {
    let written = NamedTempFile::new().and_then(|mut file| {
        file.write_all(bytes)?;
        Ok(file)
    });
    written.unwrap_or_else(|error| panic!("a temporary file: {error}"))
}

fn opened(file: &NamedTempFile) -> std::io::Result<ElfFile> {
    ElfFile::open(File::open(file.path())?)
}

/// Reads a code object: instructions, and their lines in the sources.
pub fn code_object(bytes: &[u8]) {
    let Ok(object) = Object::read(bytes) else {
        return;
    };
    let addresses = [0, 0x1000, 0x1008, 0x1e00, u64::MAX];
    for address in addresses {
        let instruction = object.instruction(address);
        assert!(instruction.is_none_or(|it| (4..=LONGEST).contains(&it.len())));
    }
    let lines = object.lines(&addresses);
    assert_eq!(lines.len(), addresses.len());
    assert!(lines.iter().all(|line| line.len() < 600));
}

/// Reads the symbol tables of a file.
pub fn elf(bytes: &[u8]) {
    let Ok(elf) = opened(&file_of(bytes)) else {
        return;
    };
    assert!(elf.build_id.len() <= bytes.len());
    for segment in &elf.segments {
        super::used(elf.bias(segment.address, segment.offset));
    }
    if let Ok(found) = elf.exported(["hsa_init", "pthread_create", "dlopen"]) {
        super::used(found);
    }
    if let Ok(slots) = elf.imported(&["memset", "pthread_create"]) {
        assert!(slots.len() <= bytes.len());
    }
    if let Ok(versions) = elf.defined_versions() {
        assert!(versions.len() <= bytes.len());
    }
    if let Ok(symbols) = elf.symbols() {
        for address in [0, elf.entry, u64::MAX, 0x1000] {
            super::used(symbols.at(address));
        }
    }
    if let Ok(pieces) = elf.code() {
        assert!(pieces.iter().all(|piece| piece.bytes.len() <= bytes.len()));
    }
    if let Ok(found) = elf.sections([b".text", b".eh_frame", b".eh_frame_hdr"]) {
        assert!(
            found
                .iter()
                .flatten()
                .all(|piece| piece.bytes.len() <= bytes.len())
        );
    }
}

/// Unwinds by the tables of a file, at some of the file's addresses. `bytes` is mapped as a
/// target's library would be, and its last 4 KiB also serve as the stack. Returns the stacks that
/// were found from `hsa_init` or the start, the middle and the entry of the code.
pub fn unwind(bytes: &[u8]) -> Vec<Walk> {
    let file = file_of(bytes);
    let Ok(elf) = opened(&file) else {
        return Vec::new();
    };
    let Some(code) = elf.segments.iter().find(|segment| segment.execute) else {
        return Vec::new();
    };
    let first = code.offset & !0xfff;
    let len = code.file_size.min(bytes.len() as u64).max(1);
    let Ok(offset) = i64::try_from(first) else {
        return Vec::new();
    };
    // SAFETY: this makes a new private mapping of our own file and replaces no other mapping. It is
    // never executed and no reference to it is made. Only process_vm_readv reads it, which returns
    // an error where the file ends.
    let base = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            len as usize,
            libc::PROT_READ | libc::PROT_EXEC,
            libc::MAP_PRIVATE,
            file.as_file().as_raw_fd(),
            offset,
        )
    };
    if base == libc::MAP_FAILED {
        return Vec::new();
    }
    let mut walks = Vec::new();
    let us = Pid::own();
    if let Ok(modules) = Modules::of(us) {
        let mut stack = vec![0_u64; 512];
        for (word, piece) in stack.iter_mut().zip(bytes.rchunks_exact(8)) {
            // Half of the words point back into the file's code.
            let mut raw = [0; 8];
            raw.copy_from_slice(piece);
            let raw = u64::from_le_bytes(raw);
            *word = if raw & 1 == 0 {
                raw
            } else {
                base as u64 + (raw >> 8) % len
            };
        }
        let mut walker = Walker::new(&modules, Memory::of(us));
        let entry = base as u64 + elf.entry.wrapping_sub(code.address) % len;
        let function = elf.exported(["hsa_init"]).ok().and_then(|[at]| at);
        let function =
            function.map(|at| base as u64 + at.wrapping_sub(code.address & !0xfff) % len);
        let beginning = function.unwrap_or(base as u64);
        for pc in [beginning, base as u64 + len / 2, entry] {
            let place = StackPosition {
                pc,
                sp: stack.as_ptr() as u64,
                frame: None,
            };
            let walk = walker.walk(place);
            assert!(walk.frames.len() <= MOST_FRAMES);
            assert!(walk.bytes.len() <= 1 << 20);
            super::used(walker.called(pc));
            walks.push(walk);
        }
    }
    // SAFETY: `base` and `len` describe the mapping made above, and nothing refers to it any
    // more.
    unsafe { libc::munmap(base, len as usize) };
    walks
}
