use crate::signals::{EVENT, Signal, put, signal, wait, wake};
use crate::{Status, status};
use std::ffi::c_void;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

/// `HSA_AMD_SIGNAL_AMD_GPU_ONLY`: no event.
const GPU_ONLY: u64 = 1;

pub unsafe extern "C" fn hsa_signal_create(
    value: i64,
    _consumers: u32,
    _list: *const u64,
    out: *mut u64,
) -> Status {
    // SAFETY: the application promises that its out pointer is null or writable.
    unsafe { put(out, Signal::make_user(value, EVENT)) }
}

pub unsafe extern "C" fn hsa_amd_signal_create(
    value: i64,
    _consumers: u32,
    _list: *const u64,
    attributes: u64,
    out: *mut u64,
) -> Status {
    let event = if attributes & GPU_ONLY == 0 { EVENT } else { 0 };
    // SAFETY: the application promises that its out pointer is null or writable.
    unsafe { put(out, Signal::make_user(value, event)) }
}

pub unsafe extern "C" fn hsa_signal_destroy(handle: u64) -> Status {
    if handle == 0 {
        return status::INVALID_ARGUMENT;
    }
    // SAFETY: the application promises not to use the signal any more.
    unsafe { Signal::destroy(handle) };
    status::SUCCESS
}

pub unsafe extern "C" fn hsa_amd_signal_value_pointer(
    handle: u64,
    out: *mut *const c_void,
) -> Status {
    let Some(signal) = signal(handle) else {
        return status::INVALID_ARGUMENT;
    };
    // SAFETY: the application promises that its out pointer is null or writable.
    unsafe { put(out, signal.value.as_ptr().cast_const().cast()) }
}

macro_rules! load {
    ($($name:ident),*) => { $(
        pub extern "C" fn $name(handle: u64) -> i64 {
            signal(handle).map_or(0, |signal| signal.value.load(Acquire))
        }
    )* };
}
load!(hsa_signal_load_relaxed, hsa_signal_load_scacquire);

macro_rules! store {
    ($($name:ident),*) => { $(
        pub extern "C" fn $name(handle: u64, value: i64) {
            if let Some(signal) = signal(handle) {
                signal.store(value);
            }
        }
    )* };
}
store!(
    hsa_signal_store_relaxed,
    hsa_signal_store_screlease,
    hsa_signal_silent_store_relaxed,
    hsa_signal_silent_store_screlease
);

macro_rules! change {
    ($method:ident: $($name:ident),*) => { $(
        pub extern "C" fn $name(handle: u64, value: i64) {
            if let Some(signal) = signal(handle) {
                signal.value.$method(value, SeqCst);
                wake();
            }
        }
    )* };
}
change!(fetch_add: hsa_signal_add_relaxed, hsa_signal_add_scacquire, hsa_signal_add_screlease, hsa_signal_add_scacq_screl);
change!(fetch_sub: hsa_signal_subtract_relaxed, hsa_signal_subtract_scacquire, hsa_signal_subtract_screlease, hsa_signal_subtract_scacq_screl);
change!(fetch_and: hsa_signal_and_relaxed, hsa_signal_and_scacquire, hsa_signal_and_screlease, hsa_signal_and_scacq_screl);
change!(fetch_or: hsa_signal_or_relaxed, hsa_signal_or_scacquire, hsa_signal_or_screlease, hsa_signal_or_scacq_screl);
change!(fetch_xor: hsa_signal_xor_relaxed, hsa_signal_xor_scacquire, hsa_signal_xor_screlease, hsa_signal_xor_scacq_screl);

macro_rules! exchange {
    ($($name:ident),*) => { $(
        pub extern "C" fn $name(handle: u64, value: i64) -> i64 {
            signal(handle).map_or(0, |signal| {
                let old = signal.value.swap(value, SeqCst);
                wake();
                old
            })
        }
    )* };
}
exchange!(
    hsa_signal_exchange_relaxed,
    hsa_signal_exchange_scacquire,
    hsa_signal_exchange_screlease,
    hsa_signal_exchange_scacq_screl
);

macro_rules! cas {
    ($($name:ident),*) => { $(
        pub extern "C" fn $name(handle: u64, expected: i64, value: i64) -> i64 {
            signal(handle).map_or(0, |signal| {
                let result = signal.value.compare_exchange(expected, value, SeqCst, Relaxed);
                wake();
                result.unwrap_or_else(|there| there)
            })
        }
    )* };
}
cas!(
    hsa_signal_cas_relaxed,
    hsa_signal_cas_scacquire,
    hsa_signal_cas_screlease,
    hsa_signal_cas_scacq_screl
);

macro_rules! waits {
    ($($name:ident),*) => { $(
        pub extern "C" fn $name(handle: u64, condition: u32, value: i64, timeout: u64, _state: u32) -> i64 {
            signal(handle).map_or(0, |signal| wait(signal, condition, value, timeout))
        }
    )* };
}
waits!(hsa_signal_wait_relaxed, hsa_signal_wait_scacquire);
