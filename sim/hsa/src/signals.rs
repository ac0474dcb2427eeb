//! Signals in AMD's layout (`amd_signal_t`), and waiting for them.

use crate::status;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64};
use std::time::{Duration, Instant};

/// `amd_signal_kind64_t`: a user signal.
const KIND_USER: i64 = 1;
/// `amd_signal_kind64_t`: a doorbell.
pub const KIND_DOORBELL: i64 = -1;
/// The event of every signal that has one. The device's interrupt wakes all waiting threads.
pub const EVENT: u32 = 1;

/// `amd_signal_t` (source: the public `amd_hsa_signal.h`).
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Signal {
    /// Its kind.
    pub kind: AtomicI64,
    /// Its value; for a doorbell the address that the device polls.
    pub value: AtomicI64,
    mailbox: AtomicU64,
    /// The event that the device raises, 0 for none.
    pub event: AtomicU32,
    reserved: u32,
    /// When the work that it stands for started.
    pub start: AtomicU64,
    /// When that work ended.
    pub end: AtomicU64,
    /// The queue of a doorbell.
    pub queue: AtomicU64,
    reserved_too: u64,
}

const _: () = assert!(size_of::<Signal>() == 64);

impl Signal {
    /// Creates a signal, which lives until [`Signal::destroy`]. Returns its handle.
    pub fn make(kind: i64, value: i64, event: u32) -> u64 {
        let signal = Box::new(Signal {
            kind: kind.into(),
            value: value.into(),
            event: event.into(),
            ..Signal::default()
        });
        Box::into_raw(signal).expose_provenance() as u64
    }

    /// Creates a user signal.
    pub fn make_user(value: i64, event: u32) -> u64 {
        Signal::make(KIND_USER, value, event)
    }

    /// Frees a signal.
    ///
    /// # Safety
    /// `handle` must come from [`Signal::make`], and neither the device nor the application may use
    /// it any more.
    pub unsafe fn destroy(handle: u64) {
        // SAFETY: the caller promises that the handle comes from `make` and that nothing uses it
        // any more, so the box is freed once.
        drop(unsafe {
            Box::from_raw(std::ptr::with_exposed_provenance_mut::<Signal>(
                handle as usize,
            ))
        });
    }

    /// Returns the doorbell word if it is a doorbell: then [`Signal::value`] is an address.
    fn doorbell(&self) -> Option<&AtomicU64> {
        if self.kind.load(Relaxed) != KIND_DOORBELL {
            return None;
        }
        let at = std::ptr::with_exposed_provenance::<AtomicU64>(self.value.load(Relaxed) as usize);
        // SAFETY: a doorbell's value is the address of its queue's doorbell word, which lives as
        // long as the signal.
        Some(unsafe { &*at })
    }

    /// Stores a value, or rings the doorbell.
    pub fn store(&self, value: i64) {
        match self.doorbell() {
            Some(word) => word.store(value as u64, SeqCst),
            None => {
                self.value.store(value, SeqCst);
                wake();
            }
        }
    }
}

/// Returns the signal with this handle.
///
/// Handles come from the application, which has to keep a signal as long as it uses it, as with
/// AMD's runtime.
pub fn signal(handle: u64) -> Option<&'static Signal> {
    let at = std::ptr::with_exposed_provenance::<Signal>(handle as usize);
    // SAFETY: a live handle is the address of a Signal that Signal::make leaked, and all its fields
    // are atomic. Each function of the C interface that calls this requires a live handle.
    unsafe { at.as_ref() }
}

/// The number of interrupts and of changes by the host: a futex word.
static CHANGES: AtomicU32 = AtomicU32::new(0);
static WAITERS: AtomicU32 = AtomicU32::new(0);

/// Wakes all threads that wait for a signal.
pub fn wake() {
    CHANGES.fetch_add(1, SeqCst);
    if WAITERS.load(SeqCst) != 0 {
        // SAFETY: it is the address of a static. A wake-up affects only threads that sleep on it.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                CHANGES.as_ptr(),
                libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
                i32::MAX,
            )
        };
    }
}

/// Returns whether a condition holds. `hsa_signal_condition_t`: 0 equal, 1 not equal, 2 less, 3
/// greater or equal.
fn holds(condition: u32, value: i64, reference: i64) -> bool {
    match condition {
        0 => value == reference,
        1 => value != reference,
        2 => value < reference,
        _ => value >= reference,
    }
}

/// How often a thread looks before it sleeps.
const LOOKS: u32 = 200;
/// How long it sleeps at a time, for a signal without an event and for one with an event.
const NAPS: [Duration; 2] = [Duration::from_micros(200), Duration::from_millis(100)];

/// Waits until the condition holds or the time (ns) is over. Returns the last value seen.
pub fn wait(signal: &Signal, condition: u32, reference: i64, timeout_ns: u64) -> i64 {
    let began = Instant::now();
    let limit = Duration::from_nanos(timeout_ns);
    let nap = NAPS[usize::from(signal.event.load(Relaxed) != 0)];
    let mut looks = 0;
    loop {
        let changes = CHANGES.load(SeqCst);
        let value = signal.value.load(Acquire);
        let left = limit.saturating_sub(began.elapsed());
        if holds(condition, value, reference) || left.is_zero() {
            return value;
        }
        if looks < LOOKS {
            looks += 1;
            std::hint::spin_loop();
            continue;
        }
        let nap = nap.min(left);
        let time = libc::timespec {
            tv_sec: nap.as_secs() as libc::time_t,
            tv_nsec: nap.subsec_nanos().into(),
        };
        WAITERS.fetch_add(1, SeqCst);
        // SAFETY: it is the address of a static, with a valid time. A wait ends with a wake-up,
        // with the time, or at once if the word has changed.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                CHANGES.as_ptr(),
                libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                changes,
                &raw const time,
            )
        };
        WAITERS.fetch_sub(1, SeqCst);
    }
}

/// Stores a value through an out pointer of the application.
///
/// # Safety
/// `out` must be null or valid for a write of a `T`.
pub unsafe fn put<T>(out: *mut T, value: T) -> u32 {
    if out.is_null() {
        return status::INVALID_ARGUMENT;
    }
    // SAFETY: it is not null, and the caller promises the rest.
    unsafe { out.write(value) };
    status::SUCCESS
}
