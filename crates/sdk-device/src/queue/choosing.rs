//! Tools in the process that choose dispatches: what they are told, and what the application's threads
//! and the worker thread share of it ([`super::windows::chosen`]).

use super::alone::user::Dispatch;
use midair_record::counter_plan::Group;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Lists of an agent at most.
pub(crate) const LISTS: usize = 16;

/// A list of counters on an agent, by their handles.
pub(crate) type ListOn = (u64, u64);

/// What became of a dispatch that was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate<'a> {
    /// It was counted, and nothing else was: with which list, the output, and start and end of the
    /// kernel on the records' clock.
    Counted(u64, &'a [u64], (u64, u64)),
    /// It had no window.
    NoWindow,
    /// Something else ran beside it, or may have, or its window was not read.
    NotAlone,
}

/// Who chooses dispatches and receives values. Lives as long as the process.
pub trait Chooser: std::fmt::Debug + Sync {
    /// A dispatch is about to be rung, on the thread that rings: outside of anything that a session's
    /// end waits for, so it may call a tool. Returns the list of counters that are wanted.
    fn choose(&self, dispatch: &Dispatch) -> Option<u64>;

    /// What the device is told to count a list on an agent. On the worker thread, once for each.
    /// None: it cannot be counted.
    fn group(&self, list: u64, agent: u64) -> Option<Group>;

    /// A dispatch has ended. On the worker thread, for all of them, whether chosen or not.
    fn ended(&self, dispatch: u64, fate: Fate<'_>);
}

/// What the application's threads and the worker thread share.
#[derive(Debug)]
pub(crate) struct Choosing {
    /// A session serves it.
    pub is_on: AtomicBool,
    pub user: Mutex<Option<&'static dyn Chooser>>,
    /// None before the first.
    wishes: Mutex<Option<Box<Wishes>>>,
}

/// Lists that tools have chosen.
#[derive(Debug, Default)]
pub(crate) struct Wishes {
    /// All of the session.
    pub known: Vec<ListOn>,
    /// Those that are not looked at yet.
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
