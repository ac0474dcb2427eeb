//! The programs and libraries that the process has mapped, with copies of their unwind tables. All of
//! this runs on the worker thread.
//!
//! The tables are copied, since the application may unload a library at any time. The kernel copies
//! them (`process_vm_readv`), so that one that is unloaded meanwhile ends the copy and not the process.

use super::rule;
use crate::common::{ModuleRecord, Unavailable, header};
use gimli::{BaseAddresses, EhFrameHdr, LittleEndian};
use midair_record::event::{self, MAX_RECORD, kind};
use std::ops::Range;
use std::sync::Arc;

/// The most bytes of one module's tables, and of all.
const MOST_OF_ONE: usize = 256 << 20;
const MOST_OF_ALL: usize = 1 << 30;
/// The most modules.
const MOST_MODULES: usize = 8192;
/// The most words by which a module is known: a header and some short notes.
const MOST_MARKS: usize = 32;
/// How many bytes are copied at a time.
const STEP: usize = 1 << 20;
/// Types of program headers (source: elf.h).
const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;
const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
const PAGE: u64 = 4096;
/// The least distance from the end of the first thread's stack to other memory (source: Linux,
/// arch/x86/mm/mmap.c).
const STACK_GROWS: u64 = 128 << 20;

/// Memory that is there from the start, so that no thread waits for it.
#[derive(Debug)]
pub(crate) struct Pages {
    start: *mut libc::c_void,
    len: usize,
}

// SAFETY: it is memory that any thread may use.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Pages {
    /// Maps zeroed memory. None if the system gives none.
    pub(crate) fn new(len: usize) -> Option<Pages> {
        // SAFETY: this creates a fresh private mapping at an address that the kernel chooses.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE,
                -1,
                0,
            )
        };
        (start != libc::MAP_FAILED).then_some(Pages { start, len })
    }

    pub(crate) fn start(&self) -> *mut libc::c_void {
        self.start
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and its user has no reference to it any more.
        unsafe { libc::munmap(self.start, self.len) };
    }
}

/// The unwind tables of a module, and where they lie in memory.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    pub(crate) frames: Vec<u8>,
    pub(crate) frames_at: u64,
    pub(crate) header: Vec<u8>,
    pub(crate) header_at: u64,
    /// Words of the module in memory by which its file differs from others, and their addresses.
    pub(crate) marks: Vec<(u64, u64)>,
}

/// A module.
#[derive(Debug, Clone)]
pub(crate) struct Module {
    /// Our number of it, from 1.
    pub(crate) number: u32,
    base: u64,
    end: u64,
    /// See [`event::Module::bias`].
    pub(crate) bias: u64,
    device: u64,
    inode: u64,
    path: Vec<u8>,
    /// Where its code is.
    pub(crate) code: Vec<Range<u64>>,
    pub(crate) tables: Arc<Tables>,
}

impl Module {
    /// Returns the last part of its path.
    pub(crate) fn file_name(&self) -> &[u8] {
        let name = self.path.rsplit(|byte| *byte == b'/').next();
        name.unwrap_or_default()
    }

    /// Returns its record, and its path.
    pub(crate) fn record(&self) -> ModuleRecord {
        let most = MAX_RECORD - size_of::<event::Module>() - 8;
        let path = self.path.get(..self.path.len().min(most));
        let path = path.unwrap_or_default();
        let module = event::Module {
            header: header::<event::Module>(kind::MODULE, self.number, 0),
            base: self.base,
            bias: self.bias,
            device: self.device,
            inode: self.inode,
            path_len: path.len() as u32,
            reserved: 0,
        };
        (module, path.to_vec())
    }

    fn is_same(&self, other: &Found) -> bool {
        (self.base, self.end, self.device, self.inode)
            == (other.base, other.end, other.device, other.inode)
            && self.path == other.path
    }
}

/// A module of the list of mappings.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    base: u64,
    end: u64,
    offset: u64,
    device: u64,
    inode: u64,
    path: Vec<u8>,
    code: Vec<Range<u64>>,
}

/// All modules of the process, and the first thread's stack.
#[derive(Debug, Clone, Default)]
pub(crate) struct Modules {
    pub(crate) list: Vec<Module>,
    pub(crate) main_stack: Range<u64>,
    last: u32,
}

impl Modules {
    /// Reads the list of mappings. Modules that were known keep their numbers and tables. Returns the
    /// records of new ones.
    ///
    /// # Errors
    /// If the list or the process's memory cannot be read.
    pub(crate) fn read(&mut self) -> Result<Vec<ModuleRecord>, Unavailable> {
        // The first thread, which is `self`, may have ended.
        let text = std::fs::read("/proc/thread-self/maps").map_err(|_| Unavailable::Tables)?;
        let (found, main_stack) = parse(&text);
        if !found.is_empty() && found.iter().all(|one| bytes(one.base, 4).is_none()) {
            return Err(Unavailable::Tables);
        }
        let before = std::mem::take(&mut self.list);
        let mut records = Vec::new();
        let mut all = 0;
        for one in found.into_iter().take(MOST_MODULES) {
            let known = before.iter().find(|module| module.is_same(&one));
            let module = match known {
                Some(module) => Module {
                    code: one.code,
                    ..module.clone()
                },
                None => {
                    let Some((bias, tables)) = load(&one) else {
                        continue;
                    };
                    self.last += 1;
                    let module = Module {
                        number: self.last,
                        base: one.base,
                        end: one.end,
                        bias,
                        device: one.device,
                        inode: one.inode,
                        path: one.path,
                        code: one.code,
                        tables: Arc::new(tables),
                    };
                    records.push(module.record());
                    module
                }
            };
            all += module.tables.frames.len();
            if all > MOST_OF_ALL {
                break;
            }
            self.list.push(module);
        }
        self.main_stack = main_stack;
        Ok(records)
    }

    /// Whether both lists have the same modules at the same places.
    pub(crate) fn is_like(&self, other: &Modules) -> bool {
        let places = |modules: &Modules| -> Vec<_> {
            let all = modules.list.iter();
            all.map(|module| (module.number, module.code.clone()))
                .collect()
        };
        places(self) == places(other)
    }

    /// Returns the module that has code at an address.
    pub(crate) fn at(&self, address: u64) -> Option<&Module> {
        let has = |module: &&Module| module.code.iter().any(|code| code.contains(&address));
        self.list.iter().find(has)
    }

    /// Returns the module around an address.
    pub(crate) fn around(&self, address: u64) -> Option<&Module> {
        let has = |module: &&Module| (module.base..module.end).contains(&address);
        self.list.iter().find(has)
    }

    /// Returns the addresses of the function at an address.
    pub(crate) fn function(&self, address: u64) -> Option<Range<u64>> {
        rule::function(&self.at(address)?.tables, address)
    }
}

/// Parses the list of mappings: modules, and the first thread's stack.
fn parse(text: &[u8]) -> (Vec<Found>, Range<u64>) {
    let mut found: Vec<Found> = Vec::new();
    let mut main_stack = 0..0;
    let mut before = 0;
    for line in text.split(|byte| *byte == b'\n') {
        let Some((range, runs, offset, device, inode, path)) = fields(line) else {
            continue;
        };
        if path == b"[stack]" {
            // It grows downwards. The kernel keeps this distance to what it maps.
            let lowest = range.end.saturating_sub(STACK_GROWS).max(before);
            main_stack = lowest.min(range.start)..range.end;
        }
        before = range.end;
        let file = inode != 0 && path.first() == Some(&b'/');
        // Anonymous memory between two parts of a file is what a program has put over its own code.
        let last = found.last_mut().filter(|last| {
            let same = (last.device, last.inode) == (device, inode) && offset != 0;
            same || !file && range.start == last.end && path.is_empty()
        });
        match last {
            Some(last) => {
                last.end = range.end;
                if runs {
                    last.code.push(range);
                }
            }
            None if file => found.push(Found {
                base: range.start,
                end: range.end,
                offset,
                device,
                inode,
                path: path.to_vec(),
                code: if runs { vec![range] } else { Vec::new() },
            }),
            None => {}
        }
    }
    found.retain(|one| !one.code.is_empty() && one.offset == 0);
    (found, main_stack)
}

type Fields<'a> = (Range<u64>, bool, u64, u64, u64, &'a [u8]);

/// Returns range, whether code may run there, offset, device, inode and path.
fn fields(line: &[u8]) -> Option<Fields<'_>> {
    let mut rest = line;
    let mut word = || {
        let at = rest.iter().position(|byte| *byte == b' ')?;
        let (word, tail) = rest.split_at_checked(at)?;
        rest = tail.get(1..)?;
        std::str::from_utf8(word).ok()
    };
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let (start, end) = word()?.split_once('-')?;
    let runs = word()?.as_bytes().get(2) == Some(&b'x');
    let offset = hex(word()?)?;
    let (major, minor) = word()?.split_once(':')?;
    let device = hex(major)? << 32 | hex(minor)?;
    let inode = word().map_or_else(
        || std::str::from_utf8(rest).ok()?.parse().ok(),
        |text| text.parse().ok(),
    )?;
    Some((
        hex(start)?..hex(end)?,
        runs,
        offset,
        device,
        inode,
        rest.trim_ascii_start(),
    ))
}

/// Copies memory of this process as far as it is there.
fn fill(at: u64, into: &mut [u8]) -> usize {
    let local = libc::iovec {
        iov_base: into.as_mut_ptr().cast(),
        iov_len: into.len(),
    };
    let remote = libc::iovec {
        iov_base: std::ptr::without_provenance_mut(at as usize),
        iov_len: into.len(),
    };
    // Use this thread's id: the first thread may have ended, and then has no memory.
    // SAFETY: `local` describes `into`; `remote` is only an address that the kernel checks.
    let read = unsafe { libc::process_vm_readv(libc::gettid(), &local, 1, &remote, 1, 0) };
    usize::try_from(read).unwrap_or(0)
}

fn bytes(at: u64, len: usize) -> Option<Vec<u8>> {
    let mut into = vec![0; len];
    (fill(at, &mut into) == len).then_some(into)
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

/// Reads a module's headers and tables. None where it is no program or library of this processor.
fn load(found: &Found) -> Option<(u64, Tables)> {
    let header = bytes(found.base, 64)?;
    if !header.starts_with(b"\x7fELF\x02\x01") || number(&header, 18) != Some([62, 0]) {
        return None;
    }
    let at = u64::from_le_bytes(number(&header, 32)?);
    let count = u16::from_le_bytes(number(&header, 56)?);
    let programs = bytes(
        found.base.checked_add(at)?,
        56 * usize::from(count.min(256)),
    )?;
    let programs: Vec<_> = programs
        .chunks_exact(56)
        .filter_map(|program| {
            let word = |at| number(program, at).map(u64::from_le_bytes);
            let kind = u32::from_le_bytes(number(program, 0)?);
            // Offset, address, size in memory.
            Some((kind, word(8)?, word(16)?, word(40)?))
        })
        .collect();
    let (_, offset, address, _) = programs.iter().find(|program| program.0 == PT_LOAD)?;
    if offset / PAGE != 0 {
        return None;
    }
    let bias = found.base.wrapping_sub(address & !(PAGE - 1));
    let tables = programs
        .iter()
        .find(|program| program.0 == PT_GNU_EH_FRAME)
        .and_then(|(_, _, address, size)| {
            let at = bias.wrapping_add(*address);
            tables(at, *size, |address| {
                programs.iter().find_map(|(kind, _, start, size)| {
                    let start = bias.wrapping_add(*start);
                    let range = start..start.checked_add(*size)?;
                    (*kind == PT_LOAD && range.contains(&address)).then_some(range.end)
                })
            })
        });
    let mut tables = tables.unwrap_or_default();
    let notes = programs.iter().filter(|program| program.0 == PT_NOTE);
    let notes = notes.map(|(_, _, address, size)| (bias.wrapping_add(*address), *size));
    tables.marks = marks(found.base, notes);
    Some((bias, tables))
}

/// Returns the words of a file's header, which has the distance to its end, and of its Build-ID, as far
/// as that lies in the first page.
fn marks(base: u64, notes: impl Iterator<Item = (u64, u64)>) -> Vec<(u64, u64)> {
    let first = base..base.saturating_add(PAGE);
    let notes = notes.map(|(at, size)| at..at.saturating_add(size.min(PAGE)));
    let notes = notes.filter(|note| first.contains(&note.start) && note.end <= first.end);
    let all = std::iter::once(base..base.saturating_add(64)).chain(notes);
    let words = all.flat_map(|range| {
        let start = range.start & !7;
        let words = bytes(start, (range.end & !7).saturating_sub(start) as usize);
        let words = words.unwrap_or_default();
        let words: Vec<_> = words
            .chunks_exact(8)
            .zip((start..).step_by(8))
            .filter_map(|(word, at)| Some((at, u64::from_le_bytes(*word.first_chunk()?))))
            .collect();
        words
    });
    words.take(MOST_MARKS).collect()
}

/// Copies the tables of which the header lies at an address. `end_of` returns where the part of the
/// file around an address ends.
fn tables(header_at: u64, size: u64, end_of: impl Fn(u64) -> Option<u64>) -> Option<Tables> {
    let size = usize::try_from(size).ok()?;
    if size > MOST_OF_ONE {
        return None;
    }
    let header = bytes(header_at, size)?;
    let bases = BaseAddresses::default().set_eh_frame_hdr(header_at);
    let parsed = EhFrameHdr::new(&header, LittleEndian)
        .parse(&bases, 8)
        .ok()?;
    let frames_at = parsed.eh_frame_ptr().direct().ok()?;
    let frames = entries(frames_at, end_of(frames_at)?)?;
    Some(Tables {
        frames,
        frames_at,
        header,
        header_at,
        marks: Vec::new(),
    })
}

/// Copies the entries from an address on, up to the one that ends them.
fn entries(at: u64, end: u64) -> Option<Vec<u8>> {
    let most = usize::try_from(end.checked_sub(at)?).ok()?;
    let most = most.min(MOST_OF_ONE);
    let mut copy: Vec<u8> = Vec::new();
    let mut next = 0;
    loop {
        while next + 4 > copy.len() {
            let from = copy.len();
            let step = STEP.min(most - from);
            copy.resize(from + step, 0);
            let read = fill(at.checked_add(from as u64)?, copy.get_mut(from..)?);
            if read < step || step == 0 {
                copy.truncate(from + read);
                copy.shrink_to_fit();
                return Some(copy);
            }
        }
        match u32::from_le_bytes(number(&copy, next)?) {
            0 => {
                copy.truncate(next + 4);
                copy.shrink_to_fit();
                return Some(copy);
            }
            // A length of 64 bits, which no compiler writes.
            u32::MAX => return None,
            len => next = next.checked_add(len as usize + 4)?,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_of_a_list_of_mappings() {
        let text = b"\
400000-401000 r--p 00000000 08:01 7                          /bin/a b\n\
401000-402000 r-xp 00001000 08:01 7                          /bin/a b\n\
402000-403000 rwxp 00000000 00:00 0 \n\
403000-404000 rw-p 00003000 08:01 7                          /bin/a b\n\
500000-501000 rw-p 00000000 00:00 0                          [heap]\n\
600000-601000 r-xp 00000000 08:01 8                          /lib/l.so\n\
601000-602000 rw-s 00000000 00:05 9                          /dev/data\n\
700000-701000 r-xp 00000000 08:01 8                          /lib/l.so\n\
7ff000-800000 rw-p 00000000 00:00 0                          [stack]\n\
900000-901000 r-xp 00000000 00:00 0                          [vdso]\n\
nonsense\n";
        let (found, main) = parse(text);
        let short: Vec<_> = found
            .iter()
            .map(|one| (one.base, one.end, one.inode))
            .collect();
        assert_eq!(
            short,
            [
                (0x400000, 0x404000, 7),
                (0x600000, 0x601000, 8),
                (0x700000, 0x701000, 8),
            ]
        );
        assert_eq!(found[0].code, [0x401000..0x402000, 0x402000..0x403000]);
        assert_eq!(found[0].path, b"/bin/a b");
        assert_eq!((found[0].device, main), (8 << 32 | 1, 0x701000..0x800000));
    }

    #[test]
    fn the_modules_of_this_process() {
        let mut modules = Modules::default();
        let records = modules.read().unwrap();
        assert_eq!(records.len(), modules.list.len());
        let here = the_modules_of_this_process as *const () as u64;
        let own = modules.at(here).unwrap();
        assert!(!own.tables.frames.is_empty() && own.number > 0);
        let function = modules.function(here + 1).unwrap();
        assert_eq!(function.start, here);
        assert!(modules.list.iter().any(|it| it.file_name() == b"libc.so.6"));
        // What is known is not read again.
        assert!(modules.read().unwrap().is_empty());
        assert!(modules.at(0).is_none());
    }
}
