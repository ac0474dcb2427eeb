//! One session per process, whatever attachers and however many copies of this library there are in it.
//!
//! Attachers exclude one another before they enter, as far as they see one another (`midair-session`); those in different containers
//! do not. Two copies of this library know nothing of each other, and two threads in one copy would share everything: what both
//! see is the address space. A page at an address of our own is the claim.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;

/// "midair" in ASCII, cut to a page: inside the 47 bits that every x86-64 process has, and no address that a kernel chooses.
const CLAIM: usize = 0x6d69_6461_6000;
const PAGE: usize = 4096;
/// The page is there and of this copy's making.
static HELD: AtomicBool = AtomicBool::new(false);

/// Claims the process for a session of this copy, until [`release`]. False when another thread of ours has it.
pub fn claim() -> bool {
    let wanted = std::ptr::without_provenance_mut(CLAIM);
    // SAFETY: a page without access that replaces nothing; nobody ever reads or writes it.
    let page = unsafe {
        libc::mmap(
            wanted,
            PAGE,
            libc::PROT_NONE,
            libc::MAP_PRIVATE
                | libc::MAP_ANONYMOUS
                | libc::MAP_NORESERVE
                | libc::MAP_FIXED_NOREPLACE,
            -1,
            0,
        )
    };
    if page == libc::MAP_FAILED {
        // Anything but "somebody is there" says nothing about another thread of ours: the attachers' own lock has to do.
        return std::io::Error::last_os_error().raw_os_error() != Some(libc::EEXIST);
    }
    if page != wanted {
        // Linux before 4.17 takes the address as a hint.
        // SAFETY: the page just made, which nobody knows.
        unsafe { libc::munmap(page, PAGE) };
        return true;
    }
    // A forked child has no thread of ours: it may get one.
    // SAFETY: the page just made.
    unsafe { libc::madvise(page, PAGE, libc::MADV_DONTFORK) };
    HELD.store(true, SeqCst);
    true
}

/// Gives the claim up, if this copy has it.
pub fn release() {
    if HELD.swap(false, SeqCst) {
        // SAFETY: the page that `claim` made; in a forked child, which has it not, nothing is there.
        unsafe { libc::munmap(std::ptr::without_provenance_mut(CLAIM), PAGE) };
    }
}

/// For a forked child: the page is not in it.
pub fn begin_anew() {
    HELD.store(false, SeqCst);
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_first_has_it() {
        assert!(super::claim());
        assert!(!super::claim());
        super::release();
        super::release();
        assert!(super::claim());
    }
}
