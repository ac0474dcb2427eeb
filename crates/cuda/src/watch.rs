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
//!
//! Decisions: CUDA-012 (`docs/deviations/cuda.md`).

#[cfg(target_arch = "x86_64")]
#[path = "watch/x86_64.rs"]
mod arch;
#[cfg(not(target_arch = "x86_64"))]
#[path = "watch/other.rs"]
mod arch;
mod near;
mod segment;

use segment::Segment;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
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
    /// The code that it is in: start, and bytes.
    code: (AtomicUsize, AtomicUsize),
}

static ENTRIES: [Entry; MOST] = [const {
    Entry {
        address: AtomicUsize::new(0),
        before: AtomicU64::new(0),
        ours: AtomicU64::new(0),
        code: (AtomicUsize::new(0), AtomicUsize::new(0)),
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
            let code = Segment::of(*address);
            entry.code.0.store(code.start, Relaxed);
            entry.code.1.store(code.bytes, Relaxed);
            entry.address.store(*address, Relaxed);
            entry.before.store(before, Relaxed);
            entry.ours.store(ours, SeqCst);
            watch.count = index + 1;
        }
        let entries = ENTRIES.get(..watch.count).unwrap_or_default();
        // SAFETY: the caller's promise; what is put there are whole instructions.
        let put = unsafe {
            replace(entries, |entry| {
                Some((entry.before.load(Relaxed), entry.ours.load(Relaxed)))
            })
        };
        put.map(|()| watch)
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
        restore(ENTRIES.get(..self.count).unwrap_or_default());
        ON.store(0, SeqCst);
        wake();
    }
}

/// In a forked child, before its first session: whoever waited there is not in the child. The bytes are put back.
pub fn begin_anew() {
    CHANGING.store(false, SeqCst);
    restore(&ENTRIES);
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
        restore(&ENTRIES);
    }
    // Nothing is left to do here but where our own thread is the caller.
    restore(std::slice::from_ref(entry));
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

/// Puts entries back where they are ours.
fn restore(entries: &[Entry]) {
    if entries.iter().all(|entry| entry.ours.load(SeqCst) == 0) {
        return;
    }
    // SAFETY: functions that `begin` was promised to stay mapped; what was there before is put back. Where it cannot be, whoever comes next
    // tries again.
    let _ = unsafe {
        replace(entries, |entry| {
            let ours = entry.ours.load(SeqCst);
            (ours != 0).then(|| (ours, entry.before.load(Relaxed)))
        })
    };
}

/// Stores words of code: for each entry that `change` names them for, the second where the first is. An entry whose word is as it was
/// before us is marked so.
///
/// Rights are changed of all the code of the library at once: those of one page would split its mapping for good.
///
/// # Safety
/// The entries' addresses are multiples of 8 in mapped code, and whoever runs through them may see either word.
unsafe fn replace(
    entries: &[Entry],
    change: impl Fn(&Entry) -> Option<(u64, u64)>,
) -> Result<(), String> {
    // Two threads that change rights of the same pages would take them from one another. It is held for a few system calls.
    while CHANGING.swap(true, SeqCst) {
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
                result = Err(format!("CUPTI's code cannot be made writable: {why}"));
                break;
            }
            writable = Some(code);
        }
        // SAFETY: the caller's promise; the code can be written now.
        let word = unsafe { word(entry.address.load(Relaxed)) };
        // Somebody else may have put something there since: it is his then.
        let _ = word.compare_exchange(expected, wanted, SeqCst, SeqCst);
        if wanted == entry.before.load(Relaxed) {
            entry.ours.store(0, Release);
        }
    }
    if let Some(code) = writable {
        code.writable(false);
    }
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
