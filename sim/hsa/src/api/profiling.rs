use crate::machine::COPY_TIMES;
use crate::signals::{put, signal};
use crate::{Status, status};
use std::sync::atomic::Ordering::{Acquire, SeqCst};

pub extern "C" fn hsa_amd_profiling_async_copy_enable(enable: bool) -> Status {
    COPY_TIMES.store(enable, SeqCst);
    status::SUCCESS
}

/// Returns start and end of the work that a signal stands for, after it has ended.
fn times(handle: u64) -> Option<[u64; 2]> {
    let signal = signal(handle)?;
    let times = [signal.start.load(Acquire), signal.end.load(Acquire)];
    (times[1] != 0).then_some(times)
}

pub unsafe extern "C" fn hsa_amd_profiling_get_dispatch_time(
    _agent: u64,
    handle: u64,
    out: *mut [u64; 2],
) -> Status {
    match times(handle) {
        // SAFETY: the caller's struct has two words, start and end.
        Some(times) => unsafe { put(out, times) },
        None => status::ERROR,
    }
}

pub unsafe extern "C" fn hsa_amd_profiling_get_async_copy_time(
    handle: u64,
    out: *mut [u64; 2],
) -> Status {
    match times(handle) {
        // SAFETY: the caller's struct has two words, start and end.
        Some(times) => unsafe { put(out, times) },
        None => status::ERROR,
    }
}

/// Returns the tick itself: devices use the system's clock.
pub unsafe extern "C" fn hsa_amd_profiling_convert_tick_to_system_domain(
    _agent: u64,
    tick: u64,
    out: *mut u64,
) -> Status {
    // SAFETY: the caller promises that the out pointer is null or writable.
    unsafe { put(out, tick) }
}
