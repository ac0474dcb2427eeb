//! How much of what a target wrote is kept in memory, and how long a name may be in a file.
//!
//! A record has at most 4 KiB, but a target can write any number of them, and the name of a kernel
//! stands in the row of each dispatch. The limits for the number of things are in the
//! [index](crate::index). The limits for bytes are here.
//!
//! Decision: FMT-019 (`docs/deviations/formats.md`).

use std::borrow::Cow;

/// Bytes of the longest name or message in a file. A longer one is cut, and ends in [`MARK`].
pub const NAME: usize = 4096;
/// The end of a name that was cut.
pub const MARK: &str = "…";
/// The most bytes of names of kernels, code objects and devices that the index keeps of one
/// process. A PyTorch process with everything loaded has some 30 MiB of them.
pub const NAMES: usize = 64 << 20;
/// The most bytes of demangled names of one process, which are a few times as long.
pub const DEMANGLED: usize = 128 << 20;

/// Returns bytes of a target as text of at most [`NAME`] bytes.
pub fn text(bytes: &[u8]) -> Cow<'_, str> {
    cut(String::from_utf8_lossy(bytes), NAME)
}

/// Returns the text, or as much of it as fits into `most` bytes with the mark behind it.
pub fn cut(text: Cow<'_, str>, most: usize) -> Cow<'_, str> {
    if text.len() <= most {
        return text;
    }
    let end = text.floor_char_boundary(most.saturating_sub(MARK.len()));
    let mut kept = text.get(..end).unwrap_or_default().to_owned();
    kept.push_str(MARK);
    Cow::Owned(kept)
}

/// Bytes that are kept, with a limit.
#[derive(Debug, Clone, Copy, Default)]
pub struct Budget<const MOST: usize>(usize);

impl<const MOST: usize> Budget<MOST> {
    /// Takes `new` bytes, and returns the `old` ones that they replace. Nothing is changed where
    /// the limit would be exceeded.
    pub fn replace(&mut self, old: usize, new: usize) -> bool {
        let kept = self.0.saturating_sub(old).saturating_add(new);
        if kept <= MOST {
            self.0 = kept;
        }
        kept <= MOST
    }

    /// Takes bytes, if that many are left.
    pub fn take(&mut self, bytes: usize) -> bool {
        self.replace(0, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_cut_between_characters_and_marked() {
        assert_eq!(cut("abcdef".into(), 6), "abcdef");
        assert_eq!(cut("abcdefg".into(), 6), "abc…");
        // Two bytes each.
        assert_eq!(cut("ääää".into(), 7), "ää…");
        assert_eq!(cut("ääää".into(), 6), "ä…");
        let long = text(&[0xff; 4000]);
        assert!(long.len() <= NAME && long.ends_with(MARK), "{}", long.len());
        assert_eq!(text(&[b'x'; NAME]).len(), NAME);
    }

    #[test]
    fn what_is_replaced_is_given_back() {
        let mut budget = Budget::<10>::default();
        assert!(budget.take(6) && !budget.take(5) && budget.take(4));
        assert!(budget.replace(6, 3) && budget.take(3) && !budget.take(1));
    }
}
