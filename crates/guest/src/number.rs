//! A descriptor number in somebody else's table, and the file that it must still mean.
//!
//! The numbers are the program's. It may close all that it does not know (`closefrom`) and open files of its own there, at any moment;
//! so a number is proven to be ours before it is closed or spoken to. Between the proof and the call there is no wait, but no lock
//! either: Linux has no call that does both.
//!
//! Decisions: ENG-014 (`docs/deviations/engine.md`).

use std::os::fd::{AsFd, BorrowedFd, RawFd};

/// A number of ours. Dropping it closes it where it still is.
#[derive(Debug)]
pub struct Own {
    fd: RawFd,
    file: Identity,
}

/// Device and inode: of a socket or a memory file they are its own for as long as it is open anywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity(u64, u64);

/// What a number means now.
fn identity(fd: RawFd) -> Option<Identity> {
    // SAFETY: plain data; zero is a value of each field.
    let mut found: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: a valid out pointer; any number may be asked about.
    let got = unsafe { libc::fstat(fd, &raw mut found) };
    (got == 0).then_some(Identity(found.st_dev, found.st_ino))
}

impl Own {
    /// Takes what a system call has just made; `None` for what it refused.
    pub fn new(fd: RawFd) -> Option<Own> {
        // One that is closed already is nobody's to close.
        (fd >= 0).then(|| identity(fd).map(|file| Own { fd, file }))?
    }

    /// One that [`Own::leave`] gave.
    pub fn again((fd, file): (RawFd, Identity)) -> Own {
        Own { fd, file }
    }

    /// Whether the number still means what it did.
    pub fn is_ours(&self) -> bool {
        identity(self.fd) == Some(self.file)
    }

    /// A second number for the same file, `least` or more.
    pub fn copy(&self, least: RawFd) -> Option<Own> {
        // SAFETY: takes numbers; what it makes is ours.
        let copy = Own::new(unsafe { libc::fcntl(self.fd, libc::F_DUPFD_CLOEXEC, least) })?;
        if copy.file == self.file {
            return Some(copy);
        }
        // The number was the program's by then, and so is its copy's file; the copy itself is ours.
        drop(copy);
        None
    }

    /// The number.
    pub fn number(&self) -> RawFd {
        self.fd
    }

    /// Gives it out of hand: it is somebody else's to close.
    pub fn leave(self) -> (RawFd, Identity) {
        let left = (self.fd, self.file);
        std::mem::forget(self);
        left
    }
}

impl AsFd for Own {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: never -1. That it is open is for the kernel to say: the program may have closed it, and then a call fails.
        unsafe { BorrowedFd::borrow_raw(self.fd) }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        if self.is_ours() {
            // SAFETY: proven just now to be what we made.
            unsafe { libc::close(self.fd) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::{AsRawFd, IntoRawFd};

    #[test]
    fn a_number_that_became_the_programs_is_not_closed() {
        let (ours, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let own = Own::new(ours.into_raw_fd()).unwrap();
        let number = own.number();
        assert!(own.is_ours() && own.copy(100).is_some_and(|copy| copy.number() >= 100));
        let theirs = std::fs::File::open("/dev/null").unwrap();
        // SAFETY: takes numbers; the first is ours and is replaced.
        assert_eq!(unsafe { libc::dup2(theirs.as_raw_fd(), number) }, number);
        assert!(!own.is_ours());
        assert!(own.copy(100).is_none(), "no copy of what is the program's");
        drop(own);
        let null = identity(theirs.as_raw_fd());
        assert_eq!(identity(number), null, "it is open, and the program's");
        let own = Own::new(number).unwrap();
        drop(own);
        assert_eq!(identity(number), None, "what is ours is closed");
        assert!(Own::new(-1).is_none() && Own::new(number).is_none());
    }
}
