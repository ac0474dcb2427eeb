//! NVTX's function tables in the data of the libraries of this process (source of the layout:
//! NVTX's public header nvtxImpl.h, the same from CUDA 12.9 to 13.5; a table of another layout is
//! not recognised).

use std::ffi::CString;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Acquire;

/// State: no call was made.
pub const FRESH: u32 = 0;
/// State: the first call was made.
pub const COMPLETE: u32 = 2;

/// Words of a table: state; size and function of the callback export; size, version and function of
/// the version export; functions of all modules; for each module the addresses of its entries, with
/// null before and after them.
const WORDS: usize = 146;
const FIRST_ENTRY: usize = 6;
/// Number of functions of each module, in the order of their entries: core, CUDA, OpenCL, CUDA
/// runtime, core 2, synchronization.
const FUNCTIONS: [usize; 6] = [15, 8, 14, 6, 15, 6];
/// Module number of the core functions.
pub const CORE: u32 = 1;
/// Module number of the functions of domains.
pub const CORE2: u32 = 5;
/// NVTX's version, the only one that has such tables.
const VERSION: u64 = 3;

/// Bytes that are scanned at a time.
const BLOCK: usize = 1 << 20;
/// Maximum number of bytes that are scanned in one mapping, and in all.
const MOST: (u64, u64) = (64 << 20, 512 << 20);

/// A library's table. The library stays loaded from then on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Table {
    start: usize,
}

/// Finds all tables of this process.
pub fn find() -> Vec<Table> {
    let maps = std::fs::read_to_string("/proc/thread-self/maps").unwrap_or_default();
    // Memory is read through the kernel: a library that is unloaded meanwhile then causes an error,
    // and no fault.
    let Ok(memory) = File::open("/proc/thread-self/mem") else {
        return Vec::new();
    };
    let (mut tables, mut scanned) = (Vec::new(), 0);
    for line in maps.lines() {
        let Some(data) = Data::of(line) else { continue };
        scanned += data.end - data.start;
        if data.end - data.start > MOST.0 || scanned > MOST.1 {
            continue;
        }
        let before = tables.len();
        data.scan(&memory, &mut tables);
        if tables.len() > before && !pin(data.path) {
            tables.truncate(before);
        }
    }
    tables
}

/// Takes a reference to a library, so that it stays loaded. The program itself always does.
fn pin(path: &str) -> bool {
    let is_program = std::fs::read_link("/proc/thread-self/exe")
        .is_ok_and(|program| program.as_os_str() == path);
    let Ok(path) = CString::new(path) else {
        return false;
    };
    // SAFETY: a terminated path; nothing is loaded that is not loaded already.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    is_program || !handle.is_null()
}

/// A mapping of a library's data.
#[derive(Debug, PartialEq, Eq)]
struct Data<'a> {
    start: u64,
    end: u64,
    path: &'a str,
}

impl<'a> Data<'a> {
    /// From a line of `maps`: writable, private, of a file.
    fn of(line: &'a str) -> Option<Data<'a>> {
        let path = line.get(line.find('/')?..)?;
        let mut fields = line.split(' ');
        let (start, end) = fields.next()?.split_once('-')?;
        if fields.next()? != "rw-p" || path.starts_with("/dev/") {
            return None;
        }
        Some(Data {
            start: u64::from_str_radix(start, 16).ok()?,
            end: u64::from_str_radix(end, 16).ok()?,
            path,
        })
    }

    fn scan(&self, memory: &File, tables: &mut Vec<Table>) {
        let mut block = vec![0; BLOCK];
        let mut at = self.start;
        while at < self.end {
            let length = usize::try_from(self.end - at).map_or(BLOCK, |left| left.min(BLOCK));
            let Some(bytes) = block.get_mut(..length) else {
                return;
            };
            if memory.read_exact_at(bytes, at).is_err() {
                return;
            }
            scan(bytes, at as usize, tables);
            if length < BLOCK {
                return;
            }
            // A table that lies across the boundary is complete in the next block.
            at += (BLOCK - WORDS * 8) as u64;
        }
    }
}

/// Finds tables in the bytes at an address.
fn scan(bytes: &[u8], address: usize, tables: &mut Vec<Table>) {
    let words = bytes.len() / 8;
    let word = |at: usize| -> u64 {
        let chunk = bytes.get(at * 8..).and_then(|rest| rest.first_chunk());
        chunk.copied().map_or(0, u64::from_ne_bytes)
    };
    for at in 0..words.saturating_sub(WORDS - 1) {
        let head = word(at + 1) == 16 && word(at + 3) == 24 && word(at + 4) == VERSION;
        let start = address + at * 8;
        if head
            && word(at) <= COMPLETE.into()
            && points_into_itself(&|index| word(at + index), start)
            && !tables.iter().any(|known| known.start == start)
        {
            tables.push(Table { start });
        }
    }
}

/// Whether each module's list contains the addresses of its entries, and null around them: 64
/// pointers that no other data has.
fn points_into_itself(word: &dyn Fn(usize) -> u64, start: usize) -> bool {
    let mut entry = FIRST_ENTRY;
    let mut list = FIRST_ENTRY + FUNCTIONS.iter().sum::<usize>();
    for functions in FUNCTIONS {
        let whole =
            (1..=functions).all(|id| word(list + id) == (start + (entry + id - 1) * 8) as u64);
        if word(list) != 0 || word(list + functions + 1) != 0 || !whole {
            return false;
        }
        entry += functions;
        list += functions + 2;
    }
    true
}

impl Table {
    /// The state of the table.
    pub fn state(&self) -> u32 {
        // SAFETY: the table's first word, in the data of a library that stays loaded; NVTX accesses
        // it as one word, too.
        let state =
            unsafe { AtomicUsize::from_ptr(std::ptr::with_exposed_provenance_mut(self.start)) };
        state.load(Acquire) as u32
    }

    /// The entry of a function, by the numbers of its module ([`CORE`], [`CORE2`]) and its own.
    pub fn entry_of(&self, module: u32, id: u32) -> &AtomicUsize {
        let before: usize = FUNCTIONS
            .iter()
            .take(module.saturating_sub(1) as usize)
            .sum();
        let last = FUNCTIONS.iter().sum::<usize>() - 1;
        let index = (before + (id as usize).saturating_sub(1)).min(last);
        let at = self.start + (FIRST_ENTRY + index) * 8;
        // SAFETY: a word of the table, in the data of a library that stays loaded; NVTX accesses it
        // as one word, too.
        unsafe { AtomicUsize::from_ptr(std::ptr::with_exposed_provenance_mut(at)) }
    }

    #[cfg(test)]
    pub(super) fn start(&self) -> usize {
        self.start
    }
}
