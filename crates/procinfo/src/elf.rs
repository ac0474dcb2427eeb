//! ELF files of a target: symbols, code, unwind tables.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use crate::windows::Bounded;
use object::elf::{FileHeader64, PF_X, PT_LOAD, SHN_UNDEF, STT_FUNC, STT_GNU_IFUNC, STT_NOTYPE};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader, Sym};
use object::{Endianness, ReadRef};

/// The parts of a loaded file's program header that say where it lies.
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
    /// It is code.
    pub execute: bool,
}

/// One function-like symbol.
#[derive(Debug, Clone, Copy)]
struct Entry {
    address: u64,
    size: u64,
    /// Into `names`.
    name: usize,
}

/// A piece of a file with the address that it is linked for.
#[derive(Debug, Clone, Default)]
pub struct Piece {
    /// Linked address.
    pub address: u64,
    /// Bytes.
    pub bytes: Vec<u8>,
}

impl Piece {
    /// Linked addresses that it covers.
    pub fn range(&self) -> Range<u64> {
        self.address..self.address.saturating_add(self.bytes.len() as u64)
    }
}

/// An ELF file of the target, opened and checked. Tables are read when they are first needed.
#[derive(Debug)]
pub struct ElfFile {
    file: File,
    /// Loadable segments.
    pub segments: Vec<Segment>,
    /// Address of the first instruction of a program.
    pub entry: u64,
    /// It names a dynamic loader.
    pub interpreter: Option<Vec<u8>>,
    /// The Build-ID, empty when there is none.
    pub build_id: Vec<u8>,
}

fn bad(what: &'static str) -> impl Fn(object::Error) -> io::Error {
    move |error| io::Error::new(io::ErrorKind::InvalidData, format!("{what}: {error}"))
}

type Header = FileHeader64<Endianness>;

impl ElfFile {
    /// Reads the headers of a 64-bit little-endian file for this processor.
    ///
    /// # Errors
    /// The kernel's; invalid data when it is no such file.
    pub fn open(file: File) -> io::Result<ElfFile> {
        let data = Bounded::over(&file);
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
            segments,
            entry,
            interpreter,
            build_id,
        })
    }

    /// Where the file lies in memory: what to add to a linked address, given one executable mapping
    /// of it. (Two segments of different rights may share a page of the file, so the offset alone
    /// does not tell which one is mapped.)
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

    /// Bytes of the code segments.
    ///
    /// # Errors
    /// The kernel's.
    pub fn code(&self) -> io::Result<Vec<Piece>> {
        let data = Bounded::over(&self.file);
        let mut pieces = Vec::new();
        for segment in self.segments.iter().filter(|segment| segment.execute) {
            let bytes = (&data)
                .read_bytes_at(segment.offset, segment.file_size)
                .map_err(|()| io::Error::from(io::ErrorKind::UnexpectedEof))?;
            pieces.push(Piece {
                address: segment.address,
                bytes: bytes.to_vec(),
            });
        }
        Ok(pieces)
    }

    /// Sections by name, in the order asked for; those that are missing are None.
    ///
    /// # Errors
    /// The kernel's; invalid data when the section table is broken.
    pub fn sections<const N: usize>(&self, names: [&[u8]; N]) -> io::Result<[Option<Piece>; N]> {
        let data = Bounded::over(&self.file);
        let header = Header::parse(&data).map_err(bad("ELF header"))?;
        let endian = header.endian().map_err(bad("ELF byte order"))?;
        let table = header
            .sections(endian, &data)
            .map_err(bad("section headers"))?;
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

    /// A part of the file, in one read: tables of large programs have many megabytes.
    fn bytes(&self, offset: u64, len: u64) -> io::Result<Vec<u8>> {
        let outside = || io::Error::from(io::ErrorKind::InvalidData);
        let end = offset.checked_add(len).ok_or_else(outside)?;
        // What a file announces may be anything, and a file with holes of any length.
        const MOST: u64 = 1 << 29;
        if len > MOST || end > self.file.metadata()?.len() {
            return Err(outside());
        }
        let mut bytes = vec![0; usize::try_from(len).map_err(|_| outside())?];
        self.file.read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    }

    /// Linked addresses that a section covers, None when there is none of this name. Its bytes are
    /// not read.
    ///
    /// # Errors
    /// The kernel's; invalid data when the section table is broken.
    pub fn section_range(&self, name: &[u8]) -> io::Result<Option<Range<u64>>> {
        let data = Bounded::over(&self.file);
        let header = Header::parse(&data).map_err(bad("ELF header"))?;
        let endian = header.endian().map_err(bad("ELF byte order"))?;
        let table = header
            .sections(endian, &data)
            .map_err(bad("section headers"))?;
        let found = table.section_by_name(endian, name);
        Ok(found.map(|(_index, section)| {
            let start = section.sh_addr(endian);
            start..start.saturating_add(section.sh_size(endian))
        }))
    }

    /// Linked addresses of exported functions, in the order asked for. Of several versions of a
    /// name the default one counts.
    ///
    /// # Errors
    /// The kernel's; invalid data when the tables are broken.
    pub fn exported<const N: usize>(&self, names: [&str; N]) -> io::Result<[Option<u64>; N]> {
        let data = Bounded::over(&self.file);
        let header = Header::parse(&data).map_err(bad("ELF header"))?;
        let endian = header.endian().map_err(bad("ELF byte order"))?;
        let sections = header
            .sections(endian, &data)
            .map_err(bad("section headers"))?;
        let symbols = sections
            .symbols(endian, &data, object::elf::SHT_DYNSYM)
            .map_err(bad(".dynsym"))?;
        let versions = sections
            .versions(endian, &data)
            .map_err(bad("symbol versions"))?;
        let mut found = [None; N];
        let mut hidden = [false; N];
        for (index, symbol) in symbols.enumerate() {
            if symbol.st_shndx(endian) == SHN_UNDEF || symbol.st_type() != STT_FUNC {
                continue;
            }
            let Ok(name) = symbol.name(endian, symbols.strings()) else {
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

    /// Names of the versions that the file defines (`GLIBC_2.34`, …).
    ///
    /// # Errors
    /// The kernel's; invalid data when the tables are broken.
    pub fn defined_versions(&self) -> io::Result<Vec<String>> {
        let data = Bounded::over(&self.file);
        let header = Header::parse(&data).map_err(bad("ELF header"))?;
        let endian = header.endian().map_err(bad("ELF byte order"))?;
        let sections = header
            .sections(endian, &data)
            .map_err(bad("section headers"))?;
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

    /// All function-like symbols, for look-ups by address.
    ///
    /// # Errors
    /// The kernel's; invalid data when the tables are broken.
    pub fn symbols(&self) -> io::Result<Symbols> {
        let data = Bounded::over(&self.file);
        let header = Header::parse(&data).map_err(bad("ELF header"))?;
        let endian = header.endian().map_err(bad("ELF byte order"))?;
        let sections = header
            .sections(endian, &data)
            .map_err(bad("section headers"))?;
        let mut all = Symbols::default();
        for kind in [object::elf::SHT_SYMTAB, object::elf::SHT_DYNSYM] {
            let table = sections
                .symbols(endian, &data, kind)
                .map_err(bad("symbols"))?;
            // All names immediately: there may be hundreds of thousands, and reading them one by
            // one takes seconds.
            let strings = sections
                .section(table.string_section())
                .ok()
                .and_then(|section| section.file_range(endian));
            let strings = match strings {
                Some((offset, len)) => self.bytes(offset, len)?,
                None => Vec::new(),
            };
            let base = all.names.len();
            all.names.extend_from_slice(&strings);
            all.names.push(0);
            for symbol in table.iter() {
                let kind = symbol.st_type();
                let wanted = kind == STT_FUNC
                    || kind == STT_GNU_IFUNC
                    || kind == STT_NOTYPE && symbol.st_size(endian) != 0;
                let name = symbol.st_name(endian) as usize;
                let named = strings.get(name).is_some_and(|&first| first != 0);
                if wanted && named && symbol.st_shndx(endian) != SHN_UNDEF {
                    all.entries.push(Entry {
                        address: symbol.st_value(endian),
                        size: symbol.st_size(endian),
                        name: base + name,
                    });
                }
            }
        }
        all.entries
            .sort_unstable_by_key(|entry| (entry.address, entry.size));
        Ok(all)
    }
}

/// Names by address.
#[derive(Debug, Default)]
pub struct Symbols {
    entries: Vec<Entry>,
    /// Names, each ended by a zero.
    names: Vec<u8>,
}

impl Symbols {
    /// The names of the function that covers a linked address: several where it has aliases, none
    /// where it has no symbol.
    pub fn at(&self, address: u64) -> Vec<&[u8]> {
        let after = self
            .entries
            .partition_point(|entry| entry.address <= address);
        let mut names = Vec::new();
        let mut first = None;
        for entry in self.entries[..after].iter().rev() {
            // Aliases share one address; what lies before cannot cover `address` unless functions
            // nest.
            if *first.get_or_insert(entry.address) != entry.address {
                break;
            }
            if address - entry.address < entry.size.max(1) {
                let tail = &self.names[entry.name..];
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

    #[test]
    fn no_elf_file() {
        assert!(ElfFile::open(File::open("/proc/self/maps").unwrap()).is_err());
        assert!(ElfFile::open(File::open("/dev/null").unwrap()).is_err());
    }
}
