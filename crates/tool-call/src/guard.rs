//! Which calls of tools' functions the calling thread is in, the innermost first.
//!
//! A pthread key, for the reasons that `midair-sdk-hot`'s thread slots have one.

use crate::{Lent, arch};
use std::ffi::c_void;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

/// Ranges of lent memory that one call can have.
const MOST_LENT: usize = 4;

/// The key, `u32::MAX` until it is made.
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
    // SAFETY: a valid out pointer; no destructor.
    if unsafe { libc::pthread_key_create(&mut made, None) } != 0 {
        return None;
    }
    match KEY.compare_exchange(u32::MAX, made, AcqRel, Acquire) {
        Ok(_) => Some(made),
        Err(other) => {
            // SAFETY: the key just made, which nobody knows.
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

    /// Where the frame that catches stores its stack pointer.
    pub(crate) fn stack_pointer(&mut self) -> *mut usize {
        &raw mut self.stack_pointer
    }

    /// Makes this the innermost call; returns what [`Guard::exit`] needs.
    pub(crate) fn enter(&mut self) -> *mut Guard {
        let Some(key) = key() else {
            return std::ptr::null_mut();
        };
        // SAFETY: a key that was made and is never deleted.
        let outer = unsafe { libc::pthread_getspecific(key) }.cast::<Guard>();
        self.outer = outer;
        // SAFETY: as above; the value is only read by this thread.
        unsafe { libc::pthread_setspecific(key, (&raw mut *self).cast()) };
        outer
    }

    /// The call is over.
    pub(crate) fn exit(&mut self, outer: *mut Guard) {
        if let Some(key) = key() {
            // SAFETY: as above.
            unsafe { libc::pthread_setspecific(key, outer.cast()) };
        }
    }

    /// How the function was left, where that was not by an exception.
    pub(crate) fn left(&self) -> Option<(&'static str, i32)> {
        // SAFETY: a live value; written behind the compiler's back by `leave`.
        unsafe { (&raw const self.left).read_volatile() }
    }
}

/// The innermost call of the calling thread that is still on its stack: a thread that is cancelled
/// leaves its calls without a word.
fn innermost() -> Option<*mut Guard> {
    let key = Some(KEY.load(Acquire)).filter(|key| *key != u32::MAX)?;
    // SAFETY: a key that was made and is never deleted.
    let mut at = unsafe { libc::pthread_getspecific(key) }.cast::<Guard>();
    let here = (&raw const at).addr();
    while !at.is_null() {
        // A frame that lies deeper than this one is over, and so is what it holds.
        if at.addr() > here {
            return Some(at);
        }
        // SAFETY: the stack of this thread below `here` may be overwritten, but is mapped: the value
        // decides nothing but which address is compared next, and that is checked the same way.
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
        // SAFETY: a call that is on this thread's stack, and those outside it are, too.
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

/// Leaves the innermost call: its caller gets what happened. Returns when there is none.
pub(crate) fn leave(name: &'static str, status: i32) {
    let Some(guard) = innermost() else { return };
    // SAFETY: a call that is on this thread's stack; its caller reads this after the jump. Between
    // it and here are frames of the tool and of our functions that it called, which hold no locks
    // when they call a tool.
    unsafe {
        (&raw mut (*guard).left).write_volatile(Some((name, status)));
        let pointer = (*guard).stack_pointer;
        arch::leave(pointer, std::ptr::without_provenance_mut::<c_void>(1));
    }
}
