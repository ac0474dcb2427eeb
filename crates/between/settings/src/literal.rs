//! Paths in settings. A setting is text, in which keys such as `%pid%` are replaced; a path is
//! bytes, in which nothing is. `%byte-e9%` is a key for one byte, and carries what would otherwise
//! be a key, or is no text.

use std::path::Path;

/// What the name of the key for a byte starts with. Two hexadecimal digits follow.
pub const BYTE: &str = "byte-";

/// Returns the text that stands for exactly this path.
pub fn literal(path: &Path) -> String {
    escaped(path.as_os_str().as_encoded_bytes(), |c| {
        matches!(c, '%' | '{' | '$')
    })
}

/// Returns the text of a user's bytes. The keys in them stay keys.
pub fn template(bytes: &[u8]) -> String {
    escaped(bytes, |_| false)
}

/// Returns the byte that a key stands for.
pub fn byte(key: &str) -> Option<u8> {
    let digits = key.strip_prefix(BYTE)?;
    let is_byte = digits.len() == 2 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_byte.then(|| u8::from_str_radix(digits, 16).ok())?
}

fn escaped(bytes: &[u8], is_special: impl Fn(char) -> bool) -> String {
    let key = |byte: u8| format!("%{BYTE}{byte:02x}%");
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match u8::try_from(c).ok().filter(|_| is_special(c)) {
                Some(special) => text += &key(special),
                None => text.push(c),
            }
        }
        for byte in chunk.invalid() {
            text += &key(*byte);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn a_path_has_no_keys_and_a_template_keeps_them() {
        let path = Path::new(OsStr::from_bytes(b"/50%pruned/{a}/$x/caf\xe9/\xc3\xa9"));
        let wanted = "/50%byte-25%pruned/%byte-7b%a}/%byte-24%x/caf%byte-e9%/\u{e9}";
        assert_eq!(literal(path), wanted);
        assert_eq!(template(b"%pid%/\xff"), "%pid%/%byte-ff%");
        assert_eq!(literal(Path::new("/home/me")), "/home/me");
    }

    #[test]
    fn a_key_stands_for_one_byte() {
        assert_eq!((byte("byte-e9"), byte("byte-2F")), (Some(0xe9), Some(b'/')));
        for other in ["byte-", "byte-e", "byte-e90", "byte-+9", "byte-zz", "pid"] {
            assert_eq!(byte(other), None, "{other}");
        }
    }
}
