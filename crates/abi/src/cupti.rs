//! NVIDIA's CUPTI: names of calls and enumerators, and where the fields of its activity records lie in each version.
//! Source: api/cupti_12.json, api/cupti_13.json, api/cupti_versions.json. CUPTI itself is never linked.

/// Where a field lies in its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Bytes from the record's start.
    pub offset: u16,
    /// Bytes.
    pub width: u8,
}

include!(concat!(env!("OUT_DIR"), "/cupti_names.rs"));
include!(concat!(env!("OUT_DIR"), "/cupti_layouts.rs"));

/// The name at a place of a list that has "" where there is none.
fn named(names: &[&'static str], at: u32) -> Option<&'static str> {
    names
        .get(usize::try_from(at).ok()?)
        .copied()
        .filter(|name| !name.is_empty())
}

/// Layouts for what `cuptiGetVersion` says (`api`), or `None` where the version is older than CUDA
/// 12.0's or of a later major version than the newest that we know.
///
/// A version between two known ones has the lower one's layouts. A newer one of the newest major
/// version has the newest layouts: in all versions from 12.0 to 13.5 no field has moved or gone,
/// records only grew at the end or into their padding (api/cupti_versions.json; a test says so),
/// and the next record is found by CUPTI itself. `libcupti.so.11` of 11.8 also calls itself 18; it
/// is told apart by its name, before.
pub fn layouts_for(api: u32) -> Option<&'static Layouts> {
    let newest = LAYOUTS.last()?;
    // From 13.0 on the number is 10000 * major + 100 * minor + update.
    if api >= 10_000 && api / 10_000 > newest.cuda.0 {
        return None;
    }
    LAYOUTS.iter().rev().find(|known| known.api <= api)
}

/// CUDA's major and minor version that belongs to what `cuptiGetVersion` says, as far as it tells:
/// 12.0 and 12.1 say the same (and are taken for 12.1). `None` for versions before 12.
pub fn cuda_version(api: u32) -> Option<(u32, u32)> {
    if api >= 10_000 {
        return Some((api / 10_000, api / 100 % 100));
    }
    let known = LAYOUTS.iter().filter(|known| known.api <= api);
    known.map(|known| known.cuda).next_back()
}
