//! Which thread does a piece of work at the moment. What is done in a helper process ([`crate::in_helper_process()`]) or traces
//! ([`crate::trace`]) runs on other threads than the one that was asked for it, and that one only
//! waits meanwhile. Whoever has a deadline for the work looks at the thread that does it.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::Relaxed};

use crate::{Tid, own_tid};

thread_local! {
    /// The work of the calling thread, if another thread follows it.
    static FOLLOWED: RefCell<Option<Progress>> = const { RefCell::new(None) };
}

/// A piece of work that another thread follows.
#[derive(Debug, Clone, Default)]
pub struct Progress(Arc<State>);

#[derive(Debug, Default)]
struct State {
    tid: AtomicI32,
    given_up: AtomicBool,
}

impl Progress {
    /// Does `work` on the calling thread, which is the first to do it.
    pub fn follow<T>(&self, work: impl FnOnce() -> T) -> T {
        let before = FOLLOWED.replace(Some(self.clone()));
        here();
        let done = work();
        FOLLOWED.replace(before);
        done
    }

    /// The thread that does the work now. `None` before it starts.
    #[must_use]
    pub fn tid(&self) -> Option<Tid> {
        Tid::try_from(self.0.tid.load(Relaxed)).ok()
    }

    /// Ends the wait for the work. From now on it starts to trace no thread.
    pub fn give_up(&self) {
        self.0.given_up.store(true, Relaxed);
    }
}

/// The calling thread is the one that goes on with the work.
pub(crate) fn here() {
    FOLLOWED.with_borrow(|followed| {
        if let Some(progress) = followed {
            progress.0.tid.store(own_tid().raw(), Relaxed);
        }
    });
}

/// Whether the wait for the calling thread's work has ended.
pub(crate) fn is_given_up() -> bool {
    FOLLOWED.with_borrow(|followed| {
        followed
            .as_ref()
            .is_some_and(|progress| progress.0.given_up.load(Relaxed))
    })
}

/// The work of the calling thread, for one that it starts.
pub(crate) fn current() -> Option<Progress> {
    FOLLOWED.with_borrow(Clone::clone)
}

/// Makes the calling thread, which has just started, one that does this work.
pub(crate) fn adopt(work: Option<Progress>) {
    FOLLOWED.replace(work);
    here();
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests may panic")]

    use super::*;
    use crate::{Error, Seized, in_helper_process, trace};

    fn first() -> Tid {
        Tid::new(1).unwrap()
    }

    #[test]
    fn the_thread_that_works_is_known_wherever_it_works() {
        let progress = Progress::default();
        assert_eq!(progress.tid(), None);
        let own = own_tid();
        progress.follow(|| {
            assert_eq!(progress.tid(), Some(own));
            let there = in_helper_process(first(), || (progress.tid(), own_tid()));
            assert_eq!(there.0, Some(there.1));
            assert_eq!(progress.tid(), Some(own));
            let there = trace(first(), || (progress.tid(), own_tid())).unwrap();
            assert_eq!(there.0, Some(there.1));
            assert_ne!(there.1, own);
            assert_eq!(progress.tid(), Some(own));
        });
        let there = in_helper_process(first(), own_tid);
        assert!(there != own && progress.tid() == Some(own), "it is over");
    }

    #[test]
    fn what_was_given_up_traces_no_thread() {
        let progress = Progress::default();
        progress.give_up();
        let tried = progress.follow(|| trace(first(), || Seized::seize(own_tid(), false).err()));
        let error = tried.unwrap().unwrap();
        assert!(matches!(error, Error::TimedOut { .. }), "{error}");
    }
}
