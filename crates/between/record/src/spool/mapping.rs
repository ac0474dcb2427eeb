//! The memory of a spool: a sealed memory file, mapped in the process that made it.

use super::{HEAD, MapError};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// A mapped memory file of fixed size. It is unmapped when this is dropped.
#[derive(Debug)]
pub(super) struct Mapping {
    base: *mut u8,
    len: usize,
}

// SAFETY: this value owns the mapping, and only its drop unmaps it. It gives out no more than a raw
// address.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Creates and maps a file of `len` zero bytes; `len` is at least [`HEAD`]. Returns its
    /// descriptor, too.
    pub(super) fn new(len: usize) -> Result<(Mapping, OwnedFd), MapError> {
        let fail = |step: &'static str, source: io::Error| MapError::System {
            step,
            size: len,
            source,
        };
        let last = |step: &'static str| fail(step, io::Error::last_os_error());
        if len < HEAD {
            return Err(fail("its size", io::ErrorKind::InvalidInput.into()));
        }

        /// `MFD_NOEXEC_SEAL` (linux/memfd.h), since Linux 6.3: never executable. Older kernels
        /// answer EINVAL.
        const NOEXEC: libc::c_uint = 8;
        let make = |flags: libc::c_uint| {
            let flags = flags | libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
            // SAFETY: the name ends with a zero byte, and the flags are known ones.
            unsafe { libc::memfd_create(c"midair-spool".as_ptr(), flags) }
        };
        let mut raw = make(NOEXEC);
        if raw < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL) {
            raw = make(0);
        }
        if raw < 0 {
            return Err(last("memfd_create"));
        }
        // SAFETY: memfd_create returned a descriptor that nothing else owns.
        let fd = unsafe { OwnedFd::from_raw_fd(raw) };
        let file = File::from(fd);
        // The target gets the descriptor; no process needs to open it by a path.
        let ours = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        file.set_permissions(ours)
            .map_err(|error| fail("fchmod", error))?;
        file.set_len(len as u64)
            .map_err(|error| fail("ftruncate", error))?;
        let fd = OwnedFd::from(file);
        // The size can never change. So the target cannot make us fault by truncating it, and we
        // cannot make the target fault.
        // SAFETY: the descriptor is ours, and the flags are known ones.
        let sealed = unsafe {
            libc::fcntl(
                raw,
                libc::F_ADD_SEALS,
                libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL,
            )
        };
        if sealed < 0 {
            return Err(last("sealing"));
        }
        Ok((Mapping::map(&fd, len)?, fd))
    }

    /// Maps a file that [`Mapping::new`] made in another process; its size is at least `least`.
    pub(super) fn of(fd: &OwnedFd, least: usize) -> Result<Mapping, MapError> {
        let fail = |step: &'static str, source: io::Error| MapError::System {
            step,
            size: least,
            source,
        };
        let file = fd.try_clone().map_err(|error| fail("dup", error))?;
        let found = File::from(file).metadata();
        let size = found.map_err(|error| fail("fstat", error))?.len();
        let len = usize::try_from(size).unwrap_or(0);
        // Its size could change otherwise, and this process would fault.
        // SAFETY: the descriptor is ours, and the command takes no argument.
        let seals = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GET_SEALS) };
        let wanted = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;
        if seals < 0 || seals & wanted != wanted || len < least || len > isize::MAX as usize {
            return Err(fail("its size", io::ErrorKind::InvalidData.into()));
        }
        Mapping::map(fd, len)
    }

    /// Maps a file of this size.
    fn map(fd: &OwnedFd, len: usize) -> Result<Mapping, MapError> {
        // SAFETY: this creates a fresh shared mapping of our own descriptor, at an address that the
        // kernel chooses.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(MapError::System {
                step: "mmap",
                size: len,
                source: io::Error::last_os_error(),
            });
        }
        // A forked child must not write to what its parent reads.
        // SAFETY: the range is the mapping that was just made.
        unsafe { libc::madvise(base, len, libc::MADV_DONTFORK) };
        let base = base.cast();
        Ok(Mapping { base, len })
    }

    /// Returns its address, which is page-aligned and valid as long as this value.
    pub(super) fn base(&self) -> *mut u8 {
        self.base
    }

    /// Returns its size in bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Populates the pages of a range; `from` is page-aligned. A kernel before Linux 5.14 cannot do
    /// this, and populates a page at its first access.
    pub(super) fn populate(&self, from: usize, upto: usize) {
        let Some(bytes) = upto.min(self.len).checked_sub(from) else {
            return;
        };
        let start = self.base.wrapping_add(from).cast();
        // SAFETY: the range is in our own mapping, and the contents of its pages do not change.
        unsafe { libc::madvise(start, bytes, libc::MADV_POPULATE_WRITE) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`, and no reference into it outlives self.
        unsafe { libc::munmap(self.base.cast(), self.len) };
    }
}
