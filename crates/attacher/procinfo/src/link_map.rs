//! The libraries that the dynamic loader has loaded for a program: the first list of `r_debug`,
//! which debuggers use too.
//!
//! A process may hold further copies of a library: in other namespaces of the loader (`dlmopen`),
//! or mapped explicitly. This list shows which copy is the program's own. All of it is read from
//! the target's memory, which may contain anything, so every step is checked.

use midair_ptrace::{Memory, RemoteAddr};
use std::collections::HashSet;

use crate::Tid;
use crate::files::kernel_text;

/// Kinds of entries of `/proc/TID/auxv` (source: elf.h).
const AT_PHDR: u64 = 3;
const AT_PHENT: u64 = 4;
const AT_PHNUM: u64 = 5;
const PT_DYNAMIC: u32 = 2;
const PT_PHDR: u32 = 6;
const DT_DEBUG: u64 = 21;
/// The size of a 64-bit program header, in bytes.
const HEADER: usize = 56;
/// The most program headers that are read: the kernel starts no program with more than 64 KiB of
/// them (source: fs/binfmt_elf.c, `load_elf_phdrs`).
const MOST_HEADERS: usize = 65_536 / HEADER;
/// The most entries and libraries that are read. A program that claims to have more is broken.
const MOST_ENTRIES: u64 = 1024;
const MOST_LIBRARIES: usize = 16_384;

/// Returns the load addresses (biases) of the program and its libraries. None when there is no
/// valid list: the program is static, has another loader, or holds nonsense there. `tid` is a live
/// thread, and `memory` is its process's memory.
pub fn biases(tid: impl Into<Tid>, memory: &Memory) -> Option<Vec<u64>> {
    let tid = tid.into();
    let auxv = kernel_text(format!("{tid}/auxv")).ok()?;
    parse(&auxv, |at, into| {
        memory.read(RemoteAddr::new(at), into).ok()
    })
}

/// Returns the same from the bytes of `/proc/TID/auxv` and a function that reads the target's
/// memory. That function gets an address, which may be any, and either fills the whole slice or
/// returns None. It is called less than 18,000 times, for 64 KiB at most each, even if the memory
/// changes meanwhile.
pub fn parse(auxv: &[u8], mut read: impl FnMut(u64, &mut [u8]) -> Option<()>) -> Option<Vec<u64>> {
    // Program headers of another size do not belong to a 64-bit program.
    if entry(auxv, AT_PHENT)? != HEADER as u64 {
        return None;
    }
    let headers = entry(auxv, AT_PHDR)?;
    let count = usize::try_from(entry(auxv, AT_PHNUM)?)
        .ok()
        .filter(|&count| count <= MOST_HEADERS)?;
    let mut bytes = vec![0; count * HEADER];
    read(headers, &mut bytes)?;
    let dynamic = dynamic_section(&bytes, headers)?;
    let debug = (0..MOST_ENTRIES)
        .map_while(|index| words(&mut read, dynamic.wrapping_add(16 * index)))
        .take_while(|&[tag, _]| tag != 0)
        .find_map(|[tag, value]| (tag == DT_DEBUG).then_some(value))?;
    // struct r_debug { int version; struct link_map *map; … }, struct link_map { addr, name,
    // dynamic, next, … } (source: link.h).
    let [mut at] = words(&mut read, debug.wrapping_add(8))?;
    let mut found = Vec::new();
    let mut seen = HashSet::new();
    while at != 0 {
        // A list that leads back to itself or does not end is not used. A part of it would suggest
        // that a library is not loaded although it is.
        if found.len() == MOST_LIBRARIES || !seen.insert(at) {
            return None;
        }
        let [bias, _name, _dynamic, next] = words(&mut read, at)?;
        found.push(bias);
        at = next;
    }
    Some(found)
}

/// Reads words from an address on.
fn words<const N: usize>(
    read: &mut impl FnMut(u64, &mut [u8]) -> Option<()>,
    at: u64,
) -> Option<[u64; N]> {
    let mut bytes = [[0; 8]; N];
    read(at, bytes.as_flattened_mut())?;
    Some(bytes.map(u64::from_le_bytes))
}

/// Returns the value of an entry of this kind. Entries after the end mark (`AT_NULL`) are ignored.
fn entry(auxv: &[u8], kind: u64) -> Option<u64> {
    auxv.chunks_exact(16)
        .map(|pair| pair.split_at(8))
        .map_while(|(key, value)| Some((number(key)?, number(value)?)))
        .take_while(|&(key, _)| key != 0)
        .find_map(|(key, value)| (key == kind).then_some(value))
}

fn number(bytes: &[u8]) -> Option<u64> {
    bytes.try_into().ok().map(u64::from_le_bytes)
}

/// Returns the address of the dynamic section, from the program headers that lie at `headers` in
/// memory.
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
        let me = crate::Pid::own();
        let biases = biases(me, &Memory::of(me)).unwrap();
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
        let me = crate::Pid::own();
        assert_eq!(biases(Tid::MAX, &Memory::of(me)), None);
        assert_eq!(dynamic_section(&[0; HEADER], 0), None);
        assert_eq!(dynamic_section(&[2; 10], 0), None);
        assert_eq!(entry(&[0; 7], 0), None);
    }

    fn bytes(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn auxv(size: u64, count: u64) -> Vec<u8> {
        bytes(&[AT_PHDR, 0x1000, AT_PHENT, size, AT_PHNUM, count, 0, 0])
    }

    /// Reads a program whose dynamic section, `r_debug` and first library lie at `places`. `next`
    /// says which entry each entry leads to, and the bias of an entry is its address. Returns the
    /// result and the number of reads.
    fn read_from(
        auxv: &[u8],
        tag: u64,
        places: [u64; 3],
        next: impl Fn(u64) -> u64,
    ) -> (Option<Vec<u64>>, usize) {
        let [dynamic, debug, first] = places;
        let mut reads = 0;
        let found = parse(auxv, |at, into| {
            reads += 1;
            assert!(reads < 18_000, "on and on");
            let words = match into.len() {
                8 => bytes(&[first]),
                16 => bytes(&[tag, debug]),
                32 => bytes(&[at, 0, 0, next(at)]),
                len => bytes(&[PT_DYNAMIC.into(), 0, dynamic, 0, 0, 0, 0]).repeat(len / HEADER),
            };
            into.copy_from_slice(&words);
            Some(())
        });
        (found, reads)
    }

    const PLACES: [u64; 3] = [0x2000, 0x3000, 0x4000];

    #[test]
    fn a_list_ends_or_is_none() {
        let list = |next: fn(u64) -> u64| read_from(&auxv(56, 1), DT_DEBUG, PLACES, next);
        assert_eq!(list(|_| 0), (Some(vec![0x4000]), 4));
        let three = |at| if at < 0x4080 { at + 64 } else { 0 };
        assert_eq!(list(three).0, Some(vec![0x4000, 0x4040, 0x4080]));
        // The list leads back to itself, leads back to the middle, and goes on without end.
        assert_eq!(list(|at| at), (None, 4));
        assert_eq!(
            list(|at| if at < 0x4080 { at + 64 } else { 0x4040 }),
            (None, 6)
        );
        assert_eq!(list(|at| at + 64), (None, 3 + MOST_LIBRARIES));
    }

    #[test]
    fn a_dynamic_section_without_an_end_is_none() {
        let (found, reads) = read_from(&auxv(56, 1), 1, PLACES, |_| 0);
        assert_eq!((found, reads), (None, 1 + MOST_ENTRIES as usize));
    }

    #[test]
    fn headers_are_as_the_kernel_takes_them() {
        let of = |size, count| read_from(&auxv(size, count), DT_DEBUG, PLACES, |_| 0);
        assert!(of(56, MOST_HEADERS as u64).0.is_some());
        for (size, count) in [
            (32, 1),
            (0, 1),
            (56, MOST_HEADERS as u64 + 1),
            (56, u64::MAX),
        ] {
            assert_eq!(of(size, count), (None, 0), "{size} {count}");
        }
    }

    #[test]
    fn the_vector_ends_at_its_end() {
        let behind = [vec![0; 16], auxv(56, 1)].concat();
        assert_eq!(read_from(&behind, DT_DEBUG, PLACES, |_| 0), (None, 0));
    }

    #[test]
    fn addresses_may_be_any() {
        let last = u64::MAX;
        let (found, _) = read_from(&auxv(56, 1), DT_DEBUG, [last, last, last], |_| 0);
        assert_eq!(found, Some(vec![last]));
        // The next entries of the dynamic section lie behind the last address, and the program
        // headers lie below their linked address.
        let (found, _) = read_from(&auxv(56, 1), 1, [last - 8, last, last], |_| 0);
        assert_eq!(found, None);
        let mut header = bytes(&[PT_PHDR.into(), 0, last, 0, 0, 0, 0]);
        header.extend(bytes(&[PT_DYNAMIC.into(), 0, last, 0, 0, 0, 0]));
        assert_eq!(dynamic_section(&header, 0x1000), Some(0x1000));
    }

    #[test]
    fn any_read_may_fail() {
        for readable in 0..=4 {
            let mut reads = 0..readable;
            let found = parse(&auxv(56, 1), |_, into| {
                reads.next()?;
                // The bytes of each read make sense as any of the words: a header's type and
                // address, a tag, a pointer.
                let words = match into.len() {
                    HEADER => bytes(&[PT_DYNAMIC.into(), 0, 0x2000, 0, 0, 0, 0]),
                    len => bytes(&[DT_DEBUG, 0x3000, 0, 0][..len / 8]),
                };
                into.copy_from_slice(&words);
                Some(())
            });
            assert_eq!(found.is_some(), readable == 4, "{readable}");
        }
    }
}
