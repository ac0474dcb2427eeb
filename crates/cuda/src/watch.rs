//! Giving way: another profiler's first call into the CUPTI that we use waits until we are gone.
//!
//! While a session is on, the entries of a few of CUPTI's functions begin with a jump to a page of ours: those by which a profiler
//! subscribes or takes the buffers. Whoever calls one is made to wait while our thread flushes, disables and finalizes; then the entry
//! is as it was, and his call goes on to it as if we had never been there. The application's own code is never touched, and CUPTI's
//! only during a session.
//!
//! The jump is 5 bytes within the first 8 of a function that begins at a multiple of 8, so that one store puts it there and one takes it
//! away: no thread ever sees half of it. These functions are called a few times in a process's life; a thread that stands within the
//! first 8 bytes of one at that very moment is what remains, and is not looked for.

#[cfg(target_arch = "x86_64")]
#[path = "watch/x86_64.rs"]
mod arch;
#[cfg(not(target_arch = "x86_64"))]
#[path = "watch/other.rs"]
mod arch;
mod near;

use std::ffi::c_void;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
use std::time::{Duration, Instant};

/// Functions that are watched at most.
pub const MOST: usize = 16;
/// How long another profiler waits for us at most.
const PATIENCE: Duration = Duration::from_secs(5);

/// A function whose entry is ours for now.
#[derive(Debug)]
struct Entry {
    address: AtomicUsize,
    /// What was there.
    before: AtomicU64,
    /// What we put there; 0 while the function is as it was.
    ours: AtomicU64,
}

static ENTRIES: [Entry; MOST] = [const {
    Entry {
        address: AtomicUsize::new(0),
        before: AtomicU64::new(0),
        ours: AtomicU64::new(0),
    }
}; MOST];
/// Callers that came while the watch was on.
static ASKED: AtomicU32 = AtomicU32::new(0);
/// A futex word: 1 while the watch is on.
static ON: AtomicU32 = AtomicU32::new(0);
/// Our own thread, and its process: a child that is forked meanwhile has the jumps and nobody who takes them out.
static OWN: AtomicU32 = AtomicU32::new(0);
static PROCESS: AtomicU32 = AtomicU32::new(0);
/// Somebody changes rights and bytes of code.
static CHANGING: AtomicBool = AtomicBool::new(false);

/// The watch of a session. What it changed is put back when it is dropped.
#[derive(Debug)]
pub struct Watch {
    count: usize,
}

impl Watch {
    /// Puts the jumps in. On our own thread; one watch at a time.
    ///
    /// # Errors
    /// Why not, in words; nothing is changed then.
    ///
    /// # Safety
    /// Each address is the entry of a function that stays mapped while the watch is on, takes no arguments beyond registers for
    /// integers, and is called by its entry alone.
    pub unsafe fn begin(functions: &[usize]) -> Result<Watch, String> {
        if functions.is_empty() || functions.len() > MOST {
            return Err("there is nothing to watch".to_owned());
        }
        ASKED.store(0, SeqCst);
        OWN.store(own_id(), SeqCst);
        PROCESS.store(std::process::id(), SeqCst);
        ON.store(1, SeqCst);
        let mut watch = Watch { count: 0 };
        for (index, (entry, address)) in ENTRIES.iter().zip(functions).enumerate() {
            if !address.is_multiple_of(8) {
                return Err(format!(
                    "a function of CUPTI's begins at {address:#x}, which is no multiple of 8"
                ));
            }
            let stub = near::stub(*address, index)?;
            // SAFETY: the caller's promise: a mapped function, so its first bytes can be read.
            let before = unsafe { word(*address).load(Acquire) };
            let ours = arch::jump(*address, stub, before)
                .ok_or("a page of ours is too far from CUPTI's code")?;
            entry.address.store(*address, Relaxed);
            entry.before.store(before, Relaxed);
            entry.ours.store(ours, SeqCst);
            watch.count = index + 1;
            // SAFETY: the caller's promise; `ours` is a whole instruction.
            unsafe { replace(*address, before, ours) }?;
        }
        Ok(watch)
    }

    /// How many callers of other profilers wait, or have waited.
    pub fn asked(&self) -> u32 {
        ASKED.load(SeqCst)
    }

    /// Functions that are watched.
    pub fn count(&self) -> u32 {
        self.count as u32
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        ENTRIES.iter().take(self.count).for_each(restore);
        ON.store(0, SeqCst);
        wake();
    }
}

/// In a forked child, before its first session: whoever waited there is not in the child. The bytes are put back.
pub fn begin_anew() {
    CHANGING.store(false, SeqCst);
    ENTRIES.iter().for_each(restore);
    ON.store(0, SeqCst);
}

/// A watched function was called, on whatever thread. Waits until our thread is done, and returns where the call goes on.
extern "C" fn gives_way(index: u32) -> usize {
    let Some(entry) = ENTRIES.get(index as usize) else {
        return 0;
    };
    // SAFETY: the thread's own error number; the caller's is kept.
    let errno = unsafe { *libc::__errno_location() };
    let forked = PROCESS.load(SeqCst) != std::process::id();
    if forked || (own_id() != OWN.load(SeqCst) && !is_over()) {
        // In a forked child nobody comes, or our thread did not come in time. One function may call another: all are put back.
        ENTRIES.iter().for_each(restore);
    }
    // Nothing is left to do here but where our own thread is the caller.
    restore(entry);
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
    entry.address.load(Relaxed)
}

/// Waits until the watch is over. False where it did not end in time.
fn is_over() -> bool {
    if ON.load(SeqCst) == 0 {
        return true;
    }
    ASKED.fetch_add(1, SeqCst);
    let end = Instant::now() + PATIENCE;
    while ON.load(SeqCst) != 0 {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        midair_guest::wait_on(&ON, 1, Some(left), true);
    }
    true
}

/// Puts an entry back where it is ours.
fn restore(entry: &Entry) {
    let ours = entry.ours.swap(0, AcqRel);
    if ours != 0 {
        let address = entry.address.load(Relaxed);
        // SAFETY: a function that `begin` was promised to stay mapped; what was there before is put back.
        let put_back = unsafe { replace(address, ours, entry.before.load(Relaxed)) };
        if put_back.is_err() {
            // It is tried again by whoever comes next: a caller must not go in circles for ever, but the bytes are still ours.
            entry.ours.store(ours, Release);
        }
    }
}

/// Stores a word of code where `expected` is.
///
/// # Safety
/// `address` is a multiple of 8 in mapped code, and whoever runs through it may see either word.
unsafe fn replace(address: usize, expected: u64, wanted: u64) -> Result<(), String> {
    // Two threads that change rights of the same page would take them from one another. It is held for two system calls.
    while CHANGING.swap(true, SeqCst) {
        std::thread::yield_now();
    }
    let page = address & !4095;
    let at: *mut c_void = std::ptr::with_exposed_provenance_mut(page);
    let rights = |rights| {
        // SAFETY: the page of a mapped function; other threads may run on it, so it stays executable.
        unsafe { libc::mprotect(at, 4096, rights) == 0 }
    };
    let code = libc::PROT_READ | libc::PROT_EXEC;
    let result = if rights(code | libc::PROT_WRITE) {
        // SAFETY: the caller's promise; the page can be written now.
        let word = unsafe { word(address) };
        // Somebody else may have put something there since: it is his then.
        let _ = word.compare_exchange(expected, wanted, SeqCst, SeqCst);
        rights(code);
        Ok(())
    } else {
        let why = std::io::Error::last_os_error();
        Err(format!("CUPTI's code cannot be made writable: {why}"))
    };
    CHANGING.store(false, SeqCst);
    result
}

/// # Safety
/// `address` is a multiple of 8 in mapped code.
unsafe fn word(address: usize) -> &'static AtomicU64 {
    // SAFETY: the caller's promise.
    unsafe { &*std::ptr::with_exposed_provenance::<AtomicU64>(address) }
}

fn own_id() -> u32 {
    // SAFETY: a system call without arguments.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

fn wake() {
    // SAFETY: a futex word of ours; waking has no effect on memory.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            ON.as_ptr(),
            libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
            i32::MAX,
            0,
            0,
            0,
        )
    };
}

#[cfg(test)]
mod tests;
