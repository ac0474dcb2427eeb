//! Reads ELF files of a target: symbols, code and unwind tables.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use crate::allowance::{AT_ONCE, Allowance};
use crate::windows::Bounded;
use object::Endianness;
use object::elf::{
    FileHeader64, PF_X, PT_LOAD, SHN_UNDEF, STT_FUNC, STT_GNU_IFUNC, STT_NOTYPE, STT_OBJECT,
    SymbolType,
};
use object::read::StringTable;
use object::read::elf::{
    FileHeader, ProgramHeader, Rela, SectionHeader, SectionTable, Sym, SymbolTable,
};

/// The fields of a program header that say where a loaded part lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Offset in the file.
    pub offset: u64,
    /// Bytes in the file.
    pub file_size: u64,
    /// Address that the file is linked for.
    pub address: u64,
    /// Bytes in memory.
    pub memory_size: u64,
    /// Whether it contains code.
    pub execute: bool,
}

/// One symbol of a function or something similar.
#[derive(Debug, Clone, Copy)]
struct Entry {
    address: u64,
    /// The size in bytes. 32 bits suffice for any function.
    size: u32,
    /// The offset in the file's string table at first, later that in `names`.
    name: u32,
}

/// The most bytes of a name that are kept.
const NAME: usize = 4096;
/// The most names of one function that are returned. Functions of a C library have up to six.
const ALIASES: usize = 16;

/// A part of a file, with the address that it is linked for.
#[derive(Debug, Clone, Default)]
pub struct Piece {
    /// Linked address.
    pub address: u64,
    /// Bytes.
    pub bytes: Vec<u8>,
}

impl Piece {
    /// Returns the linked addresses that it covers.
    pub fn range(&self) -> Range<u64> {
        self.address..self.address.saturating_add(self.bytes.len() as u64)
    }
}

/// An ELF file of the target, opened and checked. Its tables are read when they are first needed.
#[derive(Debug)]
pub struct ElfFile {
    file: File,
    allowance: Allowance,
    /// Loadable segments.
    pub segments: Vec<Segment>,
    /// Address of the first instruction of a program.
    pub entry: u64,
    /// The dynamic loader that it names, if any.
    pub interpreter: Option<Vec<u8>>,
    /// The Build-ID. Empty when there is none.
    pub build_id: Vec<u8>,
}

fn bad(what: &'static str) -> impl Fn(object::Error) -> io::Error {
    move |error| io::Error::new(io::ErrorKind::InvalidData, format!("{what}: {error}"))
}

type Header = FileHeader64<Endianness>;

/// Reads the header and the table of sections, with the file's byte order.
///
/// # Errors
/// The kernel's error; invalid data when they are broken.
fn section_table<'d>(
    data: &'d Bounded<'d>,
) -> io::Result<(Endianness, SectionTable<'d, Header, &'d Bounded<'d>>)> {
    let header = Header::parse(data).map_err(bad("ELF header"))?;
    let endian = header.endian().map_err(bad("ELF byte order"))?;
    let sections = header.sections(endian, data);
    Ok((endian, sections.map_err(bad("section headers"))?))
}

impl ElfFile {
    /// Reads the headers of a 64-bit little-endian file for this processor.
    ///
    /// # Errors
    /// The kernel's error; invalid data when it is no such file.
    pub fn open(file: File) -> io::Result<ElfFile> {
        ElfFile::within(file, Allowance::default())
    }

    /// As [`ElfFile::open`], for a file of a process whose files all share one allowance.
    ///
    /// # Errors
    /// As [`ElfFile::open`]; too large where the allowance is used up.
    pub fn within(file: File, allowance: Allowance) -> io::Result<ElfFile> {
        let data = Bounded::over(&file, &allowance);
        let header = Header::parse(&data).map_err(bad("ELF header"))?;
        let endian = header.endian().map_err(bad("ELF byte order"))?;
        let (machine, name) = midair_ptrace::arch::ELF_MACHINE;
        let found = header.e_machine.get(endian);
        if found.0 != machine {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("machine {} is not {name}", found.0),
            ));
        }
        let mut segments = Vec::new();
        let mut interpreter = None;
        let mut build_id = Vec::new();
        for program in header
            .program_headers(endian, &data)
            .map_err(bad("program headers"))?
        {
            if program.p_type(endian) == PT_LOAD {
                segments.push(Segment {
                    offset: program.p_offset(endian),
                    file_size: program.p_filesz(endian),
                    address: program.p_vaddr(endian),
                    memory_size: program.p_memsz(endian),
                    execute: program.p_flags(endian).0 & PF_X.0 != 0,
                });
            }
            if let Ok(Some(path)) = program.interpreter(endian, &data) {
                interpreter = Some(path.to_vec());
            }
            if let Ok(Some(mut notes)) = program.notes(endian, &data) {
                while let Ok(Some(note)) = notes.next() {
                    if note.name() == b"GNU" && note.n_type(endian) == object::elf::NT_GNU_BUILD_ID
                    {
                        build_id = note.desc().to_vec();
                    }
                }
            }
        }
        let entry = header.e_entry(endian);
        drop(data);
        Ok(ElfFile {
            file,
            allowance,
            segments,
            entry,
            interpreter,
            build_id,
        })
    }

    /// Returns where the file lies in memory: what to add to a linked address, given one executable
    /// mapping of the file. (Two segments with different rights may share a page of the file. So
    /// the offset alone does not show which segment is mapped.)
    pub fn bias(&self, start: u64, offset: u64) -> Option<u64> {
        const PAGE: u64 = 4096;
        self.segments
            .iter()
            .find(|segment| {
                let first = segment.offset & !(PAGE - 1);
                segment.execute
                    && offset >= first
                    && offset < segment.offset.saturating_add(segment.file_size.max(1))
            })
            .map(|segment| {
                start
                    .wrapping_sub(offset)
                    .wrapping_add(segment.offset)
                    .wrapping_sub(segment.address)
            })
    }

    /// Returns the bytes of the code segments.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn code(&self) -> io::Result<Vec<Piece>> {
        let segments = self.segments.iter().filter(|segment| segment.execute);
        segments
            .map(|segment| {
                let bytes = self.at_once(segment.offset, segment.file_size)?;
                let address = segment.address;
                Ok(Piece { address, bytes })
            })
            .collect()
    }

    /// Returns sections by name, in the order of `names`. Those that are missing are None.
    ///
    /// # Errors
    /// The kernel's error; invalid data when the section table is broken.
    pub fn sections<const N: usize>(&self, names: [&[u8]; N]) -> io::Result<[Option<Piece>; N]> {
        let data = Bounded::over(&self.file, &self.allowance);
        let (endian, table) = section_table(&data)?;
        let mut found = [const { None }; N];
        for section in table.iter() {
            let Ok(name) = table.section_name(endian, section) else {
                continue;
            };
            let Some(at) = names.iter().position(|wanted| *wanted == name) else {
                continue;
            };
            if found[at].is_some() {
                continue;
            }
            let bytes = match section.file_range(endian) {
                Some((offset, len)) => self.bytes(offset, len)?,
                None => Vec::new(),
            };
            found[at] = Some(Piece {
                address: section.sh_addr(endian),
                bytes,
            });
        }
        Ok(found)
    }

    /// Returns a part of the file that is kept.
    fn bytes(&self, offset: u64, len: u64) -> io::Result<Vec<u8>> {
        self.allowance.keep(len)?;
        self.read(offset, len)
    }

    /// Returns a part of the file that is needed for a moment.
    fn at_once(&self, offset: u64, len: u64) -> io::Result<Vec<u8>> {
        if len > AT_ONCE {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.read(offset, len)
    }

    /// Reads a part of the file at once: tables of large programs have many megabytes.
    fn read(&self, offset: u64, len: u64) -> io::Result<Vec<u8>> {
        let outside = || io::Error::from(io::ErrorKind::InvalidData);
        let end = offset.checked_add(len).ok_or_else(outside)?;
        if end > self.file.metadata()?.len() {
            return Err(outside());
        }
        self.allowance.read(len)?;
        let mut bytes = vec![0; usize::try_from(len).map_err(|_| outside())?];
        self.file.read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    }

    /// Returns the linked addresses that a section covers, or None when there is no section of this
    /// name. The section's bytes are not read.
    ///
    /// # Errors
    /// The kernel's error; invalid data when the section table is broken.
    pub fn section_range(&self, name: &[u8]) -> io::Result<Option<Range<u64>>> {
        let data = Bounded::over(&self.file, &self.allowance);
        let (endian, table) = section_table(&data)?;
        let found = table.section_by_name(endian, name);
        Ok(found.map(|(_index, section)| {
            let start = section.sh_addr(endian);
            start..start.saturating_add(section.sh_size(endian))
        }))
    }

    /// Returns the linked addresses of exported functions, in the order of `names`. If a name has
    /// several versions, the default one counts.
    ///
    /// # Errors
    /// The kernel's error; invalid data when the tables are broken.
    pub fn exported<const N: usize>(&self, names: [&str; N]) -> io::Result<[Option<u64>; N]> {
        self.exported_of(STT_FUNC, names)
    }

    /// As [`ElfFile::exported`], for variables.
    ///
    /// # Errors
    /// As [`ElfFile::exported`].
    pub fn exported_data<const N: usize>(&self, names: [&str; N]) -> io::Result<[Option<u64>; N]> {
        self.exported_of(STT_OBJECT, names)
    }

    fn exported_of<const N: usize>(
        &self,
        kind: SymbolType,
        names: [&str; N],
    ) -> io::Result<[Option<u64>; N]> {
        let data = Bounded::over(&self.file, &self.allowance);
        let (endian, sections) = section_table(&data)?;
        let symbols = sections
            .symbols(endian, &data, object::elf::SHT_DYNSYM)
            .map_err(bad(".dynsym"))?;
        let versions = sections
            .versions(endian, &data)
            .map_err(bad("symbol versions"))?;
        let strings = self.names(endian, &sections, &symbols)?;
        let strings = StringTable::new(strings.as_slice(), 0, strings.len() as u64);
        let mut found = [None; N];
        let mut hidden = [false; N];
        for (index, symbol) in symbols.enumerate() {
            if symbol.st_shndx(endian) == SHN_UNDEF || symbol.st_type() != kind {
                continue;
            }
            let Ok(name) = symbol.name(endian, strings) else {
                continue;
            };
            let Some(at) = names.iter().position(|wanted| wanted.as_bytes() == name) else {
                continue;
            };
            let old = versions
                .as_ref()
                .is_some_and(|table| table.version_index(endian, index).is_hidden());
            if found[at].is_none() || (hidden[at] && !old) {
                found[at] = Some(symbol.st_value(endian));
                hidden[at] = old;
            }
        }
        Ok(found)
    }

    /// Returns the names of a table of symbols. One by one they would be as many allocations.
    fn names<'d>(
        &self,
        endian: Endianness,
        sections: &SectionTable<'d, Header, &'d Bounded<'d>>,
        symbols: &SymbolTable<'d, Header, &'d Bounded<'d>>,
    ) -> io::Result<Vec<u8>> {
        if symbols.is_empty() {
            return Ok(Vec::new());
        }
        let section = sections.section(symbols.string_section());
        let range = section.map_err(bad("symbol names"))?.file_range(endian);
        range.map_or(Ok(Vec::new()), |(offset, len)| self.at_once(offset, len))
    }

    /// Returns the linked addresses of the words through which the file calls these functions of
    /// other files, each with the function's index in `names`.
    ///
    /// # Errors
    /// As [`ElfFile::exported`].
    pub fn imported(&self, names: &[&str]) -> io::Result<HashMap<u64, usize>> {
        let data = Bounded::over(&self.file, &self.allowance);
        let (endian, sections) = section_table(&data)?;
        let symbols = sections
            .symbols(endian, &data, object::elf::SHT_DYNSYM)
            .map_err(bad(".dynsym"))?;
        let strings = self.names(endian, &sections, &symbols)?;
        let strings = StringTable::new(strings.as_slice(), 0, strings.len() as u64);
        let mut wanted = HashMap::new();
        for (index, symbol) in symbols.enumerate() {
            if symbol.st_shndx(endian) == SHN_UNDEF
                && let Ok(name) = symbol.name(endian, strings)
                && let Some(at) = names.iter().position(|wanted| wanted.as_bytes() == name)
            {
                wanted.insert(index, at);
            }
        }
        let mut found = HashMap::new();
        if wanted.is_empty() {
            return Ok(found);
        }
        for section in sections.iter() {
            let table = section.rela(endian, &data).map_err(bad("relocations"))?;
            let Some((table, _)) = table.filter(|(_, link)| *link == symbols.section()) else {
                continue;
            };
            for word in table {
                let name = word
                    .symbol(endian, false)
                    .and_then(|symbol| wanted.get(&symbol));
                if let Some(&name) = name {
                    found.insert(word.r_offset(endian), name);
                }
            }
        }
        Ok(found)
    }

    /// Returns the names of the versions that the file defines (`GLIBC_2.34`, …).
    ///
    /// # Errors
    /// The kernel's error; invalid data when the tables are broken.
    pub fn defined_versions(&self) -> io::Result<Vec<String>> {
        let data = Bounded::over(&self.file, &self.allowance);
        let (endian, sections) = section_table(&data)?;
        let mut names = Vec::new();
        let Some((mut definitions, link)) = sections
            .gnu_verdef(endian, &data)
            .map_err(bad("version definitions"))?
        else {
            return Ok(names);
        };
        let strings = sections
            .strings(endian, &data, link)
            .map_err(bad("version names"))?;
        while let Ok(Some((_, mut parts))) = definitions.next() {
            if let Ok(Some(first)) = parts.next()
                && let Ok(name) = first.name(endian, strings)
            {
                names.push(crate::show(name));
            }
        }
        Ok(names)
    }

    /// Returns the names of the versions that the file cannot do without (`GLIBC_2.34`, …).
    ///
    /// # Errors
    /// The kernel's error; invalid data when the tables are broken.
    pub fn needed_versions(&self) -> io::Result<Vec<String>> {
        let data = Bounded::over(&self.file, &self.allowance);
        let (endian, sections) = section_table(&data)?;
        let mut names = Vec::new();
        let Some((mut files, link)) = sections
            .gnu_verneed(endian, &data)
            .map_err(bad("version needs"))?
        else {
            return Ok(names);
        };
        let strings = sections
            .strings(endian, &data, link)
            .map_err(bad("version names"))?;
        while let Ok(Some((_, mut versions))) = files.next() {
            while let Ok(Some(version)) = versions.next() {
                if !version
                    .vna_flags
                    .get(endian)
                    .contains(object::elf::VER_FLG_WEAK)
                    && let Ok(name) = version.name(endian, strings)
                {
                    names.push(crate::show(name));
                }
            }
        }
        Ok(names)
    }

    /// Returns all symbols of functions and similar code, for look-ups by address.
    ///
    /// # Errors
    /// The kernel's error; invalid data when the tables are broken.
    pub fn symbols(&self) -> io::Result<Symbols> {
        let data = Bounded::over(&self.file, &self.allowance);
        let (endian, sections) = section_table(&data)?;
        let mut all = Symbols::default();
        for kind in [object::elf::SHT_SYMTAB, object::elf::SHT_DYNSYM] {
            let table = sections
                .symbols(endian, &data, kind)
                .map_err(bad("symbols"))?;
            let strings = sections
                .section(table.string_section())
                .ok()
                .and_then(|section| section.file_range(endian));
            let first = all.entries.len();
            for symbol in table.iter() {
                let kind = symbol.st_type();
                let wanted = kind == STT_FUNC
                    || kind == STT_GNU_IFUNC
                    || kind == STT_NOTYPE && symbol.st_size(endian) != 0;
                let name = symbol.st_name(endian);
                if wanted && name != 0 && symbol.st_shndx(endian) != SHN_UNDEF {
                    all.entries.push(Entry {
                        address: symbol.st_value(endian),
                        size: u32::try_from(symbol.st_size(endian)).unwrap_or(u32::MAX),
                        name,
                    });
                }
            }
            let count = all.entries.len() - first;
            self.allowance.keep((count * size_of::<Entry>()) as u64)?;
            self.read_names(&mut all, first, strings.unwrap_or_default())?;
        }
        all.entries
            .sort_unstable_by_key(|entry| (entry.address, entry.size));
        all.entries.shrink_to_fit();
        Ok(all)
    }

    /// Reads the names of the entries from `first` on, and removes the entries that have none.
    /// Names are read in the order of the string table, because there may be hundreds of thousands,
    /// and reading them one by one takes seconds. Nothing of the string table itself is kept, since
    /// it also contains names of other things than functions.
    fn read_names(
        &self,
        all: &mut Symbols,
        first: usize,
        (offset, len): (u64, u64),
    ) -> io::Result<()> {
        let Symbols { entries, names } = all;
        let mut strings = Strings::new(self, offset, len);
        let mut last = None;
        let new = entries.get_mut(first..).unwrap_or_default();
        new.sort_unstable_by_key(|entry| entry.name);
        for entry in new {
            let (at, known) = (entry.name, last);
            entry.name = match known {
                // Two symbols have one name.
                Some((same, name)) if same == at => name,
                _ => {
                    let text = strings.at(u64::from(at))?;
                    let name = u32::try_from(names.len()).unwrap_or(NAMELESS);
                    self.allowance.keep(text.len() as u64 + 1)?;
                    names.extend_from_slice(text);
                    names.push(0);
                    if text.is_empty() { NAMELESS } else { name }
                }
            };
            last = Some((at, entry.name));
        }
        entries.retain(|entry| entry.name != NAMELESS);
        Ok(())
    }
}

/// Stands in place of a name where a symbol has none.
const NAMELESS: u32 = u32::MAX;

/// A string table that is read from its start to its end.
struct Strings<'a> {
    elf: &'a ElfFile,
    offset: u64,
    len: u64,
    /// The current piece of the table. `from` is the piece's offset in the table.
    piece: Vec<u8>,
    from: u64,
}

impl<'a> Strings<'a> {
    /// Bytes that are read at a time.
    const PIECE: u64 = 256 * 1024;

    fn new(elf: &'a ElfFile, offset: u64, len: u64) -> Strings<'a> {
        Strings {
            elf,
            offset,
            len,
            piece: Vec::new(),
            from: 0,
        }
    }

    /// Returns the text at an offset, at most [`NAME`] bytes, or an empty one outside of the table.
    /// Callers must ask for ascending offsets.
    fn at(&mut self, place: u64) -> io::Result<&[u8]> {
        let end = self.len.min(place.saturating_add(NAME as u64));
        if place >= end {
            return Ok(&[]);
        }
        if place < self.from || end > self.from + self.piece.len() as u64 {
            self.read_from(place)?;
        }
        let skipped = (place - self.from) as usize;
        let text = self.piece.get(skipped..).unwrap_or_default();
        let text = text.get(..NAME).unwrap_or(text);
        let end = text.iter().position(|&byte| byte == 0);
        Ok(text.get(..end.unwrap_or(text.len())).unwrap_or_default())
    }

    fn read_from(&mut self, place: u64) -> io::Result<()> {
        let len = Self::PIECE.min(self.len - place);
        self.elf.allowance.read(len)?;
        self.piece.resize(len as usize, 0);
        let at = self.offset.checked_add(place);
        let at = at.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
        // If the table ends behind the end of the file, the file is broken.
        self.elf.file.read_exact_at(&mut self.piece, at)?;
        self.from = place;
        Ok(())
    }
}

/// Names of functions, found by address.
#[derive(Debug, Default)]
pub struct Symbols {
    entries: Vec<Entry>,
    /// The names, each terminated by a zero byte.
    names: Vec<u8>,
}

impl Symbols {
    /// Returns the names of the function that covers a linked address. There are several where the
    /// function has aliases, and none where it has no symbol.
    pub fn at(&self, address: u64) -> Vec<&[u8]> {
        let after = self
            .entries
            .partition_point(|entry| entry.address <= address);
        let mut names = Vec::new();
        let mut first = None;
        for entry in self.entries[..after].iter().rev() {
            // Aliases share one address. Entries before them cannot cover `address` unless
            // functions nest.
            if *first.get_or_insert(entry.address) != entry.address {
                break;
            }
            if names.len() == ALIASES {
                break;
            }
            if address - entry.address < u64::from(entry.size.max(1)) {
                let tail = self.names.get(entry.name as usize..).unwrap_or_default();
                let end = tail
                    .iter()
                    .position(|&byte| byte == 0)
                    .unwrap_or(tail.len());
                if !names.contains(&&tail[..end]) {
                    names.push(&tail[..end]);
                }
            }
        }
        // The name that a program would use comes first: `poll`, not `__poll`.
        names.sort_by_key(|name| name.iter().take_while(|&&byte| byte == b'_').count());
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ourselves() -> ElfFile {
        ElfFile::open(File::open("/proc/self/exe").unwrap()).unwrap()
    }

    #[test]
    fn our_own_program() {
        let elf = ourselves();
        assert!(elf.interpreter.is_some());
        let maps = crate::maps::parse(&std::fs::read("/proc/self/maps").unwrap());
        let here = our_own_program as *const () as u64;
        let mapping = maps.iter().find(|mapping| mapping.holds(here)).unwrap();
        let bias = elf.bias(mapping.start, mapping.offset).unwrap();
        let symbols = elf.symbols().unwrap();
        let names: Vec<String> = symbols
            .at(here - bias)
            .into_iter()
            .map(crate::show)
            .collect();
        assert!(
            names.iter().any(|name| name.contains("our_own_program")),
            "{names:?}"
        );
        let [frames, none] = elf.sections([b".eh_frame", b".nonsense"]).unwrap();
        assert!(!frames.unwrap().bytes.is_empty() && none.is_none());
    }

    /// Tables that lie in holes of a file take no room on the disk, and must take none in memory.
    #[test]
    fn files_with_holes_use_the_allowance_up() {
        let bytes = std::fs::read("/proc/self/exe").unwrap();
        let path = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(path.path(), &bytes).unwrap();
        let file = File::options().write(true).open(path.path()).unwrap();
        file.set_len(8 << 30).unwrap();
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        let half = |at: usize| u64::from(u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap()));
        // Every section except the table of section names becomes 1 GiB of zeros (source: elf.h,
        // Elf64_Shdr).
        let (table, size, count, names) = (word(0x28), half(0x3a), half(0x3c), half(0x3e));
        for number in (1..count).filter(|number| *number != names) {
            let at = table + number * size;
            file.write_all_at(&(1_u64 << 32).to_le_bytes(), at + 0x18)
                .unwrap();
            file.write_all_at(&(1_u64 << 30).to_le_bytes(), at + 0x20)
                .unwrap();
        }
        let elf = ElfFile::open(File::open(path.path()).unwrap()).unwrap();
        assert!(elf.symbols().is_err());
        let error = elf.sections([b".eh_frame"]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn no_elf_file() {
        assert!(ElfFile::open(File::open("/proc/self/maps").unwrap()).is_err());
        assert!(ElfFile::open(File::open("/dev/null").unwrap()).is_err());
    }
}
