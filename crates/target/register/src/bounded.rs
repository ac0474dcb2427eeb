//! Reads from addresses from another party. An injector's address may be wrong, and that
//! must not end the process.

use crate::code::Code;
use std::ffi::{CString, c_char};

/// The maximum length of one text, in bytes. The longest values are lists of counters, of some ten
/// thousand bytes.
const MAX_TEXT: usize = 1 << 20;
/// The unit of reads. They end at page boundaries, because the next page may not be mapped.
const PAGE: usize = 4096;

/// Copies `to.len()` bytes from `from`. Returns false when not all of them are readable, or when
/// that cannot be determined.
pub(crate) fn copy(from: usize, to: &mut [u8]) -> bool {
    let local = libc::iovec {
        iov_base: to.as_mut_ptr().cast(),
        iov_len: to.len(),
    };
    let remote = libc::iovec {
        iov_base: std::ptr::with_exposed_provenance_mut(from),
        iov_len: to.len(),
    };
    // SAFETY: the kernel writes only into `to`, and returns an error where `from` cannot be read. A
    // process may always read itself. The calling thread's id is passed, since the main thread may
    // have ended, and then has no memory.
    let got = unsafe { libc::process_vm_readv(libc::gettid(), &local, 1, &remote, 1, 0) };
    if got >= 0 {
        return got as usize == to.len();
    }
    if std::io::Error::last_os_error().raw_os_error() == Some(libc::EFAULT) {
        return false;
    }
    // A container that forbids that call still has this file.
    std::fs::File::open("/proc/thread-self/mem").is_ok_and(|memory| {
        std::os::unix::fs::FileExt::read_exact_at(&memory, to, from as u64).is_ok()
    })
}

/// A position in memory that is read without trusting it.
#[derive(Debug, Clone, Copy)]
pub struct Cursor(usize);

impl Cursor {
    /// Starts at an address that C code passed.
    pub fn new(address: *const c_char) -> Cursor {
        Cursor(address.expose_provenance())
    }

    /// Reads four bytes, at any alignment, and advances.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`] when they cannot be read.
    pub fn number(&mut self) -> Result<u32, Code> {
        let mut bytes = [0; 4];
        if !copy(self.0, &mut bytes) {
            return Err(Code::InvalidArgument);
        }
        self.0 = self.0.checked_add(4).ok_or(Code::InvalidArgument)?;
        Ok(u32::from_ne_bytes(bytes))
    }

    /// Reads a NUL-terminated text, and advances.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`] when it cannot be read, has no terminator, or is too long.
    pub fn text(&mut self) -> Result<CString, Code> {
        let mut text = Vec::new();
        let mut piece = [0; PAGE];
        loop {
            let left = PAGE - self.0 % PAGE;
            let piece = piece.get_mut(..left).ok_or(Code::InvalidArgument)?;
            if !copy(self.0, piece) {
                return Err(Code::InvalidArgument);
            }
            let end = piece.iter().position(|byte| *byte == 0);
            let (used, whole) = end.map_or((left, false), |end| (end + 1, true));
            text.extend_from_slice(piece.get(..end.unwrap_or(left)).unwrap_or_default());
            if text.len() > MAX_TEXT {
                return Err(Code::InvalidArgument);
            }
            self.0 = self.0.checked_add(used).ok_or(Code::InvalidArgument)?;
            if whole {
                return CString::new(text).map_err(|_| Code::InvalidArgument);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::filter;

    #[test]
    fn a_text_has_a_mebibyte_at_most() {
        let mut bytes = vec![b'x'; MAX_TEXT + 2 * PAGE];
        let mut read = |start: usize, length: usize| {
            bytes[start + length] = 0;
            let got = Cursor(bytes[start..].as_ptr().expose_provenance()).text();
            bytes[start + length] = b'x';
            got.map(|text| text.count_bytes())
        };
        // A text at the start of a page is read in whole pages, others are not.
        for start in [0, 1, PAGE / 2] {
            assert_eq!(read(start, MAX_TEXT), Ok(MAX_TEXT), "{start}");
            for length in [MAX_TEXT + 1, MAX_TEXT + PAGE] {
                let got = read(start, length);
                assert_eq!(got, Err(Code::InvalidArgument), "{start} {length}");
            }
        }
    }

    #[test]
    fn memory_is_read_where_the_call_for_it_is_forbidden() {
        let read = |from: usize| {
            let mut bytes = [0; 8];
            copy(from, &mut bytes).then_some(bytes)
        };
        let there = *b"8 bytes.";
        let from = there.as_ptr().expose_provenance();
        assert_eq!((read(from), read(8)), (Some(there), None));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let fails = libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned();
                filter(libc::SYS_process_vm_readv, None, fails);
                assert_eq!((read(from), read(8)), (Some(there), None));
            });
        });
    }

    #[test]
    fn texts_end_at_their_terminator_or_are_refused() {
        let mut cursor = Cursor::new(c"one".as_ptr());
        assert_eq!(cursor.text().unwrap(), c"one".to_owned());
        assert_eq!(
            Cursor::new(std::ptr::null()).text(),
            Err(Code::InvalidArgument)
        );
        assert_eq!(Cursor(usize::MAX - 2).number(), Err(Code::InvalidArgument));
        // This text runs up to the end of the mapping.
        // SAFETY: the two pages are fresh, and the second is unmapped again. Both are the test's
        // own.
        let start = unsafe {
            let two = libc::mmap(
                std::ptr::null_mut(),
                2 * PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_ne!(two, libc::MAP_FAILED);
            two.cast::<u8>().write_bytes(b'x', PAGE);
            two.cast::<u8>().add(2 * PAGE - 4).write(0);
            two.cast::<u8>()
        };
        let long = {
            // SAFETY: the range is inside the two pages.
            unsafe { start.add(PAGE).write_bytes(b'y', PAGE - 4) };
            Cursor(start.addr()).text().unwrap()
        };
        assert_eq!(long.count_bytes(), 2 * PAGE - 4);
        // SAFETY: nothing refers to the second page.
        unsafe { libc::munmap(start.add(PAGE).cast(), PAGE) };
        assert_eq!(Cursor(start.addr()).text(), Err(Code::InvalidArgument));
        assert_eq!(
            Cursor(start.addr() + PAGE - 2).number(),
            Err(Code::InvalidArgument)
        );
        assert!(Cursor(start.addr() + PAGE - 4).number().is_ok());
        // SAFETY: nothing refers to the first page any more.
        unsafe { libc::munmap(start.cast(), PAGE) };
    }
}
