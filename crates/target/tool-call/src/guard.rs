//! The calls of tools' functions that the calling thread is in, the innermost first.
//!
//! They are stored under a pthread key, for the same reasons as the thread slots of
//! `midair-sdk-hot`.

use crate::{Lent, arch};
use std::ffi::c_void;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

/// How many ranges of lent memory one call can have.
const MOST_LENT: usize = 4;

/// The key; `u32::MAX` until it is created.
static KEY: AtomicU32 = AtomicU32::new(u32::MAX);

/// One call, on the stack of its caller.
#[derive(Debug)]
pub(crate) struct Guard {
    stack_pointer: usize,
    outer: *mut Guard,
    lent: [(usize, usize); MOST_LENT],
    left: Option<(&'static str, i32)>,
}

fn key() -> Option<libc::pthread_key_t> {
    let known = KEY.load(Acquire);
    if known != u32::MAX {
        return Some(known);
    }
    let mut made = 0;
    // SAFETY: the out pointer is valid, and there is no destructor.
    if unsafe { libc::pthread_key_create(&mut made, None) } != 0 {
        return None;
    }
    match KEY.compare_exchange(u32::MAX, made, AcqRel, Acquire) {
        Ok(_) => Some(made),
        Err(other) => {
            // SAFETY: the key was just created, and nothing else knows it.
            unsafe { libc::pthread_key_delete(made) };
            Some(other)
        }
    }
}

impl Guard {
    pub(crate) fn new(lent: &[Lent]) -> Guard {
        let mut ranges = [(0, 0); MOST_LENT];
        for (range, (base, bytes)) in ranges.iter_mut().zip(lent) {
            *range = (base.addr(), *bytes);
        }
        Guard {
            stack_pointer: 0,
            outer: std::ptr::null_mut(),
            lent: ranges,
            left: None,
        }
    }

    /// Returns where the catching frame stores its stack pointer.
    pub(crate) fn stack_pointer(&mut self) -> *mut usize {
        &raw mut self.stack_pointer
    }

    /// Makes this the innermost call. Returns what [`Guard::exit`] needs.
    pub(crate) fn enter(&mut self) -> *mut Guard {
        let Some(key) = key() else {
            return std::ptr::null_mut();
        };
        // SAFETY: the key was created and is never deleted.
        let outer = unsafe { libc::pthread_getspecific(key) }.cast::<Guard>();
        self.outer = outer;
        // SAFETY: as above; only this thread reads the value.
        unsafe { libc::pthread_setspecific(key, (&raw mut *self).cast()) };
        outer
    }

    /// Ends the call.
    pub(crate) fn exit(&mut self, outer: *mut Guard) {
        if let Some(key) = key() {
            // SAFETY: as above.
            unsafe { libc::pthread_setspecific(key, outer.cast()) };
        }
    }

    /// Returns how the function was left, if it was not by an exception.
    pub(crate) fn left(&self) -> Option<(&'static str, i32)> {
        // SAFETY: the pointer is to a field of a live value. The read is volatile because `leave`
        // writes it without the compiler's knowledge.
        unsafe { (&raw const self.left).read_volatile() }
    }
}

/// Returns the innermost call of the calling thread that is still on its stack. A thread that is
/// cancelled leaves its calls without removing them.
fn innermost() -> Option<*mut Guard> {
    let key = Some(KEY.load(Acquire)).filter(|key| *key != u32::MAX)?;
    // SAFETY: the key was created and is never deleted.
    let mut at = unsafe { libc::pthread_getspecific(key) }.cast::<Guard>();
    let here = (&raw const at).addr();
    while !at.is_null() {
        // A call whose frame is below this one on the stack has ended, and its contents are
        // invalid.
        if at.addr() > here {
            return Some(at);
        }
        // SAFETY: the stack of this thread below `here` may be overwritten, but it is mapped. The
        // value only decides which address is compared next, and that address is checked in the
        // same way.
        at = unsafe { (*at).outer };
        if at.addr() <= here {
            return None;
        }
    }
    None
}

/// Whether the calling thread is inside a tool's function.
pub(crate) fn is_inside() -> bool {
    innermost().is_some()
}

/// Whether an address is in memory that is lent to a tool's function that the calling thread is in.
pub(crate) fn is_lent(address: usize) -> bool {
    let mut at = innermost().unwrap_or(std::ptr::null_mut());
    while !at.is_null() {
        // SAFETY: the call is on this thread's stack, and so are the calls outside it.
        let guard = unsafe { &*at };
        if guard
            .lent
            .iter()
            .any(|(base, bytes)| address.wrapping_sub(*base) < *bytes)
        {
            return true;
        }
        at = guard.outer;
    }
    false
}

/// Leaves the innermost call, whose caller learns what happened. Returns when there is none.
pub(crate) fn leave(name: &'static str, status: i32) {
    let Some(guard) = innermost() else { return };
    // SAFETY: the call is on this thread's stack, and its caller reads `left` after the jump.
    // Between there and here are only frames of the tool, and of our functions that the tool
    // called. These hold no locks when they call a tool.
    unsafe {
        (&raw mut (*guard).left).write_volatile(Some((name, status)));
        let pointer = (*guard).stack_pointer;
        arch::leave(pointer, std::ptr::without_provenance_mut::<c_void>(1));
    }
}
