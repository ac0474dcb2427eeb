//! The buffers that CUPTI fills.
//!
//! CUPTI asks for a buffer on whatever thread is about to record, and gives it back filled on that thread or on its own. Both answers
//! are a few atomic operations here: no allocation, no lock, no system call. Our thread takes the filled ones, reads them, and makes
//! them free again. With none free CUPTI is given none: it drops records then and counts them.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

/// Bytes of a buffer: some 5,000 kernels, or 26,000 calls. What a thread has to wait for at once (CUPTI clears it) stays short.
pub const BUFFER: usize = 1 << 20;
/// Buffers: each of an application's threads has one of its own. Those that are never asked for take no memory, only addresses.
pub const BUFFERS: usize = 128;
const WORDS: usize = BUFFERS / 64;
/// Buffers of somebody else's that are read in a session.
const FOREIGN: usize = 16;
/// Their number, as [`Filled::index`].
const NOT_OURS: usize = usize::MAX;

/// The buffers of a process. A static one: CUPTI's functions are told of nothing else.
#[derive(Debug)]
pub struct Pool {
    /// Start of the mapping, 0 while there is none.
    base: AtomicUsize,
    /// CUPTI may have buffers.
    open: AtomicBool,
    /// A bit for each buffer that nobody has. The lowest is taken first, so that few are ever touched.
    free: [AtomicU64; WORDS],
    /// A bit for each that CUPTI gave back and our thread has not taken.
    full: [AtomicU64; WORDS],
    /// Valid bytes of those.
    valid: [AtomicUsize; BUFFERS],
    /// The order in which they came back.
    order: [AtomicU64; BUFFERS],
    /// Who asked for each: see [`Pool::take`].
    owner: [AtomicU64; BUFFERS],
    /// One more than the highest that was ever taken: what is below may have memory.
    touched: AtomicUsize,
    next: AtomicU64,
    /// Requests that found none.
    refused: AtomicU64,
    /// Buffers that came back and were not ours.
    foreign: AtomicUsize,
    /// The first of them.
    others: [Foreign; FOREIGN],
}

/// A buffer that another profiler gave to CUPTI, which filled it for us and gave it back to us: how that comes about is told at
/// `is_alone` in [`crate::session`]. It is read, and stays where it is: its owner never hears of it again.
#[derive(Debug)]
struct Foreign {
    /// Where it is; 0 while there is none.
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

/// A buffer that CUPTI gave back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Filled {
    /// Which; `usize::MAX` for one that is not of this pool.
    pub index: usize,
    /// Where it is.
    pub start: *mut u8,
    /// Bytes of records in it.
    pub valid: usize,
    /// What [`Pool::take`] was told.
    pub owner: u64,
    order: u64,
}

impl Default for Pool {
    fn default() -> Pool {
        Pool::new()
    }
}

impl Pool {
    /// One without memory: every request is refused.
    pub const fn new() -> Pool {
        Pool {
            base: AtomicUsize::new(0),
            open: AtomicBool::new(false),
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

    /// Our thread: maps the buffers where they are not mapped, and lets CUPTI have them. Those that it kept from an earlier session
    /// stay with it. False when there is no room.
    pub fn open(&self) -> bool {
        let mut all = [u64::MAX; WORDS];
        if self.base.load(Acquire) == 0 {
            // SAFETY: fresh memory at an address of the kernel's choice.
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
            // Closed with some outside: what came back since is in `full`.
            for (word, full) in all.iter_mut().zip(&self.full) {
                *word = full.swap(0, AcqRel);
            }
            for (word, kept) in all.iter_mut().zip(&self.free) {
                *word |= kept.load(Acquire);
            }
        }
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

    /// CUPTI, on any thread: a buffer, or none. `owner` says who asks, and comes back with the buffer.
    pub fn take(&self, owner: impl FnOnce() -> u64) -> Option<*mut u8> {
        if self.open.load(Acquire) {
            for (place, word) in self.free.iter().enumerate() {
                let mut bits = word.load(Acquire);
                while bits != 0 {
                    let bit = bits & bits.wrapping_neg();
                    let before = word.fetch_and(!bit, AcqRel);
                    if before & bit != 0 {
                        let index = place * 64 + bit.trailing_zeros() as usize;
                        if let Some(place) = self.owner.get(index) {
                            place.store(owner(), Relaxed);
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

    /// CUPTI, on any thread: a buffer comes back with so many valid bytes.
    pub fn give(&self, buffer: *mut u8, valid: usize) {
        let offset = buffer.addr().wrapping_sub(self.base.load(Acquire));
        let index = offset / BUFFER;
        let (Some(bytes), Some(order), Some(word)) = (
            self.valid.get(index),
            self.order.get(index),
            self.full.get(index / 64),
        ) else {
            let place = self.foreign.fetch_add(1, Relaxed);
            if let Some(other) = self.others.get(place) {
                other.valid.store(valid, Relaxed);
                let order = self.next.fetch_add(1, Relaxed);
                other.order.store(order, Relaxed);
                other.start.store(buffer.expose_provenance(), Release);
            }
            return;
        };
        bytes.store(valid.min(BUFFER), Relaxed);
        order.store(self.next.fetch_add(1, Relaxed), Relaxed);
        word.fetch_or(1 << (index % 64), Release);
    }

    /// Our thread: those that came back, in the order in which they did.
    pub fn filled(&self, into: &mut Vec<Filled>) {
        into.clear();
        for (place, word) in self.full.iter().enumerate() {
            let mut bits = word.swap(0, AcqRel);
            while bits != 0 {
                let index = place * 64 + bits.trailing_zeros() as usize;
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

    /// Our thread: it has been read, and may be filled again. One that is not ours is left to itself.
    pub fn recycle(&self, filled: &Filled) {
        if let Some(word) = self.free.get(filled.index / 64) {
            word.fetch_or(1 << (filled.index % 64), Release);
        }
    }

    /// Our thread: CUPTI gets no more. What is outside may still come back.
    pub fn close(&self) {
        self.open.store(false, Release);
    }

    /// How many CUPTI has.
    pub fn outside(&self) -> usize {
        if self.base.load(Acquire) == 0 {
            return 0;
        }
        let words = self.free.iter().zip(&self.full);
        BUFFERS
            - words
                .map(|(free, full)| (free.load(Acquire) | full.load(Acquire)).count_ones() as usize)
                .sum::<usize>()
    }

    /// How many are free.
    pub fn left(&self) -> usize {
        let words = self.free.iter();
        words
            .map(|free| free.load(Relaxed).count_ones() as usize)
            .sum()
    }

    /// Our thread, after [`Pool::close`], when everything that came back was read: gives the memory back, but of those that CUPTI still
    /// has. The addresses stay ours: a thread that was inside a call all the time may still write to the end of a buffer that CUPTI
    /// made it give up, and finds a page there.
    pub fn rest(&self) {
        let base = self.base.load(Acquire);
        for index in 0..self.touched.swap(0, Relaxed).min(BUFFERS) {
            let bits =
                |words: &[AtomicU64]| words.get(index / 64).map_or(0, |word| word.load(Acquire));
            if base == 0 || (bits(&self.free) | bits(&self.full)) >> (index % 64) & 1 == 0 {
                self.touched.fetch_max(index + 1, Relaxed);
                continue;
            }
            let at = std::ptr::with_exposed_provenance_mut(base + index * BUFFER);
            // SAFETY: a part of our own mapping of which nothing is read any more.
            unsafe { libc::madvise(at, BUFFER, libc::MADV_DONTNEED) };
        }
    }

    /// In a forked child, before its first session: what its parent had is left where it is.
    pub fn begin_anew(&self) {
        self.close();
        for words in [&self.free, &self.full] {
            words.iter().for_each(|word| word.store(0, Release));
        }
        self.base.store(0, Release);
    }

    /// Since the session began: requests that found no buffer, buffers of somebody else that came back, and further ones that nobody
    /// took note of.
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

    #[test]
    fn every_buffer_once_and_none_beyond() {
        let pool = Pool::new();
        assert_eq!(pool.take(|| 7), None);
        assert!(pool.open());
        let taken: HashSet<usize> = (0..BUFFERS)
            .map(|_| pool.take(|| 7).unwrap().addr())
            .collect();
        assert_eq!(taken.len(), BUFFERS);
        assert!(taken.iter().all(|address| address.is_multiple_of(4096)));
        assert_eq!((pool.take(|| 7), pool.outside()), (None, BUFFERS));
        assert_eq!(pool.counts(), (1, 0, 0));
        pool.close();
        for address in taken {
            pool.give(std::ptr::with_exposed_provenance_mut(address), 8);
        }
        assert_eq!((pool.take(|| 7), pool.outside(), pool.left()), (None, 0, 0));
        pool.rest();
        assert!(pool.open());
        assert_eq!((pool.counts(), pool.left()), ((0, 0, 0), BUFFERS));
    }

    #[test]
    fn memory_is_given_back_and_the_addresses_stay() {
        let pool = Pool::new();
        pool.rest();
        assert!(pool.open());
        let buffer = pool.take(|| 7).unwrap();
        // SAFETY: a buffer of ours.
        unsafe { buffer.cast::<u64>().write(7) };
        pool.give(buffer, 8);
        pool.close();
        pool.rest();
        // SAFETY: still mapped, as a thread that comes too late needs it.
        unsafe {
            assert_eq!(buffer.cast::<u64>().read(), 0);
            buffer.cast::<u64>().write(8);
        }
        assert!(pool.open());
        assert_eq!((pool.left(), pool.outside()), (BUFFERS, 0));
    }

    #[test]
    fn they_come_back_in_order_and_others_between_them() {
        let pool = Pool::new();
        assert!(pool.open());
        let (first, second) = (pool.take(|| 7).unwrap(), pool.take(|| 7).unwrap());
        pool.give(second, 16);
        pool.give(first, usize::MAX);
        let theirs = [8, second.addr() + BUFFER * BUFFERS].map(std::ptr::without_provenance_mut);
        theirs
            .iter()
            .for_each(|buffer| pool.give(*buffer, 3 * BUFFER));
        let mut filled = Vec::new();
        pool.filled(&mut filled);
        let told: Vec<_> = filled
            .iter()
            .map(|it| (it.start, it.valid, it.owner))
            .collect();
        let [third, fourth] = theirs.map(|buffer| (buffer, 3 * BUFFER, 0));
        assert_eq!(told, [(second, 16, 7), (first, BUFFER, 7), third, fourth]);
        assert_eq!((pool.counts(), pool.outside()), ((0, 2, 0), 2));
        filled.iter().for_each(|it| pool.recycle(it));
        assert_eq!((pool.outside(), pool.left()), (0, BUFFERS));
        // Each is told once, and of more than can be noted it is known how many.
        (0..FOREIGN).for_each(|_| pool.give(theirs[0], 8));
        pool.filled(&mut filled);
        assert_eq!(filled.len(), FOREIGN - 2);
        assert_eq!(pool.counts(), (0, FOREIGN, 2));
    }

    #[test]
    fn what_cupti_keeps_is_kept_for_it() {
        let pool = Pool::new();
        assert!(pool.open());
        let kept = pool.take(|| 7).unwrap();
        pool.close();
        pool.rest();
        assert!(pool.open());
        let others: Vec<_> = std::iter::from_fn(|| pool.take(|| 7)).collect();
        assert_eq!(others.len(), BUFFERS - 1);
        assert!(!others.contains(&kept));
        others
            .iter()
            .chain([&kept])
            .for_each(|it| pool.give(*it, 0));
    }

    #[test]
    fn many_threads_never_have_the_same() {
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
                            // SAFETY: a buffer of ours alone until it is given back.
                            unsafe {
                                buffer.cast::<u64>().write_volatile(mark);
                                std::hint::spin_loop();
                                assert_eq!(buffer.cast::<u64>().read_volatile(), mark);
                            }
                            pool.give(buffer, 8);
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
