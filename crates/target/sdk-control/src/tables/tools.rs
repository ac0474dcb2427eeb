//! The table through which the HSA runtime reports scratch memory to tools.
//!
//! No exported function jumps through this table, so it is found through the root table, which
//! points to all tables. In AMD's runtime the root table is right before the core table, in the
//! same object (seen in 6.0 to 7.2.4: `HsaApiTableContainer` of api/hsa_api_tables.json). A
//! register library may also have passed it on. Either is accepted only if it proves to be the
//! root: by its version and size, and because it points to the very tables that the exported
//! functions jump through.
//!
//! Decisions: AMD-029 (`docs/deviations/amd.md`).

use super::Live;
use super::maps::Maps;
use midair_abi::tables::TableId;
use midair_sdk_hot::wrappers::{self, TABLES};

/// `HsaApiTable` (source: api/hsa_api_tables.json).
mod root {
    /// `HSA_API_TABLE_MAJOR_VERSION`.
    pub const MAJOR: u32 = 3;
    /// The sizes with and without the table of PC sampling, which is its last entry.
    pub const SIZES: [usize; 2] = [64, 56];
    pub const CORE: usize = 16;
    pub const AMD_EXT: usize = 24;
    pub const TOOLS: usize = 48;
    pub const SAMPLES: usize = 56;
}

/// `HSA_TOOLS_API_TABLE_MAJOR_VERSION`.
const MAJOR: u32 = 1;
/// `ToolsApiTable`: a version and six entries.
pub const SIZE: usize = 64;
/// Offset of the first entry.
pub const FIRST: usize = 16;

/// Finds the table that belongs to the live tables `found`. `handed_over` is where the root is
/// according to a register library, 0 when none has passed it on.
///
/// # Errors
/// Why there is none, as text; `None` when the runtime itself was not found.
pub fn find(found: &[Live], handed_over: usize) -> Result<Live, Option<String>> {
    let Some(core) = live(found, TableId::HsaCore) else {
        return Err(None);
    };
    let maps =
        Maps::of_self().ok_or_else(|| Some("cannot read /proc/thread-self/maps".to_owned()))?;
    roots(&maps, found, handed_over)
        .find_map(|root| {
            let base = maps.read_u64(root + root::TOOLS)? as usize;
            // SAFETY: `is_tools` saw that it is aligned and writable. It is a static of the
            // runtime, which is not unloaded.
            is_tools(&maps, base)
                .then(|| unsafe { Live::new(wrappers::TABLES.len(), base, SIZE, core.home) })
        })
        .ok_or_else(|| {
            live(found, TableId::HsaAmdExt)?;
            Some(
                "the HSA runtime's tools table was not found: changes of scratch memory are not recorded"
                    .to_owned(),
            )
        })
}

/// Returns the address of the root table that belongs to the live tables `found`.
pub fn root(found: &[Live], handed_over: usize) -> Option<usize> {
    roots(&Maps::of_self()?, found, handed_over).next()
}

/// Returns the address of the table of PC sampling, if the runtime has one.
pub(super) fn samples(maps: &Maps, found: &[Live], handed_over: usize) -> Option<usize> {
    let root = roots(maps, found, handed_over)
        .find(|root| version(maps, *root).is_some_and(|(_, size)| size >= root::SAMPLES + 8))?;
    Some(maps.read_u64(root + root::SAMPLES)? as usize)
}

/// Returns the live table with this id.
fn live(found: &[Live], id: TableId) -> Option<&Live> {
    found
        .iter()
        .find(|live| TABLES.get(live.index).is_some_and(|table| table.id == id))
}

/// Returns the places that prove to be the root table.
fn roots<'a>(
    maps: &'a Maps,
    found: &[Live],
    handed_over: usize,
) -> impl Iterator<Item = usize> + use<'a> {
    let base = |id: TableId| live(found, id).map(|live| live.base);
    let tables = base(TableId::HsaCore).zip(base(TableId::HsaAmdExt));
    tables.into_iter().flat_map(move |(core, amd_ext)| {
        let before = root::SIZES.map(|size| core.wrapping_sub(size));
        before
            .into_iter()
            .chain([handed_over])
            .filter(move |candidate| is_root(maps, *candidate, core, amd_ext))
    })
}

/// Returns major version and size of the table at `base`.
fn version(maps: &Maps, base: usize) -> Option<(u32, usize)> {
    let first = maps.read_u64(base)?;
    Some((first as u32, (first >> 32) as usize))
}

fn is_root(maps: &Maps, base: usize, core: usize, amd_ext: usize) -> bool {
    let good = |(major, size): (u32, usize)| major == root::MAJOR && root::SIZES.contains(&size);
    let names = |offset: usize, table: usize| maps.read_u64(base + offset) == Some(table as u64);
    base != 0
        && base.is_multiple_of(8)
        && version(maps, base).is_some_and(good)
        && names(root::CORE, core)
        && names(root::AMD_EXT, amd_ext)
}

fn is_tools(maps: &Maps, base: usize) -> bool {
    // An entry without an owner is empty; a tool's entry is code.
    let entry = |offset: usize| {
        let value = maps.read_u64(base + offset).map(|value| value as usize);
        value.is_some_and(|value| value == 0 || maps.is_text(value))
    };
    base.is_multiple_of(8)
        && maps.is_writable(base, SIZE)
        && version(maps, base).is_some_and(|(major, size)| major == MAJOR && size >= SIZE)
        && (FIRST..SIZE).step_by(8).all(entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(id: TableId, base: usize) -> Live {
        let index = TABLES.iter().position(|table| table.id == id).unwrap();
        // SAFETY: the size is 0, so nothing is promised about any bytes.
        unsafe { Live::new(index, base, 0, 0) }
    }

    /// Returns a root table, two words of core table, two of amd_ext, and a tools table, which fit
    /// each other.
    fn runtime() -> Box<[u64; 32]> {
        let mut words = Box::new([0_u64; 32]);
        let at = |index: usize| (&raw const words[index]).addr() as u64;
        let (core, amd_ext, tools) = (at(8), at(10), at(12));
        words[0] = 64 << 32 | 3;
        words[2] = core;
        words[3] = amd_ext;
        words[6] = tools;
        words[12] = 64 << 32 | 1;
        words
    }

    fn look(words: &[u64; 32]) -> Result<usize, Option<String>> {
        let at = |index: usize| (&raw const words[index]).addr();
        let tables = [
            live(TableId::HsaCore, at(8)),
            live(TableId::HsaAmdExt, at(10)),
        ];
        find(&tables, 0).map(|found| found.base)
    }

    #[test]
    fn the_table_is_named_by_the_root_before_the_core_table() {
        let words = runtime();
        assert_eq!(look(&words), Ok((&raw const words[12]).addr()));
        assert_eq!(find(&[], 0).map(|found| found.base), Err(None));
    }

    #[test]
    fn what_does_not_prove_to_be_the_root_is_refused() {
        let spoil: [(usize, u64); 6] = [
            (0, 64 << 32 | 4),  // another major version
            (0, 72 << 32 | 3),  // another size
            (2, 0x1000),        // another core table
            (3, 0x1000),        // another table of extensions
            (12, 64 << 32 | 2), // another version of the tools' table
            (15, 0x1234),       // an entry that is no code
        ];
        for (index, value) in spoil {
            let mut words = runtime();
            words[index] = value;
            assert!(
                look(&words).is_err_and(|why| why.is_some()),
                "word {index} as {value:#x}"
            );
        }
    }
}
