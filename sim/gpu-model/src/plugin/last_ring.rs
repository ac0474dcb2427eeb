//! Works around an error of ROCr 7.2 in its model mode, at the end of a process's last AQL queue.
//!
//! ROCr wakes its handler thread, which reports "done" and then raises the queue's event once more.
//! Meanwhile the destroying thread destroys the queue, frees its ring and, after the last queue,
//! destroys the event. A driver would answer the late call with an error that no code reads. The
//! model mode aborts the process ("event_id = 6 is not allocated").
//!
//! All these calls take one mutex of ROCr, and the thread that frees the ring holds it while it
//! calls the model. In every run that was looked at, the handler was blocked at that mutex. So the
//! model unlocks the mutex until the handler has had it, and the handler raises an event that still
//! exists. (Sleeping does not help: this thread would sleep with the mutex held, and afterwards the
//! fastest of the waiting threads would get it.)
//!
//! The thread may hold other mutexes that other threads wait for, such as one of the program's own
//! that keeps its threads out of HIP while the process exits. Those stay locked. ROCr's mutex is
//! recognised because it is a static variable, so it is in ROCr's own library.

use std::ffi::{c_int, c_void};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long the handler may take to reach the mutex.
const ON_ITS_WAY: Duration = Duration::from_millis(25);
/// The longest wait for the handler while a thread of the process is running or wants a processor,
/// since that may be the handler. In a program whose own threads compute, this wait is in vain.
const STARVED: Duration = Duration::from_millis(500);
/// The time between two inspections of the threads.
const NAP: Duration = Duration::from_millis(1);

/// A mutex that the calling thread has locked and that other threads wait for.
struct Wanted(*mut libc::pthread_mutex_t);

/// Another thread of this process.
struct Other(PathBuf);

/// Lets the handler finish. Called by the thread that frees the last ring; `in_runtime` is any
/// address in ROCr's library.
pub(super) fn let_handler_finish(in_runtime: *const c_void) {
    let began = Instant::now();
    let Some(runtime) = library_of(in_runtime) else {
        return;
    };
    let mut wanted = wanted(runtime);
    while wanted.is_none() && (began.elapsed() < ON_ITS_WAY || is_starved(began)) {
        std::thread::sleep(NAP);
        wanted = self::wanted(runtime);
    }
    let Some(Wanted(mutex)) = wanted else {
        return;
    };
    // The thread that waits may be another one while the handler is still on its way to the mutex.
    while began.elapsed() < ON_ITS_WAY && others().any(|other| other.runs()) {
        std::thread::sleep(NAP);
    }
    let waiting: Vec<(Other, Option<u64>)> = others()
        .filter(|other| other.waits_for() == Some(mutex.addr()))
        .map(|other| {
            let turns = other.turns();
            (other, turns)
        })
        .collect();
    // SAFETY: it is a pthread mutex of ROCr (it is in ROCr's library) that this thread owns
    // (according to its owner field). No thread destroys it while others wait for it. The data
    // that it protects is consistent: ROCr calls the model between two of its own steps, and the
    // calls that follow raise and await events.
    unsafe { libc::pthread_mutex_unlock(mutex) };
    // This waits only until the waiting threads have had the mutex. The program's own threads may
    // make calls as well, which would come too late now.
    let until = Instant::now() + STARVED;
    let had_it = |(other, turns): &(Other, Option<u64>)| {
        other.turns() != *turns && other.waits_for() != Some(mutex.addr())
    };
    while !waiting.iter().all(had_it) && Instant::now() < until {
        std::thread::sleep(NAP / 10);
    }
    // SAFETY: it is the same mutex as above, and this thread no longer holds it.
    unsafe { libc::pthread_mutex_lock(mutex) };
}

/// Returns whether another thread of this process is running or waits for a processor, and there is
/// time left for it.
fn is_starved(began: Instant) -> bool {
    began.elapsed() < STARVED && others().any(|other| other.runs())
}

/// Returns the base of the program or library that contains an address, or `None` if none does, as
/// on the heap.
fn library_of(address: *const c_void) -> Option<usize> {
    let mut found = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the address is only compared, and the out pointer is valid.
    if unsafe { libc::dladdr(address, found.as_mut_ptr()) } == 0 {
        return None;
    }
    // SAFETY: dladdr has filled it, and it was valid before, since it was zeroed.
    Some(unsafe { found.assume_init() }.dli_fbase.addr())
}

/// Returns the mutex in the library with base `runtime` that this thread holds, if another thread
/// waits for one.
fn wanted(runtime: usize) -> Option<Wanted> {
    others().find_map(|other| {
        let mutex =
            std::ptr::with_exposed_provenance_mut::<libc::pthread_mutex_t>(other.waits_for()?);
        if library_of(mutex.cast()) != Some(runtime) {
            return None;
        }
        // This is glibc's layout: the lock word (2 if others wait), a count, the owner.
        // SAFETY: a thread waits at this address in the C library's lock function, so a mutex is
        // there. Its words are only read.
        let owner = unsafe { mutex.cast::<c_int>().add(2).read_volatile() };
        // SAFETY: gettid takes no arguments.
        (owner == unsafe { libc::gettid() }).then_some(Wanted(mutex))
    })
}

impl Other {
    fn read(&self, file: &str) -> Option<String> {
        std::fs::read_to_string(self.0.join(file)).ok()
    }

    /// Returns the mutex that it waits for.
    fn waits_for(&self) -> Option<usize> {
        locking(&self.read("syscall")?)
    }

    /// Returns how often it has been scheduled, which is the third number of `schedstat`. Returns
    /// `None` when it has ended.
    fn turns(&self) -> Option<u64> {
        let text = self.read("schedstat")?;
        text.split_ascii_whitespace().nth(2)?.parse().ok()
    }

    /// Returns whether it is running or waits for a processor.
    fn runs(&self) -> bool {
        self.read("stat").is_some_and(|stat| {
            stat.rsplit(") ")
                .next()
                .is_some_and(|rest| rest.starts_with('R'))
        })
    }
}

/// Returns the address of the mutex that a thread in this system call waits for: `futex(address,
/// FUTEX_WAIT | PRIVATE, 2)`. A wait for a condition variable has another operation.
fn locking(call: &str) -> Option<usize> {
    let mut words = call.split_ascii_whitespace();
    let number: libc::c_long = words.next()?.parse().ok()?;
    let mut hexadecimal = || usize::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
    let (address, operation, expected) = (hexadecimal()?, hexadecimal()?, hexadecimal()?);
    let waits = (libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG) as usize;
    (number == libc::SYS_futex && operation == waits && expected == 2).then_some(address)
}

/// Returns all other threads of this process.
fn others() -> impl Iterator<Item = Other> {
    // SAFETY: gettid takes no arguments.
    let own = unsafe { libc::gettid() }.to_string();
    std::fs::read_dir("/proc/self/task")
        .into_iter()
        .flatten()
        .flatten()
        .filter(move |task| task.file_name() != own.as_str())
        .map(|task| Other(task.path()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    struct Shared(std::cell::UnsafeCell<libc::pthread_mutex_t>);
    // SAFETY: only the pthread functions access it, which are made for sharing.
    unsafe impl Sync for Shared {}

    impl Shared {
        const fn new() -> Shared {
            Shared(std::cell::UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER))
        }
        fn lock(&self) {
            // SAFETY: it is a valid mutex that is never moved or freed.
            assert_eq!(unsafe { libc::pthread_mutex_lock(self.0.get()) }, 0);
        }
        fn unlock(&self) {
            // SAFETY: it is a valid mutex that is never moved or freed, and this thread has locked
            // it.
            assert_eq!(unsafe { libc::pthread_mutex_unlock(self.0.get()) }, 0);
        }
    }

    /// Returns whether a thread that waits for this mutex, which this thread holds, has had it
    /// after a call of `let_handler_finish`.
    fn waiter_had_it(mutex: &'static Shared) -> bool {
        let had = std::sync::Arc::new(AtomicBool::new(false));
        mutex.lock();
        let its = had.clone();
        let other = std::thread::spawn(move || {
            mutex.lock();
            its.store(true, Ordering::Release);
            mutex.unlock();
        });
        let at = mutex.0.get().addr();
        let until = Instant::now() + Duration::from_secs(20);
        while !others().any(|it| it.waits_for() == Some(at)) && Instant::now() < until {
            std::thread::yield_now();
        }
        assert!(!had.load(Ordering::Acquire));
        let_handler_finish(waiter_had_it as *const c_void);
        let result = had.load(Ordering::Acquire);
        // This thread holds it again, whatever happened in the meantime.
        mutex.unlock();
        other.join().unwrap();
        result
    }

    #[test]
    fn a_waiter_gets_the_mutex_of_the_runtime() {
        static MUTEX: Shared = Shared::new();
        assert!(waiter_had_it(&MUTEX));
    }

    #[test]
    fn a_mutex_that_is_not_the_runtimes_stays_locked() {
        assert!(!waiter_had_it(Box::leak(Box::new(Shared::new()))));
    }

    #[test]
    fn other_calls_are_none() {
        assert_eq!(locking("202 0x10 0x80 0x2 0x0 0x0 0x0 0x1 0x2"), Some(0x10));
        for call in [
            "",
            "running",
            "202 0x10 0x189 0x0 0x0 0x0 0x0 0x1 0x2",
            "202 0x10 0x80 0x1 0x0 0x0 0x0 0x1 0x2",
            "0 0x10 0x80 0x2 0x0 0x0 0x0 0x1 0x2",
        ] {
            assert_eq!(locking(call), None, "{call}");
        }
    }
}
