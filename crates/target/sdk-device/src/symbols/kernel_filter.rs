//! Decides which kernels the session counts. The tool is asked once for each kernel, with the name
//! of its symbol, on the worker thread.
//!
//! Here names decide before anything is counted. What goes into the files is decided again from the
//! records, by the same expressions (`midair_output::KernelFilter`).

use super::{known, set_changed};

pub use super::executables::{KernelChoice, Takes};

use crate::state::STATE;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often a thread that does not wait tries the lock.
const TRIES: u32 = 64;

fn place() -> MutexGuard<'static, Option<Arc<KernelChoice>>> {
    let choice = &STATE.symbols.choice;
    choice.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets what the next recording counts; `None` means every dispatch. Called on the worker thread
/// before the recording starts.
pub fn set_kernel_choice(choice: Option<KernelChoice>) {
    *place() = choice.map(Arc::new);
}

/// Returns the session's choice, if it does not count every dispatch.
pub(crate) fn kernel_choice() -> Option<Arc<KernelChoice>> {
    place().clone()
}

/// Asks the tool whether a kernel that was recorded just now is chosen. On the worker thread.
pub(super) fn judge(kernel_object: u64, symbol: &[u8]) {
    if let Some(choice) = kernel_choice() {
        let is_chosen = choice.has(symbol);
        if let Some(book) = known().as_mut() {
            book.chosen.insert(kernel_object, is_chosen);
        }
    }
}

/// Returns whether a kernel is chosen, if there is a choice. `None` means that it is not known yet.
pub(crate) fn is_chosen(kernel_object: u64) -> Option<bool> {
    known().as_ref()?.chosen.get(&kernel_object).copied()
}

/// The same for a thread of the application, which does not wait, but tries a few times.
pub(crate) fn is_chosen_now(kernel_object: u64) -> Option<bool> {
    let known = (0..TRIES).find_map(|_| {
        let known = STATE.symbols.known.try_lock().ok();
        if known.is_none() {
            std::hint::spin_loop();
        }
        known
    })?;
    known.as_ref()?.chosen.get(&kernel_object).copied()
}

/// The same for a thread of the application, together with the kernel's number. If the kernel was
/// loaded a moment ago, the thread waits for up to `limit` until the worker thread has learned it.
pub(crate) fn is_chosen_within(kernel_object: u64, limit: Duration) -> Option<(u64, bool)> {
    let end = Instant::now() + limit;
    loop {
        if let Ok(known) = STATE.symbols.known.try_lock()
            && let Some(book) = known.as_ref()
            && let Some(is_chosen) = book.chosen.get(&kernel_object)
        {
            let id = book.kernels.get(&kernel_object).copied().unwrap_or(0);
            return Some((id, *is_chosen));
        }
        if Instant::now() >= end {
            return None;
        }
        set_changed();
        std::thread::sleep(Duration::from_micros(200));
    }
}
