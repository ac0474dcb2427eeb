//! The buffers that CUPTI fills.
//!
//! CUPTI requests a buffer on the thread that is about to record something, and returns it filled
//! on that thread or on its own. Both callbacks are a few atomic operations here: no allocation, no
//! lock, no system call. The worker thread takes the filled buffers, reads them, and frees them
//! again. If no buffer is free, CUPTI gets none; it then drops records and counts them.
//!
//! A buffer is in one of three states, represented by two bits: free, filled, or with CUPTI (neither bit).
//! The bits of 64 buffers share a word, so that a search looks at two words; a table of slots with
//! a word each would make it look at 128.
//!
//! Decisions: CUDA-015 (`docs/deviations/cuda.md`).

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

/// Size of a buffer: some 5,000 kernels, or 26,000 calls. CUPTI clears a buffer before use; at this
/// size the thread that waits for it does not wait for long.
pub const BUFFER: usize = 1 << 20;
/// The least that CUPTI is given of a buffer. CUPTI returns a buffer when its thread ends, and clears
/// all of the next one: a process whose threads come and go would clear 1 MiB for each of them.
const LEAST: usize = BUFFER / 16;
/// Number of buffers: each thread of the application has one of its own. Those that are never
/// requested use no memory, only addresses.
pub const BUFFERS: usize = 128;
const WORDS: usize = BUFFERS / 64;
/// Number of buffers of another profiler that can be read in a session.
const FOREIGN: usize = 16;
/// Their index, in [`Filled::index`].
const NOT_OURS: usize = usize::MAX;

/// The buffers of a process. It is a static: CUPTI's callbacks get no data of the user's.
#[derive(Debug)]
pub struct Pool {
    /// Address of the mapping, 0 while there is none.
    base: AtomicUsize,
    /// Whether CUPTI may take buffers.
    open: AtomicBool,
    /// How many bytes of a buffer CUPTI is given: less while they come back nearly empty.
    given: AtomicUsize,
    /// A bit for each free buffer. The lowest is taken first, so that few are ever touched.
    free: [AtomicU64; WORDS],
    /// A bit for each buffer that CUPTI returned and the worker thread has not taken yet.
    full: [AtomicU64; WORDS],
    /// Valid bytes of the returned buffers.
    valid: [AtomicUsize; BUFFERS],
    /// Sequence numbers of their return.
    order: [AtomicU64; BUFFERS],
    /// The thread that requested each: see [`Pool::take`].
    owner: [AtomicU64; BUFFERS],
    /// One past the highest buffer that was ever taken: those below may use memory.
    touched: AtomicUsize,
    next: AtomicU64,
    /// Requests that found no free buffer.
    refused: AtomicU64,
    /// Number of returned buffers that are not from this pool.
    foreign: AtomicUsize,
    /// The first of those.
    others: [Foreign; FOREIGN],
}

/// A buffer that another profiler gave to CUPTI, and that CUPTI filled for us and returned to us;
/// how that happens is described at `is_alone` in [`crate::session`]. It is read, and is not freed: its
/// owner never gets it back.
#[derive(Debug)]
struct Foreign {
    /// Its address; 0 while there is none.
    start: AtomicUsize,
    valid: AtomicUsize,
    order: AtomicU64,
}

impl Foreign {
    const fn none() -> Foreign {
        Foreign {
            start: AtomicUsize::new(0),
            valid: AtomicUsize::new(0),
            order: AtomicU64::new(0),
        }
    }
}

/// A buffer that CUPTI returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Filled {
    /// Its index; `usize::MAX` for one that is not from this pool.
    pub index: usize,
    /// Its address.
    pub start: *mut u8,
    /// Bytes of records in it.
    pub valid: usize,
    /// The owner that was given to [`Pool::take`].
    pub owner: u64,
    order: u64,
}

impl Default for Pool {
    fn default() -> Pool {
        Pool::new()
    }
}

impl Pool {
    /// A pool without memory: every request is refused.
    pub const fn new() -> Pool {
        Pool {
            base: AtomicUsize::new(0),
            open: AtomicBool::new(false),
            given: AtomicUsize::new(BUFFER),
            free: [const { AtomicU64::new(0) }; WORDS],
            full: [const { AtomicU64::new(0) }; WORDS],
            valid: [const { AtomicUsize::new(0) }; BUFFERS],
            order: [const { AtomicU64::new(0) }; BUFFERS],
            owner: [const { AtomicU64::new(0) }; BUFFERS],
            touched: AtomicUsize::new(0),
            next: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            foreign: AtomicUsize::new(0),
            others: [const { Foreign::none() }; FOREIGN],
        }
    }

    /// On the worker thread: maps the buffers if they are not mapped, and lets CUPTI take them.
    /// Buffers that CUPTI has kept from an earlier session stay with CUPTI. Returns false if there
    /// is no memory.
    pub fn open(&self) -> bool {
        let mut all = [u64::MAX; WORDS];
        if self.base.load(Acquire) == 0 {
            // SAFETY: this makes a new mapping at an address that the kernel chooses, so it
            // replaces nothing.
            let base = unsafe {
                libc::mmap(
                    std::ptr::null_mut(),
                    BUFFER * BUFFERS,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                    -1,
                    0,
                )
            };
            if base == libc::MAP_FAILED {
                return false;
            }
            self.base.store(base.expose_provenance(), Release);
        } else {
            // The pool was closed while CUPTI had some buffers. Those that came back since are in
            // `full`.
            for (word, full) in all.iter_mut().zip(&self.full) {
                *word = full.swap(0, AcqRel);
            }
            for (word, kept) in all.iter_mut().zip(&self.free) {
                *word |= kept.load(Acquire);
            }
        }
        self.given.store(BUFFER, Relaxed);
        self.refused.store(0, Relaxed);
        self.foreign.store(0, Relaxed);
        for other in &self.others {
            other.start.store(0, Relaxed);
        }
        for (free, word) in self.free.iter().zip(all) {
            free.store(word, Release);
        }
        self.open.store(true, Release);
        true
    }

    /// For CUPTI, on any thread: takes a buffer, if one is free. `owner` identifies the requesting
    /// thread, and is returned with the buffer.
    pub fn take(&self, owner: impl FnOnce() -> u64) -> Option<*mut u8> {
        if self.open.load(Acquire) {
            for (position, word) in self.free.iter().enumerate() {
                let mut bits = word.load(Acquire);
                while bits != 0 {
                    let bit = bits & bits.wrapping_neg();
                    let before = word.fetch_and(!bit, AcqRel);
                    if before & bit != 0 {
                        let index = position * 64 + bit.trailing_zeros() as usize;
                        if let Some(entry) = self.owner.get(index) {
                            entry.store(owner(), Relaxed);
                        }
                        self.touched.fetch_max(index + 1, Relaxed);
                        return Some(self.address(index));
                    }
                    bits = before & !bit;
                }
            }
        }
        self.refused.fetch_add(1, Relaxed);
        None
    }

    /// How many bytes of the next buffer CUPTI is given.
    pub fn given(&self) -> usize {
        self.given.load(Relaxed)
    }

    /// For CUPTI, on any thread: takes a buffer back, of which it was given `size` bytes and filled
    /// `valid` with records.
    pub fn put_back(&self, buffer: *mut u8, size: usize, valid: usize) {
        let offset = buffer.addr().wrapping_sub(self.base.load(Acquire));
        let index = offset / BUFFER;
        let (Some(bytes), Some(order), Some(word)) = (
            self.valid.get(index),
            self.order.get(index),
            self.full.get(index / 64),
        ) else {
            let position = self.foreign.fetch_add(1, Relaxed);
            if let Some(other) = self.others.get(position) {
                other.valid.store(valid, Relaxed);
                let order = self.next.fetch_add(1, Relaxed);
                other.order.store(order, Relaxed);
                other.start.store(buffer.expose_provenance(), Release);
            }
            return;
        };
        if valid > size / 4 * 3 {
            self.given.store((size * 2).clamp(LEAST, BUFFER), Relaxed);
        } else if valid < size / 16 {
            self.given.store((size / 2).clamp(LEAST, BUFFER), Relaxed);
        }
        bytes.store(valid.min(size).min(BUFFER), Relaxed);
        order.store(self.next.fetch_add(1, Relaxed), Relaxed);
        word.fetch_or(1 << (index % 64), Release);
    }

    /// On the worker thread: takes the returned buffers, in the order of their return.
    pub fn filled(&self, into: &mut Vec<Filled>) {
        into.clear();
        for (position, word) in self.full.iter().enumerate() {
            let mut bits = word.swap(0, AcqRel);
            while bits != 0 {
                let index = position * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                let number = |list: &[AtomicU64]| list.get(index).map_or(0, |it| it.load(Relaxed));
                into.push(Filled {
                    index,
                    owner: number(&self.owner),
                    start: self.address(index),
                    valid: self.valid.get(index).map_or(0, |bytes| bytes.load(Relaxed)),
                    order: number(&self.order),
                });
            }
        }
        for other in &self.others {
            let start = other.start.swap(0, AcqRel);
            if start != 0 {
                into.push(Filled {
                    index: NOT_OURS,
                    owner: 0,
                    start: std::ptr::with_exposed_provenance_mut(start),
                    valid: other.valid.load(Relaxed),
                    order: other.order.load(Relaxed),
                });
            }
        }
        into.sort_unstable_by_key(|filled| filled.order);
    }

    /// On the worker thread: frees a buffer that has been read. One that is not from this pool is
    /// left alone.
    pub fn recycle(&self, filled: &Filled) {
        if let Some(word) = self.free.get(filled.index / 64) {
            word.fetch_or(1 << (filled.index % 64), Release);
        }
    }

    /// On the worker thread: stops giving buffers to CUPTI. Those that it has may still come back.
    pub fn close(&self) {
        self.open.store(false, Release);
    }

    /// How many buffers CUPTI has.
    pub fn outstanding(&self) -> usize {
        if self.base.load(Acquire) == 0 {
            return 0;
        }
        let words = self.free.iter().zip(&self.full);
        BUFFERS
            - words
                .map(|(free, full)| (free.load(Acquire) | full.load(Acquire)).count_ones() as usize)
                .sum::<usize>()
    }

    /// How many buffers are free.
    pub fn free_count(&self) -> usize {
        let words = self.free.iter();
        words
            .map(|free| free.load(Relaxed).count_ones() as usize)
            .sum()
    }

    /// On the worker thread, after [`Pool::close`], when everything that came back was read:
    /// releases the memory, except of buffers that CUPTI still has. The addresses stay mapped:
    /// a thread that was inside a call all the time may still write to the end of a buffer that
    /// CUPTI made it give up, and must find a page there.
    pub fn release_memory(&self) {
        let base = self.base.load(Acquire);
        for index in 0..self.touched.swap(0, Relaxed).min(BUFFERS) {
            let bits =
                |words: &[AtomicU64]| words.get(index / 64).map_or(0, |word| word.load(Acquire));
            if base == 0 || (bits(&self.free) | bits(&self.full)) >> (index % 64) & 1 == 0 {
                self.touched.fetch_max(index + 1, Relaxed);
                continue;
            }
            let at = std::ptr::with_exposed_provenance_mut(base + index * BUFFER);
            // SAFETY: this is a part of our own mapping that nothing reads any more.
            unsafe { libc::madvise(at, BUFFER, libc::MADV_DONTNEED) };
        }
    }

    /// In a forked child, before its first session: forgets the parent's buffers, without unmapping
    /// them.
    pub fn reset_after_fork(&self) {
        self.close();
        for words in [&self.free, &self.full] {
            words.iter().for_each(|word| word.store(0, Release));
        }
        self.base.store(0, Release);
    }

    /// Counts since the session started: requests that found no buffer, returned buffers of another
    /// profiler, and such buffers beyond those that could be noted.
    pub fn counts(&self) -> (u64, usize, usize) {
        let foreign = self.foreign.load(Relaxed);
        (
            self.refused.load(Relaxed),
            foreign.min(FOREIGN),
            foreign.saturating_sub(FOREIGN),
        )
    }

    fn address(&self, index: usize) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.base.load(Acquire) + index * BUFFER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// CUPTI clears what it is given, and each thread that ends returns its own.
    #[test]
    fn buffers_that_come_back_nearly_empty_get_smaller() {
        let pool = Pool::new();
        assert!(pool.open());
        let turn = |filled: fn(usize) -> usize| {
            let (buffer, size) = (pool.take(|| 0).unwrap(), pool.given());
            pool.put_back(buffer, size, filled(size));
            let mut taken = Vec::new();
            pool.filled(&mut taken);
            taken.iter().for_each(|filled| pool.recycle(filled));
            pool.given()
        };
        assert_eq!(turn(|size| size / 2), BUFFER);
        assert_eq!(turn(|_| 400), BUFFER / 2);
        for _ in 0..10 {
            turn(|_| 400);
        }
        assert_eq!(pool.given(), LEAST);
        assert_eq!(turn(|size| size - 100), 2 * LEAST);
        for _ in 0..10 {
            turn(|size| size);
        }
        assert_eq!(pool.given(), BUFFER);
    }

    #[test]
    fn each_buffer_is_handed_out_once() {
        let pool = Pool::new();
        assert_eq!(pool.take(|| 7), None);
        assert!(pool.open());
        let taken: HashSet<usize> = (0..BUFFERS)
            .map(|_| pool.take(|| 7).unwrap().addr())
            .collect();
        assert_eq!(taken.len(), BUFFERS);
        assert!(taken.iter().all(|address| address.is_multiple_of(4096)));
        assert_eq!((pool.take(|| 7), pool.outstanding()), (None, BUFFERS));
        assert_eq!(pool.counts(), (1, 0, 0));
        pool.close();
        for address in taken {
            pool.put_back(std::ptr::with_exposed_provenance_mut(address), BUFFER, 8);
        }
        assert_eq!(
            (pool.take(|| 7), pool.outstanding(), pool.free_count()),
            (None, 0, 0)
        );
        pool.release_memory();
        assert!(pool.open());
        assert_eq!((pool.counts(), pool.free_count()), ((0, 0, 0), BUFFERS));
    }

    #[test]
    fn memory_is_released_and_the_addresses_stay_mapped() {
        let pool = Pool::new();
        pool.release_memory();
        assert!(pool.open());
        let buffer = pool.take(|| 7).unwrap();
        // SAFETY: a buffer of this test.
        unsafe { buffer.cast::<u64>().write(7) };
        pool.put_back(buffer, BUFFER, 8);
        pool.close();
        pool.release_memory();
        // SAFETY: still mapped, as a thread that comes late needs it.
        unsafe {
            assert_eq!(buffer.cast::<u64>().read(), 0);
            buffer.cast::<u64>().write(8);
        }
        assert!(pool.open());
        assert_eq!((pool.free_count(), pool.outstanding()), (BUFFERS, 0));
    }

    #[test]
    fn buffers_are_returned_in_order_with_foreign_ones_between() {
        let pool = Pool::new();
        assert!(pool.open());
        let (first, second) = (pool.take(|| 7).unwrap(), pool.take(|| 7).unwrap());
        pool.put_back(second, BUFFER, 16);
        pool.put_back(first, BUFFER, usize::MAX);
        let theirs = [8, second.addr() + BUFFER * BUFFERS].map(std::ptr::without_provenance_mut);
        theirs
            .iter()
            .for_each(|buffer| pool.put_back(*buffer, BUFFER, 3 * BUFFER));
        let mut filled = Vec::new();
        pool.filled(&mut filled);
        let told: Vec<_> = filled
            .iter()
            .map(|it| (it.start, it.valid, it.owner))
            .collect();
        let [third, fourth] = theirs.map(|buffer| (buffer, 3 * BUFFER, 0));
        assert_eq!(told, [(second, 16, 7), (first, BUFFER, 7), third, fourth]);
        assert_eq!((pool.counts(), pool.outstanding()), ((0, 2, 0), 2));
        filled.iter().for_each(|it| pool.recycle(it));
        assert_eq!((pool.outstanding(), pool.free_count()), (0, BUFFERS));
        // Each is returned once; of those that could not be noted, the number is known.
        (0..FOREIGN).for_each(|_| pool.put_back(theirs[0], BUFFER, 8));
        pool.filled(&mut filled);
        assert_eq!(filled.len(), FOREIGN - 2);
        assert_eq!(pool.counts(), (0, FOREIGN, 2));
    }

    #[test]
    fn buffers_that_cupti_keeps_stay_reserved() {
        let pool = Pool::new();
        assert!(pool.open());
        let kept = pool.take(|| 7).unwrap();
        pool.close();
        pool.release_memory();
        assert!(pool.open());
        let others: Vec<_> = std::iter::from_fn(|| pool.take(|| 7)).collect();
        assert_eq!(others.len(), BUFFERS - 1);
        assert!(!others.contains(&kept));
        others
            .iter()
            .chain([&kept])
            .for_each(|it| pool.put_back(*it, BUFFER, 0));
    }

    #[test]
    fn threads_never_share_a_buffer() {
        let pool = Pool::new();
        assert!(pool.open());
        let done = AtomicBool::new(false);
        let mut seen = 0_u64;
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..4_u64)
                .map(|worker| {
                    let pool = &pool;
                    scope.spawn(move || {
                        let mut count = 0_u64;
                        for round in 0..20_000 {
                            let Some(buffer) = pool.take(|| 7) else {
                                continue;
                            };
                            let mark = worker << 32 | round;
                            // SAFETY: a buffer that belongs to this thread until it is returned.
                            unsafe {
                                buffer.cast::<u64>().write_volatile(mark);
                                std::hint::spin_loop();
                                assert_eq!(buffer.cast::<u64>().read_volatile(), mark);
                            }
                            pool.put_back(buffer, BUFFER, 8);
                            count += 1;
                        }
                        count
                    })
                })
                .collect();
            let done = &done;
            let pool = &pool;
            let reader = scope.spawn(move || {
                let (mut filled, mut seen) = (Vec::new(), 0_u64);
                loop {
                    let last = done.load(Acquire);
                    pool.filled(&mut filled);
                    seen += filled.len() as u64;
                    filled.iter().for_each(|it| pool.recycle(it));
                    if last {
                        return seen;
                    }
                }
            });
            let given: u64 = workers.into_iter().map(|it| it.join().unwrap()).sum();
            done.store(true, Release);
            seen = reader.join().unwrap();
            assert_eq!(seen, given);
        });
        assert_eq!(seen + pool.counts().0, 80_000);
    }
}
