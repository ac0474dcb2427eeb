//! Names of kernels, as long as a record allows.

use super::{KernelSymbol, MAX_RECORD};
use std::borrow::Cow;

/// The longest name of a kernel in a record, in bytes.
pub const MOST_NAME: usize = MAX_RECORD - size_of::<KernelSymbol>();
/// The ending of a kernel descriptor's symbol, which the writers of results take off.
const DESCRIPTOR: &[u8] = b".kd";

/// Returns a kernel's name as records have it. A name of more than [`MOST_NAME`] bytes is cut: its
/// first bytes are followed by an ellipsis and a hash of the whole name, so that kernels whose long
/// names start alike stay apart. The ending of a descriptor's symbol is kept.
pub fn kernel_name(whole: &[u8]) -> Cow<'_, [u8]> {
    if whole.len() <= MOST_NAME {
        return Cow::Borrowed(whole);
    }
    let (name, ending) = match whole.strip_suffix(DESCRIPTOR) {
        Some(name) => (name, DESCRIPTOR),
        None => (whole, &[][..]),
    };
    let mark = format!("…{:016x}", hash(name));
    let mut end = MOST_NAME - mark.len() - ending.len();
    // A character of more than one byte is not cut in two: its further bytes start with 10.
    while end > 0 && name.get(end).is_some_and(|byte| byte & 0xc0 == 0x80) {
        end -= 1;
    }
    let begin = name.get(..end).unwrap_or_default();
    Cow::Owned([begin, mark.as_bytes(), ending].concat())
}

/// FNV-1a, which is the same in every build and on every machine.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_cut_where_a_record_ends() {
        for len in [0, 1, 3072, 3073, MOST_NAME] {
            let whole = vec![b'k'; len];
            assert_eq!(kernel_name(&whole), whole, "{len}");
        }
        // Miri takes a minute for the hashes of the longer one.
        let long = if cfg!(miri) { 10_000 } else { 200_000 };
        for len in [MOST_NAME + 1, long] {
            let whole = [&vec![b'k'; len - 3][..], b".kd"].concat();
            let cut = kernel_name(&whole);
            assert_eq!(cut.len(), MOST_NAME);
            let cut = std::str::from_utf8(&cut).unwrap();
            let (begin, hash) = cut.strip_suffix(".kd").unwrap().split_once('…').unwrap();
            assert!(begin.bytes().all(|byte| byte == b'k'));
            assert_eq!(hash.len(), 16);
            // The same kernel without the ending of its descriptor's symbol.
            let other = kernel_name(&whole[..len - 3]);
            assert_eq!(len - 3 > MOST_NAME, other.ends_with(hash.as_bytes()));
        }
    }

    #[test]
    fn names_that_begin_alike_stay_apart() {
        let name = |last: u8| [&[b'k'; 5000][..], &[last]].concat();
        assert_ne!(kernel_name(&name(b'a')), kernel_name(&name(b'b')));
    }

    #[test]
    fn a_character_is_not_cut_in_two() {
        for before in 0..3 {
            let whole = format!("{}{}", "k".repeat(before), "…".repeat(2000));
            let cut = kernel_name(whole.as_bytes()).into_owned();
            assert!(cut.len() > MOST_NAME - 3 && cut.len() <= MOST_NAME);
            let cut = String::from_utf8(cut).unwrap();
            assert!(cut.starts_with(&whole[..before + 3]));
        }
    }
}
