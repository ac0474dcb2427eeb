//! Provides midair's code within reach of a 32-bit jump: in this library or, if that is too far
//! away, in a page that is made for it. The page stays, since a thread may be executing it.

use super::{MAX_FUNCTIONS, arch};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Release};

const PAGE: usize = 4096;
/// Size of one function's stub, in bytes.
const STUB: usize = PAGE / MAX_FUNCTIONS;
/// A jump reaches 2 GiB; the margin is for the sizes of the function and the page.
const REACH: usize = (1 << 31) - (1 << 20);
/// Maximum number of pages, one for each copy of CUPTI that is too far from the others.
const PAGES: usize = 4;

/// Addresses of the pages, 0 where there is none. Only the worker thread changes them.
static MADE: [AtomicUsize; PAGES] = [const { AtomicUsize::new(0) }; PAGES];

/// Returns the jump target for function number `index`, which is at `address`.
pub(super) fn stub(address: usize, index: usize) -> Result<usize, String> {
    let own = arch::own_stub(index);
    if own.abs_diff(address) < REACH {
        return Ok(own);
    }
    for slot in &MADE {
        let mut page = slot.load(Acquire);
        if page == 0 {
            page = make(address)?;
            slot.store(page, Release);
        }
        if page.abs_diff(address) < REACH {
            return Ok(page + index * STUB);
        }
    }
    Err("too many copies of CUPTI, far apart".to_owned())
}

/// Makes a page near `address`.
fn make(address: usize) -> Result<usize, String> {
    // Not /proc/self: that is the main thread, which may have ended, and then has no mappings.
    let maps = std::fs::read_to_string("/proc/thread-self/maps")
        .map_err(|error| format!("cannot read the process's mappings: {error}"))?;
    for address_wanted in gaps(&maps, address) {
        // SAFETY: this maps a page that replaces nothing (MAP_FIXED_NOREPLACE).
        let page = unsafe {
            libc::mmap(
                std::ptr::without_provenance_mut(address_wanted),
                PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE,
                -1,
                0,
            )
        };
        if page == libc::MAP_FAILED {
            continue;
        }
        let at = page.expose_provenance();
        let near = at.abs_diff(address) < REACH;
        let filled = near && {
            for index in 0..MAX_FUNCTIONS {
                let code = arch::stub(index);
                // SAFETY: this is a new midair page, and a stub is shorter than its share of it.
                unsafe {
                    let to = page.cast::<u8>().add(index * STUB);
                    std::ptr::copy_nonoverlapping(code.as_ptr(), to, code.len().min(STUB));
                }
            }
            // SAFETY: our own page, which nothing uses yet.
            unsafe { libc::mprotect(page, PAGE, libc::PROT_READ | libc::PROT_EXEC) == 0 }
        };
        if filled {
            return Ok(at);
        }
        // SAFETY: our own page, which nothing uses.
        unsafe { libc::munmap(page, PAGE) };
        if near {
            return Err("cannot allocate a code page".to_owned());
        }
    }
    Err("there is no free address range near CUPTI's code".to_owned())
}

/// Returns up to 64 free pages around `address`, the nearest first: one near each end of every gap
/// between mappings.
fn gaps(maps: &str, address: usize) -> Vec<usize> {
    let mut places = Vec::new();
    let mut end = 0x10000_usize;
    for line in maps.lines() {
        let range = line.split(' ').next().unwrap_or_default();
        let Some((from, to)) = range.split_once('-') else {
            continue;
        };
        let (Ok(from), Ok(to)) = (
            usize::from_str_radix(from, 16),
            usize::from_str_radix(to, 16),
        ) else {
            continue;
        };
        // A page is left free on both sides: stacks and heaps grow.
        if from.saturating_sub(end) >= 3 * PAGE {
            places.push(end + PAGE);
            places.push(from - 2 * PAGE);
        }
        end = to;
    }
    places.retain(|place| place.abs_diff(address) < REACH);
    places.sort_unstable_by_key(|place| place.abs_diff(address));
    places.truncate(64);
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_gap_comes_first() {
        let maps = "400000-401000 r-xp 0 0:0 0 /a\n7f0000000000-7f0000001000 r-xp 0 0:0 0 /b\n\
                    7f0000010000-7f0000020000 r-xp 0 0:0 0 /c\n7fff00000000-7fff00001000 rw-p 0 0:0 0\n";
        let places = gaps(maps, 0x7f00_0001_8000);
        assert_eq!(places.first(), Some(&0x7f00_0002_1000));
        assert_eq!(places.get(1), Some(&0x7f00_0000_e000));
        assert!(
            places
                .iter()
                .all(|place| place.abs_diff(0x7f00_0001_8000) < REACH)
        );
        assert!(gaps("", 5).is_empty());
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn a_page_is_made_within_reach() {
        let function = gaps as *const () as usize;
        let page = make(function).unwrap();
        assert!(page.abs_diff(function) < REACH);
        for index in [0, MAX_FUNCTIONS - 1] {
            let code = arch::stub(index);
            let at = std::ptr::with_exposed_provenance::<u8>(page + index * STUB);
            // SAFETY: a page that was just made, longer than the code.
            let there = unsafe { std::slice::from_raw_parts(at, code.len()) };
            assert_eq!(there, code);
        }
    }
}
