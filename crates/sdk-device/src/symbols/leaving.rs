//! Executables that the application is about to destroy.
//!
//! What is destroyed cannot be asked for its name any more, and the next executable may be loaded
//! at the same addresses. So the thread that destroys one waits until the worker thread has written
//! what ended so far, told the executable's kernels, and taken them out of its tables. The wait is
//! bounded: after it the program goes on, and at worst kernels of it have no name.
//!
//! Nor may one be destroyed while the worker thread asks the runtime about it: the runtime takes
//! any handle for one of a live executable. The worker thread stores `looking` before it reads the
//! slots; the other thread marks its slot as seen before it reads `looking`. Both are sequentially
//! consistent, so one of them sees the other. (The runtime's own lock does not help: its queries,
//! made inside its list, wait for threads that are loading and wait for that list.)

use super::known::Stage;
use crate::state::STATE;
use midair_lockfree::{AtomicEnum, Slot};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

/// Longest wait of the application's thread for names.
const LIMIT: Duration = Duration::from_millis(100);
/// Longest wait until the worker thread has read the list of executables. That takes longer only
/// where the thread gets no processor.
const LOOK_LIMIT: Duration = Duration::from_secs(2);
/// An executable's handle, in a slot that tells how far it is.
type Entry = Slot<AtomicEnum<Stage>, AtomicU64>;

/// The worker thread looks at executables, until this is dropped.
#[derive(Debug)]
pub struct Looking(());

impl Looking {
    /// Begins. Ask [`has_left`] only after this.
    pub fn begin() -> Looking {
        STATE.symbols.looking.store(true, SeqCst);
        Looking(())
    }
}

impl Drop for Looking {
    fn drop(&mut self) {
        STATE.symbols.looking.store(false, SeqCst);
    }
}

/// An executable that is being destroyed, until this is dropped.
#[derive(Debug)]
pub struct Leaving {
    entry: Option<&'static Entry>,
}

impl Leaving {
    /// Announces it and waits until the worker thread has seen that, within a limit. `wake` asks
    /// the worker thread to look and tells whether one is there; it is asked again and again.
    pub fn announce(executable: u64, wake: impl Fn() -> bool) -> Leaving {
        let entry = STATE.symbols.leaving.claim().and_then(|(index, claimed)| {
            claimed.shared().store(executable, SeqCst);
            claimed.publish(Stage::Asked);
            STATE.symbols.leaving.get(index)
        });
        if let Some(entry) = entry {
            wait_while(LIMIT, || {
                wake() && entry.word().load(SeqCst) == Stage::Asked
            });
            // Sequentially consistent, and before `looking` is read: see the module's description.
            entry.word().store(Stage::Seen, SeqCst);
        }
        wait_while(LOOK_LIMIT, || wake() && STATE.symbols.looking.load(SeqCst));
        Leaving { entry }
    }
}

fn wait_while(limit: Duration, mut waits: impl FnMut() -> bool) {
    let end = Instant::now() + limit;
    while waits() && Instant::now() < end {
        std::thread::sleep(Duration::from_micros(100));
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        if let Some(entry) = self.entry {
            entry.word().store(Stage::Free, SeqCst);
        }
    }
}

/// Looks at all slots: the mark of those that were ever claimed is not sequentially consistent.
fn is_any(stage: Stage, wanted: impl Fn(u64) -> bool) -> bool {
    STATE
        .symbols
        .leaving
        .slots()
        .iter()
        .any(|entry| entry.word().load(SeqCst) == stage && wanted(entry.shared().load(SeqCst)))
}

/// Whether any waits to be seen.
pub fn any() -> bool {
    is_any(Stage::Asked, |_| true)
}

/// Whether the worker thread has seen that this one leaves.
pub fn has_left(executable: u64) -> bool {
    is_any(Stage::Seen, |leaving| leaving == executable)
}

/// Whether this one waits to be seen.
pub fn is_asked(executable: u64) -> bool {
    is_any(Stage::Asked, |leaving| leaving == executable)
}

/// The worker thread has seen it: the thread that destroys it goes on.
pub fn see(executable: u64) {
    see_if(|leaving| leaving == executable);
}

/// Lets all go on.
pub fn see_all() {
    see_if(|_| true);
}

fn see_if(wanted: impl Fn(u64) -> bool) {
    for entry in STATE.symbols.leaving.slots() {
        if entry.word().load(SeqCst) == Stage::Asked && wanted(entry.shared().load(SeqCst)) {
            // A thread whose patience was over has freed it meanwhile, or another took it: then it
            // is not ours to change.
            let _ = entry
                .word()
                .compare_exchange(Stage::Asked, Stage::Seen, SeqCst, SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_until_it_is_seen_and_not_for_ever() {
        // Nobody is there: no wait.
        let began = Instant::now();
        drop(Leaving::announce(7, || false));
        // Somebody is there and does not look: the wait ends.
        let leaving = Leaving::announce(8, || true);
        assert!(began.elapsed() >= LIMIT);
        assert!(!any() && has_left(8));
        drop(leaving);
        // While somebody looks, it is waited for.
        let looking = std::cell::Cell::new(Some(Looking::begin()));
        let asked = std::cell::Cell::new(0);
        drop(Leaving::announce(8, || {
            see(8);
            asked.set(asked.get() + 1);
            if asked.get() == 5 {
                looking.take();
            }
            true
        }));
        assert!(asked.get() >= 5);
        // Somebody looks.
        let first = std::cell::Cell::new(true);
        let leaving = Leaving::announce(9, || {
            if first.replace(false) {
                assert!(any() && is_asked(9));
            }
            see(9);
            true
        });
        assert!(has_left(9) && !has_left(8) && !any());
        drop(leaving);
        assert!(!has_left(9));
    }
}
