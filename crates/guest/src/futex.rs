//! Waiting on a futex word.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Maximum wait between two rounds of a session.
pub const IDLE_TICK: Duration = Duration::from_millis(5);
/// Wait between two rounds while work is in progress.
pub const BUSY_TICK: Duration = Duration::from_millis(1);

/// Waits until `word` is not `expected`, or for `limit`. It may return spuriously.
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
    // SAFETY: a live futex word and a valid or null timeout.
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
