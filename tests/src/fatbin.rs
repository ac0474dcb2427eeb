//! GPU code objects inside a HIP program.
//!
//! A HIP program carries its device code in the section `.hip_fatbin` as a bundle: the magic
//! `__CLANG_OFFLOAD_BUNDLE__`, a count, and for each entry offset, size, length of the name and
//! name (source: the layout of clang's offload bundler).

use crate::Result;
use object::{Object, ObjectSection};

const MAGIC: &[u8] = b"__CLANG_OFFLOAD_BUNDLE__";

/// Returns the code object for `arch` (such as "gfx942") in an ELF program.
///
/// # Errors
/// Fails when the program is not ELF, or has no uncompressed bundle, or none for that architecture.
pub fn code_object<'a>(program: &'a [u8], arch: &str) -> Result<&'a [u8]> {
    let file = object::File::parse(program)?;
    let section = file
        .section_by_name(".hip_fatbin")
        .ok_or("no .hip_fatbin section")?;
    let bundle = section.data()?;
    if !bundle.starts_with(MAGIC) {
        return Err("the bundle is compressed or of an unknown kind".into());
    }
    let number = |at: usize| -> Result<usize> {
        let bytes = bundle.get(at..at + 8).ok_or("the bundle is cut off")?;
        Ok(usize::try_from(u64::from_le_bytes(bytes.try_into()?))?)
    };
    let mut at = MAGIC.len() + 8;
    for _ in 0..number(MAGIC.len())? {
        let (offset, size, name) = (number(at)?, number(at + 8)?, number(at + 16)?);
        let triple = bundle
            .get(at + 24..at + 24 + name)
            .ok_or("the bundle is cut off")?;
        if String::from_utf8_lossy(triple).rsplit("--").next() == Some(arch) {
            return bundle
                .get(offset..offset + size)
                .ok_or_else(|| "the bundle is cut off".into());
        }
        at += 24 + name;
    }
    Err(format!("no code object for {arch}").into())
}
