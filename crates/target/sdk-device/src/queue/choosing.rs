//! The interface of tools in the process that choose dispatches, and the state about them that the
//! application's threads and the worker thread share ([`super::windows::tool_requests`]).

use super::serialized::user::Dispatch;
use midair_record::counter_plan::Group;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The largest number of lists of an agent.
pub(crate) const LISTS: usize = 16;

/// A list of counters on an agent: the handles of both.
pub(crate) type ListOn = (u64, u64);

/// What became of a dispatch that was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate<'a> {
    /// It was counted, and nothing else was counted with it. The values are the list, the output,
    /// and the start and end of the kernel on the records' clock.
    Counted(u64, &'a [u64], (u64, u64)),
    /// It had no window.
    NoWindow,
    /// Something else ran or may have run at the same time, or its window was not read.
    NotAlone,
}

/// Code that chooses dispatches and receives their values. It lives as long as the process.
pub trait Chooser: std::fmt::Debug + Sync {
    /// Returns the list of counters that are wanted for a dispatch, whose doorbell is about to be
    /// rung. It is called on the thread that rings, outside of anything that the end of a session
    /// waits for, so it may call a tool.
    fn choose(&self, dispatch: &Dispatch) -> Option<u64>;

    /// Returns the counter group with which the device counts a list on an agent, or `None` if it
    /// cannot be counted. It is called on the worker thread, once for each list and agent.
    fn group(&self, list: u64, agent: u64) -> Option<Group>;

    /// Receives the fate of a dispatch that has ended. It is called on the worker thread, for every
    /// dispatch, whether chosen or not.
    fn ended(&self, dispatch: u64, fate: Fate<'_>);
}

/// The state that the application's threads and the worker thread share.
#[derive(Debug)]
pub(crate) struct Choosing {
    /// Whether a session serves the chooser.
    pub is_on: AtomicBool,
    pub user: Mutex<Option<&'static dyn Chooser>>,
    /// The lists that were chosen; `None` before the first.
    wishes: Mutex<Option<Box<Wishes>>>,
}

/// The lists that tools have chosen.
#[derive(Debug, Default)]
pub(crate) struct Wishes {
    /// All lists of the session.
    pub known: Vec<ListOn>,
    /// The lists that the worker thread has not looked at yet.
    pub fresh: Vec<ListOn>,
}

impl Choosing {
    pub(crate) const fn new() -> Choosing {
        Choosing {
            is_on: AtomicBool::new(false),
            user: Mutex::new(None),
            wishes: Mutex::new(None),
        }
    }

    pub fn user(&self) -> Option<&'static dyn Chooser> {
        *self.user.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn wishes(&self) -> MutexGuard<'_, Option<Box<Wishes>>> {
        self.wishes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
