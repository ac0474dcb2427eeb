//! The thread that an attacher finds: parked for ever, holding nothing, with every signal blocked.
//!
//! It does nothing by itself. AMD's injector looks for a thread of this name and calls `rocprofiler_register_attach` on it;
//! midair's takes it as the safest place to enter a process. It waits on a condition, as AMD's own does: by that function on its
//! stack an injector knows that the thread holds no lock of the allocator or the loader.

use crate::lock::listener_word;
use crate::log::{Level, say};
use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering;

/// Its name, exactly as AMD's injector compares it.
pub const NAME: &std::ffi::CStr = c"rocp-bg-attach";

/// Bytes of its stack. An injector may run a whole SDK and tool on it, so it gets what glibc itself gives a thread when no limit
/// is set. Only pages that are used take memory.
const STACK: usize = 2 * 1024 * 1024;

const ABSENT: u32 = 0;
const PRESENT: u32 = 1;

/// What it waits on. Nobody ever signals it.
struct Never {
    lock: UnsafeCell<libc::pthread_mutex_t>,
    condition: UnsafeCell<libc::pthread_cond_t>,
}

// SAFETY: the two are only ever touched through the pthread functions, which are made for sharing.
unsafe impl Sync for Never {}

static NEVER: Never = Never {
    lock: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER),
    condition: UnsafeCell::new(libc::PTHREAD_COND_INITIALIZER),
};

/// Whether this process (not the one it was forked from) has the thread, or a helper that brings its own.
pub fn present() -> bool {
    listener_word().load(Ordering::Acquire) == PRESENT
}

/// Says that somebody else's thread of that name is there.
pub fn mark_present() {
    listener_word().store(PRESENT, Ordering::Release);
}

/// Starts the thread unless it is there. What fails is said and tried again at the next registration.
pub fn ensure() {
    if listener_word()
        .compare_exchange(ABSENT, PRESENT, Ordering::AcqRel, Ordering::Acquire)
        .is_err()
    {
        return;
    }
    if let Err(errno) = start() {
        listener_word().store(ABSENT, Ordering::Release);
        say(
            Level::Warning,
            &format!(
                "no listener thread: {}",
                std::io::Error::from_raw_os_error(errno)
            ),
        );
    }
}

fn start() -> Result<(), c_int> {
    // SAFETY: every pointer is to a local that outlives the call it is passed to. The attributes are initialised before use
    // and destroyed after it. The thread's function never touches anything of this frame. Blocking signals around the
    // creation makes the thread start with them blocked; the caller's own mask is put back in every case.
    unsafe {
        let mut attributes = std::mem::MaybeUninit::<libc::pthread_attr_t>::uninit();
        let failed = libc::pthread_attr_init(attributes.as_mut_ptr());
        if failed != 0 {
            return Err(failed);
        }
        libc::pthread_attr_setdetachstate(attributes.as_mut_ptr(), libc::PTHREAD_CREATE_DETACHED);
        libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), STACK);
        let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        let mut before = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        let mut thread = std::mem::MaybeUninit::<libc::pthread_t>::uninit();
        let failed = libc::pthread_create(
            thread.as_mut_ptr(),
            attributes.as_ptr(),
            wait_for_ever,
            std::ptr::null_mut(),
        );
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut());
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        if failed == 0 { Ok(()) } else { Err(failed) }
    }
}

extern "C" fn wait_for_ever(_: *mut c_void) -> *mut c_void {
    // SAFETY: the name is NUL-terminated and shorter than 16 bytes.
    unsafe { libc::prctl(libc::PR_SET_NAME, NAME.as_ptr()) };
    // SAFETY: both are initialised statics; this thread locks the mutex, and only listeners ever do. In a forked child the mutex is
    // as the wait left it: open (or at worst locked: then that is what the listener there waits for). The wait returns only for a stray wake-up.
    unsafe {
        libc::pthread_mutex_lock(NEVER.lock.get());
        loop {
            libc::pthread_cond_wait(NEVER.condition.get(), NEVER.lock.get());
        }
    }
}
