//! The listener: the thread that an attacher finds. It is parked as long as the process lives,
//! holds nothing, and has every signal blocked.
//!
//! Two kinds of attachers use it. It serves midair's over a socket of its own: nothing is stopped
//! or traced for them, and the listener makes the thread that the session runs on (`serve`). They
//! must show that the kernel would let them trace this process (`token`, `admit`). AMD's injector
//! looks for a thread of this name and calls `rocprofiler_register_attach` on it. An attacher of
//! ours that cannot use the socket borrows the listener as the safest thread of a process. For
//! both, a listener that waits for a connection is as good as one that waits on a condition, as it
//! does when there is no socket.
//!
//! **fork.** A child has no such thread. A forked process that never calls `exec` gets one from
//! `pthread_atfork`, if the process's allocator is the C library's own. Making a thread allocates,
//! and only that allocator is known to be usable at that point in a child of a process with many
//! threads. With any other allocator the child is left as it is, and can still be attached to by
//! tracing.
//!
//! Decisions: ENG-031, ENG-032, ENG-035 (`docs/deviations/engine.md`).

use crate::endpoint::{self, Endpoint};
use crate::lock::{Presence, listener_word};
use crate::log::{Level, say};
use std::cell::UnsafeCell;
use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::{Duration, Instant};

/// The thread's name, exactly as AMD's injector compares it.
pub const NAME: &std::ffi::CStr = c"rocp-bg-attach";

/// Stack size in bytes. An injector may run a whole SDK and tool on the thread, so the stack has
/// the size that glibc gives a thread when no limit is set. Only pages that are used take memory.
const STACK: usize = 2 * 1024 * 1024;

/// What the thread waits on when there is no socket. No thread ever signals it.
struct Never {
    lock: UnsafeCell<libc::pthread_mutex_t>,
    condition: UnsafeCell<libc::pthread_cond_t>,
}

// SAFETY: both are accessed only through the pthread functions, which are made for shared use.
unsafe impl Sync for Never {}

static NEVER: Never = Never {
    lock: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER),
    condition: UnsafeCell::new(libc::PTHREAD_COND_INITIALIZER),
};

/// Whether this process (not the one it was forked from) has the thread, or a helper that starts a
/// listener of its own.
pub fn present() -> bool {
    listener_word().load(Ordering::Acquire) == Presence::Present
}

/// Records that a helper's thread of that name exists.
pub fn mark_present() {
    listener_word().store(Presence::Present, Ordering::Release);
}

/// Whether the thread is waiting for attachers. From then on it does nothing of its own accord.
static READY: AtomicBool = AtomicBool::new(false);
/// How long a program may be delayed until the thread is ready. The thread needs a fifth of a
/// millisecond. But if it needs the dynamic loader's lock it waits indefinitely, and a library that
/// registers while it is being loaded holds that lock.
const MAX_DELAY: Duration = Duration::from_millis(20);
/// How often to look, a millisecond apart, at a thread that waits only for a processor, as on an
/// overloaded machine. The looks are counted, and time is not measured, because a virtual machine
/// may stand still.
const LOOKS: u32 = 500;
/// After how many looks a thread that waits for something else is not waited for any more. Several
/// are needed, because a lock may be held for a short time.
const BLOCKED_LOOKS: u32 = 3;
/// The thread's id. 0 until the thread runs.
static TID: AtomicI32 = AtomicI32::new(0);

/// Starts the thread unless it exists, and waits until it is ready. The program's next act may be
/// to install a seccomp filter that kills the process at system calls that the thread makes at its
/// start. A failure is logged, and the next registration tries again.
pub fn ensure() {
    if listener_word()
        .compare_exchange(
            Presence::Absent,
            Presence::Present,
            Ordering::AcqRel,
            Ordering::Acquire,
        )
        .is_err()
    {
        return;
    }
    READY.store(false, Ordering::Release);
    TID.store(0, Ordering::Release);
    let started = start();
    if started.is_ok() {
        wait_until_ready();
    }
    if let Err(errno) = started {
        listener_word().store(Presence::Absent, Ordering::Release);
        say(
            Level::Warning,
            &format!(
                "no listener thread: {}",
                std::io::Error::from_raw_os_error(errno)
            ),
        );
    }
}

/// Waits until the thread is ready. This polls instead of waiting by a lock and a condition: a fork
/// by another thread could leave those locked in the child.
fn wait_until_ready() {
    let began = Instant::now();
    let (mut looks, mut blocked) = (0, 0);
    while !READY.load(Ordering::Acquire) {
        if began.elapsed() < MAX_DELAY {
            std::thread::sleep(Duration::from_micros(50));
            continue;
        }
        looks += 1;
        blocked = match is_runnable(TID.load(Ordering::Acquire)) {
            true => 0,
            false => blocked + 1,
        };
        if looks == LOOKS || blocked == BLOCKED_LOOKS {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Whether a thread of this process waits for nothing but a processor or a page of a file. A thread
/// that has not started (0) cannot wait for a lock.
fn is_runnable(tid: c_int) -> bool {
    tid == 0 || matches!(crate::procfs::state(tid), Some(b'R' | b'D'))
}

fn start() -> Result<(), c_int> {
    // SAFETY: `listener_main` accepts null and may run on another thread.
    unsafe { spawn(listener_main, STACK) }?;
    if !STARTED.swap(true, Ordering::AcqRel) && allocator_is_the_c_librarys() {
        // SAFETY: the function belongs to a library that is never unloaded.
        unsafe { libc::pthread_atfork(None, None, Some(child_begins)) };
    }
    Ok(())
}

/// Makes a detached thread with every signal blocked.
///
/// # Errors
/// The system's error, as an errno.
///
/// # Safety
/// `body` may be called with null on another thread.
pub(crate) unsafe fn spawn(
    body: extern "C" fn(*mut c_void) -> *mut c_void,
    stack: usize,
) -> Result<(), c_int> {
    // SAFETY: every pointer is to a local that outlives the call it is passed to. The attributes
    // are initialised before use and destroyed after it. The thread's function never accesses this
    // frame. Signals are blocked around the creation so that the thread starts with them blocked;
    // the caller's own mask is restored in every case.
    unsafe {
        let mut attributes = std::mem::MaybeUninit::<libc::pthread_attr_t>::uninit();
        let failed = libc::pthread_attr_init(attributes.as_mut_ptr());
        if failed != 0 {
            return Err(failed);
        }
        libc::pthread_attr_setdetachstate(attributes.as_mut_ptr(), libc::PTHREAD_CREATE_DETACHED);
        libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), stack);
        let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        let mut before = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        let mut thread = std::mem::MaybeUninit::<libc::pthread_t>::uninit();
        let failed = libc::pthread_create(
            thread.as_mut_ptr(),
            attributes.as_ptr(),
            body,
            std::ptr::null_mut(),
        );
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut());
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        if failed == 0 { Ok(()) } else { Err(failed) }
    }
}

/// Whether a midair listener was started in this process, or in one that it was forked from.
static STARTED: AtomicBool = AtomicBool::new(false);
/// Whether this process is a forked child. The child's first act is often an `exec`, so work that
/// can be delayed is delayed a little.
static FORKED: AtomicBool = AtomicBool::new(false);
/// The length of that delay.
const FORK_DELAY: Duration = Duration::from_millis(20);

fn allocator_is_the_c_librarys() -> bool {
    let own = |name: &CStr| {
        // SAFETY: the name is NUL-terminated, and nothing is called.
        crate::library::base_of(unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) })
    };
    let library = own(c"pthread_create");
    !library.is_null()
        && [c"malloc", c"calloc", c"free"]
            .iter()
            .all(|it| own(it) == library)
}

/// Runs in a child of `fork`, before `fork` returns there. The C library has made its own locks
/// usable. No other lock may be taken, so nothing here allocates, except for making a thread.
extern "C" fn child_begins() {
    endpoint::forked();
    crate::worker::forked();
    FORKED.store(true, Ordering::Release);
    let word = listener_word();
    word.store(Presence::Present, Ordering::Release);
    if start().is_err() {
        word.store(Presence::Absent, Ordering::Release);
    }
}

extern "C" fn listener_main(_: *mut c_void) -> *mut c_void {
    // SAFETY: the call takes no arguments and cannot fail.
    TID.store(unsafe { libc::gettid() }, Ordering::Release);
    // SAFETY: the name is NUL-terminated and shorter than 16 bytes.
    unsafe { libc::prctl(libc::PR_SET_NAME, NAME.as_ptr()) };
    if FORKED.load(Ordering::Acquire) {
        std::thread::sleep(FORK_DELAY);
    }
    let _closed_or_failed = std::panic::catch_unwind(|| {
        let endpoint = Endpoint::open();
        READY.store(true, Ordering::Release);
        if let Some(endpoint) = endpoint {
            crate::serve::until_closed(&endpoint);
        }
    });
    // SAFETY: both are initialised statics. Only listeners ever lock the mutex, as this thread does
    // here. In a forked child the mutex is as the wait left it: unlocked. At worst it is locked,
    // and then the listener there waits for the mutex instead. The wait returns only spuriously.
    unsafe {
        libc::pthread_mutex_lock(NEVER.lock.get());
        loop {
            libc::pthread_cond_wait(NEVER.condition.get(), NEVER.lock.get());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// A thread that waits for a lock is not waited for. A thread that wants a processor is.
    #[test]
    fn a_thread_that_waits_for_a_lock_is_told_from_one_that_runs() {
        // SAFETY: the call takes no arguments and cannot fail.
        let own_tid = || unsafe { libc::gettid() };
        assert!(is_runnable(own_tid()));
        assert!(is_runnable(0));
        assert!(!is_runnable(i32::MAX));
        let lock = Mutex::new(());
        let held = lock.lock().unwrap();
        let tid = AtomicI32::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                tid.store(own_tid(), Ordering::Release);
                drop(lock.lock());
            });
            let deadline = Instant::now() + Duration::from_secs(60);
            loop {
                let tid = tid.load(Ordering::Acquire);
                if tid != 0 && !is_runnable(tid) {
                    break;
                }
                assert!(Instant::now() < deadline);
                std::thread::sleep(Duration::from_millis(1));
            }
            drop(held);
        });
    }

    /// A program goes on when its listener is ready, however late the thread gets a processor. It
    /// is not blocked by a thread that waits for a lock that the program may hold.
    #[test]
    fn a_listener_is_waited_for_unless_it_is_blocked() {
        READY.store(false, Ordering::Release);
        TID.store(0, Ordering::Release);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(5 * MAX_DELAY);
                READY.store(true, Ordering::Release);
            });
            wait_until_ready();
            assert!(READY.load(Ordering::Acquire));
        });
        let lock = Mutex::new(());
        let held = lock.lock().unwrap();
        READY.store(false, Ordering::Release);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // SAFETY: the call takes no arguments and cannot fail.
                TID.store(unsafe { libc::gettid() }, Ordering::Release);
                drop(lock.lock());
            });
            while TID.load(Ordering::Acquire) == 0 || is_runnable(TID.load(Ordering::Acquire)) {
                std::thread::yield_now();
            }
            // The best of several attempts counts, since other programs may have the processors.
            let waits = (0..3).map(|_| {
                let began = Instant::now();
                wait_until_ready();
                began.elapsed()
            });
            let waits: Vec<Duration> = waits.collect();
            assert!(waits.iter().all(|it| *it >= MAX_DELAY), "{waits:?}");
            let best = *waits.iter().min().unwrap();
            assert!(best < MAX_DELAY + Duration::from_millis(u64::from(LOOKS) / 2));
            drop(held);
        });
        // Nor is a program blocked forever by a thread that gets no processor at all.
        TID.store(0, Ordering::Release);
        let began = Instant::now();
        wait_until_ready();
        assert!(began.elapsed() >= Duration::from_millis(u64::from(LOOKS)));
    }
}
