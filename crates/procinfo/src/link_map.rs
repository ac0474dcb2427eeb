//! The libraries that the dynamic loader of a program has loaded for it: the first list of `r_debug`, which debuggers use too.
//!
//! A process may hold further copies of a library: in other namespaces of the loader (`dlmopen`), or mapped by hand. This tells which is
//! the program's own. All of it is read from the target's memory and believed only as far as that goes.

use midair_ptrace::{Memory, RemoteAddr};

use crate::Tid;

/// Entries of `/proc/TID/auxv` (source: elf.h).
const AT_PHDR: u64 = 3;
const AT_PHNUM: u64 = 5;
const PT_DYNAMIC: u32 = 2;
const PT_PHDR: u32 = 6;
const DT_DEBUG: u64 = 21;
/// Bytes of a program header, 64-bit.
const HEADER: usize = 56;
/// No program has more of either; what claims to is broken.
const MOST_HEADERS: u64 = 512;
const MOST_ENTRIES: u64 = 1024;
const MOST_LIBRARIES: usize = 16_384;

/// Load addresses (biases) of the program and its libraries. None when there is no such list: a static program, another loader, or
/// nonsense.
pub fn biases(tid: Tid) -> Option<Vec<u64>> {
    let auxv = std::fs::read(format!("/proc/{tid}/auxv")).ok()?;
    let memory = Memory::of(tid);
    let word = |at: u64| memory.read_u64(RemoteAddr::new(at)).ok();
    let (headers, count) = (entry(&auxv, AT_PHDR)?, entry(&auxv, AT_PHNUM)?);
    let count = usize::try_from(count.min(MOST_HEADERS)).ok()?;
    let bytes = memory
        .read_vec(RemoteAddr::new(headers), count * HEADER)
        .ok()?;
    let dynamic = dynamic_section(&bytes, headers)?;
    let debug = (0..MOST_ENTRIES)
        .map(|index| dynamic.wrapping_add(16 * index))
        .map_while(|at| Some((word(at)?, at)))
        .take_while(|&(tag, _)| tag != 0)
        .find(|&(tag, _)| tag == DT_DEBUG)
        .and_then(|(_, at)| word(at.wrapping_add(8)))?;
    // struct r_debug { int version; struct link_map *map; … }, struct link_map { addr, name, dynamic, next, … } (source: link.h).
    let mut at = word(debug.wrapping_add(8))?;
    let mut found = Vec::new();
    while at != 0 && found.len() < MOST_LIBRARIES {
        found.push(word(at)?);
        at = word(at.wrapping_add(24))?;
    }
    Some(found)
}

fn entry(auxv: &[u8], kind: u64) -> Option<u64> {
    auxv.chunks_exact(16)
        .map(|pair| pair.split_at(8))
        .find(|(key, _)| number(key) == Some(kind))
        .and_then(|(_, value)| number(value))
}

fn number(bytes: &[u8]) -> Option<u64> {
    bytes.try_into().ok().map(u64::from_le_bytes)
}

/// Address of the dynamic section, from the program headers that lie at `headers` in memory.
fn dynamic_section(bytes: &[u8], headers: u64) -> Option<u64> {
    let mut bias = 0;
    let mut dynamic = None;
    for header in bytes.chunks_exact(HEADER) {
        let address = number(header.get(16..24)?)?;
        match header.get(..4)?.try_into().ok().map(u32::from_le_bytes)? {
            PT_PHDR => bias = headers.wrapping_sub(address),
            PT_DYNAMIC => dynamic = Some(address),
            _ => {}
        }
    }
    Some(dynamic?.wrapping_add(bias))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::module::Modules;

    #[test]
    fn our_own_has_the_c_library_and_this_program() {
        let me = std::process::id().cast_signed();
        let biases = biases(me).unwrap();
        let modules = Modules::of(me).unwrap();
        let at = |address: u64| {
            let index = modules.at(address).unwrap();
            modules.load(index).unwrap().bias
        };
        let here = at(our_own_has_the_c_library_and_this_program as *const () as u64);
        assert!(biases.contains(&here), "{biases:x?} lacks {here:x}");
        let libc = modules
            .list
            .iter()
            .position(|module| module.file_name() == b"libc.so.6")
            .unwrap();
        assert!(biases.contains(&modules.load(libc).unwrap().bias));
    }

    #[test]
    fn nonsense_is_none() {
        assert_eq!(biases(Tid::MAX), None);
        assert_eq!(dynamic_section(&[0; HEADER], 0), None);
        assert_eq!(dynamic_section(&[2; 10], 0), None);
        assert_eq!(entry(&[0; 7], 0), None);
    }
}
