//! The claim by which a process has one session at a time, however many attachers and copies of
//! this library there are.
//!
//! Attachers exclude each other before they enter a process, as far as they see each other
//! (`midair-session`). Attachers in different containers do not see each other. Two copies of this
//! library know nothing of each other, and two threads in one copy would share everything. What all
//! of them have in common is the address space. So the claim is a page at a fixed address of our
//! own.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;

/// "midair" in ASCII, rounded down to a page. It is within the 47 bits of address that every x86-64
/// process has, and is not an address that a kernel chooses.
const CLAIM: usize = 0x6d69_6461_6000;
const PAGE: usize = 4096;
/// Whether the page exists and was made by this copy.
static HELD: AtomicBool = AtomicBool::new(false);

/// Claims the process for a session of this copy, until [`release`]. Returns false when another
/// worker thread has the process.
pub fn acquire() -> bool {
    let wanted = std::ptr::without_provenance_mut(CLAIM);
    // SAFETY: the new page has no access rights and replaces no mapping, and no code ever reads or
    // writes it.
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
        // Any error but EEXIST says nothing about another worker thread. Then the attachers' own
        // lock has to suffice.
        return std::io::Error::last_os_error().raw_os_error() != Some(libc::EEXIST);
    }
    if page != wanted {
        // Linux before 4.17 takes the address as a hint and may have chosen another.
        // SAFETY: the page was made just now, and no other code knows it.
        unsafe { libc::munmap(page, PAGE) };
        return true;
    }
    // A forked child has no worker thread and may get one of its own, so it does not inherit the
    // page.
    // SAFETY: the page was made just now.
    unsafe { libc::madvise(page, PAGE, libc::MADV_DONTFORK) };
    HELD.store(true, SeqCst);
    true
}

/// Releases the claim, if this copy has it.
pub fn release() {
    if HELD.swap(false, SeqCst) {
        // SAFETY: the page is the one that `acquire` made. In a forked child it does not exist, and
        // nothing else is mapped there.
        unsafe { libc::munmap(std::ptr::without_provenance_mut(CLAIM), PAGE) };
    }
}

/// Records that this forked child does not have the page.
pub fn reset_after_fork() {
    HELD.store(false, SeqCst);
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_first_claim_succeeds() {
        assert!(super::acquire());
        assert!(!super::acquire());
        super::release();
        super::release();
        assert!(super::acquire());
    }
}
