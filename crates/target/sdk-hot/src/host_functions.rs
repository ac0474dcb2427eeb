//! The functions by which a program launches its kernels, as it registers them with HIP
//! (`__hipRegisterFunction`), for tools that get callbacks about code objects.
//!
//! A program registers each kernel once, when one of its libraries is loaded. The registering
//! thread stores the arguments here, without a lock, and the worker thread takes them. Programs do
//! not register kernels while they work, so memory may be allocated for this.

pub(crate) mod waiting;

pub use waiting::HostFunction;

use crate::state::STATE;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use waiting::Waiting;

/// Sets whether registrations are kept from now on.
pub fn keep(on: bool) {
    STATE.keeps_host_functions.store(on, Relaxed);
}

/// Whether registrations are kept.
pub fn is_kept() -> bool {
    STATE.keeps_host_functions.load(Relaxed)
}

/// Stores a registration for the worker thread.
pub fn add(function: HostFunction) {
    let list = &STATE.host_functions;
    let new = Box::into_raw(Box::new(Waiting {
        function,
        next: list.load(Acquire),
    }));
    // SAFETY: nothing else knows of it before it is in the list.
    let next = unsafe { &mut (*new).next };
    while let Err(now) = list.compare_exchange(*next, new, Release, Acquire) {
        *next = now;
    }
}

/// Takes the registrations since the last time, the oldest first. Called on the worker thread.
pub fn take() -> Vec<HostFunction> {
    let mut at = STATE.host_functions.swap(std::ptr::null_mut(), AcqRel);
    let mut all = Vec::new();
    while !at.is_null() {
        // SAFETY: `add` made it, and the exchange took it out of the list, so nothing else has it.
        let waiting = unsafe { Box::from_raw(at) };
        at = waiting.next;
        all.push(waiting.function);
    }
    all.reverse();
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;

    #[test]
    fn what_many_threads_register_is_taken_once_and_in_order() {
        let one = |thread: u64, number: u64| HostFunction {
            device_function: CString::new(format!("k{thread}_{number}")).unwrap(),
            host_function: number,
            modules: thread,
            thread_limit: 1,
            bounds: [[0; 3]; 4],
            workgroup_size: 0,
        };
        let mut taken = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|thread| {
                    scope.spawn(move || (0..1000).for_each(|number| add(one(thread, number))))
                })
                .collect();
            let mut taken = Vec::new();
            while threads.iter().any(|thread| !thread.is_finished()) {
                taken.extend(take());
            }
            taken
        });
        taken.extend(take());
        assert!(take().is_empty());
        for thread in 0..4 {
            let of: Vec<_> = taken
                .iter()
                .filter(|it| it.modules == thread)
                .cloned()
                .collect();
            let expected: Vec<_> = (0..1000).map(|number| one(thread, number)).collect();
            assert_eq!(of, expected);
        }
    }
}
