//! Executables that the application is about to destroy.
//!
//! What is destroyed cannot be asked for its name any more, and the next executable may be loaded at the same addresses. So the
//! thread that destroys one waits until our thread has written what ended so far, told the executable's kernels, and taken
//! them out of the book. The wait is bounded: after it the program goes on, and at worst kernels of it have no name.
//!
//! Nor may one be destroyed while our thread asks the runtime about it: the runtime takes any handle for one of a live executable. Our
//! thread says that it looks before it looks at the slots; the other one gives up its slot before it looks whether we look. So
//! one of them sees the other. (The runtime's own lock does not help: its queries, made inside its list, wait for threads that
//! are loading and wait for that list.)

use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::time::{Duration, Instant};

/// Longest wait of the application's thread for names.
const LIMIT: Duration = Duration::from_millis(100);
/// Longest wait until our thread has looked. Its look takes as long as a list of executables; only one that gets no processor takes
/// longer.
const LOOK_LIMIT: Duration = Duration::from_secs(2);
/// How many may be destroyed at one time and be seen.
const SLOTS: usize = 64;

/// States of a slot.
mod state {
    pub const FREE: u32 = 0;
    pub const CLAIMED: u32 = 1;
    /// Our thread is asked to tell its kernels.
    pub const ASKED: u32 = 2;
    /// The executable may be gone at any moment, and is not looked at again.
    pub const SEEN: u32 = 3;
}

struct Slot {
    executable: AtomicU64,
    state: AtomicU32,
}

static LEAVING: [Slot; SLOTS] = [const {
    Slot {
        executable: AtomicU64::new(0),
        state: AtomicU32::new(state::FREE),
    }
}; SLOTS];

static LOOKING: AtomicBool = AtomicBool::new(false);

/// Our thread looks at executables, until this is dropped.
#[derive(Debug)]
pub struct Looking(());

impl Looking {
    /// Begins. Ask [`has_left`] only after this.
    pub fn begin() -> Looking {
        LOOKING.store(true, SeqCst);
        Looking(())
    }
}

impl Drop for Looking {
    fn drop(&mut self) {
        LOOKING.store(false, SeqCst);
    }
}

/// An executable that is being destroyed, until this is dropped.
#[derive(Debug)]
pub struct Leaving {
    slot: Option<usize>,
}

impl Leaving {
    /// Announces it and waits until our thread has seen that, within a limit. `wake` asks our thread to look and tells whether
    /// one is there; it is asked again and again.
    pub fn announce(executable: u64, wake: impl Fn() -> bool) -> Leaving {
        let slot = LEAVING.iter().position(|slot| {
            slot.state
                .compare_exchange(state::FREE, state::CLAIMED, SeqCst, SeqCst)
                .is_ok()
        });
        if let Some(slot) = slot.and_then(|index| LEAVING.get(index)) {
            slot.executable.store(executable, SeqCst);
            slot.state.store(state::ASKED, SeqCst);
            wait_while(LIMIT, || wake() && slot.state.load(SeqCst) == state::ASKED);
            slot.state.store(state::SEEN, SeqCst);
        }
        wait_while(LOOK_LIMIT, || wake() && LOOKING.load(SeqCst));
        Leaving { slot }
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
        if let Some(slot) = self.slot.and_then(|index| LEAVING.get(index)) {
            slot.state.store(state::FREE, SeqCst);
        }
    }
}

/// Whether any waits to be seen.
pub fn any() -> bool {
    LEAVING
        .iter()
        .any(|slot| slot.state.load(SeqCst) == state::ASKED)
}

/// Whether our thread has seen that this one leaves.
pub fn has_left(executable: u64) -> bool {
    LEAVING.iter().any(|slot| {
        slot.state.load(SeqCst) == state::SEEN && slot.executable.load(SeqCst) == executable
    })
}

/// Whether this one waits to be seen.
pub fn is_asked(executable: u64) -> bool {
    LEAVING.iter().any(|slot| {
        slot.state.load(SeqCst) == state::ASKED && slot.executable.load(SeqCst) == executable
    })
}

/// Our thread has seen it: the thread that destroys it goes on.
pub fn see(executable: u64) {
    see_if(|leaving| leaving == executable);
}

/// Lets all go on.
pub fn see_all() {
    see_if(|_| true);
}

fn see_if(wanted: impl Fn(u64) -> bool) {
    for slot in &LEAVING {
        if slot.state.load(SeqCst) == state::ASKED && wanted(slot.executable.load(SeqCst)) {
            // A thread whose patience was over has freed it meanwhile, or another took it: then it is not ours to change.
            let _ = slot
                .state
                .compare_exchange(state::ASKED, state::SEEN, SeqCst, SeqCst);
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
