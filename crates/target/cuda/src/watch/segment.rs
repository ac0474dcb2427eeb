//! The code segment that contains a function.

use std::ffi::{c_int, c_void};

const PAGE: usize = 4096;

/// Pages of code whose protection is changed together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Address of the first page.
    pub(crate) start: usize,
    /// Size in bytes, whole pages.
    pub(crate) bytes: usize,
}

impl Segment {
    /// Returns the whole code segment, as the loader mapped it, of the library that contains the
    /// function at `address`. If there is no such library, it is the page of the address.
    pub(crate) fn of(address: usize) -> Segment {
        let mut search = Search {
            address,
            found: None,
        };
        // SAFETY: the callback gets this pointer back, and only during the call.
        unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
        search.found.unwrap_or(Segment {
            start: address & !(PAGE - 1),
            bytes: PAGE,
        })
    }

    /// Makes the segment writable, or read-only again. It stays executable all the time, since
    /// other threads run it.
    pub(super) fn writable(self, on: bool) -> bool {
        let rights = libc::PROT_READ | libc::PROT_EXEC | if on { libc::PROT_WRITE } else { 0 };
        let at: *mut c_void = std::ptr::with_exposed_provenance_mut(self.start);
        // SAFETY: this is the mapped code of a library that stays loaded, and only its protection
        // changes.
        unsafe { libc::mprotect(at, self.bytes, rights) == 0 }
    }
}

struct Search {
    address: usize,
    found: Option<Segment>,
}

unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _size: usize, data: *mut c_void) -> c_int {
    // SAFETY: `data` is the search of `of`, not used elsewhere during the call; `info` is valid
    // during the callback (dl_iterate_phdr(3)).
    let (search, info) = unsafe { (&mut *data.cast::<Search>(), &*info) };
    for index in 0..usize::from(info.dlpi_phnum) {
        // SAFETY: this is the loader's own table, which has this many headers.
        let header = unsafe { &*info.dlpi_phdr.add(index) };
        let code = header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_X != 0;
        let start = (info.dlpi_addr as usize).wrapping_add(header.p_vaddr as usize);
        let end = start.wrapping_add(header.p_memsz as usize);
        if code && (start..end).contains(&search.address) {
            let first = start & !(PAGE - 1);
            search.found = Some(Segment {
                start: first,
                bytes: end.next_multiple_of(PAGE) - first,
            });
            return 1;
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_the_librarys_or_a_single_page() {
        let here = Segment::of(look as *const () as usize);
        assert!(here.bytes > PAGE);
        let code = here.start..here.start + here.bytes;
        assert!(code.contains(&(Segment::writable as *const () as usize)));
        let nowhere = Segment::of(0x1234_5678);
        assert_eq!((nowhere.start, nowhere.bytes), (0x1234_5000, PAGE));
    }
}
