//! Memory into which the runtime writes texts.
//!
//! The runtime reports the length of a text, and in a second call writes all of it. Whether the
//! length still holds then is up to the runtime: symbols and code objects do not change while
//! their executable is looked at ([`crate::symbols::leaving`]), but nothing enforces that. So the
//! memory has the same size for each text: it is a mapping of [`ROOM`] bytes, of which only the
//! pages that were written to take memory. A text may be longer than its length by the rest of it.
//! If the length has changed, the text is asked for again.

use super::Status;
use std::ffi::c_void;

/// The longest text that is asked for, in bytes. Mangled names of templates have up to 500 KiB.
pub(crate) const MOST_TEXT: usize = 1 << 20;
/// Bytes of the mapping.
const ROOM: usize = 2 * MOST_TEXT;
/// How often a text is asked for whose length changes.
const TRIES: u32 = 3;

/// Why there is no text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Untold {
    /// The runtime refuses, or there is no memory for the text.
    Refused,
    /// The text has this many bytes, more than [`MOST_TEXT`].
    TooLong(usize),
}

/// Memory for one text after the other.
#[derive(Debug)]
pub(crate) struct Texts {
    /// A mapping of [`ROOM`] bytes; null if the system refused it.
    at: *mut u8,
}

impl Texts {
    pub(crate) fn new() -> Texts {
        // SAFETY: this creates a fresh private mapping at an address that the kernel chooses.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                ROOM,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        Texts {
            at: if at == libc::MAP_FAILED {
                std::ptr::null_mut()
            } else {
                at.cast()
            },
        }
    }

    /// Returns a text up to its first zero byte, until the next text is asked for. `len` returns the
    /// text's length, as the runtime reports it. `write` has the runtime write the text.
    ///
    /// # Errors
    /// There is no such text, or it is too long.
    pub(crate) fn ask(
        &mut self,
        len: impl Fn() -> Option<u32>,
        write: impl Fn(*mut c_void) -> Status,
    ) -> Result<&[u8], Untold> {
        let reported = || {
            let len = len().ok_or(Untold::Refused)? as usize;
            match len {
                0..=MOST_TEXT => Ok(len),
                _ => Err(Untold::TooLong(len)),
            }
        };
        if self.at.is_null() {
            return Err(Untold::Refused);
        }
        let (mut len, mut now) = (0, reported()?);
        for _ in 0..TRIES {
            len = now;
            // SAFETY: the mapping is ours and longer than the longest text. The zeroes are for a
            // runtime that writes less than it reports.
            unsafe { self.at.write_bytes(0, len) };
            if write(self.at.cast()) != 0 {
                return Err(Untold::Refused);
            }
            now = reported()?;
            if now == len {
                break;
            }
        }
        // SAFETY: the mapping has so many bytes, all of which are initialised, and nothing writes to
        // them as long as this value is borrowed.
        let text = unsafe { std::slice::from_raw_parts(self.at, len) };
        let end = text.iter().position(|byte| *byte == 0);
        Ok(end.and_then(|end| text.get(..end)).unwrap_or(text))
    }
}

impl Drop for Texts {
    fn drop(&mut self) {
        if !self.at.is_null() {
            // SAFETY: the mapping is ours, and no text in it is borrowed any more.
            unsafe { libc::munmap(self.at.cast(), ROOM) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Writes a text of `len` bytes and no zero, as a runtime does.
    fn write(to: *mut c_void, byte: u8, len: usize) -> Status {
        // SAFETY: the memory has room for the texts of these tests.
        unsafe { to.cast::<u8>().write_bytes(byte, len) };
        0
    }

    #[test]
    fn a_text_is_whole_however_long_it_is() {
        let mut texts = Texts::new();
        for len in [0, 1, 3072, 3073, 4000, 200_000, MOST_TEXT, 1, 0] {
            let text = texts.ask(|| Some(len as u32), |to| write(to, b'k', len));
            assert_eq!(text, Ok(&vec![b'k'; len][..]), "{len}");
        }
    }

    #[test]
    fn a_text_that_is_too_long_is_not_asked_for() {
        let is_asked = Cell::new(false);
        for len in [MOST_TEXT as u32 + 1, u32::MAX] {
            let mut texts = Texts::new();
            let text = texts.ask(|| Some(len), |_| u32::from(is_asked.replace(true)));
            assert_eq!(text, Err(Untold::TooLong(len as usize)));
        }
        assert!(!is_asked.get());
    }

    #[test]
    fn a_text_that_grows_between_the_calls_is_asked_for_again() {
        let mut texts = Texts::new();
        let asked = Cell::new(0);
        let len = || {
            Some(if asked.replace(asked.get() + 1) == 0 {
                10
            } else {
                200_000
            })
        };
        let text = texts.ask(len, |to| write(to, b'k', 200_000));
        assert_eq!(text, Ok(&vec![b'k'; 200_000][..]));
        // The length never tells the truth.
        asked.set(0);
        let len = || Some(asked.replace(asked.get() + 1) + 1);
        let text = texts.ask(len, |to| write(to, b'k', 200_000)).unwrap();
        assert_eq!(text, [b'k'; 3]);
        // It grows beyond what is asked for.
        asked.set(0);
        let len = || Some(asked.replace(MOST_TEXT as u32 + 1));
        let text = texts.ask(len, |to| write(to, b'k', MOST_TEXT + 1));
        assert_eq!(text, Err(Untold::TooLong(MOST_TEXT + 1)));
    }

    #[test]
    fn nothing_of_the_text_before_is_left() {
        let mut texts = Texts::new();
        let long = texts.ask(|| Some(8), |to| write(to, b'a', 8));
        assert_eq!(long, Ok(&b"aaaaaaaa"[..]));
        // The runtime writes less than it has reported.
        let short = texts.ask(|| Some(8), |to| write(to, b'b', 3));
        assert_eq!(short, Ok(&b"bbb"[..]));
    }

    #[test]
    fn a_refusal_is_no_text() {
        let mut texts = Texts::new();
        assert_eq!(texts.ask(|| None, |_| 0), Err(Untold::Refused));
        assert_eq!(texts.ask(|| Some(5), |_| 1), Err(Untold::Refused));
        let mut none = Texts {
            at: std::ptr::null_mut(),
        };
        assert_eq!(none.ask(|| Some(5), |_| 0), Err(Untold::Refused));
    }
}
