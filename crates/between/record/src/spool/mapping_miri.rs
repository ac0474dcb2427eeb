//! [`Mapping`] for Miri, which supports neither memory files nor shared mappings.

use super::{HEAD, MapError};
use std::alloc::Layout;
use std::os::fd::OwnedFd;

/// Memory of this process in the place of a mapped file.
#[derive(Debug)]
pub(super) struct Mapping {
    base: *mut u8,
    layout: Layout,
}

// SAFETY: this value owns the memory, and gives out no more than a raw address.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Allocates `len` zero bytes; `len` is at least [`HEAD`]. The descriptor is a pipe's, since
    /// there is no memory file.
    pub(super) fn new(len: usize) -> Result<(Mapping, OwnedFd), MapError> {
        let none = || MapError::System {
            step: "memory",
            size: len,
            source: std::io::ErrorKind::OutOfMemory.into(),
        };
        if len < HEAD {
            return Err(none());
        }
        let layout = Layout::from_size_align(len, 4096).map_err(|_| none())?;
        // SAFETY: the layout is not empty.
        let base = unsafe { std::alloc::alloc_zeroed(layout) };
        if base.is_null() {
            return Err(none());
        }
        let (fd, _) = std::io::pipe().map_err(|_| none())?;
        Ok((Mapping { base, layout }, fd.into()))
    }

    /// Fails: there is no memory file that two processes could have.
    pub(super) fn of(_fd: &OwnedFd, least: usize) -> Result<Mapping, MapError> {
        Err(MapError::System {
            step: "mmap",
            size: least,
            source: std::io::ErrorKind::Unsupported.into(),
        })
    }

    /// Returns its address.
    pub(super) fn base(&self) -> *mut u8 {
        self.base
    }

    /// Returns its size in bytes.
    pub(super) fn len(&self) -> usize {
        self.layout.size()
    }

    /// Does nothing: all pages are present.
    pub(super) fn populate(&self, _from: usize, _upto: usize) {}
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { std::alloc::dealloc(self.base, self.layout) };
    }
}
