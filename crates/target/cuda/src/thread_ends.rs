//! Holds threads that end, so that none is in CUPTI's destructor while CUPTI is switched off or
//! finalized.
//!
//! CUPTI keeps data for each thread under a key of the C library (`pthread_key_create`), whose
//! destructor runs when a thread ends. If that happens during `cuptiFinalize`, the destructor reads
//! what was just freed, and the process dies: once in some 60 teardowns of CUPTI 13.0 at 700 ends of
//! threads a second, also without midair (CUDA-041). With the destructors held during the
//! teardown it never happened.
//!
//! The C library keeps all keys in one table of a sequence number (odd: in use) and a destructor
//! each, and reads the destructor when a thread ends. So during a session the destructors of CUPTI's
//! keys are functions of this module, which wait while a teardown is in progress, and then call
//! CUPTI's function if its key still exists. `cuptiFinalize` deletes the key; CUPTI has freed the
//! data then, and the C library itself would not call the destructor any more.

use crate::watch::Segment;
use midair_record::boot::MAKER_NAME;
use std::ffi::{c_char, c_void};
use std::sync::OnceLock;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicU32, AtomicUsize};
use std::time::{Duration, Instant};

/// Maximum number of keys that are held at a time: CUPTI 13.0 and 13.5 have one.
const MOST_KEYS: usize = 4;
/// Number of functions that stand in for destructors. Each watch takes the next ones, so that a
/// thread on its way into one of an earlier watch does not meet a later watch's key there.
const RELAYS: usize = 4 * MOST_KEYS;
/// Number of keys in the C library's table (`PTHREAD_KEYS_MAX`).
const KEYS: usize = 1024;
/// The longest time that the end of a thread is held. A teardown takes some 5 to 40 ms.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a thread may take to leave CUPTI's destructor.
const LEAVE_LIMIT: Duration = Duration::from_millis(200);

type Destructor = unsafe extern "C" fn(*mut c_void);

/// A row of the C library's table of keys. The library reads and writes it with plain accesses of
/// whole words.
#[repr(C)]
struct Key {
    sequence: AtomicUsize,
    destructor: AtomicUsize,
}

/// A function that stands in for a destructor.
struct Relay {
    /// The row in the table.
    key: AtomicUsize,
    /// Its sequence number when the watch started.
    sequence: AtomicUsize,
    /// The address of CUPTI's destructor; 0 before the first use.
    original: AtomicUsize,
}

static TABLE: [Relay; RELAYS] = [const {
    Relay {
        key: AtomicUsize::new(0),
        sequence: AtomicUsize::new(0),
        original: AtomicUsize::new(0),
    }
}; RELAYS];
static FUNCTIONS: [Destructor; RELAYS] = [
    relay::<0>,
    relay::<1>,
    relay::<2>,
    relay::<3>,
    relay::<4>,
    relay::<5>,
    relay::<6>,
    relay::<7>,
    relay::<8>,
    relay::<9>,
    relay::<10>,
    relay::<11>,
    relay::<12>,
    relay::<13>,
    relay::<14>,
    relay::<15>,
];
/// The relay that the next watch takes first.
static NEXT: AtomicUsize = AtomicUsize::new(0);
/// A futex word: 1 while ends are held.
static HELD: AtomicU32 = AtomicU32::new(0);
/// Number of threads in a destructor of CUPTI's.
static INSIDE: AtomicU32 = AtomicU32::new(0);
/// The process of the watch. A forked child has the relays, but no worker thread that opens them.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// CUPTI's destructors lead through relays until this is dropped. There is only one at a time.
#[derive(Debug)]
pub struct ThreadEnds {
    relays: Vec<usize>,
}

/// Threads that end wait until this is dropped.
#[derive(Debug)]
pub struct Held(());

impl ThreadEnds {
    /// Leads the destructors that lie in the same code as `function` through relays.
    ///
    /// # Errors
    /// Says why that is not possible; then nothing is changed.
    pub fn watch(function: usize) -> Result<ThreadEnds, &'static str> {
        let mut ends = ThreadEnds { relays: Vec::new() };
        ends.watch_more(function)?;
        Ok(ends)
    }

    /// Leads those destructors in that code through relays that have none yet. Each relay so far
    /// stays where it is, so that a thread that ends meanwhile passes it.
    ///
    /// # Errors
    /// As [`ThreadEnds::watch`]; the relays so far stay.
    pub fn watch_more(&mut self, function: usize) -> Result<(), &'static str> {
        let keys =
            keys().ok_or("the C library does not expose its table of thread-specific keys")?;
        let code = Segment::of(function);
        let code = code.start..code.start + code.bytes;
        PROCESS.store(std::process::id(), SeqCst);
        for (index, key) in keys.iter().enumerate() {
            let (sequence, original) = (key.sequence.load(SeqCst), key.destructor.load(SeqCst));
            // Only where the relays lie in the same code, as in the tests.
            let has_relay = || {
                FUNCTIONS
                    .iter()
                    .any(|relay| *relay as *const () as usize == original)
            };
            if sequence % 2 == 0 || !code.contains(&original) || has_relay() {
                continue;
            }
            if self.relays.len() == MOST_KEYS {
                return Err("CUPTI has more thread-specific keys than midair knows");
            }
            let number = NEXT.fetch_add(1, SeqCst) % RELAYS;
            let (Some(relay), Some(function)) = (TABLE.get(number), FUNCTIONS.get(number)) else {
                continue;
            };
            relay.key.store(index, SeqCst);
            relay.sequence.store(sequence, SeqCst);
            relay.original.store(original, SeqCst);
            let ours = *function as *const () as usize;
            if (key.destructor)
                .compare_exchange(original, ours, SeqCst, SeqCst)
                .is_ok()
            {
                self.relays.push(number);
            }
        }
        Ok(())
    }

    /// Holds the threads that end from now on, and waits for those that are in a destructor.
    ///
    /// # Errors
    /// One of them does not leave it in time; then nothing is held.
    pub fn hold(&self) -> Result<Held, &'static str> {
        HELD.store(1, SeqCst);
        let held = Held(());
        let end = Instant::now() + LEAVE_LIMIT;
        while INSIDE.load(SeqCst) > 0 {
            if Instant::now() >= end {
                return Err("a thread took too long to exit");
            }
            std::thread::sleep(Duration::from_micros(20));
        }
        Ok(held)
    }
}

impl Drop for ThreadEnds {
    fn drop(&mut self) {
        restore(&self.relays);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        HELD.store(0, SeqCst);
        midair_guest::wake_all(&HELD);
    }
}

/// Puts CUPTI's destructors back where ours are.
fn restore(relays: &[usize]) {
    let Some(keys) = keys() else {
        return;
    };
    for number in relays {
        if let (Some(relay), Some(function)) = (TABLE.get(*number), FUNCTIONS.get(*number))
            && let Some(key) = keys.get(relay.key.load(SeqCst))
        {
            let ours = *function as *const () as usize;
            // A deleted key may have a new owner, whose destructor stays.
            let _ = (key.destructor).compare_exchange(
                ours,
                relay.original.load(SeqCst),
                SeqCst,
                SeqCst,
            );
        }
    }
}

/// In a forked child, before its first session: the worker thread that would restore the
/// destructors is not there.
pub fn reset_after_fork() {
    restore(&std::array::from_fn::<_, RELAYS, _>(|number| number));
    HELD.store(0, SeqCst);
    INSIDE.store(0, SeqCst);
}

/// The C library's table of keys. It is no public interface, but debuggers rely on it through
/// `libthread_db`, whose descriptions of it are checked here (glibc 2.34 to 2.43).
fn keys() -> Option<&'static [Key; KEYS]> {
    // Looked up by the worker thread: the loader's lock is nothing for a thread that ends.
    static FOUND: OnceLock<Option<&'static [Key; KEYS]>> = OnceLock::new();
    *FOUND.get_or_init(find_keys)
}

fn find_keys() -> Option<&'static [Key; KEYS]> {
    let symbol = |name: &std::ffi::CStr| {
        // SAFETY: terminated strings; the result is an address or null.
        let at =
            unsafe { libc::dlvsym(libc::RTLD_DEFAULT, name.as_ptr(), c"GLIBC_PRIVATE".as_ptr()) };
        (!at.is_null()).then_some(at)
    };
    let size = symbol(c"_thread_db_sizeof_pthread_key_struct")?;
    // SAFETY: a constant of the C library's, of this type.
    let size = unsafe { size.cast::<u32>().read() };
    // Each description has three numbers: the size in bits, how many, and the offset.
    let described = |name| {
        let at = symbol(name)?;
        // SAFETY: a constant of the C library's, of this type.
        Some(unsafe { at.cast::<[u32; 3]>().read() })
    };
    let rows = described(c"_thread_db___pthread_keys")?;
    let sequence = described(c"_thread_db_pthread_key_struct_seq")?;
    let destructor = described(c"_thread_db_pthread_key_struct_destr")?;
    let bits = 8 * size_of::<usize>() as u32;
    let known = size as usize == size_of::<Key>()
        && rows.get(1) == Some(&(KEYS as u32))
        && sequence == [bits, 1, 0]
        && destructor == [bits, 1, bits / 8];
    if !known {
        return None;
    }
    let table = symbol(c"__pthread_keys")?;
    // SAFETY: the C library says that its table has this layout and size; it lives as long as the
    // process.
    Some(unsafe { &*table.cast::<[Key; KEYS]>() })
}

/// Stands in for a destructor of CUPTI's. It runs on a thread of the application that ends.
///
/// # Safety
/// Only the C library calls it, for the relay's key, with the ending thread's data of that key.
unsafe extern "C" fn relay<const NUMBER: usize>(data: *mut c_void) {
    if let Some(relay) = TABLE.get(NUMBER) {
        // SAFETY: the C library calls this with the ending thread's data of that key.
        unsafe { pass(relay, data) };
    }
}

/// Calls CUPTI's destructor, once no teardown is in progress and if its key still exists.
///
/// # Safety
/// `data` is the calling thread's data of the relay's key.
unsafe fn pass(relay: &Relay, data: *mut c_void) {
    // CUPTI waits for its own threads when it is finalized.
    if PROCESS.load(SeqCst) != std::process::id() || is_cuptis() {
        // SAFETY: what the C library would have called, with its argument.
        unsafe { call(relay, data) };
        return;
    }
    let end = Instant::now() + PATIENCE;
    INSIDE.fetch_add(1, SeqCst);
    while HELD.load(SeqCst) != 0 {
        INSIDE.fetch_sub(1, SeqCst);
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            // CUPTI keeps this thread's data: that harms less than to free it during a teardown.
            return;
        }
        midair_guest::wait_on(&HELD, 1, Some(left), true);
        INSIDE.fetch_add(1, SeqCst);
    }
    let key = keys().and_then(|keys| keys.get(relay.key.load(SeqCst)));
    if key.is_some_and(|key| key.sequence.load(SeqCst) == relay.sequence.load(SeqCst)) {
        // SAFETY: as above. The key exists, and no teardown starts while this thread counts.
        unsafe { call(relay, data) };
    }
    INSIDE.fetch_sub(1, SeqCst);
}

/// # Safety
/// As for the destructor.
unsafe fn call(relay: &Relay, data: *mut c_void) {
    let original = relay.original.load(SeqCst);
    if original != 0 {
        // SAFETY: the address was found as a destructor in the C library's table.
        let original = unsafe { std::mem::transmute::<usize, Destructor>(original) };
        // SAFETY: the caller's promise.
        unsafe { original(data) };
    }
}

/// Returns whether the calling thread is CUPTI's own, made by our first use (`session::workers`).
pub(crate) fn is_cuptis() -> bool {
    let mut name = [0_u8; 16];
    // SAFETY: 16 bytes for the name.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr().cast::<c_char>()) };
    name.split(|byte| *byte == 0).next() == Some(MAKER_NAME.as_bytes())
}

#[cfg(test)]
mod tests;
