//! Yields to another profiler: its first call into the CUPTI that we use waits until we have
//! left CUPTI.
//!
//! During a session, the entry points of a few functions of CUPTI start with a jump to our code.
//! They are the functions by which a profiler subscribes or registers buffers. A thread that calls
//! one of them waits while the worker thread flushes, disables and finalizes CUPTI. Then the entry
//! point is restored, and the call continues there as if we had never been there. The application's
//! code is never changed, and CUPTI's code only during a session, or until another profiler comes if
//! CUPTI stays in the process after it. Then callers do not wait, and the next session learns of them.
//!
//! The jump has 5 bytes, within the first 8 of a function whose address is a multiple of 8, so that
//! one store puts it there and one store removes it: no thread ever sees half of it. These
//! functions are called a few times in the life of a process. There is a remaining risk, for which
//! we do not check: a thread may be executing the first 8 bytes of one at that very moment.
//!
//! Decisions: CUDA-012 (`docs/deviations/cuda.md`).

#[cfg(target_arch = "x86_64")]
#[path = "watch/x86_64.rs"]
mod arch;
#[cfg(target_arch = "aarch64")]
#[path = "watch/aarch64.rs"]
mod arch;
mod segment;
mod trampoline;

pub(crate) use segment::Segment;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
use std::time::{Duration, Instant};

/// Maximum number of functions that are watched.
pub const MAX_FUNCTIONS: usize = 16;
/// The longest time that another profiler waits for us.
const PATIENCE: Duration = Duration::from_secs(5);

/// An entry point that may be patched.
#[derive(Debug)]
struct Entry {
    address: AtomicUsize,
    /// The original first word.
    before: AtomicU64,
    /// The word that we store there; 0 while the function is unpatched.
    ours: AtomicU64,
    /// The code segment that contains it: address and size.
    code: (AtomicUsize, AtomicUsize),
}

static ENTRIES: [Entry; MAX_FUNCTIONS] = [const {
    Entry {
        address: AtomicUsize::new(0),
        before: AtomicU64::new(0),
        ours: AtomicU64::new(0),
        code: (AtomicUsize::new(0), AtomicUsize::new(0)),
    }
}; MAX_FUNCTIONS];
/// Number of callers that came while the watch was on.
static REQUESTS: AtomicU32 = AtomicU32::new(0);
/// A futex word: [`WAIT`] during a session, [`PASS`] while the watch is kept after one, 0 without a watch.
static ON: AtomicU32 = AtomicU32::new(0);
/// Callers wait.
const WAIT: u32 = 1;
/// Callers are only counted.
const PASS: u32 = 2;
/// How many functions a watch that was kept has; 0 if there is none.
static KEPT: AtomicUsize = AtomicUsize::new(0);
/// The thread id of the worker thread; `PROCESS` is the pid of its process. A child that is forked
/// meanwhile has the jumps, but no thread that removes them.
static WORKER: AtomicU32 = AtomicU32::new(0);
static PROCESS: AtomicU32 = AtomicU32::new(0);
/// Set while a thread changes the protection and bytes of code.
static PATCHING: AtomicBool = AtomicBool::new(false);

/// The watch of a session. Dropping it restores what it changed.
#[derive(Debug)]
pub struct Watch {
    count: usize,
}

impl Watch {
    /// Stores the jumps. It must be called on the worker thread, and there is only one watch at a
    /// time.
    ///
    /// # Errors
    /// Says why it is not possible; then nothing is changed.
    ///
    /// # Safety
    /// Each address is the entry point of a function that stays mapped while the watch is on, takes
    /// no arguments beyond integer registers, and is called at its entry only.
    pub unsafe fn begin(functions: &[usize]) -> Result<Watch, String> {
        arch::can_watch()?;
        if functions.is_empty() || functions.len() > MAX_FUNCTIONS {
            return Err("there is nothing to watch".to_owned());
        }
        REQUESTS.store(0, SeqCst);
        WORKER.store(own_id(), SeqCst);
        PROCESS.store(std::process::id(), SeqCst);
        ON.store(WAIT, SeqCst);
        let mut watch = Watch { count: 0 };
        for (index, (entry, address)) in ENTRIES.iter().zip(functions).enumerate() {
            if !address.is_multiple_of(8) {
                return Err(format!(
                    "a CUPTI function starts at {address:#x}, which is not a multiple of 8"
                ));
            }
            let stub = trampoline::stub(*address, index)?;
            // SAFETY: the caller promises a mapped function, so its first bytes can be read.
            let before = unsafe { word(*address).load(Acquire) };
            let ours = arch::jump(*address, stub, before)
                .ok_or("midair's page is too far from CUPTI's code")?;
            let code = Segment::of(*address);
            entry.code.0.store(code.start, Relaxed);
            entry.code.1.store(code.bytes, Relaxed);
            entry.address.store(*address, Relaxed);
            entry.before.store(before, Relaxed);
            entry.ours.store(ours, SeqCst);
            watch.count = index + 1;
        }
        let entries = ENTRIES.get(..watch.count).unwrap_or_default();
        // SAFETY: the caller promises functions whose words may be replaced at any time, and the
        // words that are stored are complete instructions.
        let put = unsafe {
            replace(entries, |entry| {
                Some((entry.before.load(Relaxed), entry.ours.load(Relaxed)))
            })
        };
        put.map(|()| watch)
    }

    /// How many callers of another profiler wait, or have waited.
    pub fn requests(&self) -> u32 {
        REQUESTS.load(SeqCst)
    }

    /// Leaves the jumps there after the session. Callers go on at once, and [`end_kept`] counts them.
    pub fn keep(self) {
        KEPT.store(self.count, SeqCst);
        ON.store(PASS, SeqCst);
        midair_guest::wake_all(&ON);
        std::mem::forget(self);
    }

    /// How many functions are watched.
    pub fn count(&self) -> u32 {
        self.count as u32
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        restore(ENTRIES.get(..self.count).unwrap_or_default());
        ON.store(0, SeqCst);
        midair_guest::wake_all(&ON);
    }
}

/// Ends a watch that was kept. Returns how many callers have come since the session's start, or `None` if there is no
/// such watch.
pub fn end_kept() -> Option<u32> {
    let count = KEPT.swap(0, SeqCst);
    let watch = (count > 0).then_some(Watch { count })?;
    let came = watch.requests();
    drop(watch);
    Some(came)
}

/// Restores the bytes in a forked child, before its first session. The threads that waited are not
/// in the child.
pub fn reset_after_fork() {
    PATCHING.store(false, SeqCst);
    restore(&ENTRIES);
    KEPT.store(0, SeqCst);
    ON.store(0, SeqCst);
}

/// Waits until the worker thread is done, and returns the address at which the call continues. It
/// runs when a watched function is called, on the calling thread.
#[cfg_attr(
    not(target_arch = "x86_64"),
    expect(dead_code, reason = "midair cannot watch functions there")
)]
extern "C" fn wait_for_session(index: u32) -> usize {
    let Some(entry) = ENTRIES.get(index as usize) else {
        return 0;
    };
    // SAFETY: this is the thread's own error number, and its value is preserved for the caller.
    let errno = unsafe { *libc::__errno_location() };
    let forked = PROCESS.load(SeqCst) != std::process::id();
    if forked || (own_id() != WORKER.load(SeqCst) && !is_over()) {
        // There is no worker thread (in a forked child), or it did not finish in time. Restore all
        // entry points, since one function may call another.
        restore(&ENTRIES);
    }
    // There is nothing left to restore here, unless the worker thread itself is the caller.
    restore(std::slice::from_ref(entry));
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
    entry.address.load(Relaxed)
}

/// Waits until the session is over. Returns false if it did not end in time.
fn is_over() -> bool {
    if ON.load(SeqCst) == 0 {
        return true;
    }
    REQUESTS.fetch_add(1, SeqCst);
    let end = Instant::now() + PATIENCE;
    while ON.load(SeqCst) == WAIT {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        midair_guest::wait_on(&ON, WAIT, Some(left), true);
    }
    true
}

/// Restores entry points that are patched.
fn restore(entries: &[Entry]) {
    if entries.iter().all(|entry| entry.ours.load(SeqCst) == 0) {
        return;
    }
    // SAFETY: the caller of `begin` promised that these functions stay mapped, and the original
    // words are restored. If that is not possible, the next caller tries again.
    let _ = unsafe {
        replace(entries, |entry| {
            let ours = entry.ours.load(SeqCst);
            (ours != 0).then(|| (ours, entry.before.load(Relaxed)))
        })
    };
}

/// Replaces words of code: for each entry that `change` returns a pair for, the first word by the
/// second. An entry with its original word is marked as unpatched.
///
/// The protection of the library's whole code segment is changed, since changing one page's
/// protection would split its mapping for good.
///
/// # Safety
/// The addresses of the entries are multiples of 8 in mapped code, and a thread that executes them
/// may see either word.
unsafe fn replace(
    entries: &[Entry],
    change: impl Fn(&Entry) -> Option<(u64, u64)>,
) -> Result<(), String> {
    // Two threads that change the protection of the same pages would undo each other's change. The
    // lock is held during a few system calls.
    while PATCHING.swap(true, SeqCst) {
        std::thread::yield_now();
    }
    let mut result = Ok(());
    let mut writable: Option<Segment> = None;
    for entry in entries {
        let Some((expected, wanted)) = change(entry) else {
            continue;
        };
        let code = Segment {
            start: entry.code.0.load(Relaxed),
            bytes: entry.code.1.load(Relaxed),
        };
        if writable != Some(code) {
            if let Some(before) = writable.take() {
                before.writable(false);
            }
            if !code.writable(true) {
                let why = std::io::Error::last_os_error();
                result = Err(format!("cannot make CUPTI's code writable: {why}"));
                break;
            }
            writable = Some(code);
        }
        // SAFETY: the caller promises mapped code, and it can be written now.
        let word = unsafe { word(entry.address.load(Relaxed)) };
        // Another tool may have stored something there since. That is left alone.
        let _ = word.compare_exchange(expected, wanted, SeqCst, SeqCst);
        if wanted == entry.before.load(Relaxed) {
            entry.ours.store(0, Release);
        }
    }
    if let Some(code) = writable {
        code.writable(false);
    }
    PATCHING.store(false, SeqCst);
    result
}

/// # Safety
/// `address` must be a multiple of 8 in mapped code.
unsafe fn word(address: usize) -> &'static AtomicU64 {
    // SAFETY: the caller's promise.
    unsafe { &*std::ptr::with_exposed_provenance::<AtomicU64>(address) }
}

fn own_id() -> u32 {
    // SAFETY: a system call without arguments.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

#[cfg(test)]
mod tests;
