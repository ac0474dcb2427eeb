//! Paths by which libraries are loaded from descriptors.
//!
//! The loader identifies libraries by the path that they were loaded from. A second load of
//! `/proc/thread-self/fd/N` returns the first library, no matter what N refers to now. So each
//! library needs a number of its own, which no engine and no other copy of this library has used
//! before.
//!
//! Decisions: ENG-012, ENG-013 (`docs/deviations/engine.md`).

use crate::VerifiedFd;
use std::ffi::{CStr, c_int, c_void};
use std::ops::Range;
use std::os::fd::RawFd;

/// The prefix of such paths. It is not `/proc/self`: that is the main thread, which may have ended,
/// and then has no descriptors.
pub const DIRECTORY: &str = "/proc/thread-self/fd/";

/// Returns the numbers by which libraries of this process were loaded.
fn used() -> Vec<RawFd> {
    unsafe extern "C" fn each(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        data: *mut c_void,
    ) -> c_int {
        // SAFETY: `data` is the list below, which nothing else uses during the call. `info` and its
        // name are valid during the callback (dl_iterate_phdr(3)).
        let (used, name) = unsafe { (&mut *data.cast::<Vec<RawFd>>(), (*info).dlpi_name) };
        if !name.is_null() {
            // SAFETY: the name is a NUL-terminated string of the loader's.
            let name = unsafe { CStr::from_ptr(name) }.to_bytes();
            let number = name.strip_prefix(DIRECTORY.as_bytes());
            let number =
                number.and_then(|number| std::str::from_utf8(number).ok()?.parse::<RawFd>().ok());
            used.extend(number);
        }
        0
    }
    let mut used: Vec<RawFd> = Vec::new();
    // SAFETY: the callback gets this pointer back, and only during the call.
    unsafe { libc::dl_iterate_phdr(Some(each), (&raw mut used).cast()) };
    used
}

/// Duplicates `fd` to a number by which no library has been loaded so far.
///
/// The engine's number is in the upper half of the process's table of descriptors, whose size is a
/// power of two. This function takes one from the quarter below that half, so that the two do not meet and the
/// table is not enlarged (which waits for an RCU grace period in a process with several threads).
/// If no such number is free, this function starts half way up to the limit, and tries all other
/// numbers before it gives up.
///
/// # Errors
/// No number is free below the process's limit.
pub fn renumber(fd: VerifiedFd) -> Result<VerifiedFd, String> {
    let used = used();
    for number in below_the_engines(&used).rev() {
        let copy = fd.duplicate(number);
        // In place of a number that is in use, the kernel returns the next free one.
        if let Some(copy) = copy.filter(|copy| copy.number() == number && !used.contains(&number)) {
            return Ok(copy);
        }
    }
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the out pointer is valid.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    let limit = RawFd::try_from(limit.rlim_cur.min(1024)).unwrap_or(1024);
    // Programs expect to get low numbers next, so those are tried last.
    let half = limit / 2;
    for number in (half..limit).chain((3..half).rev()) {
        if used.contains(&number) {
            continue;
        }
        // The kernel returns this number or, where it is in use, the next free one. If no number
        // from here on is free, a lower one may be.
        let Some(copy) = fd.duplicate(number) else {
            continue;
        };
        if !used.contains(&copy.number()) {
            return Ok(copy);
        }
    }
    Err(format!(
        "no descriptor is free for loading the tool (limit {limit})"
    ))
}

/// Returns the range of numbers to try first. It is empty if the engine's own number is low or not known.
fn below_the_engines(used: &[RawFd]) -> Range<RawFd> {
    let engine = used.iter().max().copied().unwrap_or(0);
    match engine.checked_ilog2() {
        // Below 16 are the numbers that programs expect to get next.
        Some(power @ 5..) => 1 << (power - 1)..1 << power,
        _ => 0..0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_below_the_engines_half_comes_first() {
        assert_eq!(below_the_engines(&[40]), 16..32);
        assert_eq!(below_the_engines(&[20, 63]), 16..32);
        assert_eq!(below_the_engines(&[981, 40]), 256..512);
        assert_eq!(below_the_engines(&[17]), 0..0);
        assert_eq!(below_the_engines(&[]), 0..0);
    }

    #[test]
    fn each_library_gets_an_unused_number_below_the_limit() {
        let open = || {
            let file = std::fs::File::open("/dev/null").unwrap();
            VerifiedFd::new(std::os::fd::IntoRawFd::into_raw_fd(file)).unwrap()
        };
        let first = renumber(open()).unwrap();
        let second = renumber(open()).unwrap();
        assert_ne!(first.number(), second.number());
        assert!((3..1024).contains(&first.number()) && (3..1024).contains(&second.number()));
    }
}
