//! Waiting on a futex word.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// The longest wait between two rounds of a session.
pub const IDLE_TICK: Duration = Duration::from_millis(5);
/// The wait between two rounds while work is in progress.
pub const BUSY_TICK: Duration = Duration::from_millis(1);

/// Waits until `word` is not `expected`, or until `limit` has passed. It may return spuriously.
pub fn wait_on(word: &AtomicU32, expected: u32, limit: Option<Duration>, private: bool) {
    let time = limit.map(|limit| libc::timespec {
        tv_sec: limit.as_secs() as _,
        tv_nsec: i64::from(limit.subsec_nanos()),
    });
    let operation = if private {
        libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG
    } else {
        libc::FUTEX_WAIT
    };
    let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the futex word is live, and the timeout is valid or null.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            std::ptr::from_ref(word),
            operation,
            expected,
            time,
            0,
            0,
        )
    };
}

/// Wakes all threads of this process that wait on `word` with `private`.
pub fn wake_all(word: &AtomicU32) {
    // SAFETY: the futex word is live, and waking has no effect on memory.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            std::ptr::from_ref(word),
            libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
            i32::MAX,
            0,
            0,
            0,
        )
    };
}
