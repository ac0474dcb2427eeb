//! The auxiliary vector, and the list of libraries that it leads to.

use midair_procinfo::link_map;
use std::collections::HashSet;

/// Each read is a system call. Headers, dynamic section and list have bounds of their own, in sum below this.
const MOST_READS: u64 = 18_000;
/// Those before the list.
const MOST_BEFORE: u64 = 1 + 1024 + 1;
/// Bytes that are read at once.
const MOST_BYTES: usize = 1 << 16;
/// Below this no program has memory (source: proc_sys_vm, `mmap_min_addr`), so null pointers and
/// small numbers lead nowhere.
const LOWEST: u64 = 1 << 16;

/// `/proc/TID/auxv`, and the memory of the process, which begins with a copy of it. The list that was read.
pub fn auxv(bytes: &[u8]) -> Option<Vec<u64>> {
    let found = of_memory(bytes);
    // Hardly any bytes lead far by themselves: the same ones as changes to a program that is in order.
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
        // Each entry has a place of its own, which a word in memory names: no more entries than
        // words, and every bias is one of them.
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

/// Reads a list. Where memory `moves`, the last word of all that is read, which of an entry names
/// the next one, is another at each read: so a list may have no end and yet no place twice.
fn parsed(memory: &[u8], moves: bool) -> Option<Vec<u64>> {
    let mut reads = 0;
    link_map::parse(memory, |at, into| {
        reads += 1;
        assert!(reads <= MOST_READS);
        // Where nothing moves, a list has no more places than there are words to name them, and none is read twice.
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

/// Memory repeats, so that nearly every address leads somewhere.
fn repeated(memory: &[u8], at: u64, into: &mut [u8]) -> Option<()> {
    let first = at.checked_rem(memory.len() as u64)?;
    let from = memory.iter().cycle().skip(first as usize);
    into.iter_mut()
        .zip(from)
        .for_each(|(byte, from)| *byte = *from);
    Some(())
}

/// A program as the kernel and its loader leave it in memory.
#[derive(Debug, Clone)]
pub struct Program {
    /// The address behind it, a multiple of 64 KiB; 0 is behind the last one.
    pub end: u64,
    /// Load addresses: its own and those of its libraries.
    pub biases: Vec<u64>,
    /// The entry that the last one of the list leads to; None ends it.
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
    /// Its memory, for [`auxv`]: the vector, program headers, `r_debug`, the list, and last the
    /// dynamic section (source: elf.h, link.h). Its length is a power of two, so that it lies at
    /// the same address wherever memory repeats.
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
        // In a file addresses are without the bias.
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
