//! The thread that an attacher finds: parked for ever, holding nothing, with every signal blocked.
//!
//! It does nothing by itself. AMD's injector looks for a thread of this name and calls `rocprofiler_register_attach` on it;
//! midair's takes it as the safest place to enter a process. A thread that waits in one futex call, outside every lock of the
//! allocator and the loader, can be borrowed at any time.

use crate::lock::listener_word;
use crate::log::{Level, say};
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU32, Ordering};

/// Its name, exactly as AMD's injector compares it.
pub const NAME: &std::ffi::CStr = c"rocp-bg-attach";

/// Bytes of its stack. An injector may run a whole SDK and tool on it, so it gets what glibc itself gives a thread when no limit
/// is set. Only pages that are used take memory.
const STACK: usize = 2 * 1024 * 1024;

const ABSENT: u32 = 0;
const PRESENT: u32 = 1;

/// The word it waits on. Nobody ever changes it.
static PARKED: AtomicU32 = AtomicU32::new(0);

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
    loop {
        // SAFETY: the word is a static; no timeout. Returns only for a stray wake-up.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                PARKED.as_ptr(),
                libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                0,
                std::ptr::null::<libc::timespec>(),
            );
        }
    }
}
