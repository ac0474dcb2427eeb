//! Names of kernels, from the code objects that the HSA runtime lists for debuggers.
//!
//! The list is `_amdgpu_r_debug`, in the form of the dynamic loader's (source: link.h; AMD's
//! debugger interface). Each entry tells where a code object was loaded to. A URI tells where its
//! bytes are: in a file, or in the process's memory. Only the code object that contains the wanted
//! address is read, and of it only the symbol table.

use crate::memory::{Bytes, Limited, Limits};
use midair_output::table::kernel_labels;
use midair_procinfo::files::Place;
use midair_procinfo::module::Modules;
use midair_procinfo::{Tid, show};
use midair_ptrace::Memory;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Duration;

/// The most code objects that are listed. Libraries of kernels have thousands.
const MOST: usize = 1 << 16;
/// Bytes of a URI.
const LONGEST_URI: usize = 8192;
/// Symbols of one code object, and sections.
const MOST_SYMBOLS: u64 = 1 << 20;
const MOST_SECTIONS: u64 = 4096;
/// Bytes of a name.
const LONGEST_NAME: usize = 4096;
const LONGEST_LABEL: usize = 512;
/// Bytes of a symbol, and of a section's header (source: elf.h).
const SYMBOL: u64 = 24;
const SECTION: u64 = 64;
/// `SHT_DYNSYM`.
const DYNAMIC_SYMBOLS: u32 = 11;
/// The name of a kernel's descriptor is the kernel's name with this suffix.
const DESCRIPTOR: &[u8] = b".kd";
/// What may be read of the list of code objects. A process with thousands of them has some
/// megabytes.
const LIST: Limits = Limits {
    bytes: 32 << 20,
    reads: 1 << 20,
    time: Duration::from_secs(3),
};
/// What may be read of code objects, for the names of all kernels.
const NAMES: Limits = Limits {
    bytes: 2 << 30,
    reads: 1 << 20,
    time: Duration::from_secs(5),
};
/// How many code objects below an address are tried for it.
const CANDIDATES: usize = 4;

/// One loaded code object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Loaded {
    /// What to add to the addresses in its file.
    bias: u64,
    pub(crate) uri: Vec<u8>,
}

/// The code objects of a process.
#[derive(Debug)]
pub(crate) struct Objects<'a> {
    live: Tid,
    /// What is read of code objects counts here, whether they are in memory or in files.
    memory: Limited<'a, Memory>,
    /// Whether the list was longer than what is read of it.
    cut: bool,
    /// The loaded code objects, sorted by address.
    loaded: Vec<Loaded>,
    known: RefCell<HashMap<u64, Option<Vec<u8>>>>,
    /// Whether there were kernels that no code object named.
    unnamed: Cell<bool>,
    unread: RefCell<Option<String>>,
}

impl Objects<'_> {
    /// Reads the list of the code objects that are loaded now.
    pub(crate) fn of(live: Tid, modules: &Modules) -> Objects<'_> {
        let list = Limited::new(modules.memory(), LIST);
        let mut loaded = list_of(modules)
            .map(|at| follow(&list, at))
            .unwrap_or_default();
        loaded.sort_by_key(|object| object.bias);
        Objects {
            live,
            memory: Limited::new(modules.memory(), NAMES),
            cut: list.is_used_up(),
            loaded,
            known: RefCell::default(),
            unnamed: Cell::new(false),
            unread: RefCell::default(),
        }
    }

    /// Returns a kernel's name in its code object, without the suffix of its descriptor.
    pub(crate) fn symbol(&self, object: u64) -> Option<String> {
        if let Some(known) = self.known.borrow().get(&object) {
            return known.as_deref().map(show);
        }
        let below = self.loaded.partition_point(|loaded| loaded.bias <= object);
        let nearest = self.loaded.get(..below).unwrap_or_default().iter().rev();
        let found = nearest
            .take(CANDIDATES)
            .find_map(|loaded| self.named(loaded, object));
        if found.is_none() {
            self.unnamed.set(true);
        }
        self.known.borrow_mut().insert(object, found.clone());
        found.as_deref().map(show)
    }

    /// Returns the short name of a kernel, cut where it is long: it stands in many places.
    pub(crate) fn label(&self, object: u64) -> Option<String> {
        let symbol = self.symbol(object)?;
        let mut label = kernel_labels(&[symbol.as_bytes()]).pop()?;
        if label.len() > LONGEST_LABEL {
            label.truncate(label.floor_char_boundary(LONGEST_LABEL));
            label.push('…');
        }
        Some(label)
    }

    fn named(&self, loaded: &Loaded, object: u64) -> Option<Vec<u8>> {
        let address = object.checked_sub(loaded.bias)?;
        match self.source(&loaded.uri) {
            Ok(source) => symbol_at(&source, address),
            Err(why) => {
                let what = format!("{}: {why}", show(&loaded.uri));
                self.unread.borrow_mut().get_or_insert(what);
                None
            }
        }
    }

    fn source(&self, uri: &[u8]) -> Result<Source<'_>, String> {
        let uri = Uri::of(uri).ok_or("it has an unknown format")?;
        match uri {
            Uri::Memory { offset, size } => Ok(Source::Memory(&self.memory, offset, size)),
            Uri::File { path, offset, size } => {
                let file = Place::root_of(self.live)
                    .and_then(|root| root.find(&path))
                    .and_then(|found| found.open())
                    .map_err(|error| error.to_string())?;
                Ok(Source::File(&self.memory, file, offset, size))
            }
        }
    }

    /// Returns what could not be named, and why.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.cut {
            notes.push(
                "names may be missing: the list of code objects is endless or exceeds a limit"
                    .to_owned(),
            );
        }
        if self.memory.is_used_up() {
            notes.push("names may be missing: code objects exceed a size limit".to_owned());
        }
        if self.unnamed.get() {
            notes.push(match self.loaded.len() {
                0 => "kernels have no names: the HSA runtime lists no code objects".to_owned(),
                count => format!("a kernel is in none of the {count} loaded code objects"),
            });
        }
        notes.extend(
            self.unread
                .borrow()
                .iter()
                .map(|what| format!("cannot read a code object: {what}")),
        );
        notes
    }
}

/// Returns the address of `_amdgpu_r_debug`.
fn list_of(modules: &Modules) -> Option<u64> {
    let is_it = |name: &[u8]| name.starts_with(b"libhsa-runtime64.so");
    let index = modules
        .list
        .iter()
        .position(|module| is_it(module.file_name()))?;
    let loaded = modules.load(index).ok()?;
    let [at] = loaded.elf.exported_data(["_amdgpu_r_debug"]).ok()?;
    Some(at?.wrapping_add(loaded.bias))
}

/// Returns the entries of the list at `at`.
pub(crate) fn follow(memory: &impl Bytes, at: u64) -> Vec<Loaded> {
    let mut all = Vec::new();
    let mut entries = HashSet::new();
    // `struct r_debug`: a version, padding, and the first entry.
    let mut entry = memory.word(at.wrapping_add(8)).unwrap_or(0);
    // A list that leads back ends where it would start again.
    while entry != 0 && all.len() < MOST && entries.insert(entry) {
        // `struct link_map`: address, name, dynamic section, next.
        let (Some(bias), Some(name), Some(next)) = (
            memory.word(entry),
            memory.word(entry.wrapping_add(8)),
            memory.word(entry.wrapping_add(24)),
        ) else {
            break;
        };
        if let Some(uri) = memory.text(name, LONGEST_URI) {
            all.push(Loaded { bias, uri });
        }
        entry = next;
    }
    all
}

/// Where a code object's bytes are.
#[derive(Debug, PartialEq, Eq)]
enum Uri {
    File {
        path: PathBuf,
        offset: u64,
        /// None means to the end of the file.
        size: Option<u64>,
    },
    Memory {
        offset: u64,
        size: Option<u64>,
    },
}

impl Uri {
    /// Parses `file://PATH` or `memory://PID`, each with `#offset=N&size=N`, or with `?` in place
    /// of the `#` (source: AMD's debugger interface; LLVM's AMDGPU usage, "Code Object URI").
    fn of(text: &[u8]) -> Option<Uri> {
        let (name, parts) = match text.iter().position(|byte| matches!(byte, b'#' | b'?')) {
            Some(at) => (text.get(..at)?, text.get(at + 1..)?),
            None => (text, &[][..]),
        };
        let number = |key: &str| -> Option<u64> {
            let parts = std::str::from_utf8(parts).ok()?;
            let word = parts
                .split('&')
                .find_map(|part| part.strip_prefix(key)?.strip_prefix('='))?;
            match word.strip_prefix("0x") {
                Some(digits) => u64::from_str_radix(digits, 16).ok(),
                None => word.parse().ok(),
            }
        };
        let (offset, size) = (number("offset"), number("size"));
        if let Some(path) = name.strip_prefix(b"file://") {
            return Some(Uri::File {
                path: PathBuf::from(OsStr::from_bytes(&decoded(path))),
                offset: offset.unwrap_or(0),
                size,
            });
        }
        name.strip_prefix(b"memory://")?;
        Some(Uri::Memory {
            offset: offset?,
            size,
        })
    }
}

/// Decodes the `%XX` sequences of a path.
fn decoded(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((first, tail)) = rest.split_first() {
        let digits = tail.get(..2).and_then(|it| std::str::from_utf8(it).ok());
        let byte = digits
            .filter(|_| *first == b'%')
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        out.push(byte.unwrap_or(*first));
        rest = match byte {
            Some(_) => tail.get(2..).unwrap_or_default(),
            None => tail,
        };
    }
    out
}

/// The bytes of a code object.
enum Source<'a> {
    File(&'a Limited<'a, Memory>, File, u64, Option<u64>),
    Memory(&'a Limited<'a, Memory>, u64, Option<u64>),
}

impl Bytes for Source<'_> {
    fn fill(&self, at: u64, into: &mut [u8]) -> bool {
        let (start, size) = match self {
            Source::File(_, _, start, size) | Source::Memory(_, start, size) => (*start, *size),
        };
        let end = at.checked_add(into.len() as u64);
        if end.is_none_or(|end| size.is_some_and(|size| end > size)) {
            return false;
        }
        let Some(at) = start.checked_add(at) else {
            return false;
        };
        match self {
            Source::File(limits, file, ..) => {
                limits.may_read(into.len()) && file.read_exact_at(into, at).is_ok()
            }
            Source::Memory(memory, ..) => memory.fill(at, into),
        }
    }
}

/// Returns the name of the kernel whose descriptor lies at an address of an ELF file (source:
/// elf.h).
pub(crate) fn symbol_at(elf: &impl Bytes, address: u64) -> Option<Vec<u8>> {
    /// `EM_AMDGPU`.
    const MACHINE: u32 = 224;
    let header = elf.bytes(0, 64)?;
    let is_one = header.starts_with(b"\x7fELF\x02\x01") && header.get(18) == Some(&(MACHINE as u8));
    if !is_one {
        return None;
    }
    let sections_at = elf.word(0x28)?;
    let count = elf.half(0x3c)? & 0xffff;
    let section = |number: u64| -> Option<u64> {
        let at = number.checked_mul(SECTION)?;
        (number < MOST_SECTIONS).then(|| sections_at.checked_add(at))?
    };
    for number in 0..u64::from(count).min(MOST_SECTIONS) {
        let at = section(number)?;
        if elf.half(at.checked_add(4)?)? != DYNAMIC_SYMBOLS {
            continue;
        }
        let word = |field: u64| elf.word(at.checked_add(field)?);
        let (offset, size) = (word(0x18)?, word(0x20)?);
        let names = section(u64::from(elf.half(at.checked_add(0x28)?)?))?;
        let names = elf.word(names.checked_add(0x18)?)?;
        let symbols = (size / SYMBOL).min(MOST_SYMBOLS);
        /// Symbols that are read at a time.
        const AT_ONCE: u64 = 4096;
        let mut first = 0;
        while first < symbols {
            let some = AT_ONCE.min(symbols - first);
            let from = offset.checked_add(first * SYMBOL)?;
            let table = elf.bytes(from, (some * SYMBOL) as usize)?;
            for symbol in table.chunks_exact(SYMBOL as usize) {
                let value = symbol.get(8..).and_then(|it| it.first_chunk())?;
                if u64::from_le_bytes(*value) != address {
                    continue;
                }
                let name = u32::from_le_bytes(*symbol.first_chunk()?);
                let name = elf.text(names.checked_add(u64::from(name))?, LONGEST_NAME)?;
                if let Some(kernel) = name.strip_suffix(DESCRIPTOR) {
                    return Some(kernel.to_vec());
                }
            }
            first += some;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::fake::Pieces;

    #[test]
    fn forms_of_a_uri() {
        let file = |path: &str, offset, size| {
            Some(Uri::File {
                path: path.into(),
                offset,
                size,
            })
        };
        assert_eq!(
            Uri::of(b"file:///opt/a%20b.co#offset=0x40&size=100"),
            file("/opt/a b.co", 64, Some(100))
        );
        assert_eq!(
            Uri::of(b"file:///a?size=5&offset=7"),
            file("/a", 7, Some(5))
        );
        assert_eq!(Uri::of(b"file:///100%"), file("/100%", 0, None));
        assert_eq!(
            Uri::of(b"memory://77#offset=0x7f00&size=4096"),
            Some(Uri::Memory {
                offset: 0x7f00,
                size: Some(4096)
            })
        );
        assert_eq!(Uri::of(b"memory://77"), None);
        assert_eq!(Uri::of(b"http://x"), None);
    }

    #[test]
    fn the_list_ends_where_it_cannot_be_read_and_where_it_leads_back() {
        let mut memory = Pieces::default();
        memory.words(0x1000, &[10, 0x2000]);
        memory.words(0x2000, &[0x10_0000, 0x5000, 0, 0x3000, 0]);
        memory.words(0x3000, &[0x20_0000, 0x5000, 0, 0x4000, 0]);
        memory.put(0x5000, b"file:///a\0");
        let found = follow(&memory, 0x1000);
        assert_eq!(found.len(), 2);
        assert_eq!(
            (found[1].bias, &found[1].uri[..]),
            (0x20_0000, &b"file:///a"[..])
        );
        memory.set(0x3000 + 24, 0x2000);
        assert_eq!(follow(&memory, 0x1000).len(), 2);
    }

    #[test]
    fn a_descriptor_is_found_by_its_address() {
        let mut elf = vec![0; 0x400];
        let mut put = |at: usize, bytes: &[u8]| elf[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, b"\x7fELF\x02\x01");
        put(18, &[224]);
        put(0x28, &0x100_u64.to_le_bytes());
        put(0x3c, &[3]);
        // Section 1: two symbols at 0x200, names in section 2 at 0x300.
        put(0x140 + 4, &11_u32.to_le_bytes());
        put(0x140 + 0x18, &0x200_u64.to_le_bytes());
        put(0x140 + 0x20, &48_u64.to_le_bytes());
        put(0x140 + 0x28, &2_u32.to_le_bytes());
        put(0x180 + 0x18, &0x300_u64.to_le_bytes());
        put(0x200, &1_u32.to_le_bytes());
        put(0x208, &0x1000_u64.to_le_bytes());
        put(0x218, &6_u32.to_le_bytes());
        put(0x220, &0x1040_u64.to_le_bytes());
        put(0x300, b"\0vadd\0scale.kd\0");
        let mut memory = Pieces::default();
        memory.put(0, &elf);
        assert_eq!(symbol_at(&memory, 0x1040).unwrap(), b"scale");
        assert_eq!(symbol_at(&memory, 0x1000), None, "no descriptor");
        // The section headers lie at an impossible offset.
        memory.set(0x28, u64::MAX - 8);
        assert_eq!(symbol_at(&memory, 0x1040), None);
    }

    /// A header starts so near the end of all addresses that its fields would lie behind it. A
    /// build with overflow checks would panic.
    #[test]
    fn a_section_header_that_has_no_end() {
        let mut memory = Ends {
            first: [0; 64],
            last: [0; 16],
            asked: Cell::new(false),
        };
        memory.first[..6].copy_from_slice(b"\x7fELF\x02\x01");
        memory.first[18] = 224;
        memory.first[0x28..0x30].copy_from_slice(&(u64::MAX - 15).to_le_bytes());
        memory.first[0x3c] = 1;
        memory.last[4] = 11;
        assert_eq!(symbol_at(&memory, 0x1040), None);
        assert!(memory.asked.get(), "the last header is looked at");
    }

    /// The first 64 and the last 16 bytes of all addresses.
    #[derive(Debug)]
    struct Ends {
        first: [u8; 64],
        last: [u8; 16],
        asked: Cell<bool>,
    }

    impl Bytes for Ends {
        fn fill(&self, at: u64, into: &mut [u8]) -> bool {
            let last = at.checked_sub(u64::MAX - 15);
            self.asked.set(self.asked.get() || last.is_some());
            let (from, at) = last.map_or((&self.first[..], at), |at| (&self.last[..], at));
            let bytes = usize::try_from(at).ok().and_then(|at| from.get(at..));
            let bytes = bytes.and_then(|bytes| bytes.get(..into.len()));
            bytes.is_some_and(|bytes| {
                into.copy_from_slice(bytes);
                true
            })
        }
    }
}
