//! The list of users, which count every dispatch.

use super::prepared::Prepared;
use super::user::{Dispatch, User};
use crate::state::STATE;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, PoisonError};

/// Adds a user. From then on queues are made so that their dispatches can be counted, so call it
/// before the application makes its first queue. Users are asked in the order in which they were
/// added, and the first that chooses counters for a dispatch gets it. Returns false if there are
/// too many users.
pub fn add_user(user: &'static dyn User) -> bool {
    let mut users = STATE
        .serialized
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
        STATE.serialized.asked.store(true, Release);
    }
    added
}

/// Returns whether there is a user that counts every dispatch in this process.
pub fn is_asked() -> bool {
    STATE.serialized.asked.load(Acquire)
}

/// Asks the users about a dispatch. Returns which of them chose, its counters, and its data.
pub(super) fn choose(dispatch: &Dispatch) -> Option<(usize, Arc<Prepared>, u64)> {
    // Copy the list, so that no lock is held while a user's function runs, which may take long.
    let users = *STATE
        .serialized
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
