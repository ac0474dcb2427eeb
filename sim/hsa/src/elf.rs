//! Code objects: which kernels an ELF file has, and where.

use object::read::elf::{ElfFile64, ProgramHeader};
use object::{LittleEndian, Object, ObjectSymbol};

/// A kernel of a code object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    /// Name of its descriptor's symbol, with the ending ".kd".
    pub name: String,
    /// Address of its descriptor in the file's address space.
    pub address: u64,
}

/// What is loaded from a code object.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Image {
    /// Bytes from address 0 to the end of the last segment.
    pub size: u64,
    /// Segments: address, offset in the file, bytes in the file.
    pub segments: Vec<(u64, u64, u64)>,
    /// Its kernels.
    pub kernels: Vec<Kernel>,
}

/// Reads a code object. Returns `None` when it cannot be loaded.
pub fn image(bytes: &[u8]) -> Option<Image> {
    let file = ElfFile64::<LittleEndian>::parse(bytes).ok()?;
    let mut image = Image::default();
    for header in file.elf_program_headers() {
        let endian = LittleEndian;
        if header.p_type(endian) != object::elf::PT_LOAD {
            continue;
        }
        let (address, offset) = (header.p_vaddr(endian), header.p_offset(endian));
        let (in_file, in_memory) = (header.p_filesz(endian), header.p_memsz(endian));
        bytes.get(
            usize::try_from(offset).ok()?..usize::try_from(offset.checked_add(in_file)?).ok()?,
        )?;
        image.size = image.size.max(address.checked_add(in_memory.max(in_file))?);
        image.segments.push((address, offset, in_file));
    }
    for symbol in file.symbols().chain(file.dynamic_symbols()) {
        let Ok(name) = symbol.name() else { continue };
        let known = image.kernels.iter().any(|kernel| kernel.name == name);
        if name.ends_with(".kd") && !known && symbol.address().checked_add(64)? <= image.size {
            image.kernels.push(Kernel {
                name: name.to_owned(),
                address: symbol.address(),
            });
        }
    }
    (image.size != 0 && image.size < 1 << 32).then_some(image)
}
