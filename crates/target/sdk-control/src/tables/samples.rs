//! The table with the functions that sample program counters (`PcSamplingExtTable` of
//! api/hsa_api_tables.json). Only the root table points to it, and only if it is new enough.

use super::Live;
use super::maps::Maps;
use super::tools;

/// `HSA_PC_SAMPLING_API_TABLE_MAJOR_VERSION`.
const MAJOR: u32 = 1;
/// A version and seven functions.
const SIZE: usize = 72;
/// Offset of the first function.
const FIRST: usize = 16;

/// Returns the functions, in the table's order. The arguments are as for [`tools::find`].
pub fn find(found: &[Live], handed_over: usize) -> Option<[usize; 7]> {
    let maps = Maps::of_self()?;
    let base = tools::samples(&maps, found, handed_over)?;
    read(&maps, base)
}

fn read(maps: &Maps, base: usize) -> Option<[usize; 7]> {
    let version = maps.read_u64(base)?;
    if version as u32 != MAJOR || ((version >> 32) as usize) < SIZE || !base.is_multiple_of(8) {
        return None;
    }
    let mut entries = [0; 7];
    for (entry, offset) in entries.iter_mut().zip((FIRST..SIZE).step_by(8)) {
        *entry = maps.read_u64(base + offset)? as usize;
        if !maps.is_text(*entry) {
            return None;
        }
    }
    Some(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_a_version_and_seven_functions() {
        let maps = Maps::of_self().unwrap();
        let code = find as *const () as u64;
        let mut words = Box::new([code; 9]);
        let at = words.as_ptr().addr();
        words[0] = 72 << 32 | 1;
        assert_eq!(read(&maps, at), Some([code as usize; 7]));
        for (place, value) in [(0, 72 << 32 | 2), (0, 64 << 32 | 1), (8, 0)] {
            let before = std::mem::replace(&mut words[place], value);
            assert_eq!(read(&maps, at), None, "{place} {value}");
            words[place] = before;
        }
    }
}
