//! Locks of a forked child.

use std::sync::{Mutex, TryLockError};

/// Puts a new lock in the place of one whose holder may be gone. What the old one held is leaked.
///
/// # Safety
/// No other thread uses the lock: in a forked child that has had no session of its own.
pub unsafe fn renew<T>(lock: &'static Mutex<T>, value: T) {
    let place = std::ptr::from_ref(lock).cast_mut();
    // SAFETY: a mutex is made of cells that may be changed behind a shared reference, and nobody else looks at it.
    unsafe { place.write(Mutex::new(value)) };
}

/// As [`renew`], but keeps what a lock that nobody held has.
///
/// # Safety
/// As [`renew`].
pub unsafe fn renew_if_held<T>(lock: &'static Mutex<T>, value: T) {
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
