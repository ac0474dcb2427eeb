//! Files that the user names on the command line.

use midair_session::as_real_user;
use std::io::{self, Read};
use std::path::Path;

/// Bytes of such a file at most.
const MOST: u64 = 4 << 20;

/// What is in it: read with the user's own rights, whatever this program has beyond them.
///
/// # Errors
/// The kernel's, text that is not UTF-8, and more than 4 MiB.
#[expect(
    clippy::disallowed_methods,
    reason = "the user's own file, with the user's rights"
)]
pub(crate) fn read(path: &Path) -> io::Result<String> {
    let read = || {
        let mut text = String::new();
        let mut file = std::fs::File::open(path)?.take(MOST + 1);
        match file.read_to_string(&mut text)? as u64 {
            0..=MOST => Ok(text),
            _ => Err(io::Error::other("more than 4 MiB")),
        }
    };
    as_real_user(read).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_an_end_is_not_read_for_ever() {
        let error = read(Path::new("/dev/zero")).expect_err("too long");
        assert_eq!(error.to_string(), "more than 4 MiB");
        assert!(read(Path::new("/nowhere")).is_err());
    }
}
