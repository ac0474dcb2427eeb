//! What tools and contexts ask of the collecting side. The lock is never held while a tool's function runs, and only the agent
//! takes it: other threads leave a request.

use crate::collect::{self, Collection, Left};
use crate::collector::Collector;
use std::ffi::CStr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Mutex, MutexGuard, PoisonError};

static COLLECTION: Mutex<Option<Collection>> = Mutex::new(None);
static DEADLINE: AtomicU64 = AtomicU64::new(0);
/// The agent is inside [`with`]: a function of a tool that it calls there may ask for contexts.
static INSIDE: AtomicBool = AtomicBool::new(false);
static HELD: AtomicBool = AtomicBool::new(false);
static COMPLAINT: Mutex<Option<String>> = Mutex::new(None);

/// Runs `act` on the collection. On the agent only.
pub fn with<T>(act: impl FnOnce(&mut Collection) -> T) -> T {
    let mut guard: MutexGuard<'_, Option<Collection>> =
        COLLECTION.lock().unwrap_or_else(PoisonError::into_inner);
    INSIDE.store(true, Relaxed);
    let result = act(guard.get_or_insert_with(Collection::default));
    INSIDE.store(false, Relaxed);
    result
}

/// How long the device may go on after the contexts are stopped.
pub fn set_deadline(deadline: u64) {
    DEADLINE.store(deadline, Relaxed);
}

/// While held, [`apply`] leaves everything as it is.
pub fn hold(held: bool) {
    HELD.store(held, Relaxed);
}

/// What went wrong in [`apply`], once.
pub fn take_complaint() -> Option<String> {
    COMPLAINT
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take()
}

/// The functions for [`crate::collector`].
pub const COLLECTOR: Collector = Collector { apply, adopt, note };

fn apply() {
    if !collect::is_agent() {
        crate::local::contexts_changed();
        return;
    }
    if HELD.load(Relaxed) {
        return;
    }
    if INSIDE.load(Relaxed) {
        // Served in the next round.
        collect::ask_later();
        return;
    }
    let result = with(|collection| {
        if crate::context::wanted().is_empty() {
            let left = collection.stop(DEADLINE.load(Relaxed).max(crate::clock::now()));
            collection.memory_kept |= left == Left::Memory;
            Ok(())
        } else {
            collection.apply()
        }
    });
    if let Err(why) = result {
        *COMPLAINT.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
    }
}

/// Tables that a register library hands over are those that [`crate::tables`] finds by itself: the live ones. They are hooked
/// when this returns, so that not even the runtime's first call goes by unseen.
fn adopt(name: &CStr, version: u64, instance: u64, tables: &[usize]) -> bool {
    if let (b"hsa", Some(root)) = (name.to_bytes(), tables.first()) {
        crate::tables::tools::handed_over(*root);
    }
    crate::runtimes::handed_over(name, version, instance);
    if !collect::is_agent() {
        crate::local::runtime_is_here(name == c"hsa");
    }
    true
}

fn note(text: &str) {
    if collect::is_agent() {
        with(|collection| collection.note(text));
    }
}

/// See [`crate::forked`].
pub(crate) fn begin_anew() {
    // SAFETY: in a forked child before its first session: the only thread that uses it.
    unsafe { crate::forked::renew(&COLLECTION, None) };
    // SAFETY: in a forked child before its first session: the only thread that uses it.
    unsafe { crate::forked::renew(&COMPLAINT, None) };
    DEADLINE.store(0, Relaxed);
    INSIDE.store(false, Relaxed);
    HELD.store(false, Relaxed);
}
