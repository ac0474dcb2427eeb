//! Locks that know their owner and that are open in a forked child.
//!
//! If a lock is held, other threads wait. The owner itself gets an error instead of a deadlock. All
//! words lie in one page with `MADV_WIPEONFORK`: in a child of `fork` every lock is open and no
//! listener is known, without any `atfork` handler.

use midair_lockfree::{AtomicEnum, word_enum};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// Selects a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// A runtime registers.
    Registration = 0,
    /// Kept tables are handed to an SDK.
    HandOver = 1,
    /// An attacher attaches or detaches.
    Operation = 2,
}

word_enum! {
    /// Whether this process has a certain thread.
    pub(crate) enum Presence else Absent {
        /// It has none.
        Absent = 0,
        /// It has one, or is making one.
        Present = 1,
    }
}

/// The words that belong to this process only.
#[repr(C)]
struct Page {
    locks: [AtomicU32; 3],
    listener: AtomicEnum<Presence>,
    worker: AtomicEnum<Presence>,
}

static PAGE: AtomicPtr<Page> = AtomicPtr::new(std::ptr::null_mut());
/// Used where the kernel provides no such page. Then everything works, except after a fork in the
/// middle of a call.
static FALLBACK: Page = Page {
    locks: [const { AtomicU32::new(0) }; 3],
    listener: AtomicEnum::new(),
    worker: AtomicEnum::new(),
};

/// Set in a lock word while a thread waits. Thread ids stay far below it.
const WAITED_FOR: u32 = 1 << 31;
/// The size of one page. The kernel rounds it up.
const PAGE_SIZE: usize = 4096;

fn page() -> &'static Page {
    let mut at = PAGE.load(Ordering::Acquire);
    if at.is_null() {
        at = make_page();
    }
    // SAFETY: `at` is either FALLBACK, or a page that was mapped for this and is never unmapped
    // once published. The kernel filled that page with zeroes, which is a value of Page.
    unsafe { &*at }
}

fn make_page() -> *mut Page {
    let fallback = std::ptr::from_ref(&FALLBACK).cast_mut();
    // SAFETY: this makes a new private mapping at an address of the kernel's choice.
    let fresh = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            PAGE_SIZE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    let mut chosen = fallback;
    if fresh != libc::MAP_FAILED {
        // SAFETY: the range is the mapping made above.
        let wiped = unsafe { libc::madvise(fresh, PAGE_SIZE, libc::MADV_WIPEONFORK) };
        if wiped == 0 {
            chosen = fresh.cast();
        }
    }
    let published = PAGE.compare_exchange(
        std::ptr::null_mut(),
        chosen,
        Ordering::AcqRel,
        Ordering::Acquire,
    );
    if fresh != libc::MAP_FAILED && (published.is_err() || chosen == fallback) {
        // SAFETY: this mapping was not published, so no other thread knows it.
        unsafe { libc::munmap(fresh, PAGE_SIZE) };
    }
    published.err().unwrap_or(chosen)
}

/// Whether this process (not its parent) has a listener.
pub(crate) fn listener_word() -> &'static AtomicEnum<Presence> {
    &page().listener
}

/// Whether this process (not its parent) has a worker thread that the listener made.
pub(crate) fn worker_word() -> &'static AtomicEnum<Presence> {
    &page().worker
}

/// A lock that is held until this value is dropped.
#[derive(Debug)]
pub struct Held(&'static AtomicU32);

/// The error that the calling thread already holds this lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WouldDeadlock;

fn futex(word: &AtomicU32, operation: libc::c_int, value: u32) {
    // SAFETY: the word is alive for the whole call (it is static or never unmapped). No timeout and
    // no second word are passed.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            operation | libc::FUTEX_PRIVATE_FLAG,
            value,
            std::ptr::null::<libc::timespec>(),
        );
    }
}

/// Takes a lock, waiting for other threads.
///
/// # Errors
/// [`WouldDeadlock`] when the calling thread holds it already.
pub fn take(which: Which) -> Result<Held, WouldDeadlock> {
    let word = &page().locks[which as usize];
    // SAFETY: gettid has no arguments and cannot fail.
    let own = unsafe { libc::gettid() } as u32;
    let mut as_owner = own;
    loop {
        let now = match word.compare_exchange(0, as_owner, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => return Ok(Held(word)),
            Err(now) => now,
        };
        if now & !WAITED_FOR == own {
            return Err(WouldDeadlock);
        }
        let marked = now | WAITED_FOR;
        if now == marked
            || word
                .compare_exchange(now, marked, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        {
            futex(word, libc::FUTEX_WAIT, marked);
        }
        // Other threads may still wait, so a thread that has waited once keeps the mark.
        as_owner = own | WAITED_FOR;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.0.swap(0, Ordering::Release) & WAITED_FOR != 0 {
            futex(self.0, libc::FUTEX_WAKE, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procfs::futex_address;
    use crate::testing::{filter, in_a_child};
    use std::sync::atomic::AtomicI32;
    use std::time::{Duration, Instant};

    // All of this is one test, because the locks belong to the process and tests run in parallel.
    #[test]
    fn locks_exclude_threads_detect_their_owner_and_are_open_in_a_child() {
        // Exclusion: eight threads increment a count in steps that are not atomic.
        let count = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        let _held = take(Which::HandOver).unwrap();
                        let seen = count.load(Ordering::Relaxed);
                        std::hint::spin_loop();
                        count.store(seen + 1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(count.load(Ordering::Relaxed), 16_000);

        let held = take(Which::HandOver).unwrap();
        assert_eq!(take(Which::HandOver).unwrap_err(), WouldDeadlock);
        listener_word().store(Presence::Present, Ordering::Relaxed);
        let alone = crate::worker::tests::alone();
        worker_word().store(Presence::Present, Ordering::Relaxed);
        assert_eq!(worker_word().load(Ordering::Relaxed), Presence::Present);
        // SAFETY: the child calls only async-signal-safe functions and the lock, then _exit.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let open = take(Which::HandOver).is_ok()
                && listener_word().load(Ordering::Relaxed) == Presence::Absent
                && worker_word().load(Ordering::Relaxed) == Presence::Absent;
            // SAFETY: this ends the child without running the parent's handlers.
            unsafe { libc::_exit(if open { 0 } else { 1 }) };
        }
        let mut status = 0;
        // SAFETY: the child and the status word are our own.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "a forked child found the lock held");
        listener_word().store(Presence::Absent, Ordering::Relaxed);
        worker_word().store(Presence::Absent, Ordering::Relaxed);
        drop(alone);
        drop(held);
        drop(take(Which::HandOver).unwrap());
    }

    /// Threads that wait do not take the processor, and each gets its turn.
    #[test]
    fn threads_sleep_until_the_lock_is_free() {
        let word = page().locks[Which::Operation as usize].as_ptr().addr();
        let tids = [const { AtomicI32::new(0) }; 3];
        let wait = |tid: &AtomicI32| {
            // SAFETY: gettid has no arguments and cannot fail.
            tid.store(unsafe { libc::gettid() }, Ordering::Release);
            drop(take(Which::Operation).unwrap());
        };
        let deadline = Instant::now() + Duration::from_secs(60);
        std::thread::scope(|scope| {
            let held = take(Which::Operation).unwrap();
            for tid in &tids {
                scope.spawn(|| wait(tid));
            }
            while !tids.iter().all(|tid| {
                let tid = tid.load(Ordering::Acquire);
                tid != 0 && futex_address(tid) == Some(word)
            }) {
                assert!(Instant::now() < deadline, "they do not sleep");
                std::thread::yield_now();
            }
            drop(held);
        });
    }

    /// A lock that no other thread wants costs no system call of its own.
    #[test]
    fn nobody_is_woken_who_does_not_wait() {
        let ended = in_a_child(|| {
            drop(take(Which::HandOver).unwrap());
            filter(libc::SYS_futex, None, libc::SECCOMP_RET_KILL_PROCESS);
            drop(take(Which::HandOver).unwrap());
            0
        });
        assert_eq!(ended, 0);
    }

    /// Of threads that make a page at one time, all but one give theirs back.
    #[test]
    fn a_page_that_is_not_needed_is_given_back() {
        let first = std::ptr::from_ref(page()).cast_mut();
        let pages = || {
            let text = std::fs::read_to_string("/proc/self/statm").unwrap();
            let first = text.split_ascii_whitespace().next();
            first.unwrap().parse::<usize>().unwrap()
        };
        // Other threads of this process make mappings, too. A child has none.
        // SAFETY: the child calls what a forked child of a program with threads may call, and `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let before = pages();
            let same = (0..1000).all(|_| make_page() == first);
            let more = pages().saturating_sub(before);
            // SAFETY: this ends the child without running the parent's handlers.
            unsafe { libc::_exit(libc::c_int::from(!same || more > 100)) };
        }
        let mut status = 0;
        // SAFETY: the child and the status word are our own.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "pages stay mapped");
    }
}
