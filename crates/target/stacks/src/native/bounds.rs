//! Which memory belongs to the calling thread's stack. Nothing else is read on a walk, so that no
//! value on the stack, however wrong, makes a walk touch memory that is not there.

use std::ops::Range;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

/// The words of glibc's structure for a thread that are searched (source: glibc's nptl/descr.h; the
/// structure has more than 2,200 bytes in all versions since 2.17).
const WORDS: usize = 256;
/// The most bytes from a thread's structure, which lies at the top of its stack, to the stack's end.
const ABOVE: u64 = 16 << 10;

/// No stack lies below this address. The structure has pointers to its own parts with zeroes before
/// them, which would be taken for a start and a size.
const LOWEST: u64 = 1 << 16;

/// The number of the word from which on glibc keeps the stack's start and size in its structure for a
/// thread; 0 before it was found.
static BLOCK: AtomicUsize = AtomicUsize::new(0);

/// The part of a thread's stack in which frames can lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bounds(Range<u64>);

impl Bounds {
    /// Returns the stack from `sp` to its end. `main` is the first thread's. None where the thread
    /// runs on another stack than the one with which it was started.
    #[inline]
    pub(crate) fn of_thread(sp: u64, main: &Range<u64>) -> Option<Bounds> {
        if main.contains(&sp) {
            return Some(Bounds(sp..main.end));
        }
        let thread = pointer();
        let known = BLOCK.load(Relaxed);
        if known != 0 {
            return block(thread, known, sp).map(|end| Bounds(sp..end));
        }
        // The structure lies above the stack.
        if sp >= thread {
            return None;
        }
        let (number, end) =
            (1..WORDS).find_map(|number| Some((number, block(thread, number, sp)?)))?;
        BLOCK.store(number, Relaxed);
        Some(Bounds(sp..end))
    }

    /// Reads a word of the stack.
    #[inline]
    pub(crate) fn read(&self, at: u64) -> Option<u64> {
        let end = at.checked_add(8)?;
        if at < self.0.start || end > self.0.end || !at.is_multiple_of(8) {
            return None;
        }
        let word = std::ptr::with_exposed_provenance::<u64>(at as usize);
        // SAFETY: the word is aligned and lies between the calling thread's stack pointer and the end
        // of its stack, which stays mapped while the thread runs on it.
        Some(unsafe { word.read_volatile() })
    }
}

#[cfg(test)]
impl Bounds {
    /// Takes words as a stack.
    pub(super) fn of_words(words: &[u64]) -> Bounds {
        let words = words.as_ptr_range();
        Bounds(words.start.expose_provenance() as u64..words.end.expose_provenance() as u64)
    }
}

/// Returns the address of the calling thread's structure, which is its first word (source: the ABI for
/// x86-64, "Thread-Local Storage").
fn pointer() -> u64 {
    let thread: u64;
    // SAFETY: it reads the first word behind the thread pointer, which each thread of a C library has.
    unsafe {
        std::arch::asm!("mov {}, fs:[0]", out(reg) thread, options(nostack, preserves_flags, readonly));
    }
    thread
}

/// Takes two words of the thread's structure as the start and the size of its stack. Returns the
/// stack's end, if it can be one that holds `sp`, and the structure at its top.
fn block(thread: u64, number: usize, sp: u64) -> Option<u64> {
    let at = std::ptr::with_exposed_provenance::<u64>(thread as usize);
    // SAFETY: `number` is below `WORDS`, so both words lie in glibc's structure of this thread; others
    // are only read by the kernel and the C library.
    let (start, size) = unsafe {
        (
            at.add(number).read_volatile(),
            at.add(number + 1).read_volatile(),
        )
    };
    let end = start.checked_add(size)?;
    let is_one = start >= LOWEST && start <= sp && sp < thread && end.checked_sub(thread)? < ABOVE;
    (is_one && thread < end && end.is_multiple_of(8)).then_some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(main: &Range<u64>) -> bool {
        let local = 0_u64;
        let here = (&raw const local).expose_provenance() as u64 & !7;
        let Some(Bounds(found)) = Bounds::of_thread(here, main) else {
            return false;
        };
        // SAFETY: the structure is zeroed, and the C library fills it for this thread.
        let (start, size) = unsafe {
            let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
            assert_eq!(
                libc::pthread_getattr_np(libc::pthread_self(), &mut attributes),
                0
            );
            let (mut start, mut size) = (std::ptr::null_mut(), 0);
            libc::pthread_attr_getstack(&attributes, &mut start, &mut size);
            libc::pthread_attr_destroy(&mut attributes);
            (start.addr() as u64, size as u64)
        };
        assert_eq!(found, here..start + size);
        true
    }

    #[test]
    fn a_threads_stack_ends_where_its_library_says() {
        for size in [64 << 10, 1 << 20, 3 << 20] {
            let thread = std::thread::Builder::new().stack_size(size);
            let thread = thread.spawn(|| check(&(0..0)));
            assert!(thread.unwrap().join().unwrap());
        }
    }

    #[test]
    fn another_stack_is_none() {
        let other = vec![0_u64; 512];
        let inside = other.as_ptr().expose_provenance() as u64 + 1024;
        assert_eq!(Bounds::of_thread(inside, &(0..0)), None);
        // The first thread's stack is known by its addresses.
        let main = inside - 64..inside + 64;
        assert_eq!(
            Bounds::of_thread(inside, &main),
            Some(Bounds(inside..inside + 64))
        );
    }

    #[test]
    fn only_the_stack_is_read() {
        let words = [1_u64, 2, 3];
        let bounds = Bounds::of_words(&words);
        let start = words.as_ptr().addr() as u64;
        let read = |distance: i64| bounds.read(start.wrapping_add_signed(distance));
        assert_eq!([0, 8, 16].map(read), [Some(1), Some(2), Some(3)]);
        assert_eq!([-8, 4, 24, 20].map(read), [None; 4]);
        assert_eq!(bounds.read(u64::MAX - 7), None);
        assert_eq!(bounds.read(0), None);
    }
}
