//! The end of a process's last AQL queue, which ROCr 7.2 in its model mode gets wrong.
//!
//! It wakes its handler thread, which says "done" and then raises the queue's event once more; meanwhile the destroying thread
//! destroys the queue, frees its ring and, after the last queue, destroys the event. A driver would answer the late call with an error
//! that nobody reads; the model mode aborts the process ("event_id = 6 is not allocated").
//!
//! All these calls take one mutex, and the thread that frees the ring holds it while the model is told. Seen there in every run: the
//! handler is blocked at that mutex. So the model gives it away for a moment, and the handler raises an event that is still there.
//! (Time alone does not help: while this thread sleeps with the mutex, the others wait for it, and then the fastest gets it.)

use std::ffi::c_int;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long the handler may need until it is at the mutex.
const ON_ITS_WAY: Duration = Duration::from_millis(25);
/// Longest that it is waited for where a thread of the process wants a processor: it may be the handler. A program whose own threads compute
/// waits so long for nothing.
const STARVED: Duration = Duration::from_millis(500);
/// Between two looks.
const NAP: Duration = Duration::from_millis(1);

/// A mutex that the calling thread has locked and that others wait for.
struct Wanted(*mut libc::pthread_mutex_t);

/// Another thread of this process.
struct Other(PathBuf);

/// Lets the handler come to its end. Called by the thread that frees the last ring.
pub(super) fn let_handler_finish() {
    let began = Instant::now();
    let mut wanted = wanted();
    while wanted.is_none() && (began.elapsed() < ON_ITS_WAY || is_starved(began)) {
        std::thread::sleep(NAP);
        wanted = self::wanted();
    }
    let Some(Wanted(mutex)) = wanted else {
        return;
    };
    // It may be another thread that waits, and the handler is still on its way.
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
    // SAFETY: a pthread mutex of ROCr's that this thread owns (its own words say so), which nobody destroys while others wait for it. What
    // it protects is whole: ROCr calls the model between two steps of its own, and what comes now are the calls that raise and await events.
    unsafe { libc::pthread_mutex_unlock(mutex) };
    // Only until those that waited have had it: the program's own threads may make calls, too, for which it is late.
    let until = Instant::now() + STARVED;
    let had_it = |(other, turns): &(Other, Option<u64>)| {
        other.turns() != *turns && other.waits_for() != Some(mutex.addr())
    };
    while !waiting.iter().all(had_it) && Instant::now() < until {
        std::thread::sleep(NAP / 10);
    }
    // SAFETY: as above; this thread has it no more.
    unsafe { libc::pthread_mutex_lock(mutex) };
}

/// Whether another thread of this process runs or waits for a processor, and there is time left for it.
fn is_starved(began: Instant) -> bool {
    began.elapsed() < STARVED && others().any(|other| other.runs())
}

/// The mutex, if there is one.
fn wanted() -> Option<Wanted> {
    others().find_map(|other| {
        let mutex =
            std::ptr::with_exposed_provenance_mut::<libc::pthread_mutex_t>(other.waits_for()?);
        // glibc's layout: the lock word (2: others wait), a count, the owner.
        // SAFETY: a thread waits at this address in the lock function of the C library, so a mutex is there; its words are read as they are.
        let owner = unsafe { mutex.cast::<c_int>().add(2).read_volatile() };
        // SAFETY: takes nothing.
        (owner == unsafe { libc::gettid() }).then_some(Wanted(mutex))
    })
}

impl Other {
    fn read(&self, file: &str) -> Option<String> {
        std::fs::read_to_string(self.0.join(file)).ok()
    }

    /// The mutex that it waits for.
    fn waits_for(&self) -> Option<usize> {
        locking(&self.read("syscall")?)
    }

    /// How often it has got a processor: the third number of `schedstat`. None when it has ended.
    fn turns(&self) -> Option<u64> {
        let text = self.read("schedstat")?;
        text.split_ascii_whitespace().nth(2)?.parse().ok()
    }

    /// It has a processor, or waits for one.
    fn runs(&self) -> bool {
        self.read("stat").is_some_and(|stat| {
            stat.rsplit(") ")
                .next()
                .is_some_and(|rest| rest.starts_with('R'))
        })
    }
}

/// The address of the mutex that a thread in this system call waits for: `futex(address, FUTEX_WAIT | PRIVATE, 2)`. A wait for a condition is
/// another operation.
fn locking(call: &str) -> Option<usize> {
    let mut words = call.split_ascii_whitespace();
    let number: libc::c_long = words.next()?.parse().ok()?;
    let mut hexadecimal = || usize::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
    let (address, operation, expected) = (hexadecimal()?, hexadecimal()?, hexadecimal()?);
    let waits = (libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG) as usize;
    (number == libc::SYS_futex && operation == waits && expected == 2).then_some(address)
}

/// All of them.
fn others() -> impl Iterator<Item = Other> {
    // SAFETY: takes nothing.
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
    // SAFETY: only touched by the pthread functions, which are made for sharing.
    unsafe impl Sync for Shared {}

    #[test]
    fn whoever_waits_for_the_mutex_has_had_it() {
        static MUTEX: Shared = Shared(std::cell::UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));
        static HAD: AtomicBool = AtomicBool::new(false);
        let mutex = MUTEX.0.get();
        // SAFETY: a valid mutex that lives for ever, locked and unlocked in pairs by its owner.
        unsafe { libc::pthread_mutex_lock(mutex) };
        let other = std::thread::spawn(|| {
            let mutex = MUTEX.0.get();
            // SAFETY: as above.
            unsafe {
                libc::pthread_mutex_lock(mutex);
                HAD.store(true, Ordering::Release);
                libc::pthread_mutex_unlock(mutex);
            }
        });
        let until = Instant::now() + Duration::from_secs(20);
        while !others().any(|it| it.waits_for() == Some(mutex.addr())) && Instant::now() < until {
            std::thread::yield_now();
        }
        assert!(!HAD.load(Ordering::Acquire));
        let_handler_finish();
        assert!(HAD.load(Ordering::Acquire));
        // SAFETY: as above: it was locked again.
        assert_eq!(unsafe { libc::pthread_mutex_unlock(mutex) }, 0);
        other.join().unwrap();
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
