//! NVIDIA's CUPTI: names of calls and enumerators, and the places of its activity records' fields
//! in each version. Source: api/cupti_12.json, api/cupti_13.json, api/cupti_versions.json. CUPTI
//! itself is never linked.

/// The place of a field in its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Offset in bytes from the start of the record.
    pub offset: u16,
    /// Size in bytes.
    pub width: u8,
}

include!(concat!(env!("OUT_DIR"), "/cupti_names.rs"));
include!(concat!(env!("OUT_DIR"), "/cupti_layouts.rs"));

/// Whether a call of the runtime, or of the driver, only asks for state: it waits for nothing and
/// starts nothing.
pub fn is_silent(runtime: bool, cbid: u32) -> bool {
    let known: &[u32] = if runtime {
        &SILENT_RUNTIME
    } else {
        &SILENT_DRIVER
    };
    known.binary_search(&cbid).is_ok()
}

/// Returns the name at an index of a list that has "" where there is no name.
fn named(names: &[&'static str], at: u32) -> Option<&'static str> {
    names
        .get(usize::try_from(at).ok()?)
        .copied()
        .filter(|name| !name.is_empty())
}

/// Returns the layouts for the version that `cuptiGetVersion` returns (`api`). `None` where the
/// version is older than CUDA 12.0's, or of a later major version than the newest that we
/// know.
///
/// A version between two known ones uses the layouts of the lower one. A newer version of the
/// newest major version uses the newest layouts: in all versions from 12.0 to 13.5 no field was
/// moved or removed. Records only grew at the end or into their padding (api/cupti_versions.json,
/// checked by a test), and CUPTI itself finds the next record. `libcupti.so.11` of 11.8 also
/// reports version 18; callers tell it apart by its name beforehand.
pub fn layouts_for(api: u32) -> Option<&'static Layouts> {
    let newest = LAYOUTS.last()?;
    // Since 13.0 the number is 10000 * major + 100 * minor + update.
    if api >= 10_000 && api / 10_000 > newest.cuda.0 {
        return None;
    }
    LAYOUTS.iter().rev().find(|known| known.api <= api)
}

/// Returns CUDA's major and minor version for what `cuptiGetVersion` returns, as precisely as that
/// allows: 12.0 and 12.1 report the same (and are taken for 12.1). `None` for versions before 12.
pub fn cuda_version(api: u32) -> Option<(u32, u32)> {
    if api >= 10_000 {
        return Some((api / 10_000, api / 100 % 100));
    }
    let known = LAYOUTS.iter().filter(|known| known.api <= api);
    known.map(|known| known.cuda).next_back()
}
