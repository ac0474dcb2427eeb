//! [`Mapping`] as Miri can run it: it knows no memory files and no shared mappings.

use super::{HEAD, MapError};
use std::alloc::Layout;
use std::os::fd::BorrowedFd;

/// Memory of this process in the place of a mapped file.
#[derive(Debug)]
pub(super) struct Mapping {
    base: *mut u8,
    layout: Layout,
}

// SAFETY: the memory is owned by this value; what it gives out is a raw address.
unsafe impl Send for Mapping {}

impl Mapping {
    /// So many zero bytes; at least [`HEAD`].
    pub(super) fn new(len: usize) -> Result<Mapping, MapError> {
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
        Ok(Mapping { base, layout })
    }

    /// Its address.
    pub(super) fn base(&self) -> *mut u8 {
        self.base
    }

    /// Its size in bytes.
    pub(super) fn len(&self) -> usize {
        self.layout.size()
    }

    /// There is none: standard input's stands for it.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: open for as long as the process.
        unsafe { BorrowedFd::borrow_raw(0) }
    }

    /// All pages are there.
    pub(super) fn populate(&self, _from: usize, _upto: usize) {}
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { std::alloc::dealloc(self.base, self.layout) };
    }
}
