//! The auxiliary vector, and the list of libraries that it leads to.

use midair_procinfo::link_map;
use std::collections::HashSet;

/// The most reads that a list may take, each of which is a system call. Headers, dynamic section
/// and list have limits of their own, whose sum is lower.
const MOST_READS: u64 = 18_000;
/// The most reads before the list.
const MOST_BEFORE: u64 = 1 + 1024 + 1;
/// The most bytes that one read may ask for.
const MOST_BYTES: usize = 1 << 16;
/// The lowest address at which a program has memory (source: proc_sys_vm, `mmap_min_addr`). So null
/// pointers and small numbers lead nowhere.
const LOWEST: u64 = 1 << 16;

/// Reads `/proc/TID/auxv` and the memory of the process, which starts with a copy of it. Returns
/// the list that was read.
pub fn auxv(bytes: &[u8]) -> Option<Vec<u64>> {
    let found = of_memory(bytes);
    // Arbitrary bytes hardly ever lead far. So the same bytes are also applied as changes to a
    // valid program.
    let mut image = Program::default().image();
    for (byte, change) in image.iter_mut().zip(bytes) {
        *byte ^= change;
    }
    super::used(of_memory(&image));
    found
}

fn of_memory(memory: &[u8]) -> Option<Vec<u64>> {
    let found = parsed(memory, false);
    if let Some(found) = &found {
        // Each entry has a place of its own, and some word in memory points to it. So there are no
        // more entries than words, and every bias is one of the words.
        assert!(found.len() <= memory.len());
        let words: HashSet<u64> = (0..memory.len() as u64)
            .filter_map(|at| {
                let mut word = [0; 8];
                repeated(memory, at, &mut word)?;
                Some(u64::from_le_bytes(word))
            })
            .collect();
        assert!(found.iter().all(|bias| words.contains(bias)), "{found:x?}");
    }
    super::used(parsed(memory, true));
    found
}

/// Reads a list. If memory `moves`, the last word of each read has another value each time. In an
/// entry this is the word that names the next entry. So such a list may have no end although no
/// place occurs twice.
fn parsed(memory: &[u8], moves: bool) -> Option<Vec<u64>> {
    let mut reads = 0;
    link_map::parse(memory, |at, into| {
        reads += 1;
        assert!(reads <= MOST_READS);
        // If nothing moves, a list has no more places than there are words to point to them, and no
        // place is read twice.
        assert!(moves || reads <= MOST_BEFORE + memory.len() as u64);
        assert!(into.len() <= MOST_BYTES, "{} bytes", into.len());
        let last = at.checked_add((into.len() as u64).saturating_sub(1));
        if at < LOWEST || last.is_none() {
            return None;
        }
        repeated(memory, at, into)?;
        if moves
            && let Some(last) = into.last_chunk_mut::<8>()
            && *last != [0; 8]
        {
            *last = u64::from_le_bytes(*last)
                .wrapping_add(reads * LOWEST)
                .to_le_bytes();
        }
        Some(())
    })
}

/// Reads memory that repeats, so that nearly every address leads somewhere.
fn repeated(memory: &[u8], at: u64, into: &mut [u8]) -> Option<()> {
    let first = at.checked_rem(memory.len() as u64)?;
    let from = memory
        .get(first as usize..)?
        .iter()
        .chain(memory.iter().cycle());
    into.iter_mut()
        .zip(from)
        .for_each(|(byte, from)| *byte = *from);
    Some(())
}

/// A program in memory as the kernel and the loader leave it.
#[derive(Debug, Clone)]
pub struct Program {
    /// The address behind the program's memory, a multiple of 64 KiB. 0 stands for the end of the
    /// address space.
    pub end: u64,
    /// Load addresses: the program's and its libraries'.
    pub biases: Vec<u64>,
    /// The index of the entry that the last one of the list points to. `None` ends the list.
    pub back: Option<usize>,
}

impl Default for Program {
    fn default() -> Program {
        Program {
            end: 0x5555_5556_0000,
            biases: vec![0x5555_5555_0000, 0x7fff_f7fc_1000, 0x7fff_f7c0_0000],
            back: None,
        }
    }
}

impl Program {
    /// Returns the program's memory, for [`auxv`]: the vector, program headers, `r_debug`, the
    /// list, and at the end the dynamic section (source: elf.h, link.h). Its length is a power of
    /// two, so that it lies at the same address wherever memory repeats.
    pub fn image(&self) -> Vec<u8> {
        const HEADERS: usize = 80;
        const DEBUG: usize = HEADERS + 3 * 56;
        const LIST: usize = DEBUG + 40;
        const ENTRY: usize = 40;
        const DYNAMIC: usize = 48;
        let count = self.biases.len();
        let len = (LIST + count * ENTRY + DYNAMIC).next_power_of_two();
        let start = self.end.wrapping_sub(len as u64);
        let at = |offset: usize| start.wrapping_add(offset as u64);
        let own = self.biases.first().copied().unwrap_or_default();
        // In a file, addresses do not include the bias.
        let header = |kind: u64, offset: usize, size: usize| {
            let address = at(offset).wrapping_sub(own);
            let size = size as u64;
            [kind, offset as u64, address, address, size, size, 8]
        };
        let entry = |index: usize| at(LIST + index * ENTRY);
        // AT_PHDR, AT_PHENT, AT_PHNUM, AT_ENTRY, AT_NULL.
        let mut words = vec![3, at(HEADERS), 4, 56, 5, 3, 9, at(0), 0, 0];
        // PT_PHDR, PT_LOAD, PT_DYNAMIC.
        words.extend(header(6, HEADERS, 3 * 56));
        words.extend(header(1, 0, len));
        words.extend(header(2, len - DYNAMIC, DYNAMIC));
        words.extend([1, if count > 0 { entry(0) } else { 0 }, 0, 0, 0]);
        for (index, bias) in self.biases.iter().enumerate() {
            let next = match self.back {
                _ if index + 1 < count => entry(index + 1),
                Some(back) => entry(back),
                None => 0,
            };
            let before = index.checked_sub(1).map_or(0, entry);
            words.extend([*bias, 0, 0, next, before]);
        }
        words.resize((len - DYNAMIC) / 8, 0);
        // DT_NEEDED, DT_DEBUG, DT_NULL.
        words.extend([1, 1, 21, at(DEBUG), 0, 0]);
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }
}
