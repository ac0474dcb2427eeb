//! Two names, one after the other, in memory of a fixed size.

use midair_record::event::MOST_CODE_NAME;

/// The names, in UTF-8. Each is cut at [`MOST_CODE_NAME`] bytes.
pub(crate) struct Text {
    bytes: [u8; 2 * MOST_CODE_NAME],
    len: usize,
    most: usize,
}

impl Text {
    pub(crate) fn new() -> Text {
        Text {
            bytes: [0; 2 * MOST_CODE_NAME],
            len: 0,
            most: MOST_CODE_NAME,
        }
    }

    /// Ends the first name.
    pub(crate) fn next(&mut self) {
        self.most = self.len + MOST_CODE_NAME;
    }

    /// Adds a character. Returns false where there is no room for it, nor for what follows.
    pub(crate) fn push(&mut self, character: char) -> bool {
        let mut encoded = [0; 4];
        let encoded = character.encode_utf8(&mut encoded).as_bytes();
        let end = self.len + encoded.len();
        if end > self.most {
            return false;
        }
        let Some(into) = self.bytes.get_mut(self.len..end) else {
            return false;
        };
        into.copy_from_slice(encoded);
        self.len = end;
        true
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns both names, and zeroes up to a multiple of eight bytes.
    pub(crate) fn padded(&self) -> &[u8] {
        let len = self.len.next_multiple_of(8);
        self.bytes.get(..len).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_has_its_own_limit() {
        let mut text = Text::new();
        while text.push('é') {}
        assert_eq!(text.len(), MOST_CODE_NAME);
        text.next();
        assert!(text.push('a'));
        while text.push('é') {}
        assert_eq!(text.len(), 2 * MOST_CODE_NAME - 1);
        assert_eq!(text.padded().len(), 2 * MOST_CODE_NAME);
        assert!(std::str::from_utf8(&text.padded()[..text.len()]).is_ok());
    }
}
