//! What a midair shared library must be, read from its ELF file.

use object::elf;
use object::read::elf::{Dyn, ElfFile64, FileHeader, ProgramHeader, SectionHeader};
use object::{Endianness, Object, ObjectSymbol};
use std::collections::BTreeSet;

type File<'a> = ElfFile64<'a, Endianness>;

/// The properties that are checked.
#[derive(Debug)]
pub struct Properties {
    pub soname: String,
    pub needed: BTreeSet<String>,
    pub exported: BTreeSet<String>,
    pub build_id: usize,
    pub nodelete: bool,
    pub static_tls: bool,
    pub run_path: bool,
    pub newest_glibc: (u32, u32),
    pub own_versions: usize,
    pub functions_only: bool,
    /// Variables that each thread has.
    pub per_thread: BTreeSet<String>,
}

/// Reads them.
pub fn read(data: &[u8]) -> Properties {
    let file = File::parse(data).unwrap();
    let endian = file.endian();
    let header = file.elf_header();
    let sections = header.sections(endian, data).unwrap();
    let mut found = Properties {
        soname: String::new(),
        needed: BTreeSet::new(),
        exported: BTreeSet::new(),
        build_id: file.build_id().unwrap().map_or(0, <[u8]>::len),
        nodelete: false,
        static_tls: false,
        run_path: false,
        newest_glibc: (0, 0),
        own_versions: 0,
        functions_only: true,
        per_thread: BTreeSet::new(),
    };

    let strings = {
        let section = sections
            .iter()
            .find(|s| s.sh_type(endian) == elf::SHT_DYNAMIC)
            .unwrap();
        sections
            .strings(endian, data, section.link(endian))
            .unwrap()
    };
    let text =
        |offset: u64| String::from_utf8(strings.get(offset as u32).unwrap().to_vec()).unwrap();
    let segment = header
        .program_headers(endian, data)
        .unwrap()
        .iter()
        .find(|s| s.p_type(endian) == elf::PT_DYNAMIC)
        .unwrap();
    for entry in segment.dynamic(endian, data).unwrap().unwrap() {
        let value = entry.d_val(endian);
        match entry.tag(endian) {
            elf::DT_SONAME => found.soname = text(value),
            elf::DT_NEEDED => drop(found.needed.insert(text(value))),
            elf::DT_RPATH | elf::DT_RUNPATH => found.run_path = true,
            elf::DT_FLAGS => found.static_tls |= value & elf::DF_STATIC_TLS.0 != 0,
            elf::DT_FLAGS_1 => found.nodelete |= value & elf::DF_1_NODELETE.0 != 0,
            _ => {}
        }
    }

    for symbol in file
        .dynamic_symbols()
        .filter(|s| !s.is_undefined() && s.is_global())
    {
        let name = symbol.name().unwrap().to_owned();
        if symbol.kind() == object::SymbolKind::Tls {
            found.per_thread.insert(name);
            continue;
        }
        found.functions_only &= symbol.kind() == object::SymbolKind::Text;
        found.exported.insert(name);
    }

    if let Some((mut needs, link)) = sections.gnu_verneed(endian, data).unwrap() {
        let names = sections.strings(endian, data, link).unwrap();
        while let Some((_, mut each)) = needs.next().unwrap() {
            while let Some(need) = each.next().unwrap() {
                let name = std::str::from_utf8(need.name(endian, names).unwrap()).unwrap();
                if let Some(number) = name.strip_prefix("GLIBC_") {
                    let mut parts = number.split('.').map(|p| p.parse().unwrap());
                    let version = (parts.next().unwrap(), parts.next().unwrap_or(0));
                    found.newest_glibc = found.newest_glibc.max(version);
                }
            }
        }
    }
    if let Some((mut definitions, _)) = sections.gnu_verdef(endian, data).unwrap() {
        while definitions.next().unwrap().is_some() {
            found.own_versions += 1;
        }
    }
    found
}

/// Fails unless the library has this SONAME, exports exactly these functions, and has the
/// properties that all our libraries have.
pub fn check(found: &Properties, soname: &str, exported: &[&str]) {
    assert_eq!(found.soname, soname);
    assert_eq!(
        found.exported,
        exported.iter().map(|n| (*n).to_owned()).collect()
    );
    assert!(found.functions_only, "injectors look for functions");
    assert!(
        found.build_id >= 16,
        "a build id of {} bytes",
        found.build_id
    );
    assert!(
        found.nodelete,
        "unloading code that threads run in is never sound"
    );
    assert!(
        !found.static_tls,
        "static TLS may not be left in a running process"
    );
    assert!(
        !found.run_path,
        "run paths mean nothing where we are loaded"
    );
    assert_eq!(found.own_versions, 0, "AMD's names are unversioned");
    // All are parts of the C library or the compiler's; SQLite, in the default tool, needs the
    // logarithm.
    let allowed: BTreeSet<String> = [
        "libgcc_s.so.1",
        "libc.so.6",
        "libm.so.6",
        "ld-linux-x86-64.so.2",
    ]
    .map(str::to_owned)
    .into();
    assert!(found.needed.is_subset(&allowed), "needs {:?}", found.needed);
    assert!(
        (2, 2) <= found.newest_glibc && found.newest_glibc <= (2, 34),
        "needs glibc {:?}",
        found.newest_glibc
    );
}
