//! Executables that the application is about to destroy.
//!
//! The names of a destroyed executable's kernels cannot be queried any more, and the next
//! executable may be loaded at the same addresses. So the thread that destroys an executable waits
//! until the worker thread has written what ended so far, recorded the executable's kernels, and
//! taken them out of its tables. The wait is bounded. After it the program goes on, and at worst
//! kernels of the executable have no name.
//!
//! Nor may an executable be destroyed while the worker thread asks the runtime about it: the
//! runtime takes any handle for a live executable's. The worker thread stores `looking`
//! before it reads the slots; the other thread marks its slot as seen before it reads `looking`.
//! Both accesses are sequentially consistent, so at least one thread sees the other. (The runtime's
//! own lock does not help: its queries, made inside its list, wait for threads that are loading and
//! wait for that list.)

use super::executables::Stage;
use crate::state::STATE;
use midair_lockfree::{AtomicEnum, Slot};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

/// The longest wait of the application's thread for names.
const LIMIT: Duration = Duration::from_millis(100);
/// The longest wait until the worker thread has read the list of executables. That takes longer
/// only if the worker thread is not scheduled.
const LOOK_LIMIT: Duration = Duration::from_secs(2);
/// An executable's handle, in a slot whose word is its stage.
type Entry = Slot<AtomicEnum<Stage>, AtomicU64>;

/// Marks that the worker thread looks at executables, until this is dropped.
#[derive(Debug)]
pub struct Looking(());

impl Looking {
    /// Starts to look. Call [`has_left`] only after this.
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
    /// Announces the executable and waits, within a limit, until the worker thread has seen that.
    /// `wake` asks the worker thread to look and returns whether there is one. It is called
    /// repeatedly.
    pub fn announce(executable: u64, wake: impl Fn() -> bool) -> Leaving {
        let entry = STATE.symbols.leaving.claim().and_then(|(index, claimed)| {
            claimed.shared().store(executable, SeqCst);
            claimed.publish(Stage::Requested);
            STATE.symbols.leaving.get(index)
        });
        if let Some(entry) = entry {
            wait_while(LIMIT, || {
                wake() && entry.word().load(SeqCst) == Stage::Requested
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

/// Returns whether any slot has this stage and a wanted executable. It looks at all slots, since
/// the mark of those that were ever claimed is not sequentially consistent.
fn is_any(stage: Stage, wanted: impl Fn(u64) -> bool) -> bool {
    STATE
        .symbols
        .leaving
        .slots()
        .iter()
        .any(|entry| entry.word().load(SeqCst) == stage && wanted(entry.shared().load(SeqCst)))
}

/// Returns the executables that wait to be seen.
pub fn asked() -> Vec<u64> {
    let slots = STATE.symbols.leaving.slots().iter();
    slots
        .filter(|entry| entry.word().load(SeqCst) == Stage::Requested)
        .map(|entry| entry.shared().load(SeqCst))
        .collect()
}

/// Returns whether this executable is being destroyed and must not be looked at any more.
pub fn has_left(executable: u64) -> bool {
    is_any(Stage::Seen, |leaving| leaving == executable)
}

/// Marks an executable as seen, so that the thread that destroys it goes on.
pub fn see(executable: u64) {
    for entry in STATE.symbols.leaving.slots() {
        if entry.word().load(SeqCst) == Stage::Requested
            && entry.shared().load(SeqCst) == executable
        {
            // If this fails, a thread whose wait was over has freed the slot meanwhile, or another
            // thread has taken it. Then it is not ours to change.
            let _ = entry
                .word()
                .compare_exchange(Stage::Requested, Stage::Seen, SeqCst, SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_until_it_is_seen_and_not_for_ever() {
        // There is no worker thread, so there is no wait.
        let began = Instant::now();
        drop(Leaving::announce(7, || false));
        // There is a worker thread, but it does not look: the wait ends.
        let leaving = Leaving::announce(8, || true);
        assert!(began.elapsed() >= LIMIT);
        assert!(asked().is_empty() && has_left(8));
        drop(leaving);
        // While the worker thread looks, the other thread waits.
        let looking = std::cell::Cell::new(Some(Looking::begin()));
        let calls = std::cell::Cell::new(0);
        drop(Leaving::announce(8, || {
            see(8);
            calls.set(calls.get() + 1);
            if calls.get() == 5 {
                looking.take();
            }
            true
        }));
        assert!(calls.get() >= 5);
        // The worker thread looks.
        let first = std::cell::Cell::new(true);
        let leaving = Leaving::announce(9, || {
            if first.replace(false) {
                assert_eq!(asked(), [9]);
            }
            see(9);
            true
        });
        assert!(has_left(9) && !has_left(8) && asked().is_empty());
        drop(leaving);
        assert!(!has_left(9));
    }
}
