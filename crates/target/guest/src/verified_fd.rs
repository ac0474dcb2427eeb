//! A descriptor in the table of a process that is not ours, verified by the file that it must refer
//! to.
//!
//! The descriptor numbers belong to the program. At any moment it may close all numbers that it
//! does not know (`closefrom`) and open files of its own there. So a number is verified before it
//! is closed or used. There is no wait between the check and the call. There is no lock either:
//! Linux has no call that does both.
//!
//! Decisions: ENG-014 (`docs/deviations/engine.md`).

use std::os::fd::{AsFd, BorrowedFd, RawFd};

/// A midair descriptor. Dropping it closes the number if it still refers to our file.
#[derive(Debug)]
pub struct VerifiedFd {
    fd: RawFd,
    file: Identity,
}

/// Device and inode number. A socket's or a memory file's pair belongs to it alone for as long as
/// it is open anywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity(u64, u64);

/// Returns the file that a number refers to now.
fn identity(fd: RawFd) -> Option<Identity> {
    // SAFETY: the struct is plain data, and zero is a value of each field.
    let mut found: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the out pointer is valid, and any number may be passed.
    let got = unsafe { libc::fstat(fd, &raw mut found) };
    (got == 0).then_some(Identity(found.st_dev, found.st_ino))
}

impl VerifiedFd {
    /// Takes the result of a system call. `None` where the call failed.
    pub fn new(fd: RawFd) -> Option<VerifiedFd> {
        // Where the program has closed the number already, we must not close it again.
        (fd >= 0).then(|| identity(fd).map(|file| VerifiedFd { fd, file }))?
    }

    /// Restores a descriptor from what [`VerifiedFd::into_parts`] returned.
    pub fn from_parts((fd, file): (RawFd, Identity)) -> VerifiedFd {
        VerifiedFd { fd, file }
    }

    /// Whether the number still refers to our file.
    pub fn is_ours(&self) -> bool {
        identity(self.fd) == Some(self.file)
    }

    /// Duplicates the descriptor to a number that is `least` or more.
    pub fn duplicate(&self, least: RawFd) -> Option<VerifiedFd> {
        // SAFETY: the call takes numbers only, and the descriptor that it makes is ours.
        let copy = VerifiedFd::new(unsafe { libc::fcntl(self.fd, libc::F_DUPFD_CLOEXEC, least) })?;
        if copy.file == self.file {
            return Some(copy);
        }
        // By then the number referred to a file of the program's, and so does the copy. The copy
        // itself is ours and is closed.
        drop(copy);
        None
    }

    /// Returns the number.
    pub fn number(&self) -> RawFd {
        self.fd
    }

    /// Gives up ownership without closing the descriptor.
    pub fn into_parts(self) -> (RawFd, Identity) {
        let left = (self.fd, self.file);
        std::mem::forget(self);
        left
    }
}

impl AsFd for VerifiedFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the number is never -1. It may be closed, since the program can do that at any
        // time; then a call with it fails.
        unsafe { BorrowedFd::borrow_raw(self.fd) }
    }
}

impl Drop for VerifiedFd {
    fn drop(&mut self) {
        if self.is_ours() {
            // SAFETY: it was verified just now that the number refers to our file.
            unsafe { libc::close(self.fd) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::{AsRawFd, IntoRawFd};

    #[test]
    fn a_number_that_the_program_has_taken_is_not_closed() {
        let (ours, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let own = VerifiedFd::new(ours.into_raw_fd()).unwrap();
        let number = own.number();
        assert!(own.is_ours() && own.duplicate(100).is_some_and(|copy| copy.number() >= 100));
        let theirs = std::fs::File::open("/dev/null").unwrap();
        // SAFETY: the call takes integers. The first descriptor is ours, and it is replaced.
        assert_eq!(unsafe { libc::dup2(theirs.as_raw_fd(), number) }, number);
        assert!(!own.is_ours());
        assert!(
            own.duplicate(100).is_none(),
            "no copy of what is the program's"
        );
        drop(own);
        let null = identity(theirs.as_raw_fd());
        assert_eq!(identity(number), null, "it is open, and the program's");
        let own = VerifiedFd::new(number).unwrap();
        drop(own);
        assert_eq!(identity(number), None, "what is ours is closed");
        assert!(VerifiedFd::new(-1).is_none() && VerifiedFd::new(number).is_none());
    }
}
