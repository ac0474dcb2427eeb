//! The capabilities that the program's file adds to its user's rights, made effective for single
//! system calls.
//!
//! In a midair program none of them is effective otherwise (`midair_secure::begin`): whatever else
//! the program does, it does with its user's rights. So only two places use them: this crate, where
//! it traces a thread, accesses its memory or copies its descriptors, and
//! `midair_procinfo::files`, where it reads the kernel's own files of a process. `clippy.toml` keeps
//! others from it.
//!
//! Decisions: ENG-055 (`docs/deviations/engine.md`).

use std::cell::Cell;
use std::marker::PhantomData;

use crate::sys::{self, Capabilities};

thread_local! {
    /// How many values of [`Added`] this thread has.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// How many calls of `with_own_rights` this thread is in: none is made effective there.
    static BARRED: Cell<u32> = const { Cell::new(0) };
}

/// While this lives, the added capabilities are effective in this thread. Only this module makes
/// one, and whoever holds it makes system calls and starts neither a thread nor a process.
struct Added {
    /// Capabilities are a thread's.
    here: PhantomData<*const ()>,
}

impl Added {
    fn begin() -> Option<Added> {
        let permitted = midair_secure::held()?;
        if BARRED.get() != 0 {
            return None;
        }
        if DEPTH.get() == 0 {
            put(permitted, true);
        }
        DEPTH.set(DEPTH.get() + 1);
        Some(Added { here: PhantomData })
    }
}

impl Drop for Added {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
        if DEPTH.get() == 0
            && let Some(permitted) = midair_secure::held()
        {
            put(permitted, false);
        }
    }
}

/// Makes these capabilities effective, or none. Where the kernel refuses the first, a call that
/// needs them fails and says so; it cannot refuse the second.
fn put(permitted: [u32; 2], on: bool) {
    let half = |permitted: u32| Capabilities {
        effective: if on { permitted } else { 0 },
        permitted,
        inheritable: 0,
    };
    let _ = sys::set_capabilities(permitted.map(half));
}

/// Makes system calls with the capabilities that this program's file adds to its user's rights.
/// `calls` starts neither a thread nor a process, and names no file of a user's.
pub(crate) fn with_added<T>(calls: impl FnOnce() -> T) -> T {
    let _added = Added::begin();
    calls()
}

/// The same for `midair_procinfo::files`, which reads the kernel's files of a process. `clippy.toml`
/// keeps all others from it.
pub fn with_added_rights<T>(calls: impl FnOnce() -> T) -> T {
    with_added(calls)
}

/// Keeps [`with_added`] from adding anything in this thread while it lives.
#[derive(Debug)]
pub(crate) struct Barred {
    here: PhantomData<*const ()>,
}

impl Barred {
    pub(crate) fn begin() -> Barred {
        BARRED.set(BARRED.get() + 1);
        Barred { here: PhantomData }
    }
}

impl Drop for Barred {
    fn drop(&mut self) {
        BARRED.set(BARRED.get() - 1);
    }
}

/// The capabilities that this process can make effective beyond those that are: 0 to 63, as bits.
pub fn added_capabilities() -> u64 {
    let [low, high] = midair_secure::held().unwrap_or_default();
    u64::from(high) << 32 | u64::from(low)
}
