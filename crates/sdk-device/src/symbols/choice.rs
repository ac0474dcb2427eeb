//! Which kernels the session counts: a tool is asked once for each, with the name of its symbol, on
//! the worker thread.
//!
//! Names decide here before anything is counted. What is in the files is decided once more from the
//! records, by the same expressions (`midair_output::KernelFilter`).

use super::{known, set_changed};

pub use super::known::{KernelChoice, Takes};

use crate::state::STATE;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

fn place() -> MutexGuard<'static, Option<Arc<KernelChoice>>> {
    let choice = &STATE.symbols.choice;
    choice.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the next recording counts; none: every dispatch. Before it begins, on the worker thread.
pub fn set_kernel_choice(choice: Option<KernelChoice>) {
    *place() = choice.map(Arc::new);
}

/// The session's choice, if it does not count every dispatch.
pub(crate) fn kernel_choice() -> Option<Arc<KernelChoice>> {
    place().clone()
}

/// A kernel was told: asks whether it is chosen. On the worker thread.
pub(super) fn judge(kernel_object: u64, symbol: &[u8]) {
    if let Some(choice) = kernel_choice() {
        let is_chosen = choice.has(symbol);
        if let Some(book) = known().as_mut() {
            book.chosen.insert(kernel_object, is_chosen);
        }
    }
}

/// Whether a kernel is chosen, where there is a choice; none: it is not known yet.
pub(crate) fn is_chosen(kernel_object: u64) -> Option<bool> {
    known().as_ref()?.chosen.get(&kernel_object).copied()
}

/// The same for a thread of the application: a kernel that was loaded a moment ago is learned by the
/// worker thread, which is given `limit` for it. With the kernel's number.
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
