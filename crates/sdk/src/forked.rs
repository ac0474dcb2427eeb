//! A child that was forked while this library was in its parent.
//!
//! It has our code, our memory as it was at that moment, and the hooks in its own copy of the runtimes' tables; it has no thread of
//! ours. The hooks pass everything on there (the word that says otherwise is wiped by the fork, see [`crate::probe`]). Before the
//! child's own first session everything that a lost thread may have left half done is begun anew: locks that it held, lists that it
//! was changing, slots of threads that are gone. What such a list held is left where it is, for who knows in what state it is.
//!
//! What is kept are facts of the process that are one word each: what a slot held before ours, numbers that are used once.

use crate::{
    agents, callback_thread, callbacks, code_object, collect, copies, current, external, install,
    local, markers, only, probe, queue, runtimes, setting, state, symbols, threads,
};
use std::sync::{Mutex, TryLockError};

/// Makes ready for a first session of a forked child; does nothing in a process that no attacher has forked away from. On our own
/// thread, before anything else.
pub fn begin_anew() {
    if !probe::is_forked() {
        return;
    }
    // Before all others: whoever is asked from here on finds that no session is on.
    install::begin_anew(collect::was_collecting());
    collect::begin_anew();
    current::begin_anew();
    local::begin_anew();
    only::begin_anew();
    state::begin_anew();
    setting::begin_anew();
    external::begin_anew();
    callback_thread::begin_anew();
    code_object::begin_anew();
    symbols::begin_anew();
    runtimes::begin_anew();
    agents::begin_anew();
    callbacks::begin_anew();
    markers::begin_anew();
    copies::begin_anew();
    queue::state::begin_anew();
    queue::pool::POOL.begin_anew();
    // Last: a thread that comes now gets a slot of the child's own.
    if threads::begin_anew() {
        probe::is_ours();
    }
}

/// Puts a new lock in the place of one whose holder may be gone. What the old one held is leaked.
///
/// # Safety
/// No other thread uses the lock: in a forked child that has had no session of its own.
pub(crate) unsafe fn renew<T>(lock: &'static Mutex<T>, value: T) {
    let place = std::ptr::from_ref(lock).cast_mut();
    // SAFETY: a mutex is made of cells that may be changed behind a shared reference, and nobody else looks at it.
    unsafe { place.write(Mutex::new(value)) };
}

/// As [`renew`], but keeps what a lock that nobody held has.
///
/// # Safety
/// As [`renew`].
pub(crate) unsafe fn renew_if_held<T>(lock: &'static Mutex<T>, value: T) {
    let held = matches!(lock.try_lock(), Err(TryLockError::WouldBlock));
    if held {
        // SAFETY: the caller's promise.
        unsafe { renew(lock, value) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_whose_holder_is_gone_is_free_again() {
        static LOCK: Mutex<Vec<u32>> = Mutex::new(Vec::new());
        LOCK.lock().unwrap().push(1);
        // SAFETY: no other thread uses it.
        unsafe { renew_if_held(&LOCK, Vec::new()) };
        assert_eq!(*LOCK.lock().unwrap(), [1]);
        std::mem::forget(LOCK.lock().unwrap());
        // SAFETY: as above.
        unsafe { renew_if_held(&LOCK, vec![2]) };
        assert_eq!(*LOCK.lock().unwrap(), [2]);
    }
}
