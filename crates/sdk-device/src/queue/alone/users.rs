//! Who counts every dispatch.

use super::prepared::Prepared;
use super::user::{Dispatch, User};
use crate::state::STATE;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, PoisonError};

/// Adds a user. From then on queues are made so that dispatches can be counted: call it before the
/// application makes its first. A user is asked in the order in which it came, and the first that
/// chooses counters for a dispatch has it. False when there are too many.
pub fn add_user(user: &'static dyn User) -> bool {
    let mut users = STATE
        .alone
        .users
        .write()
        .unwrap_or_else(PoisonError::into_inner);
    let same = |known: &&'static dyn User| std::ptr::addr_eq(*known, user);
    let is_known = users.iter().flatten().any(same);
    let free = users.iter_mut().find(|place| place.is_none());
    let added = match free {
        _ if is_known => true,
        Some(place) => {
            *place = Some(user);
            true
        }
        None => false,
    };
    if added {
        STATE.alone.asked.store(true, Release);
    }
    added
}

/// Whether anybody wants to count every dispatch in this process.
pub fn is_asked() -> bool {
    STATE.alone.asked.load(Acquire)
}

/// Asks the users for a dispatch: which of them chose, and what.
pub(super) fn choose(dispatch: &Dispatch) -> Option<(usize, Arc<Prepared>, u64)> {
    // Copied: a user's function may take its time.
    let users = *STATE
        .alone
        .users
        .read()
        .unwrap_or_else(PoisonError::into_inner);
    users.into_iter().enumerate().find_map(|(number, user)| {
        let choice = user?.choose(dispatch);
        let counters = choice
            .counters
            .filter(|counters| counters.agent() == dispatch.agent)?;
        Some((number, counters, choice.data))
    })
}
